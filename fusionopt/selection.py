"""Choosing one lam from a path: criteria with their curves, and a sentence that tells how it was chosen."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln

from fusionopt import _checks
from fusionopt._resampled import (
    bootstrap,
    cell_part,
    folds_of_samples,
    left_out,
    sample_part,
)
from fusionopt.clusters import n_large, plateaus
from fusionopt.comparison import adjusted_rand
from fusionopt.losses import LeastSquares, Logistic, Poisson, Softmax, SquaredDistance
from fusionopt.losses._sampled import SampledLoss
from fusionopt.path import solution_path
from fusionopt.problem import FusionProblem

if TYPE_CHECKING:
    from fusionopt.path import PathResult
    from fusionopt.result import Result

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

CRITERIA = ("plateau", "bic", "ebic", "holdout", "kfold", "stability")


@dataclass(frozen=True, eq=False)
class Selection:
    """One result of a path and why it was taken.

    Attributes
    ----------
    criterion : str
        "coarsest" where `select_plateau` found no plateau.
    lams : float64 (L,)
        Those of the path, in its order.
    scores : float64 (L,)
        The criterion at each lam; NaN where it cannot be chosen. Small is good, except for "plateau" and "stability".
    standard_errors : float64 (L,)
        Of the scores over folds or repeats; NaN where there are none.
    best_index, index : int
        Best score; the choice, by the one-standard-error rule where there are standard errors: the largest lam whose
        score is within one standard error of the best.
    lam : float
    result : Result
    sentence : str
    """

    criterion: str
    lams: FloatArray
    scores: FloatArray
    standard_errors: FloatArray
    best_index: int
    index: int
    result: Result
    sentence: str = field(repr=False)

    @property
    def lam(self) -> float:
        """The lam that was chosen."""
        return float(self.lams[self.index])


def choose(
    path: PathResult,
    criterion: str = "plateau",
    *,
    n_repeats: int = 20,
    n_folds: int = 5,
    fraction: float = 0.1,
    random_state: int = 0,
    callback: Callable[[int, int], object] | None = None,
) -> Selection:
    """The lam of a path that a criterion finds best.

    Parameters
    ----------
    path : PathResult
        At least one lam.
    criterion : str
        - "plateau": the middle of the longest run, in log lam, of the same number of clusters, two of which at least
          hold 5 % of the nodes (and two nodes) each.
        - "bic": -2 log likelihood of the refitted clusters + (number of parameters) log N; Gaussian with one variance
          for squared errors. "ebic" adds twice the log of the number of partitions of the same kind (with sizes n_k:
          n! / prod n_k! / K! times binom(n - 1, K - 1)), which pays for having looked at so many.
        - "holdout": squared error of cells (`SquaredDistance`) or loss of samples that were left out, `n_repeats`
          times a share `fraction`; the path is solved without them and its clusters are refitted.
        - "kfold": the same for samples dealt into `n_folds` folds at every node.
        - "stability": mean adjusted Rand index between the path's partition and that of `n_repeats` bootstrap
          replicates at the same lam, where at least two clusters hold 5 % of the nodes.
    n_repeats, n_folds : int >= 2
    fraction : float in (0, 1)
    random_state : int
        Seed of everything random.
    callback : callable or None
        Called with (done, total) after each path that a criterion solves.

    Returns
    -------
    Selection

    Raises
    ------
    InvalidArgumentError, InvalidTypeError
        The criterion has nothing to choose from, or does not fit the loss; the message says why.

    References
    ----------
    Schwarz 1978 (BIC); Chen and Chen 2008 (extended BIC); Breiman et al. 1984 (one standard error); Hocking et al.
    2011 (stability is asked of merges along a fusion path).
    """
    _checks.check_choice("criterion", criterion, CRITERIA)
    repeats = _checks.as_count("n_repeats", n_repeats, minimum=2)
    folds = _checks.as_count("n_folds", n_folds, minimum=2)
    share = _checks.as_scalar_between("fraction", fraction, 0.0, 1.0, "it is a share of the data")
    rng = np.random.default_rng(_checks.as_count("random_state", random_state, minimum=0))
    if criterion == "plateau":
        return _plateau(path)
    if criterion in ("bic", "ebic"):
        return _information(path, criterion)
    told = _Told(callback)
    if criterion == "stability":
        return _stability(path, repeats, rng, told)
    return _left_out(path, criterion, folds if criterion == "kfold" else repeats, share, rng, told)


class _Told:
    def __init__(self, callback: Callable[[int, int], object] | None) -> None:
        _checks.check_callback(callback)
        self._callback = callback

    def __call__(self, done: int, total: int) -> None:
        if self._callback is not None:
            self._callback(done, total)


def _made(
    path: PathResult, criterion: str, scores: FloatArray, errors: FloatArray, high_is_good: bool, words: str
) -> Selection:
    """Best score, then the one-standard-error rule."""
    good = scores if high_is_good else -scores
    known = np.flatnonzero(~np.isnan(good))
    # Equal scores (two perfect fits, say): the largest lam.
    top = known[good[known] == good[known].max()]
    best = int(top[np.argmax(path.lams[top])])
    index, rule = best, ""
    if np.isfinite(errors[best]):
        near = known[good[known] >= good[best] - errors[best]]
        index = int(near[np.argmax(path.lams[near])])
        rule = f"; the largest lam within one standard error of the best ({path.lams[best]:.4g})"
    result = path.results[index]
    sentence = (
        f"lam = {path.lams[index]:.4g} was chosen by {words}: {scores[index]:.6g}"
        + (f" (standard error {errors[index]:.2g})" if np.isfinite(errors[index]) else "")
        + f" at {result.n_clusters} clusters{rule}."
    )
    return Selection(criterion, path.lams, scores, errors, best, index, result, sentence)


# -- plateau


def _plateau(path: PathResult) -> Selection:
    labels = [r.labels for r in path.results]
    chosen, runs = plateaus(path.lams, labels)
    scores = np.full(len(path.lams), np.nan)
    for run in runs:
        scores[run] = np.log(path.lams[run[-1]] / path.lams[run[0]])
    run = next(run for run in runs if chosen in run)
    low, high = float(path.lams[run[0]]), float(path.lams[run[-1]])
    sentence = (
        f"lam = {float(path.lams[chosen]):.4g} was chosen by plateau: the longest run of lam, {low:.4g} to "
        f"{high:.4g}, over which the number of clusters stays the same and at least two of them hold 5 % of the rows "
        "each."
    )
    errors = np.full_like(scores, np.nan)
    return Selection("plateau", path.lams, scores, errors, chosen, chosen, path.results[chosen], sentence)


def coarse_hint(path: PathResult) -> str:
    """A sentence when even the smallest lam of a path leaves few clusters, else an empty string.

    A few far-off rows, tied to the rest by tiny weights, raise lambda_max and with it the whole grid.
    """
    finest = path.results[int(np.argmin(path.lams))]
    if path.lambda_max == 0 or finest.n_clusters > len(finest.labels) / 2:
        return ""
    return (
        f"Already at the smallest lam, {float(np.min(path.lams)):.4g}, the {len(finest.labels)} rows are in "
        f"{finest.n_clusters} clusters; a smaller lam_min_ratio shows finer clusterings."
    )


def select_plateau(path: PathResult) -> Selection:
    """The middle of the longest plateau, or the coarsest clustering when there is none.

    When no clustering on the path has two clusters that hold 5 % of the rows (and two rows) each, the path shows no
    groups, and the result at the largest lam is returned (one cluster for every component of the graph): splitting
    the rows further would claim structure that the path does not show.

    Parameters
    ----------
    path : PathResult

    Returns
    -------
    Selection
    """
    if any(n_large(r.cluster_sizes) >= 2 and lam > 0 for r, lam in zip(path.results, path.lams, strict=True)):
        return _plateau(path)
    last = int(np.argmax(path.lams))
    finer = coarse_hint(path)
    sentence = (
        "No lam on the path gives two clusters that each hold 5 % of the rows (and two rows), so the path shows no "
        f"groups: the coarsest clustering is taken, at the largest lam = {float(path.lams[last]):.4g}."
        + (f" {finer}" if finer else "")
    )
    none = np.full(len(path.lams), np.nan)
    return Selection("coarsest", path.lams, none, none, last, last, path.results[last], sentence)


# -- likelihood


def _information(path: PathResult, criterion: str) -> Selection:
    n_numbers, squared = _likelihood_kind(path.problem)
    p = path.problem.n_features
    scores = np.full(len(path.lams), np.nan)
    for k, result in enumerate(path.results):
        n_parameters = result.n_clusters * p
        # With a parameter for every second number the fit is perfect and the likelihood says nothing.
        if 2 * n_parameters > n_numbers:
            continue
        misfit = _misfit(result)
        if squared:
            with np.errstate(divide="ignore"):
                misfit = n_numbers * float(np.log(misfit / n_numbers))
        scores[k] = misfit + n_parameters * np.log(n_numbers)
        if criterion == "ebic":
            scores[k] += 2.0 * _log_partitions(result.cluster_sizes)
    if np.isnan(scores).all():
        _checks.refuse(
            f"no lam of the path leaves two numbers for each parameter, so {criterion} has nothing to choose from; "
            "give larger lams.",
            argument="criterion",
            got=criterion,
            wanted="a path that reaches fewer clusters",
        )
    words = "BIC" if criterion == "bic" else "extended BIC"
    return _made(path, criterion, scores, np.full_like(scores, np.nan), False, words)


def _likelihood_kind(problem: FusionProblem) -> tuple[int, bool]:
    """(number of observed numbers, whether the errors are Gaussian with a variance to be estimated)."""
    loss = problem.loss
    name = type(loss).__name__
    if isinstance(loss, SquaredDistance):
        return int(np.isfinite(loss.targets[loss.sample_weight > 0]).sum()), True
    if isinstance(loss, LeastSquares | Logistic | Softmax | Poisson):
        return int((loss.sample_weight > 0).sum()), isinstance(loss, LeastSquares)
    _checks.refuse_type(
        f"{name} is no negative log likelihood, so BIC does not apply; use 'holdout', 'kfold' or 'plateau'.",
        argument="criterion",
        got=name,
        wanted="SquaredDistance, LeastSquares, Logistic, Softmax or Poisson",
    )


def _misfit(result: Result) -> float:
    """Residual sum of squares, or twice the negative log likelihood, of the refitted clusters; no ridge in it."""
    loss, x = result.problem.loss, result.refit()[result.labels]
    if isinstance(loss, SquaredDistance):
        return 2.0 * loss.value(x)
    assert isinstance(loss, SampledLoss)
    return 2.0 * float((loss.n_samples * loss.sample_values(x)).sum())


def _log_partitions(sizes: IntArray) -> float:
    """log of (partitions of n nodes into clusters of these sizes) times (ways to cut n into K sizes)."""
    n, k = int(sizes.sum()), len(sizes)
    binomial = gammaln(n) - gammaln(k) - gammaln(n - k + 1)
    return float(gammaln(n + 1) - gammaln(sizes + 1).sum() - gammaln(k + 1) + binomial)


# -- data left out


def _left_out(
    path: PathResult, criterion: str, rounds: int, share: float, rng: np.random.Generator, told: _Told
) -> Selection:
    problem, loss = path.problem, path.problem.loss
    if isinstance(loss, SquaredDistance):
        if criterion == "kfold":
            _checks.refuse_type(
                "SquaredDistance has one row a node, so its samples cannot be dealt into folds; use 'holdout', which "
                "leaves out cells.",
                argument="criterion",
                got="kfold",
                wanted="a loss over several samples a node",
            )
        if problem.n_features == 1:
            _checks.refuse(
                "with one column no cell can be left out without its whole row; use another criterion.",
                argument="criterion",
                got="1 column",
                wanted="two columns or more",
            )
        observed = np.isfinite(loss.targets)
        parts = [cell_part(observed, share, rng) for _ in range(rounds)]
    elif isinstance(loss, SampledLoss):
        if loss.n_samples.max() < 2:
            _checks.refuse(
                "every node has one sample, so none can be left out; use another criterion.",
                argument="criterion",
                got="1 sample a node",
                wanted="two samples at some node",
            )
        if criterion == "kfold":
            parts = [part for part in folds_of_samples(loss, rounds, rng) if part.any()]
        else:
            parts = [sample_part(loss, share, rng) for _ in range(rounds)]
    else:
        _checks.refuse_type(
            f"the data of {type(loss).__name__} cannot be left out in part; use 'plateau'.",
            argument="criterion",
            got=type(loss).__name__,
            wanted="SquaredDistance or a loss over samples",
        )
    table = np.empty((len(parts), len(path.lams)))
    for k, part in enumerate(parts):
        table[k] = _errors_of(path, part)
        told(k + 1, len(parts))
    scores, errors = _mean_and_error(table)
    what = (
        "the loss of samples left out"
        if isinstance(loss, SampledLoss)
        else "the squared error of cells left out"
    )
    return _made(path, criterion, scores, errors, False, what)


def _errors_of(path: PathResult, part: NDArray[np.bool_]) -> FloatArray:
    """Error on the left-out part at every lam of the path, in the path's order."""
    problem, loss = path.problem, path.problem.loss
    if isinstance(loss, SquaredDistance):
        targets = np.where(part, np.nan, loss.targets)
        fitted = solution_path(
            replace(problem, loss=SquaredDistance(targets, sample_weight=loss.sample_weight)),
            path.lams,
            settings=path.results[0].settings,
        )
        return np.array([_cell_error(r, loss.targets, part) for r in fitted.results])
    assert isinstance(loss, SampledLoss)
    fitted = solution_path(
        replace(problem, loss=left_out(loss, part)), path.lams, settings=path.results[0].settings
    )
    weights = loss.sample_weight
    judge = loss.with_sample_weight(np.where(part, weights, 0.0))
    out = np.empty(len(path.lams))
    for k, result in enumerate(fitted.results):
        values = judge.sample_values(result.refit()[result.labels])
        out[k] = float((loss.n_samples * values).sum() / weights[part].sum())
    return out


