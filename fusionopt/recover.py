"""``fusionopt recover``: for which lam are known groups recovered, how sure is it, what holds them together?"""

from __future__ import annotations

import dataclasses
import math
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fusionopt import _checks, plotting
from fusionopt.comparison import adjusted_rand
from fusionopt.errors import InvalidArgumentError
from fusionopt.forces import (
    EdgeForces,
    Parting,
    Together,
    edge_forces,
    loosest_pair,
    what_parts,
    why_together,
)
from fusionopt.io import ResultFolder, Table, read_table, standardise
from fusionopt.recover_report import RecoverContent, draw, render
from fusionopt.runs import DEFAULT_NEIGHBORS, Meter, Outcome, interrupt_deferred, versions

if TYPE_CHECKING:
    from fusionopt.graph import Graph
    from fusionopt.losses.base import NodeLoss
    from fusionopt.path import PathProgress, PathResult
    from fusionopt.problem import FusionProblem
    from fusionopt.recovery import FlowCurve, RecoveryInterval
    from fusionopt.result import Result

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

LOSSES = ("squared-distance", "least-squares", "logistic", "squared-hinge")
_FLOW_LAMS = 24
_MAX_NODES = 1500
"""Nodes of a complete graph up to which the flows are looked at: duals for every pair are held several times."""


@dataclass(frozen=True)
class RecoverRequest:
    """What the user asked for."""

    data: Path
    out: Path | None
    force: bool
    labels_column: str
    drop: tuple[str, ...]
    delimiter: str | None
    header: bool | None
    key: str | None
    standardise: bool
    graph: str | None
    n_neighbors: int | None
    loss: str
    groups: str | None
    target: str | None
    ridge: float
    n_lams: int
    pair: tuple[int, int] | None
    eps_rel: float
    time_limit: float | None


@dataclass(frozen=True)
class CurvePoint:
    """One lam of the path."""

    lam: float
    status: str
    n_clusters: int
    ari: float
    score: float
    refit_score: float
    proved: bool | None


