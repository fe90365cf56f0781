"""Solution paths: the same problem at many lam, warm-started."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fusionopt import _archive, _checks
from fusionopt._bridge import Engine
from fusionopt.clusters import exact_labels, longest_plateau
from fusionopt.critical import bracket_lambda_max
from fusionopt.errors import NotConvergedError
from fusionopt.methods import Monitor, Session, default_settings, open_session, watch_interrupt
from fusionopt.problem import FusionProblem
from fusionopt.result import CONVERGED, Result
from fusionopt.settings import AdmmSettings, Settings
from fusionopt.tree import Event, find_events, linkage_of, refuse_linkage

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

DUALS_LIMIT = 256 * 2**20
"""Duals of every lam are kept while they take no more bytes than this."""


@dataclass(frozen=True)
class PathProgress:
    """What a callback of `solution_path` sees after each lam.

    Attributes
    ----------
    done, total : int
    elapsed, remaining : float
        Seconds so far; estimated seconds left (NaN before there is an estimate).
    lam : float
    result : Result
        The one just finished.
    """

    done: int
    total: int
    elapsed: float
    remaining: float
    lam: float
    result: Result


class PathResult:
    """Results along lam, in the order in which the lams were given.

    Attributes
    ----------
    problem : FusionProblem
        Its lam is the largest of the path.
    lams : float64 (L,)
        The lams that were finished (all of them unless the path was stopped).
    results : list of L Result
    lambda_max : float
        Smallest lam that fuses every component (upper end of its bracket); the first lam of an automatic grid.
    status : str
        "optimal" when every result is, "stationary" when some are only that; otherwise the first other status.
    """

    def __init__(
        self,
        problem: FusionProblem,
        lams: FloatArray,
        results: Sequence[Result],
        lambda_max: float | None = None,
        status: str = "",
    ) -> None:
        self.problem = problem
        self.lams = lams
        self.results = list(results)
        self._lambda_max = lambda_max
        open_status = [r.status for r in self.results if r.status not in CONVERGED]
        certified = all(r.status == "optimal" for r in self.results)
        self.status = status or (open_status[0] if open_status else "optimal" if certified else "stationary")

    @property
    def lambda_max(self) -> float:
        """Smallest lam that fuses every component; computed on first access where the grid was given."""
        if self._lambda_max is None:
            self._lambda_max = bracket_lambda_max(self.problem)[1]
        return self._lambda_max

    @property
    def n_clusters(self) -> IntArray:
        """Number of clusters at each lam."""
        return np.array([r.n_clusters for r in self.results], dtype=np.int64)

    @cached_property
    def _start(self) -> IntArray:
        """The partition at lam = 0: nodes whose own minimisers coincide along edges."""
        engine = Engine(FusionProblem(self.problem.loss, self.problem.graph), AdmmSettings())
        return exact_labels(engine.point(), self.problem.graph)

    @cached_property
    def events(self) -> list[Event]:
        """Merges and splits seen between neighbouring lams, ascending; each bracket is one grid step."""
        return find_events(self.lams, [r.labels for r in self.results], self._start)

    @property
    def is_hierarchy(self) -> bool:
        """No split was seen between the lams of this path."""
        return all(event.kind == "merge" for event in self.events)

    def linkage(self) -> FloatArray:
        """The merges as a SciPy linkage matrix, (n_nodes - 1, 4).

        A height is the upper end of the bracket of its merge; ties share one. Components are joined last, at
        height inf.

        Raises
        ------
        InvalidArgumentError
            The path is no hierarchy, or does not reach one cluster a component; the message says which.
        """
        refuse_linkage(self.problem, self.events, self.results, self.lams)
        return linkage_of(self.problem.graph, self.events, self.problem.n_nodes, self._start)

    def at(self, *, lam: float | None = None, n_clusters: int | None = None) -> Result:
        """The result at a lam of the grid (the nearest in ratio), or the one with a number of clusters.

        Raises
        ------
        InvalidArgumentError
            Neither or both are given; the lam lies outside the path; the number of clusters does not occur
            (the message names the neighbours that do).
        """
        if (lam is None) == (n_clusters is None):
            _checks.refuse(
                "give either lam= or n_clusters=.", argument="lam", got="both or none", wanted="one of them"
            )
        if lam is not None:
            return self.results[self._nearest(_checks.check_lam(lam))]
        wanted = _checks.as_count("n_clusters", n_clusters)
        counts = self.n_clusters
        found = np.flatnonzero(counts == wanted)
        if len(found) == 0:
            fewer, more = counts[counts < wanted], counts[counts > wanted]
            neighbours = [
                str(int(c))
                for c in ([fewer.max()] if len(fewer) else []) + ([more.min()] if len(more) else [])
            ]
            _checks.refuse(
                f"{wanted} clusters do not occur on this path; its neighbours are {' and '.join(neighbours)}.",
                argument="n_clusters",
                got=wanted,
                wanted="a number that occurs: " + ", ".join(str(int(c)) for c in np.unique(counts)),
            )
        # The largest such lam: the clustering that is about to merge is the one most strongly held together.
        return self.results[int(found[np.argmax(self.lams[found])])]

    def _nearest(self, lam: float) -> int:
        low, high = float(self.lams.min()), float(self.lams.max())
        if not low * (1 - 1e-9) <= lam <= high * (1 + 1e-9):
            _checks.refuse(
                f"lam={lam:g} lies outside the path, which runs from {low:g} to {high:g}; solve at that lam "
                "instead.",
                argument="lam",
                got=lam,
                wanted=f"{low:g} to {high:g}",
            )
        with np.errstate(divide="ignore"):
            if lam == 0:
                return int(np.argmin(self.lams))
            return int(np.argmin(np.abs(np.log(self.lams / lam))))

    def select(self, criterion: str = "plateau") -> Result:
        """The result that a criterion chooses.

        Parameters
        ----------
        criterion : "plateau"
            The middle of the longest run, in log lam, of the same number of clusters, at least two of which hold
            5 % of the nodes each.

        Raises
        ------
        InvalidArgumentError
            No lam of the path has two such clusters.
        """
        _checks.check_choice("criterion", criterion, ("plateau",))
        return self.results[longest_plateau(self.lams, [r.labels for r in self.results])]

    def to_frame(self) -> Any:
        """One row a lam: a pandas DataFrame where pandas is installed, else a dict of arrays."""
        columns = {
            "lam": self.lams,
            "n_clusters": self.n_clusters,
            **{
                name: np.array([getattr(r, name) for r in self.results])
                for name in (
                    "objective",
                    "dual_objective",
                    "gap",
                    "rel_gap",
                    "status",
                    "n_iter",
                    "solve_time",
                )
            },
        }
        try:
            import pandas
        except ImportError:
            return columns
        return pandas.DataFrame(columns)

    def plot(self, **options: Any) -> Any:
        """`plotting.plot_paths` of this path."""
        from fusionopt.plotting import plot_paths

        return plot_paths(self, **options)

    def require_converged(self) -> PathResult:
        """Itself when every result is optimal or stationary.

        Raises
        ------
        NotConvergedError
            Otherwise.
        """
        if self.status not in CONVERGED:
            raise NotConvergedError(f"the path's status is {self.status!r}", result=self)
        return self

    def save(self, path: str | Path) -> None:
        """Write the problem and every result (without duals) to one .npz file, without pickle."""
        arrays = _archive.pack_problem(self.problem) | {
            "path.lams": self.lams,
            "path.lambda_max": np.array(np.nan if self._lambda_max is None else self._lambda_max),
        }
        for k, result in enumerate(self.results):
            arrays |= _archive.pack_result(result, f"{k}.")
        _archive.write(path, "path", arrays)

    @staticmethod
    def load(path: str | Path) -> PathResult:
        """Read what `save` wrote.

        Raises
        ------
        InvalidArgumentError
            Not such a file.
        """
        arrays = _archive.read(path, "path")
        problem = _archive.unpack_problem(arrays)
        lams = arrays["path.lams"]
        results = [_archive.unpack_result(arrays, f"{k}.", problem) for k in range(len(lams))]
        top = float(arrays["path.lambda_max"])
        return PathResult(problem, lams, results, None if np.isnan(top) else top)

    def __repr__(self) -> str:
        return f"PathResult({self.status}, {len(self.lams)} lams, n_clusters {self.n_clusters.tolist()})"


def solution_path(
    problem: FusionProblem,
    lams: ArrayLike | None = None,
    n_lams: int = 100,
    lam_min_ratio: float = 1e-3,
    events: str = "grid",
    settings: Settings | None = None,
    callback: Callable[[PathProgress], object] | None = None,
    checkpoint: None = None,
) -> PathResult:
    """Solve a problem at many lam, each to its own certificate.

    Parameters
    ----------
    problem : FusionProblem
        Its lam is not used.
    lams : float, array-like (L,) or None
        In any order, repeated or single; None takes `n_lams` geometric values from lambda_max down.
    n_lams : int >= 1
        Length of an automatic grid.
    lam_min_ratio : float in (0, 1)
        Smallest over largest lam of an automatic grid.
    events : "grid"
        Merges and splits are told by the grid step in which they happen.
    settings : Settings or None
        For every lam; ``time_limit`` counts for each lam on its own.
    callback : callable or None
        Called with a `PathProgress` after each lam; a true return value stops the path.
    checkpoint : None
        Kept for files of finished lams; this version keeps the path in memory only.

    Returns
    -------
    PathResult
        Results in the order of `lams`. After Ctrl-C it holds the lams that were finished.

    Raises
    ------
    InvalidArgumentError, InvalidTypeError
        An argument that breaks a rule, before any work.

    Notes
    -----
    Lams are visited in ascending order, each from the state of the one before (engine design 2.4), whatever
    order they are given in.
    """
    _checks.check_instance("problem", problem, FusionProblem, "for instance FusionProblem(loss, graph)")
    chosen = default_settings(problem) if settings is None else settings
    _checks.check_instance("settings", chosen, Settings, "for instance AdmmSettings(), or None")
    _checks.check_choice("events", events, ("grid",))
    if checkpoint is not None:
        _checks.refuse(
            "checkpoint is not available in this version; PathResult.save keeps a finished path.",
            argument="checkpoint",
            got=checkpoint,
            wanted="None",
        )
    count = _checks.as_count("n_lams", n_lams)
    ratio = _checks.as_scalar_between(
        "lam_min_ratio", lam_min_ratio, 0.0, 1.0, "the grid runs down from lambda_max"
    )
    given = None if lams is None else _as_lams(lams)
    start = time.perf_counter()
    with watch_interrupt() as interrupt:
        upper = bracket_lambda_max(problem, interrupt)[1] if given is None else None
        grid = given if upper is None else _grid(upper, count, ratio)
        assert grid is not None
        order = np.argsort(grid, kind="stable")
        done: dict[int, Result] = {}
        n_bytes = len(grid) * problem.graph.n_edges * problem.n_features * 8
        session: Session | None = None
        status = ""
        for place in (int(k) for k in order):
            lam = float(grid[place])
            if session is None:
                session = open_session(problem.with_lam(lam), chosen, None)
            else:
                session.set_lam(lam)
            result = session.run(Monitor(chosen, interrupt))
            if result.status == "interrupted":
                status = "interrupted"
                break
            if n_bytes > DUALS_LIMIT:
                result.drop_duals()
            elif result.has_duals:
                result.keep_duals(result.edge_duals().copy)
            done[place] = result
            elapsed = time.perf_counter() - start
            remaining = elapsed / len(done) * (len(grid) - len(done))
            if callback is not None and callback(
                PathProgress(len(done), len(grid), elapsed, remaining, lam, result)
            ):
                status = "user_limit" if len(done) < len(grid) else ""
                break
            if interrupt.requested and len(done) < len(grid):
                status = "interrupted"
                break
    kept = sorted(done)
    top = problem.with_lam(float(grid.max()))
    return PathResult(top, grid[kept], [done[k] for k in kept], upper, status)


def _as_lams(lams: ArrayLike) -> FloatArray:
    values: Iterable[Any] = [lams] if np.ndim(lams) == 0 else np.asarray(lams)
    out = _checks.as_nonnegative_array("lams", values)
    if out.ndim != 1 or len(out) == 0:
        _checks.refuse(
            f"lams has shape {out.shape}; give one lam, or a list of at least one.",
            argument="lams",
            got=out.shape,
            wanted="shape (L,), L >= 1",
        )
    return out


def _grid(upper: float, count: int, ratio: float) -> FloatArray:
    if upper == 0:
        return np.zeros(1)  # everything is fused already: one lam says it all
    grid = np.geomspace(upper, upper * ratio, count)
    grid[0] = upper
    return grid