def _cell_error(result: Result, targets: FloatArray, part: NDArray[np.bool_]) -> float:
    """Mean squared error of cells; a column that its cluster never saw is told by x itself."""
    labels = result.labels
    loss = result.problem.loss
    assert isinstance(loss, SquaredDistance)
    seen = np.zeros((result.n_clusters, targets.shape[1]))
    np.add.at(seen, labels, np.isfinite(loss.targets) & (loss.sample_weight > 0)[:, None])
    told = np.where(seen[labels] > 0, result.refit()[labels], result.x)
    return float(np.square(told[part] - targets[part]).mean())


def _mean_and_error(table: FloatArray) -> tuple[FloatArray, FloatArray]:
    mean = table.mean(axis=0)
    return mean, table.std(axis=0, ddof=1) / np.sqrt(len(table))


# -- stability


def _stability(path: PathResult, repeats: int, rng: np.random.Generator, told: _Told) -> Selection:
    worth = np.array([n_large(r.cluster_sizes) >= 2 for r in path.results]) & (path.lams > 0)
    if not worth.any():
        _checks.refuse(
            "no lam of the path gives two clusters that hold 5 % of the nodes each, so there is no grouping whose "
            "stability could be measured.",
            argument="criterion",
            got="stability",
            wanted="two such clusters at some lam",
        )
    lams = path.lams[worth]
    table = np.empty((repeats, int(worth.sum())))
    for k in range(repeats):
        drawn = bootstrap(path.problem, rng)
        again = solution_path(drawn.problem, lams, settings=path.results[0].settings)
        chosen = [r for r, keep in zip(path.results, worth, strict=True) if keep]
        table[k] = [
            adjusted_rand(a.labels, b.labels[drawn.nodes]) for a, b in zip(again.results, chosen, strict=True)
        ]
        told(k + 1, repeats)
    scores, errors = np.full(len(path.lams), np.nan), np.full(len(path.lams), np.nan)
    scores[worth], errors[worth] = _mean_and_error(table)
    return _made(
        path, "stability", scores, errors, True, "stability (mean adjusted Rand index of replicates)"
    )


def curve(selection: Selection) -> dict[str, Any]:
    """The curve as plain lists, for a file."""
    return {
        "lam": selection.lams.tolist(),
        "score": selection.scores.tolist(),
        "standard_error": selection.standard_errors.tolist(),
    }
