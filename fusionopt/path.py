"""Solution paths: the same problem at many lam, warm-started."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fusionopt import _archive, _checks
from fusionopt._checkpoint import Checkpoint
from fusionopt.critical import bracket_lambda_max
from fusionopt.errors import NotConvergedError
from fusionopt.locate import Point, locate_events, share_heights
from fusionopt.methods import (
    Interrupt,
    Monitor,
    ResumableSession,
    Session,
    default_settings,
    open_session,
    watch_interrupt,
)
from fusionopt.problem import FusionProblem
from fusionopt.result import CONVERGED, Result
from fusionopt.settings import AdmmSettings, Settings
from fusionopt.tree import Event, find_events, linkage_of, pack_events, refuse_linkage, unpack_events

if TYPE_CHECKING:
    from fusionopt.selection import Selection

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
    phase : "grid" or "locate"
        What is counted: lams of the grid, or steps between them searched for events.
    """

    done: int
    total: int
    elapsed: float
    remaining: float
    lam: float
    result: Result
    phase: str = "grid"


class PathResult:
    """Results along lam, in the order in which the lams were given.

    Each result keeps one row a cluster (`Result.compact`), so that many lams at many nodes fit the memory.

    Attributes
    ----------
    problem : FusionProblem
        Its lam is the largest of the path.
    lams : float64 (L,)
        The lams that were finished (all of them unless the path was stopped; none where that was before the first).
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
        events: Sequence[Event] | None = None,
    ) -> None:
        self.problem = problem
        self.lams = lams
        self.results = [result.compact() for result in results]
        self._lambda_max = lambda_max
        self._located = None if events is None else list(events)
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
    def notes(self) -> tuple[str, ...]:
        """Sentences on the range of the path: nothing to fuse, or lams above lambda_max."""
        top = self.lambda_max
        if top == 0:
            return ("Nothing is left to fuse: every component is one cluster at any lam.",)
        above = int((self.lams > top * (1 + 1e-6)).sum())
        if not above:
            return ()
        return (
            f"{above} of the lams lie above lambda_max = {top:.4g}, from which on every component is one cluster: lam "
            "is in the units of the data, and their scale moves lambda_max with it.",
        )

    @property
    def n_clusters(self) -> IntArray:
        """Number of clusters at each lam."""
        return np.array([r.n_clusters for r in self.results], dtype=np.int64)

    @cached_property
    def _start(self) -> IntArray:
        return _partition_at_zero(self.problem)

    @cached_property
    def events(self) -> list[Event]:
        """Merges and splits between neighbouring lams (from lam = 0 on), ascending in lam.

        With ``events="grid"`` each bracket is one grid step; what happens and is undone inside a step is not seen.
        """
        if self._located is not None:
            return self._located
        sure = [r.proven for r in self.results]
        return find_events(self.lams, [r.labels for r in self.results], self._start, certified=sure)

    @property
    def is_hierarchy(self) -> bool:
        """No split was seen between the lams of this path."""
        return all(event.kind == "merge" for event in self.events)

    def linkage(self) -> FloatArray:
        """The merges as a SciPy linkage matrix, (n_nodes - 1, 4).

        A height is the lam of its merge, the upper end of the bracket where it was not located; ties share one.
        Components are joined last, at height inf.

        Raises
        ------
        InvalidArgumentError
            The path is no hierarchy, or does not reach one cluster a component; the message says which.
        """
        self._refuse_empty("linkage")
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
        self._refuse_empty("lam" if lam is not None else "n_clusters")
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

    def _refuse_empty(self, argument: str) -> None:
        if not self.results:
            _checks.refuse(
                "the path is empty: it was stopped before its first lam was finished; run it again.",
                argument=argument,
                got="0 lams",
                wanted="at least one finished lam",
            )

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

    def select(self, criterion: str = "plateau", **options: Any) -> Result:
        """The result that a criterion chooses: ``selection(criterion).result``.

        Parameters
        ----------
        criterion : "plateau", "bic", "ebic", "holdout", "kfold" or "stability"
            See `selection.choose`, which takes the options.

        Raises
        ------
        InvalidArgumentError
            The criterion has nothing to choose from, or does not fit the loss; the message says why.
        """
        return self.selection(criterion, **options).result

    def selection(self, criterion: str = "plateau", **options: Any) -> Selection:
        """The choice of a criterion with its curve over lam; see `selection.choose`."""
        from fusionopt.selection import choose

        self._refuse_empty("criterion")
        return choose(self, criterion, **options)

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

        self._refuse_empty("plot")
        return plot_paths(self, **options)

    def explore(self, file: str | os.PathLike[str], **options: Any) -> Path:
        """Write a self-contained HTML page to explore the path, see `explorer.explorer_html`; returns its path."""
        from fusionopt.explorer import write_explorer

        return write_explorer(self, file, **options)

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
        """Write the problem, every result (without duals) and located events to one .npz file, without pickle."""
        arrays = _archive.pack_problem(self.problem) | {
            "path.lams": self.lams,
            "path.lambda_max": np.array(np.nan if self._lambda_max is None else self._lambda_max),
            "path.status": np.frombuffer(self.status.encode(), dtype=np.uint8),
        }
        for k, result in enumerate(self.results):
            arrays |= _archive.pack_result(result, f"{k}.")
        if self._located is not None:
            arrays |= pack_events(self._located)
        _archive.write(path, "path", arrays)

    @staticmethod
    def load(path: str | Path) -> PathResult:
        """Read what `save` wrote.

        Raises
        ------
        InvalidArgumentError
            No such file, or not such a file.
        """
        arrays = _archive.read(path, "path")
        problem = _archive.unpack_problem(arrays)
        lams = arrays["path.lams"]
        results = [_archive.unpack_result(arrays, f"{k}.", problem) for k in range(len(lams))]
        top = float(arrays["path.lambda_max"])
        status = arrays["path.status"].tobytes().decode() if "path.status" in arrays else ""
        return PathResult(
            problem, lams, results, None if np.isnan(top) else top, status, unpack_events(arrays)
        )

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
    checkpoint: str | os.PathLike[str] | None = None,
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
    events : "grid" or "locate"
        "grid": merges and splits are told by the grid step in which they happen. "locate": each is found inside its
        step (from lam = 0 up to the largest lam) by further solves, see `locate`.
    settings : Settings or None
        For every lam; ``time_limit`` counts for each lam on its own.
    callback : callable or None
        Called with a `PathProgress` after each lam, and with ``events="locate"`` after each step searched; a true
        return value stops the path.
    checkpoint : path or None
        Folder in which every finished lam is kept. The same call on the folder of a run that was stopped or killed
        goes on where it was, to the same bits (times apart) as a run without a break.

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
    Lams are visited in ascending order, each from the state of the one before, whatever order they are given in;
    a repeated lam is solved once. With `checkpoint`, a method without a state to save starts each lam from the x of
    the one before instead.
    """
    _checks.check_instance("problem", problem, FusionProblem, "for instance FusionProblem(loss, graph)")
    chosen = default_settings(problem) if settings is None else settings
    _checks.check_instance("settings", chosen, Settings, "for instance AdmmSettings(), or None")
    _checks.check_choice("events", events, ("grid", "locate"))
    _checks.check_callback(callback)
    count = _checks.as_count("n_lams", n_lams)
    ratio = _checks.as_scalar_between(
        "lam_min_ratio", lam_min_ratio, 0.0, 1.0, "the grid runs down from lambda_max"
    )
    given = None if lams is None else _as_lams(lams)
    if checkpoint is None:
        return _Walk(problem, chosen, callback, None).run(given, count, ratio, events)
    request: dict[str, object] = {
        "lams": [count, ratio] if given is None else given.tolist(),
    }
    with Checkpoint(_checks.as_path("checkpoint", checkpoint), problem, chosen, request) as kept:
        return _Walk(problem, chosen, callback, kept).run(given, count, ratio, events)


