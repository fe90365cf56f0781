"""Regression and classification with one linear model a group, fused where groups agree."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit, softmax

from fusionopt import _checks
from fusionopt._sklearn import (
    BaseEstimator,
    ClassifierMixin,
    ConvergenceWarning,
    RegressorMixin,
    check_classification_targets,
    check_is_fitted,
    validate_data,
)

if TYPE_CHECKING:
    from fusionopt.losses.base import NodeLoss
    from fusionopt.path import PathResult
    from fusionopt.result import Result

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]


class _FusedModel(BaseEstimator):
    """What regression and classification share: groups in, a fusion problem, one coefficient row a group out."""

    lam: float | Literal["auto"]
    ridge: float
    fit_intercept: bool
    n_lams: int
    eps_rel: float
    max_iter: int
    time_limit: float | None

    def _solve(self, loss: NodeLoss) -> Result:
        from fusionopt.path import solution_path
        from fusionopt.problem import FusionProblem
        from fusionopt.settings import AdmmSettings
        from fusionopt.solver import solve

        settings = AdmmSettings(eps_rel=self.eps_rel, max_iter=self.max_iter, time_limit=self.time_limit)
        self.path_: PathResult | None = None
        if isinstance(self.lam, str):
            _checks.check_choice("lam", self.lam, ("auto",))
            path = solution_path(FusionProblem(loss), n_lams=self.n_lams, settings=settings)
            if path.status == "interrupted":
                raise KeyboardInterrupt
            self.path_ = path
            result = path.select("bic")
        else:
            result = solve(FusionProblem(loss, lam=_checks.check_lam(self.lam)), settings)
            if result.status == "interrupted":
                raise KeyboardInterrupt
            if result.has_duals:
                result.keep_duals(result.edge_duals().copy)  # an array pickles; the engine behind it does not
        if result.status not in ("optimal", "stationary"):
            warnings.warn(
                f"The solve did not converge ({result.status}: {result.message}); raise max_iter or time_limit, "
                "give a ridge, or scale the columns.",
                ConvergenceWarning,
                stacklevel=3,
            )
        self.result_ = result
        self.lam_ = float(result.problem.lam)
        self.labels_ = result.labels
        self.n_clusters_ = int(result.n_clusters)
        self.n_iter_ = int(result.n_iter)
        self.dual_gap_ = float(result.gap)
        return result

    def _take_groups(self, groups: ArrayLike | None, n: int) -> IntArray:
        """Codes 0..G-1 of the groups of a fit; sets `groups_` and `group_counts_`."""
        names = np.zeros(n, dtype=np.int64) if groups is None else np.asarray(groups)
        self._check_groups(names, n)
        self.groups_, codes = np.unique(names, return_inverse=True)
        self.group_counts_ = np.bincount(codes)
        return np.asarray(codes, dtype=np.int64)

    @staticmethod
    def _check_groups(names: NDArray[Any], n: int) -> None:
        if names.shape != (n,):
            _checks.refuse(
                f"groups has shape {names.shape}; give one group for each of the {n} rows of X.",
                argument="groups",
                got=names.shape,
                wanted=f"shape ({n},)",
            )

    def _codes(self, groups: ArrayLike | None, n: int) -> IntArray:
        """Codes of the groups of new rows; -1 for groups that were not in the fit."""
        if groups is None:
            return np.full(n, 0 if len(self.groups_) == 1 else -1)
        names = np.asarray(groups)
        self._check_groups(names, n)
        place = np.clip(np.searchsorted(self.groups_, names), 0, len(self.groups_) - 1)
        return np.where(self.groups_[place] == names, place, -1)

    def _mix(self, answers: FloatArray, codes: IntArray) -> FloatArray:
        """(k, ...) from (n_groups, k, ...): the own group's answer; for unknown groups the mean over all groups,
        weighted by their rows."""
        rows = np.arange(len(codes))
        out = answers[np.maximum(codes, 0), rows]
        unknown = codes < 0
        if unknown.any():
            share = self.group_counts_ / self.group_counts_.sum()
            out[unknown] = np.tensordot(share, answers[:, unknown], axes=1)
        return np.asarray(out)

    def _with_ones(self, points: FloatArray) -> FloatArray:
        return np.column_stack([points, np.ones(len(points))]) if self.fit_intercept else points

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "labels_")


class FusedRegression(RegressorMixin, _FusedModel):
    """One linear regression a group, fused: groups with equal models share one exactly.

        minimise  sum_g [ 1/(2 n_g) sum_{s in g} (z_s'x_g - y_s)^2 + ridge/2 ||x_g||^2 ]
                  + lam sum_{g<h} ||x_g - x_h||_2

    Parameters
    ----------
    lam : float or "auto", default "auto"
        Weight of the pair term. "auto" solves a path and takes the lam of the lowest BIC, judged on the refitted
        models of each partition.
    ridge : float >= 0, default 0.0
        On all coefficients, the intercept included.
    fit_intercept : bool, default True
    n_lams : int, default 50
        Values of lam on the path of lam="auto".
    eps_rel : float, default 1e-6
        Relative duality gap at which a solve ends.
    max_iter : int, default 20000
    time_limit : float, optional
        Seconds for each lam.

    Attributes
    ----------
    groups_ : array (n_groups,)
        Names of the groups, sorted.
    coef_ : float64 (n_groups, n_features)
    intercept_ : float64 (n_groups,)
    labels_ : int64 (n_groups,)
        Cluster of each group.
    n_clusters_, n_iter_ : int
    lam_, dual_gap_ : float
    path_ : PathResult or None
    result_ : Result
    n_features_in_ : int

    Notes
    -----
    Fused coefficients are drawn towards each other; ``result_.refit()`` gives the unbiased ones of the clusters.

    References
    ----------
    Hallac, Leskovec and Boyd 2015, Network lasso; Ma and Huang 2017, subgroup analysis by concave fusion.

    Examples
    --------
    >>> import numpy as np
    >>> from fusionopt import FusedRegression
    >>> z = np.linspace(-1.0, 1.0, 12)
    >>> X, groups = np.tile(z, 4)[:, None], np.repeat([0, 1, 2, 3], 12)
    >>> y = np.concatenate([2 * z, 2 * z, -z, -z])
    >>> FusedRegression(lam=0.05).fit(X, y, groups=groups).labels_
    array([0, 0, 1, 1])
    """

    def __init__(
        self,
        lam: float | Literal["auto"] = "auto",
        ridge: float = 0.0,
        fit_intercept: bool = True,
        n_lams: int = 50,
        eps_rel: float = 1e-6,
        max_iter: int = 20000,
        time_limit: float | None = None,
    ) -> None:
        self.lam = lam
        self.ridge = ridge
        self.fit_intercept = fit_intercept
        self.n_lams = n_lams
        self.eps_rel = eps_rel
        self.max_iter = max_iter
        self.time_limit = time_limit

    def fit(self, X: ArrayLike, y: ArrayLike, groups: ArrayLike | None = None) -> FusedRegression:
        """Fit one model a group.

        Parameters
        ----------
        X : (n, n_features)
        y : (n,)
        groups : (n,) of names, or None for a single group

        Raises
        ------
        ValueError
            NaN or infinity, wrong shapes, a parameter out of range.
        KeyboardInterrupt
            Ctrl-C during the solve.

        Warns
        -----
        ConvergenceWarning
            The tolerance was not met.
        """
        from fusionopt.losses import LeastSquares

        points, targets = validate_data(self, X, y, dtype=np.float64, y_numeric=True)
        codes = self._take_groups(groups, len(points))
        loss = LeastSquares(self._with_ones(points), targets, ridge=self.ridge, groups=codes)
        x = self._solve(loss).x
        self.coef_ = x[:, : points.shape[1]]
        self.intercept_ = x[:, -1] if self.fit_intercept else np.zeros(len(x))
        return self

    def predict(self, X: ArrayLike, groups: ArrayLike | None = None) -> FloatArray:
        """z'x_g for the group of each row.

        Parameters
        ----------
        X : (k, n_features)
        groups : (k,) or None
            Rows of a group that was not in the fit (and all rows where None and there are several groups) get the
            mean of all groups' predictions, weighted by their numbers of rows.

        Returns
        -------
        float64 (k,)
        """
        check_is_fitted(self)
        points = validate_data(self, X, dtype=np.float64, reset=False)
        answers = self.coef_ @ points.T + self.intercept_[:, None]
        return self._mix(answers, self._codes(groups, len(points)))


class FusedClassifier(ClassifierMixin, _FusedModel):
    """One linear classifier a group, fused: groups with equal models share one exactly.

        minimise  sum_g [ 1/n_g sum_{s in g} loss(x_g; z_s, y_s) + ridge/2 ||x_g||^2 ] + lam sum_{g<h} ||x_g - x_h||_2

    Logistic loss with a free bias for two classes, softmax (its intercept under the ridge) for more.

    Parameters
    ----------
    lam : float or "auto", default "auto"
        "auto" solves a path and takes the lam of the lowest BIC.
    ridge : float >= 0, default 1e-3
        Above zero it keeps the minimiser finite where classes are separable.
    fit_intercept : bool, default True
    n_lams, eps_rel, max_iter, time_limit
        As in `FusedRegression`.

    Attributes
    ----------
    classes_ : array (n_classes,)
    groups_, labels_, n_clusters_, n_iter_, lam_, dual_gap_, path_, result_, n_features_in_
        As in `FusedRegression`.
    coef_ : float64 (n_groups, n_features, n_outputs)
        One output for two classes, else one a class.
    intercept_ : float64 (n_groups, n_outputs)

    Examples
    --------
    >>> import numpy as np
    >>> from fusionopt import FusedClassifier
    >>> rng = np.random.default_rng(0)
    >>> X, groups = rng.standard_normal((200, 2)), np.repeat([0, 1, 2, 3], 50)
    >>> y = np.where(groups < 2, X[:, 0] > 0, X[:, 0] < 0)
    >>> FusedClassifier(lam=0.1).fit(X, y, groups=groups).labels_
    array([0, 0, 1, 1])
    """

    def __init__(
        self,
        lam: float | Literal["auto"] = "auto",
        ridge: float = 1e-3,
        fit_intercept: bool = True,
        n_lams: int = 50,
        eps_rel: float = 1e-6,
        max_iter: int = 20000,
        time_limit: float | None = None,
    ) -> None:
        self.lam = lam
        self.ridge = ridge
        self.fit_intercept = fit_intercept
        self.n_lams = n_lams
        self.eps_rel = eps_rel
        self.max_iter = max_iter
        self.time_limit = time_limit

    def fit(self, X: ArrayLike, y: ArrayLike, groups: ArrayLike | None = None) -> FusedClassifier:
        """Fit one model a group; parameters and exceptions as in `FusedRegression.fit`.

        A single class in y is refused.
        """
        from fusionopt.losses import Logistic, Softmax

        points, names = validate_data(self, X, y, dtype=np.float64)
        check_classification_targets(names)
        self.classes_, classes = np.unique(names, return_inverse=True)
        if len(self.classes_) < 2:
            _checks.refuse(
                "y has a single class; a classifier needs rows of at least two.",
                argument="y",
                got="1 class",
                wanted="at least 2 classes",
            )
        codes = self._take_groups(groups, len(points))
        d = points.shape[1]
        if len(self.classes_) == 2:
            signs = np.where(classes == 1, 1.0, -1.0)
            loss = Logistic(points, signs, ridge=self.ridge, free_bias=self.fit_intercept, groups=codes)
            x = self._solve(loss).x
            self.coef_ = x[:, :d, None]
            # The loss's margin is z.w - b.
            self.intercept_ = -x[:, d:] if self.fit_intercept else np.zeros((len(x), 1))
            return self
        many = len(self.classes_)
        design = self._with_ones(points)
        x = self._solve(Softmax(design, classes, ridge=self.ridge, n_classes=many, groups=codes)).x
        cube = x.reshape(len(x), design.shape[1], many)
        self.coef_ = cube[:, :d]
        self.intercept_ = cube[:, d] if self.fit_intercept else np.zeros((len(x), many))
        return self

    def predict_proba(self, X: ArrayLike, groups: ArrayLike | None = None) -> FloatArray:
        """Probability of each class, (k, n_classes).

        Groups that were not in the fit get the mean of all groups' probabilities, weighted by their rows.
        """
        check_is_fitted(self)
        points = validate_data(self, X, dtype=np.float64, reset=False)
        margins = np.einsum("sk,gko->gso", points, self.coef_) + self.intercept_[:, None, :]
        if len(self.classes_) == 2:
            positive = expit(margins[:, :, 0])
            answers = np.stack([1.0 - positive, positive], axis=2)
        else:
            answers = softmax(margins, axis=2)
        return self._mix(answers, self._codes(groups, len(points)))

    def predict(self, X: ArrayLike, groups: ArrayLike | None = None) -> NDArray[Any]:
        """The most probable class of each row; parameters as in `predict_proba`."""
        return np.asarray(self.classes_[self.predict_proba(X, groups).argmax(axis=1)])