def run_recover(request: RecoverRequest, command: str, meter: Meter | None = None) -> Outcome:
    """Read, scan, solve a path, and write a result folder.

    Parameters
    ----------
    request : RecoverRequest
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
    started = time.monotonic()
    plotting.require_matplotlib()
    target = request.out if request.out is not None else Path(f"{request.data.stem}-recover")
    _check_numbers(request)
    with ResultFolder(target, force=request.force) as folder:
        job = _Job(request, command, _Nodes(request))
        job.solve(meter)
        with interrupt_deferred() as seen:
            outcome = job.write(folder, started)
    return dataclasses.replace(outcome, interrupted=True) if seen else outcome


def _check_numbers(request: RecoverRequest) -> None:
    _checks.as_count("n_lams", request.n_lams)
    _checks.as_nonnegative_scalar("ridge", request.ridge)
    _checks.as_nonnegative_scalar("eps_rel", request.eps_rel)
    if request.time_limit is not None:
        _checks.as_positive_scalar("time_limit", request.time_limit)


def _read(request: RecoverRequest, labels_column: str, *others: str) -> Table:
    """The table without the other columns, with the text of one of them as its labels."""
    try:
        return read_table(
            request.data,
            labels_column,
            request.delimiter,
            request.header,
            key=request.key,
            drop_columns=(*request.drop, *others),
        )
    except InvalidArgumentError as error:
        options = {request.groups: "--groups", request.target: "--target"}
        option = options.get(error.got) if isinstance(error.got, str) else None
        if option is None or error.wanted != "a column of the file":
            raise
        told = str(error).replace(f"{error.argument}=", f"{option} ", 1)
        _checks.refuse(told, argument=option, got=error.got, wanted=error.wanted)


class _Nodes:
    """The table as nodes: a loss, the known label of each node, and how well given x fit."""

    def __init__(self, request: RecoverRequest) -> None:
        grouped = request.loss != "squared-distance"
        if grouped != (request.groups is not None) or grouped != (request.target is not None):
            _checks.refuse(
                "--loss least-squares, logistic and squared-hinge need --groups and --target; squared-distance needs "
                "neither.",
                argument="loss",
                got=request.loss,
                wanted="--groups and --target with a loss of samples",
            )
        self._samples = grouped
        others = [name for name in (request.groups, request.target) if name is not None]
        table = _read(request, request.labels_column, *others)
        assert table.labels is not None
        self.table = table
        self.notes = list(table.notes)
        features = self._scaled(table.values, request.standardise)
        if request.groups is None or request.target is None:
            self.points, self.known = features, table.labels
            self.loss: NodeLoss = self._distance(features)
            self.names = [str(i) for i in range(len(features))]
            self.words = f"{len(features)} rows"
            self.score_words = "rows whose nearest centre is that of their label"
            return
        # Each as the labels of a reading of its own: names of groups may be text, and columns count as in the file.
        by_group = _read(request, request.groups, request.labels_column, request.target)
        by_target = _read(request, request.target, request.labels_column, request.groups)
        roles = (table.labels_name, by_group.labels_name, by_target.labels_name)
        if len(set(roles)) < len(roles):
            told = ", ".join(map(repr, roles))
            _checks.refuse(
                f"--labels, --groups and --target are columns {told}; give three different ones.",
                argument="groups",
                got=roles,
                wanted="three columns",
            )
        self.names, node = _group_numbers(by_group.labels)
        y = _numbers(by_target)
        self.known = self._one_label(table.labels, node)
        self._node, self._y = node, y
        self._x = features
        self.loss = self._sampled(request, features, y, node)
        if request.loss != "least-squares":
            self._y = np.where(y > 0, 1.0, -1.0)
        self.points = np.empty((0, 0))
        self.words = f"{len(self.names)} groups, {len(y)} rows"
        self.score_words = (
            "share of variance explained" if request.loss == "least-squares" else "accuracy"
        ) + ", each model on all rows of its known label, mean over the groups"

    def _scaled(self, values: FloatArray, wanted: bool) -> FloatArray:
        if not wanted:
            return values
        scaled = standardise(values)
        if scaled.constant:
            self.notes.append("Constant columns cannot be scaled to variance 1 and are left at zero.")
        return scaled.values

    def _one_label(self, labels: NDArray[np.str_], node: IntArray) -> NDArray[np.str_]:
        first = labels[np.unique(node, return_index=True)[1]]
        mixed = np.flatnonzero(first[node] != labels)
        if len(mixed):
            name = self.names[node[mixed[0]]]
            _checks.refuse(
                f"group {name} has rows of several labels; a group is one node and needs one label.",
                argument="labels",
                got=sorted({str(v) for v in labels[node == node[mixed[0]]]}),
                wanted="one label in each group",
            )
        return first

    @staticmethod
    def _distance(points: FloatArray) -> NodeLoss:
        from fusionopt.losses import SquaredDistance

        return SquaredDistance(points)

    @staticmethod
    def _sampled(request: RecoverRequest, x: FloatArray, y: FloatArray, node: IntArray) -> NodeLoss:
        from fusionopt.losses import LeastSquares, Logistic, SquaredHinge

        if request.loss == "least-squares":
            return LeastSquares(x, y, ridge=request.ridge, groups=node)
        kind = Logistic if request.loss == "logistic" else SquaredHinge
        return kind(x, y, ridge=request.ridge, free_bias=True, groups=node)

    def score(self, x: FloatArray, labels: IntArray) -> float:
        """How well the models x (m, d) serve the known labels; NaN where nothing is grouped yet."""
        return self._sample_score(x) if self._samples else self._row_score(x, labels)

    def _row_score(self, x: FloatArray, labels: IntArray) -> float:
        # Rows alone would classify themselves: only clusters of two rows or more are prototypes.
        sizes = np.bincount(labels)
        kept = np.flatnonzero(sizes > 1)
        if len(kept) == 0:
            return math.nan
        centers = x[np.unique(labels, return_index=True)[1]][kept]
        names, number = np.unique(self.known, return_inverse=True)
        votes = np.zeros((len(sizes), len(names)))
        np.add.at(votes, (labels, number), 1)
        given = votes[kept].argmax(axis=1)
        distance = np.square(self.points[:, None, :] - centers[None, :, :]).sum(axis=2)
        return float(np.mean(given[distance.argmin(axis=1)] == number))

    def _sample_score(self, x: FloatArray) -> float:
        from fusionopt.losses import LeastSquares

        scores = []
        for k, row in enumerate(x):
            rows = self.known[self._node] == self.known[k]
            z, y = self._x[rows], self._y[rows]
            if isinstance(self.loss, LeastSquares):
                spread = float(np.square(y - y.mean()).sum())
                scores.append(1.0 - float(np.square(z @ row - y).sum()) / spread if spread > 0 else math.nan)
            else:
                scores.append(float(np.mean(np.where(z @ row[:-1] - row[-1] > 0, 1.0, -1.0) == y)))
        return float(np.mean(scores))


def _group_numbers(labels: NDArray[np.str_] | None) -> tuple[list[str], IntArray]:
    """Names of the groups, ascending, as numbers where all of them are, and the group of each row."""
    assert labels is not None
    try:
        names, node = np.unique(labels.astype(np.float64), return_inverse=True)
    except ValueError:
        found, node = np.unique(labels, return_inverse=True)
        return found.tolist(), node
    return [f"{name:g}" for name in names], node


def _numbers(table: Table) -> FloatArray:
    """The labels of a table as numbers."""
    assert table.labels is not None
    for row, cell in enumerate(table.labels.tolist()):
        try:
            finite = math.isfinite(float(cell))
        except ValueError:
            finite = False
        if not finite:
            _checks.refuse(
                f"--target {table.labels_name!r} has {cell!r} in row {row} (from 0); give finite numbers.",
                argument="target",
                got=cell,
                wanted="finite numbers",
            )
    return table.labels.astype(np.float64)


class _Job:
    """The steps of one run."""

    def __init__(self, request: RecoverRequest, command: str, nodes: _Nodes) -> None:
        from fusionopt.problem import FusionProblem

        self.request, self.command, self.nodes = request, command, nodes
        self.notes = nodes.notes
        self.graph = self._graph()
        self.problem: FusionProblem = FusionProblem(nodes.loss, self.graph)
        self.known: IntArray = np.unique(nodes.known, return_inverse=True)[1]
        if request.pair is not None:
            n = self.problem.n_nodes
            if not all(0 <= node < n for node in request.pair) or request.pair[0] == request.pair[1]:
                _checks.refuse(
                    f"--pair {request.pair[0]} {request.pair[1]} are not two different nodes from 0 to {n - 1}.",
                    argument="pair",
                    got=request.pair,
                    wanted="two nodes",
                )

    def _graph(self) -> Graph:
        from fusionopt.graph import Graph

        n, asked = self.nodes.loss.n_nodes, self.request.n_neighbors
        kind = self.request.graph or ("knn" if self.request.groups is None else "complete")
        if kind == "complete":
            if asked is not None:
                _checks.refuse(
                    f"--n-neighbors {asked} is for --graph knn; leave it out with --graph complete.",
                    argument="n_neighbors",
                    got=asked,
                    wanted="--graph knn",
                )
            if n > _MAX_NODES:
                _checks.refuse(
                    f"{n} nodes on a complete graph are too many for the flow tests (limit {_MAX_NODES}); use --graph "
                    "knn.",
                    argument="graph",
                    got=n,
                    wanted=f"at most {_MAX_NODES} nodes, or --graph knn",
                )
            self.graph_words = "complete graph, weight 1"
            return Graph.complete(n)
        if self.request.groups is not None:
            _checks.refuse(
                "--graph knn needs one point for each node; groups of samples have none. Use --graph complete.",
                argument="graph",
                got="knn with --groups",
                wanted="--graph complete",
            )
        k = DEFAULT_NEIGHBORS if asked is None else asked
        self.graph_words = f"nearest neighbours, k = {k}, Gaussian weights"
        self.notes.append(
            "The printed theorems are about complete graphs; on this graph only the exact test speaks."
        )
        return Graph.knn(self.nodes.points, n_neighbors=k)

    def solve(self, meter: Meter | None) -> None:
        """Intervals, path and flow curve."""
        from fusionopt.critical import lambda_max
        from fusionopt.path import solution_path
        from fusionopt.recovery import flow_curve, recovery_interval
        from fusionopt.settings import AdmmSettings

        self.settings = AdmmSettings(eps_rel=self.request.eps_rel)
        self.interval: RecoveryInterval = recovery_interval(self.problem, self.known)
        self.top = float(lambda_max(self.problem))
        started = time.monotonic()

        def on_lam(progress: PathProgress) -> bool:
            if meter is not None:
                meter.path(progress)
            limit = self.request.time_limit
            return limit is not None and time.monotonic() - started >= limit

        lams = self._grid()
        try:
            self.path: PathResult = solution_path(
                self.problem, lams=lams, settings=self.settings, callback=on_lam
            )
        finally:
            if meter is not None:
                meter.close()
        if not self.path.results:
            raise KeyboardInterrupt
        if len(self.path.results) < len(lams):
            self.notes.append(f"Only {len(self.path.results)} of {len(lams)} values of lam were reached.")
        every = max(1, math.ceil(len(lams) / _FLOW_LAMS))
        self.flows: FlowCurve = flow_curve(self.problem, self.known, np.sort(lams)[::every])
        self.points = [self._point(result) for result in self.path.results]
        self.chosen, self.why_chosen = self._choose()
        self._explain()

    def _grid(self) -> FloatArray:
        """From far above total fusion down to below the first lam of the scan, the middle of each interval too."""
        top = self.top if self.top > 0 else 1.0
        low = min([0.02 * top, *(0.5 * low for low, _ in self.interval.exact if low > 0)])
        lams = np.geomspace(max(low, 1e-4 * top), 1.1 * top, self.request.n_lams)
        middles = [self._middle(run) for run in self.interval.exact]
        return np.unique([*lams, *middles])[::-1]

    def _middle(self, run: tuple[float, float]) -> float:
        low, high = run
        if math.isinf(high):
            return 1.05 * low if low > 0 else 1.0
        return math.sqrt(low * high) if low > 0 else 0.5 * high

    def _point(self, result: Result) -> CurvePoint:
        from fusionopt.recovery import solve_restricted

        labels = result.labels
        refit = solve_restricted(self.problem.with_lam(0.0), labels)
        return CurvePoint(
            lam=float(result.problem.lam),
            status=result.status,
            n_clusters=result.n_clusters,
            ari=adjusted_rand(labels, self.known),
            score=self.nodes.score(result.x, labels),
            refit_score=self.nodes.score(refit.centers[refit.labels], labels),
            proved=result.labels_certified,
        )

    def _choose(self) -> tuple[Result, str]:
        if self.interval.exact:
            run = max(
                self.interval.exact, key=lambda ends: (math.isinf(ends[1]), ends[1] / max(ends[0], 1e-300))
            )
            lam = self._middle(run)
            place = int(np.argmin([abs(math.log(max(p.lam, 1e-300) / lam)) for p in self.points]))
            return self.path.results[
                place
            ], "the middle of the widest interval on which the known groups are exact"
        place = int(np.argmax([p.ari for p in self.points]))
        return self.path.results[place], "the lam whose clusters agree best with the known groups"

    def _explain(self) -> None:
        from fusionopt.solver import solve

        if not self.chosen.has_duals:
            self.chosen = solve(self.chosen.problem, self.settings, warm_start=self.chosen)
        self.forces: EdgeForces = edge_forces(self.chosen)
        pair = self.request.pair
        if pair is None:
            pair = loosest_pair(self.chosen, self.forces)
        elif self.chosen.labels[pair[0]] != self.chosen.labels[pair[1]]:
            self.notes.append(
                f"Rows {pair[0]} and {pair[1]} are in different clusters at the lam shown; the loosest pair is shown."
            )
            pair = loosest_pair(self.chosen, self.forces)
        self.together: Together | None = None
        self.parting: Parting | None = None
        if pair is not None:
            self.together = why_together(self.chosen, self.forces, *pair)
            self.parting = what_parts(self.path, self.chosen, *pair)

    def verdict(self) -> list[str]:
        """Sentences on the main question."""
        found = self.interval
        k = int(self.known.max()) + 1
        groups = f"the {k} known groups" if k > 1 else "the one known group"
        are, clusters = ("are", "clusters") if k > 1 else ("is", "only cluster")
        lines = []
        if found.exact:
            runs = ", ".join(f"[{low:.5g}, {high:.5g}]" for low, high in found.exact)
            lines.append(
                f"{groups[0].upper()}{groups[1:]} {are} exactly the {clusters} of the optimum for lam in {runs} "
                f"(certified at every lam that was looked at; ends to {found.tolerance:.0e} relative)."
            )
        else:
            lines.append(
                f"At no lam that was looked at {are} {groups} exactly the {clusters} of the optimum (neighbouring lams "
                f"differ by a factor of {found.resolution:.3f})."
            )
            lines.append(self._nearest_miss())
        if found.guaranteed is not None:
            low, high = found.guaranteed
            lines.append(f"The printed theorems alone guarantee this for lam in [{low:.5g}, {high:.5g}].")
        elif math.isfinite(found.theorem2_to) or found.theorem2_to == math.inf:
            first = f"{found.theorem1_from:.4g}" if math.isfinite(found.theorem1_from) else "no lam looked at"
            lines.append(
                f"The printed theorems alone guarantee nothing here: condition (6) holds from {first}, condition (13) "
                f"up to {found.theorem2_to:.4g}."
            )
        lines.append(f"Everything is one cluster from lambda_max = {self.top:.6g} on.")
        return lines

    def _nearest_miss(self) -> str:
        lams, lower, _ = self.flows
        known = np.isfinite(lower) & (lower > 0)
        if not known.any():
            return "The centres of the known groups have met at every lam that was looked at."
        place = int(np.argmin(np.where(known, lower / lams, np.inf)))
        if not np.isfinite(self.flows.upper[place]):
            return "Edges inside the known groups do not connect every group, so no force can hold them together."
        times = lower[place] / lams[place]
        return (
            f"The nearest miss is at lam = {lams[place]:.4g}: to stay together, some group needs {times:.3g} "
            "times the force that its edges can give (lam times their weight)."
        )

    def write(self, folder: ResultFolder, started: float) -> Outcome:
        """All files."""
        told = versions()
        created = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
        verdict = self.verdict()
        content = RecoverContent(
            source=self.nodes.table.source.name,
            version=told["fusionopt"],
            created=created,
            command=self.command,
            data=self._facts(),
            verdict=verdict,
            interval=self.interval,
            lambda_max=self.top,
            points=self.points,
            flows=self.flows,
            chosen=self.chosen,
            why_chosen=self.why_chosen,
            forces=self.forces,
            together=self.together,
            parting=self.parting,
            score_words=self.nodes.score_words,
            names=self.nodes.names,
            settings=dataclasses.asdict(self.settings) | told,
            notes=self.notes,
        )
        figures = []
        for figure, ax in draw(content):
            svg, png = plotting.figure_files(ax)
            folder.write_text(f"figures/{figure.name}.svg", plotting.on_white(svg))
            folder.write_bytes(f"figures/{figure.name}.png", png)
            figures.append(dataclasses.replace(figure, svg=svg))
        folder.write_text("report.html", render(content, figures))
        self._write_tables(folder)
        folder.write_json("results.json", self._json(told, created, verdict))
        converged = all(p.status in ("optimal", "stationary") for p in self.points)
        summary = [
            f"{self.nodes.table.source.name}: {self.nodes.words}, {self.graph_words}",
            *self.notes,
            *verdict,
            f"{time.monotonic() - started:.1f} s in all; results, figures and report.html are in",
        ]
        return Outcome(folder.target, summary, converged, self.path.status == "interrupted")

    def _facts(self) -> list[tuple[str, str]]:
        request = self.request
        names, counts = np.unique(self.nodes.known, return_counts=True)
        return [
            ("nodes", self.nodes.words),
            ("loss", request.loss + (f", ridge {request.ridge:g}" if request.groups is not None else "")),
            ("graph", self.graph_words),
            ("scaling", "every column to mean 0 and variance 1" if request.standardise else "none"),
            (
                "known groups",
                ", ".join(f"{name} ({count})" for name, count in zip(names[:12], counts[:12], strict=True)),
            ),
        ]

    def _write_tables(self, folder: ResultFolder) -> None:
        rows = [dataclasses.asdict(point) for point in self.points]
        folder.write_csv("curve.csv", list(rows[0]), ([row[name] for name in rows[0]] for row in rows))
        folder.write_csv(
            "flows.csv",
            ["lam", "least_flow_lower", "least_flow_upper"],
            ([float(v) for v in row] for row in zip(*self.flows, strict=True)),
        )
        found = self.interval
        folder.write_csv(
            "scan.csv",
            ["lam", "certified", "margin"],
            (
                [float(a), bool(b), float(c)]
                for a, b, c in zip(found.lams, found.certified, found.margins, strict=True)
            ),
        )
        forces = self.forces
        inside = np.flatnonzero(forces.inside)
        order = inside[np.argsort(-forces.share[inside], kind="stable")]
        folder.write_csv(
            "forces.csv",
            ["i", "j", "cluster", "force", "limit", "share", "slack"],
            (
                [
                    int(forces.edges[e, 0]),
                    int(forces.edges[e, 1]),
                    int(self.chosen.labels[forces.edges[e, 0]]),
                    float(forces.force[e]),
                    float(forces.limit[e]),
                    float(forces.share[e]),
                    float(forces.slack[e]),
                ]
                for e in order
            ),
        )
        folder.write_csv(
            "labels.csv",
            ["node", "label", "known"],
            zip(self.nodes.names, self.chosen.labels.tolist(), self.nodes.known.tolist(), strict=True),
        )

    def _json(self, told: dict[str, str], created: str, verdict: list[str]) -> dict[str, Any]:
        found = self.interval
        return {
            "fusionopt": told["fusionopt"],
            "command": self.command,
            "created": created,
            "versions": told,
            "verdict": verdict,
            "lambda_max": self.top,
            "exact": found.exact,
            "guaranteed": found.guaranteed,
            "theorem1_from": found.theorem1_from,
            "theorem2_to": found.theorem2_to,
            "resolution": found.resolution,
            "tolerance": found.tolerance,
            "chosen_lam": float(self.chosen.problem.lam),
            "n_clusters": self.chosen.n_clusters,
            "labels_certified": self.chosen.labels_certified,
            "notes": self.notes,
        }