class _StoppedError(Exception):
    """A solve of the search for events was interrupted."""


class _Walk:
    """One run over a grid: what is done, and what is kept on the disk."""

    def __init__(
        self,
        problem: FusionProblem,
        settings: Settings,
        callback: Callable[[PathProgress], object] | None,
        kept: Checkpoint | None,
    ) -> None:
        self._problem = problem
        self._settings = settings
        self._callback = callback
        self._kept = kept
        self._start = time.perf_counter()
        self._status = ""

    def run(self, given: FloatArray | None, count: int, ratio: float, events: str) -> PathResult:
        with watch_interrupt() as interrupt:
            self._interrupt = interrupt
            grid, upper = self._grid(given, count, ratio)
            ascending = np.unique(grid)
            done = self._solve_all(ascending)
            found = None
            if events == "locate" and done:
                found = self._locate(ascending[: len(done)], done)
        place = np.searchsorted(ascending, grid)
        finished = place < len(done)
        top = self._problem.with_lam(float(grid.max()))
        results = [done[int(k)] for k in place[finished]]
        return PathResult(top, grid[finished], results, upper, self._status, found)

    def _grid(self, given: FloatArray | None, count: int, ratio: float) -> tuple[FloatArray, float | None]:
        known = None if self._kept is None else self._kept.grid()
        if known is not None:
            return known
        upper = bracket_lambda_max(self._problem, self._interrupt)[1] if given is None else None
        if upper is not None and not np.isfinite(upper):
            _checks.refuse(
                f"{type(self._problem.penalty).__name__} never fuses, so there is no lambda_max for an automatic grid "
                "to start from; give lams= yourself.",
                argument="lams",
                got=None,
                wanted="lams",
            )
        grid = given if upper is None else _grid(upper, count, ratio)
        assert grid is not None
        if self._kept is not None:
            self._kept.keep_grid(grid, upper)
        return grid, upper

    def _solve_all(self, lams: FloatArray) -> list[Result]:
        """Results at the smallest lams, all of them unless something stops the walk."""
        done = [] if self._kept is None else [self._kept.load(k) for k in range(self._kept.finished())]
        known = len(done)
        keeps_duals = len(lams) * self._problem.graph.n_edges * self._problem.n_features * 8 <= DUALS_LIMIT
        session: Session | None = None
        for k in range(known, len(lams)):
            session = self._session(session, float(lams[k]), k, done)
            result = session.run(Monitor(self._settings, self._interrupt))
            if result.status == "interrupted":
                self._status = "interrupted"
                break
            if not keeps_duals:
                result.drop_duals()
            elif result.has_duals:
                result.keep_duals(result.edge_duals().copy)
            done.append(result.compact())
            if self._kept is not None:
                state = session.state() if isinstance(session, ResumableSession) else None
                self._kept.keep(k, result, state)
            if self._told("grid", k + 1, len(lams), known, float(lams[k]), result):
                self._status = "user_limit" if len(done) < len(lams) else ""
                break
            if self._interrupt.requested and len(done) < len(lams):
                self._status = "interrupted"
                break
        return done

    def _session(self, session: Session | None, lam: float, place: int, done: list[Result]) -> Session:
        problem = self._problem.with_lam(lam)
        if session is not None and (self._kept is None or isinstance(session, ResumableSession)):
            session.set_lam(lam)
            return session
        if place == 0:
            return open_session(problem, self._settings, None)
        state = None if self._kept is None else self._kept.state(place - 1)
        if state is None:
            return open_session(problem, self._settings, done[place - 1].x)
        # The first lam chose the session of the whole path: at lam = 0 none is rotated (methods/rotated.py).
        before = open_session(done[0].problem, self._settings, None)
        assert isinstance(before, ResumableSession)
        before.restore(state)
        before.set_lam(lam)
        return before

    def _told(self, phase: str, done: int, total: int, known: int, lam: float, result: Result) -> bool:
        if self._callback is None:
            return False
        elapsed = time.perf_counter() - self._start
        remaining = elapsed / max(done - known, 1) * (total - done)
        progress = PathProgress(done, total, elapsed, remaining, lam, result, phase)
        return _checks.as_stop(self._callback(progress))

    def _locate(self, lams: FloatArray, results: list[Result]) -> list[Event]:
        """Events of every step, located; those of steps not reached are told by the grid."""
        points = [Point(0.0, _partition_at_zero(self._problem), None, True)]
        points += [
            Point(float(lam), result.labels, result.x, result.proven)
            for lam, result in zip(lams, results, strict=True)
            if lam > 0
        ]
        steps = len(points) - 1
        out: list[Event] = []
        self._start = time.perf_counter()
        for k in range(steps):
            low, high = points[k], points[k + 1]
            try:
                if self._interrupt.requested:
                    raise _StoppedError
                out += locate_events(self._problem, low, high, self._solve_between)
            except _StoppedError:
                self._status = self._status or "interrupted"
            else:
                if not self._told("locate", k + 1, steps, 0, high.lam, results[k - steps]):
                    continue
                self._status = self._status or ("user_limit" if k + 1 < steps else "")
                k += 1
            rest = points[k:]
            out += find_events(
                np.array([p.lam for p in rest]),
                [p.labels for p in rest],
                rest[0].labels,
                certified=[p.proven for p in rest],
            )
            break
        return share_heights(out)

    def _solve_between(self, lam: float, start: FloatArray | None) -> Point:
        """A solve that depends on nothing but its arguments, so that it can be kept."""
        result = None if self._kept is None else self._kept.point(lam)
        if result is None:
            session = open_session(self._problem.with_lam(lam), self._settings, start)
            result = session.run(Monitor(self._settings, self._interrupt))
            if result.status == "interrupted":
                raise _StoppedError
            result.drop_duals()
            result.compact()
            if self._kept is not None:
                self._kept.keep_point(result)
        return Point(lam, result.labels, result.x, result.proven)


def _partition_at_zero(problem: FusionProblem) -> IntArray:
    """Nodes whose own minimisers coincide along edges are one cluster from the start."""
    # At lam = 0 no penalty acts: any will do.
    settings = AdmmSettings()
    session = open_session(FusionProblem(problem.loss, problem.graph), settings, None)
    return session.run(Monitor(settings, Interrupt())).labels


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
