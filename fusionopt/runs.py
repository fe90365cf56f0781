"""One run of the command line: a table in, a solve, a whole result folder out."""

from __future__ import annotations

import dataclasses
import math
import platform
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, TextIO

import numpy as np
from numpy.typing import NDArray

from fusionopt import plotting
from fusionopt.clusters import n_large
from fusionopt.comparison import Comparison, adjusted_rand, compare_labels
from fusionopt.errors import InvalidArgumentError
from fusionopt.io import ResultFolder, Standardised, Table, read_table, standardise
from fusionopt.report import Figure, ReportContent, render_report
from fusionopt.selection import Selection, coarse_hint, curve, select_plateau

if TYPE_CHECKING:
    from fusionopt.graph import Graph
    from fusionopt.methods import Progress
    from fusionopt.path import PathProgress, PathResult
    from fusionopt.result import Result
    from fusionopt.settings import AdmmSettings

DEFAULT_NEIGHBORS = 10
_VERIFY = "python -m fusionopt.verify certificate.npz --data data_as_solved.npy"
_MAX_CERTIFIED = 600  # clusters times columns: the check solves dense systems of this size
_MAX_DUALS = 2**23  # numbers: 64 MiB in each file that holds duals


@dataclass(frozen=True)
class Request:
    """What the user asked for; ``lam=None`` asks for a path."""

    data: Path
    out: Path | None
    force: bool
    labels_column: str | None
    drop: tuple[str, ...]
    delimiter: str | None
    header: bool | None
    key: str | None
    standardise: bool
    graph: str
    n_neighbors: int | None
    lam: float | None
    eps_rel: float
    max_iter: int
    time_limit: float | None
    n_lams: int = 100
    lam_min_ratio: float = 1e-3
    lams: tuple[float, ...] | None = None
    events: str = "grid"
    checkpoint: Path | None = None
    criterion: str = "plateau"
    n_repeats: int = 20
    random_state: int = 0
    tables: str = "csv"


@dataclass(frozen=True)
class Outcome:
    """What a run left behind.

    Attributes
    ----------
    folder : Path
        The result folder, whole.
    summary : list of str
        Lines for a reader in a hurry.
    converged : bool
        Every status is optimal or stationary.
    interrupted : bool
        Ctrl-C came before the end; the folder holds what was finished.
    """

    folder: Path
    summary: list[str]
    converged: bool
    interrupted: bool


def versions() -> dict[str, str]:
    """Versions of the package and what it runs on, and what the compiled core tells of itself."""
    import scipy

    import fusionopt
    from fusionopt._bridge import core_info

    told = {
        "fusionopt": fusionopt.__version__,
        "python": platform.python_version(),
        "numpy": np.__version__,
        "scipy": scipy.__version__,
        "machine": f"{platform.system()} {platform.machine()}",
    }
    return told | {f"core {name.replace('_', ' ')}": str(value) for name, value in core_info().items()}


