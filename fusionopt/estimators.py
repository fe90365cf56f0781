"""Estimators after the conventions of scikit-learn."""

from __future__ import annotations

import math
import warnings
from numbers import Real
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fusionopt._checks import check_choice
from fusionopt._sklearn import (
    BaseEstimator,
    ClusterMixin,
    ConvergenceWarning,
    check_is_fitted,
    pairwise_distances_argmin,
    validate_data,
)
from fusionopt.errors import InvalidArgumentError

if TYPE_CHECKING:
    from fusionopt.path import PathResult
    from fusionopt.problem import FusionProblem
    from fusionopt.result import Result


class ConvexClustering(ClusterMixin, BaseEstimator):
    """Convex clustering: rows are pulled together until they are exactly equal.

        minimise  1/2 sum_i ||x_i - a_i||^2 + lam sum_{(i,j) in E} w_ij ||x_i - x_j||_2

    a_i are the rows of X, E and w_ij the graph. Rows joined by edges whose x are
    exactly equal are one cluster; the number of clusters follows from lam.

    Parameters
    ----------
    lam : float or "auto", default "auto"
        Weight of the pair term. "auto" solves a path over a log grid and takes the middle of the longest
        plateau: the longest run, in log lam, with the same number of clusters of which at least two hold 5 %
        of the rows each. When the path has no such clustering, the coarsest one is taken (one cluster for
        every component of the graph) and `selection_` says so.
    graph : "knn" or "complete", default "knn"
        "knn": Gaussian weights on the nearest neighbours. "complete": every pair with weight 1; memory grows
        as n^2.
    n_neighbors : int, default 10
        For graph="knn"; at most n - 1 are used.
    n_lams : int, default 100
        Values of lam on the path of lam="auto".
    lam_min_ratio : float, default 1e-3
        Smallest over largest lam of that path.
    eps_rel : float, default 1e-6
        Relative duality gap at which a solve ends.
    max_iter : int, default 20000
        Limit of iterations for each lam.
    time_limit : float, optional
        Limit in seconds for each lam.

    Attributes
    ----------
    labels_ : int64 (n,)
        Clusters numbered by first appearance.
    n_clusters_ : int
    cluster_centers_ : float64 (n_clusters_, n_features)
        Common x of each cluster. They are drawn towards each other; the means of the rows are further apart.
    lam_ : float
        The lam of these clusters.
    lambda_max_ : float
        For lam="auto" the upper end of the path, where every component is one cluster; for a number the upper
        bound of the smallest such lam.
    n_iter_ : int
        Iterations, summed over the path for lam="auto".
    dual_gap_ : float
        F(x) minus the certified lower bound, at `lam_`.
    path_ : PathResult or None
        All solutions for lam="auto", None for a number.
    result_ : Result
        The solution at `lam_`.
    selection_ : str
        How `lam_` was chosen, in a sentence.
    n_features_in_ : int
    feature_names_in_ : str (n_features_in_,)
        When X has names.

    Notes
    -----
    Columns are not scaled; put a StandardScaler in front when their units differ. Rows alone in their cluster
    keep a label of their own.

    References
    ----------
    Hocking, Joulin, Bach and Vert 2011, Clusterpath; theory.md section 0 for the scale of lam.

    Examples
    --------
    >>> import numpy as np
    >>> from fusionopt import ConvexClustering
    >>> X = np.array([[0.0, 0.1], [0.1, 0.0], [5.0, 5.1], [5.1, 5.0]])
    >>> ConvexClustering().fit(X).labels_
    array([0, 0, 1, 1])
    """

    def __init__(
        self,
        lam: float | Literal["auto"] = "auto",
        graph: Literal["knn", "complete"] = "knn",
        n_neighbors: int = 10,
        n_lams: int = 100,
        lam_min_ratio: float = 1e-3,
        eps_rel: float = 1e-6,
        max_iter: int = 20000,
        time_limit: float | None = None,
    ) -> None:
        self.lam = lam
        self.graph = graph
        self.n_neighbors = n_neighbors
        self.n_lams = n_lams
        self.lam_min_ratio = lam_min_ratio
        self.eps_rel = eps_rel
        self.max_iter = max_iter
        self.time_limit = time_limit

    def fit(self, X: ArrayLike, y: object = None) -> ConvexClustering:
        """Solve for the rows of X.

        Parameters
        ----------
        X : (n, n_features)
            Finite numbers.
        y : ignored

        Returns
        -------
        ConvexClustering
            This object.

        Raises
        ------
        ValueError
            X holds NaN or infinity or has no rows; a parameter is out of range.
        KeyboardInterrupt
            Ctrl-C during the solve; nothing is set on this object.

        Warns
        -----
        ConvergenceWarning
            The tolerance was not met for the lam of the result, or for some lam of the path.
        """
        from fusionopt.critical import lambda_max
        from fusionopt.path import solution_path
        from fusionopt.selection import select_plateau
        from fusionopt.settings import AdmmSettings
        from fusionopt.solver import solve

        points = validate_data(self, X, dtype=np.float64)
        self._check_parameters()
        problem = self._problem(points)
        settings = AdmmSettings(eps_rel=self.eps_rel, max_iter=self.max_iter, time_limit=self.time_limit)
        path: PathResult | None = None
        result: Result
        if isinstance(self.lam, str):
            path = solution_path(
                problem, n_lams=self.n_lams, lam_min_ratio=self.lam_min_ratio, settings=settings
            )
            self._reraise_interrupt([r.status for r in path.results] + [path.status])
            selection = select_plateau(path)
            result, sentence, top = selection.result, selection.sentence, float(path.lambda_max)
            n_iter = sum(r.n_iter for r in path.results)
            results = path.results
        else:
            problem = problem.with_lam(float(self.lam))
            result = solve(problem, settings)
            self._reraise_interrupt([result.status])
            result.keep_duals(result.edge_duals().copy)  # an array pickles; the engine behind it does not
            sentence, top, n_iter = "lam was given.", float(lambda_max(problem)), result.n_iter
            results = [result]
        unfinished = [r for r in results if r.status not in ("optimal", "stationary")]
        if unfinished:
            warnings.warn(
                f"The tolerance was not met for {len(unfinished)} of {len(results)} values of lam "
                f"({unfinished[0].status}: {unfinished[0].message}); raise max_iter or time_limit, or scale "
                "the columns.",
                ConvergenceWarning,
                stacklevel=2,
            )
        self.path_ = path
        self.result_ = result
        self.selection_ = sentence
        self.lam_ = float(result.problem.lam)
        self.lambda_max_ = top
        self.labels_ = result.labels
        self.n_clusters_ = int(result.n_clusters)
        self.cluster_centers_ = result.centers
        self.n_iter_ = int(n_iter)
        self.dual_gap_ = float(result.gap)
        return self

    def predict(self, X: ArrayLike) -> NDArray[np.int64]:
        """The cluster with the nearest centre, for new rows.

        Parameters
        ----------
        X : (k, n_features)

        Returns
        -------
        int64 (k,)

        Notes
        -----
        A row of the fitted X need not get its own label back: its cluster is not always that of the nearest
        centre.
        """
        check_is_fitted(self)
        points = validate_data(self, X, dtype=np.float64, reset=False)
        return np.asarray(pairwise_distances_argmin(points, self.cluster_centers_), dtype=np.int64)

    def _check_parameters(self) -> None:
        lam = self.lam
        if lam == "auto":
            return
        if isinstance(lam, bool | np.bool_) or not isinstance(lam, Real) or not 0.0 <= float(lam) < math.inf:
            raise InvalidArgumentError(
                f"lam={lam!r} is neither 'auto' nor a finite number >= 0; give one of them.",
                argument="lam",
                got=lam,
                wanted="'auto' or a finite number >= 0",
            )

    def _problem(self, points: NDArray[np.float64]) -> FusionProblem:
        from fusionopt.graph import Graph
        from fusionopt.losses import SquaredDistance
        from fusionopt.problem import FusionProblem

        if check_choice("graph", self.graph, ("knn", "complete")) == "complete":
            graph = Graph.complete(len(points))
        else:
            graph = Graph.knn(points, n_neighbors=self.n_neighbors)
        return FusionProblem(SquaredDistance(points), graph)

    @staticmethod
    def _reraise_interrupt(statuses: list[str]) -> None:
        # The solver turns the first Ctrl-C into a status; a caller of fit expects the exception.
        if "interrupted" in statuses:
            raise KeyboardInterrupt

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "labels_")