class Meter:
    """Progress with time left, on one line of a terminal or on a line now and then of a file."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._terminal = stream.isatty()
        self._every = 0.1 if self._terminal else 1.0
        self._last = -math.inf
        self._width = 0
        self._first_gap = math.nan

    def path(self, progress: PathProgress) -> None:
        """Show one finished lam of a path."""
        result = progress.result
        what = f"lam {progress.lam:.3g}  {result.n_clusters} clusters  gap {result.rel_gap:.1e}"
        if progress.phase == "locate":
            what = f"events up to lam {progress.lam:.3g}"
        left = f", about {_duration(progress.remaining)} left" if math.isfinite(progress.remaining) else ""
        self._show(
            f"{progress.done}/{progress.total}  {what}  {_duration(progress.elapsed)}{left}",
            final=progress.done == progress.total,
        )

    def replicate(self, done: int, total: int) -> None:
        """Show how many of the paths that a criterion asks for are solved."""
        self._show(f"{done}/{total} paths for the choice of lam", final=done == total)

    def solve(self, progress: Progress, eps_rel: float) -> None:
        """Show one check of a solve; the time left assumes that the gap goes on falling as it did."""
        gap = progress.rel_gap
        if math.isnan(self._first_gap) and gap > 0:
            self._first_gap = gap
        left = ""
        if 0 < eps_rel < gap < self._first_gap:
            share = math.log(gap / eps_rel) / math.log(self._first_gap / gap)
            left = f", about {_duration(progress.elapsed * share)} left"
        self._show(f"iteration {progress.iteration}  gap {gap:.1e}  {_duration(progress.elapsed)}{left}")

    def rounds(self, what: str, done: int, total: int, elapsed: float) -> None:
        """Show a round; the time left assumes that rounds go on taking as long."""
        left = f", about {_duration(elapsed * (total - done) / done)} left" if done < total else ""
        self._show(f"{done}/{total}  {what}  {_duration(elapsed)}{left}", final=done == total)

    def close(self) -> None:
        """Leave the line."""
        if self._terminal and self._width:
            self._stream.write("\n")
            self._stream.flush()
            self._width = 0

    def _show(self, text: str, final: bool = False) -> None:
        now = time.monotonic()
        if now - self._last < self._every and not final:
            return
        self._last = now
        if self._terminal:
            self._stream.write("\r" + text.ljust(self._width))
            self._width = len(text)
        else:
            self._stream.write(text + "\n")
        self._stream.flush()


def _duration(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:.1f} s"
    if seconds < 3600:
        return f"{seconds / 60:.1f} min"
    return f"{seconds / 3600:.1f} h"


@contextmanager
def interrupt_deferred() -> Iterator[list[bool]]:
    """Keep the first Ctrl-C in a list while finished work is written; a second one raises."""
    seen: list[bool] = []
    if threading.current_thread() is not threading.main_thread():
        yield seen
        return

    def handler(signum: int, frame: FrameType | None) -> None:
        if seen:
            raise KeyboardInterrupt
        seen.append(True)
        print("\nfusionopt: writing what is finished; Ctrl-C again to throw it away", file=sys.stderr)

    previous = signal.signal(signal.SIGINT, handler)
    try:
        yield seen
    finally:
        signal.signal(signal.SIGINT, previous)


def run(request: Request, command: str, meter: Meter | None = None) -> Outcome:
    """Read, solve, and write a result folder.

    Parameters
    ----------
    request : Request
    command : str
        The command line, for the report.
    meter : Meter, optional

    Returns
    -------
    Outcome

    Raises
    ------
    FusionoptError
        Misuse; raised before any solve, and nothing is left behind.
    KeyboardInterrupt
        Ctrl-C before anything was finished, or twice; nothing is left behind.
    """
    from fusionopt.settings import AdmmSettings

    started = time.monotonic()
    plotting.require_matplotlib()
    target = request.out if request.out is not None else Path(f"{request.data.stem}-fusionopt")
    settings = AdmmSettings(eps_rel=request.eps_rel, max_iter=request.max_iter, time_limit=request.time_limit)
    with ResultFolder(target, force=request.force, tables=request.tables) as folder:
        table = read_table(
            request.data,
            request.labels_column,
            request.delimiter,
            request.header,
            key=request.key,
            drop_columns=request.drop,
        )
        job = _Job(request, command, settings, table)
        path, result = job.solve(meter)
        with interrupt_deferred() as seen:
            outcome = job.write(folder, path, result, started)
    return dataclasses.replace(outcome, interrupted=True) if seen else outcome


def _certified(result: Result) -> tuple[bool | None, str]:
    """(answer, words) of the separate check of the partition, left out where it would outlast the solve."""
    size = result.n_clusters * result.x.shape[1]
    if size > _MAX_CERTIFIED:
        return None, f"not checked, for {result.n_clusters} clusters are many"
    answer = result.labels_certified
    return answer, {True: "certified", False: "not certified", None: "certificate not decided"}[answer]


class _Job:
    """The steps of one run, with what they share."""

    def __init__(self, request: Request, command: str, settings: AdmmSettings, table: Table) -> None:
        from fusionopt.losses import SquaredDistance
        from fusionopt.problem import FusionProblem

        self.request = request
        self.command = command
        self.settings = settings
        self.table = table
        self.notes: list[str] = list(table.notes)
        self.has_tree = False
        self.scaled: Standardised | None = None
        points = table.values
        if request.standardise:
            self.scaled = standardise(points)
            points = self.scaled.values
            if self.scaled.constant:
                names = ", ".join(table.column_names[i] for i in self.scaled.constant)
                self.notes.append(
                    f"Constant columns cannot be scaled to variance 1 and are left at zero: {names}."
                )
        self.graph = self._graph(points)
        if self.graph.n_components > 1:
            self.notes.append(
                f"The graph has {self.graph.n_components} components; rows of different components never "
                "fuse."
            )
        self.points = points
        lam = 0.0 if request.lam is None else request.lam
        self.problem = FusionProblem(SquaredDistance(points), self.graph, lam=lam)

    def _graph(self, points: NDArray[np.float64]) -> Graph:
        from fusionopt.graph import Graph

        n, asked = len(points), self.request.n_neighbors
        if self.request.graph == "complete":
            if asked is not None:
                raise InvalidArgumentError(
                    f"--n-neighbors {asked} is for --graph knn; leave it out with --graph complete.",
                    argument="n_neighbors",
                    got=asked,
                    wanted="--graph knn",
                )
            self.graph_words = "complete graph, weight 1"
            return Graph.complete(n)
        k = DEFAULT_NEIGHBORS if asked is None else asked
        if k > n - 1 > 0:
            self.notes.append(f"The table has {n} rows, so all {n - 1} neighbours of each row are used.")
        self.graph_words = f"nearest neighbours, k = {k}, Gaussian weights"
        return Graph.knn(points, n_neighbors=k)

    def solve(self, meter: Meter | None) -> tuple[PathResult | None, Result]:
        """The path (None for one lam) and the result shown in full."""
        from fusionopt.path import solution_path
        from fusionopt.solver import solve

        try:
            if self.request.lam is not None:
                eps_rel = self.settings.eps_rel

                def on_check(progress: Progress) -> None:
                    if meter is not None:
                        meter.solve(progress, eps_rel)

                self.selection: Selection | None = None
                return None, solve(self.problem, self.settings, callback=on_check)

            started = time.monotonic()

            def on_lam(progress: PathProgress) -> bool:
                if meter is not None:
                    meter.path(progress)
                limit = self.request.time_limit
                return limit is not None and time.monotonic() - started >= limit

            path = solution_path(
                self.problem,
                self.request.lams,
                n_lams=self.request.n_lams,
                lam_min_ratio=self.request.lam_min_ratio,
                events=self.request.events,
                settings=self.settings,
                callback=on_lam,
                checkpoint=self.request.checkpoint,
            )
            if not path.results:
                raise KeyboardInterrupt
            self._tell(path)
            self.selection = self._choose(path, meter)
        finally:
            if meter is not None:
                meter.close()
        if self.selection.criterion == "plateau" and (hint := coarse_hint(path)):
            self.notes.append(hint)
        return path, self._certified(path, self.selection.result)

    def _tell(self, path: PathResult) -> None:
        """Notes about the range of the path."""
        wanted = self.request.n_lams if self.request.lams is None else len(self.request.lams)
        if path.lambda_max > 0 and len(path.results) < wanted:
            self.notes.append(f"Only {len(path.results)} of {wanted} values of lam were reached.")
        self.notes += path.notes

    def _choose(self, path: PathResult, meter: Meter | None) -> Selection:
        criterion = self.request.criterion
        if criterion == "plateau" or path.status == "interrupted":
            return select_plateau(path)
        try:
            return path.selection(
                criterion,
                n_repeats=self.request.n_repeats,
                random_state=self.request.random_state,
                callback=None if meter is None else meter.replicate,
            )
        except InvalidArgumentError as error:
            # The path is solved: what it shows is worth more than a refusal now.
            self.notes.append(f"{criterion} could not choose ({error}); the plateau did.")
            return select_plateau(path)

    def _certified(self, path: PathResult, chosen: Result) -> Result:
        """The chosen result with its duals, solved again where a large path did not keep them."""
        from fusionopt.solver import solve

        if chosen.has_duals or path.status == "interrupted":
            return chosen
        again = solve(chosen.problem, self.settings, warm_start=chosen)
        if again.status != chosen.status:
            return chosen
        place = next(i for i, result in enumerate(path.results) if result is chosen)
        path.results[place] = again
        return again

    def write(self, folder: ResultFolder, path: PathResult | None, result: Result, started: float) -> Outcome:
        """All files; what they tell is computed here, after the solve."""
        results = [result] if path is None else list(path.results)
        statuses = {r.status for r in results} | ({result.status} if path is None else {path.status})
        interrupted = "interrupted" in statuses
        converged = statuses <= {"optimal", "stationary"}
        if interrupted:
            self.notes.append("Interrupted by Ctrl-C; this is what was finished.")
        self.certified = _certified(result)
        comparison, aris = None, None
        if self.table.labels is not None:
            comparison = compare_labels(result.labels, self.table.labels)
            aris = [adjusted_rand(r.labels, self.table.labels) for r in results]
        rows = [_result_row(r) for r in results]
        if aris is not None:
            rows = [row | {"ari": ari} for row, ari in zip(rows, aris, strict=True)]
        created = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
        told = versions()
        selection = "lam was given." if self.selection is None else self.selection.sentence
        self._write_tables(folder, result, rows)
        if path is not None:
            self._write_path(folder, path)
        figures = self._figures(folder, path, result)
        proof = result.has_duals and result.problem.graph.n_edges * result.x.shape[1] <= _MAX_DUALS
        folder.write_text(
            "report.html",
            render_report(
                ReportContent(
                    source=self.table.source.name,
                    version=told["fusionopt"],
                    created=created,
                    command=self.command,
                    data=self._facts(),
                    result=result,
                    path=path,
                    partition=self.certified[1],
                    selection=selection,
                    comparison=comparison,
                    figures=figures,
                    settings=dataclasses.asdict(self.settings) | told,
                    units="standardised units" if self.scaled is not None else "the units of the table",
                    notes=self.notes,
                    verify=_VERIFY if proof else "",
                    best_ari=None if aris is None or path is None else max(aris),
                )
            ),
        )
        if proof:
            result.save(folder.path / "solution.npz")
            result.certificate().save(folder.path / "certificate.npz")
            np.save(folder.path / "data_as_solved.npy", self.points, allow_pickle=False)
        folder.write_json(
            "results.json",
            {
                "fusionopt": told["fusionopt"],
                "command": self.command,
                "created": created,
                "versions": told,
                "data": self._data(),
                "problem": {
                    "loss": type(self.problem.loss).__name__,
                    "penalty": type(self.problem.penalty).__name__,
                    "graph": self.request.graph,
                    "graph_words": self.graph_words,
                    "n_edges": self.graph.n_edges,
                    "n_components": self.graph.n_components,
                },
                "settings": dataclasses.asdict(self.settings),
                "notes": self.notes,
                "status": result.status if path is None else path.status,
                "converged": converged,
                "interrupted": interrupted,
                "lambda_max_bound": None if path is None else path.lambda_max,
                "selection": {
                    "criterion": "given" if self.selection is None else self.selection.criterion,
                    "sentence": selection,
                    "curve": None if self.selection is None else curve(self.selection),
                },
                "chosen": self._chosen(result),
                "comparison": None if comparison is None else comparison.to_dict(),
                "path": rows,
                "seconds": time.monotonic() - started,
            },
        )
        summary = self._summary(path, result, results, comparison, aris, time.monotonic() - started)
        if not converged and not interrupted:
            summary.insert(-1, self._why_not(path, results))
        return Outcome(folder.target, summary, converged, interrupted)

    def _why_not(self, path: PathResult | None, results: list[Result]) -> str:
        """Why the exit code is 3."""
        missed = [r for r in results if r.status not in ("optimal", "stationary")]
        if not missed:
            return "exit code 3: the run ended before the last lam: raise --time-limit"
        worst = max(missed, key=lambda r: r.rel_gap if math.isfinite(r.rel_gap) else math.inf)
        where = f"at lam = {worst.problem.lam:.4g}" if path is not None else "here"
        return (
            f"exit code 3: {len(missed)} of {_count(len(results), 'solve')} did not meet --eps-rel "
            f"{self.settings.eps_rel:.0e}; {where}: {worst.message}"
        )

    def _figures(self, folder: ResultFolder, path: PathResult | None, result: Result) -> list[Figure]:
        drawn = []
        if path is not None:
            drawn = [
                (
                    "paths",
                    plotting.plot_paths(path, chosen=result),
                    "Every line is a row; lines that meet are fused.",
                ),
                (
                    "clusters",
                    plotting.plot_cluster_counts(path, chosen=result),
                    "Number of clusters over lam; shaded where it stays the same.",
                ),
            ]
        drawn.append(
            (
                "projection",
                plotting.plot_projection(result if path is None else path, chosen=result),
                "The table in two dimensions, with the clusters found"
                + ("." if path is None else "; thin lines show where x goes as lam grows."),
            )
        )
        if path is not None:
            if self.has_tree:
                drawn.append(
                    (
                        "tree",
                        plotting.plot_dendrogram(path, chosen=result),
                        "The tree of merges; the clusters chosen are coloured.",
                    )
                )
            if self.points.shape[1] > 1:
                drawn.append(
                    (
                        "heat-map",
                        plotting.plot_heat_map(path, chosen=result, column_names=self.table.column_names),
                        "The table, similar rows side by side; at the left the clusters chosen.",
                    )
                )
            drawn.append(
                (
                    "gaps",
                    plotting.plot_gaps(path),
                    "How far above the best possible each solution may be, at most.",
                )
            )
        if len(result.trace["time"]) > 1:
            drawn.append(
                ("gap", plotting.plot_gap(result), "The certified gap while the chosen lam was solved.")
            )
        figures = []
        for name, ax, caption in drawn:
            svg, png = plotting.figure_files(ax)
            folder.write_text(f"figures/{name}.svg", plotting.on_white(svg))
            folder.write_bytes(f"figures/{name}.png", png)
            figures.append(Figure(name, svg, caption))
        return figures

    def _write_tables(self, folder: ResultFolder, result: Result, rows: list[dict[str, Any]]) -> None:
        table = self.table
        labels = [int(label) for label in result.labels]
        if table.labels is None:
            folder.write_table("labels", ["row", "label"], enumerate(labels))
        else:
            known = table.labels.tolist()
            folder.write_table(
                "labels",
                ["row", "label", "known"],
                ((i, label, truth) for i, (label, truth) in enumerate(zip(labels, known, strict=True))),
            )
        header = ["cluster", "size", *table.column_names]
        sizes = [int(size) for size in result.cluster_sizes]

        def centre_rows(centers: NDArray[np.float64]) -> list[list[Any]]:
            return [
                [k, size, *center.tolist()]
                for k, (size, center) in enumerate(zip(sizes, centers, strict=True))
            ]

        folder.write_table("centers", header, centre_rows(result.centers))
        if self.scaled is not None:
            original = self.scaled.to_original(result.centers)
            folder.write_table("centers_original_units", header, centre_rows(original))
        folder.write_table("path", list(rows[0]), ([row[name] for name in rows[0]] for row in rows))

    def _write_path(self, folder: ResultFolder, path: PathResult) -> None:
        """Events, the tree where there is one, the curve of the choice, and the page to explore them."""
        from fusionopt.explorer import explorer_html

        events = [[e.kind, e.lam, *e.bracket, e.how, e.certified, len(e.members)] for e in path.events]
        header = ["kind", "lam", "low", "high", "how", "certified", "rows"]
        folder.write_table("events", header, events)
        try:
            tree = path.linkage()
        except InvalidArgumentError as error:
            self.notes.append(f"There is no tree: {error}")
        else:
            self.has_tree = True
            folder.write_table("tree", ["left", "right", "lam", "rows"], tree.tolist())
        assert self.selection is not None
        folder.write_table(
            "selection",
            ["lam", "score", "standard_error"],
            zip(*(column for column in curve(self.selection).values()), strict=True),
        )
        known = None if self.table.labels is None else self.table.labels.tolist()
        title = f"{self.table.source.name}: solution path"
        names = list(self.table.column_names)
        folder.write_text(
            "explorer.html",
            explorer_html(path, title=title, selection=self.selection, column_names=names, known=known),
        )

    def _facts(self) -> list[tuple[str, str]]:
        n, d = self.table.values.shape
        facts = [
            ("table", f"{self.table.source.name}: {n} rows, {d} columns"),
            ("columns", _listed(self.table.column_names)),
            ("scaling", "none" if self.scaled is None else "every column to mean 0 and variance 1"),
            ("graph", f"{self.graph_words}: {_count(self.graph.n_edges, 'edge')}, "
                      f"{_count(self.graph.n_components, 'component')}"),
        ]  # fmt: skip
        if self.table.labels_name is not None:
            facts.append(
                ("known labels", f"column {self.table.labels_name!r}, compared with afterwards only")
            )
        return facts

    def _data(self) -> dict[str, Any]:
        n, d = self.table.values.shape
        return {
            "source": str(self.table.source),
            "rows": n,
            "columns": d,
            "column_names": list(self.table.column_names),
            "labels_column": self.table.labels_name,
            "standardised": self.scaled is not None,
            "mean": None if self.scaled is None else self.scaled.mean,
            "scale": None if self.scaled is None else self.scaled.scale,
        }

    def _chosen(self, result: Result) -> dict[str, Any]:
        return _result_row(result) | {
            "message": result.message,
            "labels_certified": self.certified[0],
            "cluster_sizes": [int(size) for size in result.cluster_sizes],
            "primal_residual": result.primal_residual,
            "dual_residual": result.dual_residual,
        }

    def _summary(
        self,
        path: PathResult | None,
        result: Result,
        results: list[Result],
        comparison: Comparison | None,
        aris: list[float] | None,
        seconds: float,
    ) -> list[str]:
        n, d = self.table.values.shape
        scaling = ", standardised" if self.scaled is not None else ""
        lines = [
            f"{self.table.source.name}: {n} rows, {d} columns{scaling}",
            f"{self.graph_words}: {_count(self.graph.n_edges, 'edge')}, "
            f"{_count(self.graph.n_components, 'component')}",
            *self.notes,
        ]
        if path is not None:
            met = sum(r.status in ("optimal", "stationary") for r in results)
            gaps = [r.rel_gap for r in results if math.isfinite(r.rel_gap)]
            worst = f"{max(gaps):.2e}" if gaps else "not known"
            lams = np.asarray(path.lams[: len(results)], dtype=np.float64)
            lines.append(
                f"{_count(len(results), 'value')} of lam from {lams.min():.4g} to {lams.max():.4g}: {met} "
                f"within the tolerance {self.settings.eps_rel:.0e}, largest relative gap {worst}"
            )
        lines.append("" if self.selection is None else self.selection.sentence)
        row = _result_row(result)
        lines.append(
            f"lam = {row['lam']:.6g}: {result.status}, objective {result.objective:.10g}, lower bound "
            f"{result.dual_objective:.10g}, relative gap {result.rel_gap:.2e}"
        )
        if result.status not in ("optimal", "stationary") and result.message:
            lines.append(result.message)
        lines.append(
            f"{_count(result.n_clusters, 'cluster')} ({self.certified[1]}): "
            f"{row['n_large_clusters']} with 5 % of the rows or more, {_count(row['n_singletons'], 'row')} "
            f"alone; sizes {_listed([str(int(s)) for s in -np.sort(-np.asarray(result.cluster_sizes))], 12)}"
        )
        if comparison is not None and aris is not None:
            lines.append(
                f"against {self.table.labels_name!r} ({len(comparison.known)} labels): ARI "
                f"{comparison.ari:.3f} over all rows, rows alone counted; "
                f"{comparison.ari_without_singletons:.3f} over grouped rows only; homogeneity "
                f"{comparison.homogeneity:.3f}, completeness {comparison.completeness:.3f}"
            )
            if path is not None:
                lines.append(f"the best ARI on the path, which needs the labels to find, is {max(aris):.3f}")
        lines.append(f"{_duration(seconds)} in all; results, figures and report.html are in")
        return [line for line in lines if line]


def _count(n: int, noun: str) -> str:
    return f"{n} {noun}" if n == 1 else f"{n} {noun}s"


def _listed(items: list[str] | tuple[str, ...], limit: int = 30) -> str:
    return ", ".join(items[:limit]) + (f", ... ({len(items) - limit} more)" if len(items) > limit else "")


def _result_row(result: Result) -> dict[str, Any]:
    sizes = np.asarray(result.cluster_sizes)
    return {
        "lam": float(result.problem.lam),
        "status": result.status,
        "n_clusters": int(result.n_clusters),
        "n_large_clusters": n_large(sizes),
        "n_singletons": int(np.sum(sizes == 1)),
        "objective": float(result.objective),
        "dual_objective": float(result.dual_objective),
        "gap": float(result.gap),
        "rel_gap": float(result.rel_gap),
        "n_iter": int(result.n_iter),
        "setup_time": float(result.setup_time),
        "solve_time": float(result.solve_time),
    }
