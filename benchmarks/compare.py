"""Time to a certified gap of 1e-6: fusionopt against CVXPY + CLARABEL and NumPy ADMM, in one run, one thread.

    python -m benchmarks.compare                 every table
    python -m benchmarks.compare complete knn    some of them

A tool's number is the median CPU time (user + system, whole call: CVXPY with compilation, fusionopt with
partition finishing) over several runs; problem data are built before. No row is printed before its answer was
judged by `benchmarks.evaluate`, which shares no code with any of them:

    certified gap of fusionopt, recomputed from its duals:       at most 1e-6
    relative excess of the other tool over the best bound known: at most 1e-5

A row that fails is dropped and named on the last lines, and the exit status is 1. Tables go to
benchmarks/results/.
"""

from __future__ import annotations

import argparse
import csv
import dataclasses
import importlib.metadata
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TypeVar

import numpy as np

import fusionopt
from benchmarks import cvxpy_baseline, evaluate, numpy_admm, problems
from benchmarks.problems import ClusteringProblem, FloatArray, RegressionProblem

T = TypeVar("T")
EPS = 1e-6
EXCESS_OF_OTHERS = 1e-5
COLUMNS = (
    "problem",
    "m",
    "d",
    "edges",
    "lam",
    "seed",
    "tool",
    "cpu_s",
    "wall_s",
    "runs",
    "excess",
    "certified_gap",
    "iterations",
    "clusters",
    "clusters_expected",
    "times_slower",
)
Problem = ClusteringProblem | RegressionProblem


@dataclass(frozen=True)
class Timing:
    """Medians over `runs` calls, in seconds."""

    cpu: float
    wall: float
    runs: int


def measure(call: Callable[[], T], budget: float = 3.0) -> tuple[T, Timing]:
    """Repeat `call` 3 to 15 times within about `budget` seconds of CPU time; once if one run takes 8 s."""
    cpu: list[float] = []
    wall: list[float] = []
    while True:
        start, start_wall = time.process_time(), time.perf_counter()
        answer = call()
        cpu.append(time.process_time() - start)
        wall.append(time.perf_counter() - start_wall)
        enough = len(cpu) >= 3 and (sum(cpu) > budget or len(cpu) >= 15)
        if enough or cpu[0] > 8.0:
            return answer, Timing(statistics.median(cpu), statistics.median(wall), len(cpu))


def write_rows(
    path: Path,
    columns: Sequence[str],
    rows: Sequence[dict[str, object]],
    dropped: Sequence[str],
    about: Mapping[str, str] | None = None,
) -> None:
    """Write a table with a commented header that says where the numbers come from and what was dropped."""
    header = provenance() | dict(about or {})  # before the table itself is a local change
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="", encoding="utf-8") as stream:
        for key, value in header.items():
            stream.write(f"# {key}: {value}\n")
        for line in dropped:
            stream.write(f"# dropped: {line}\n")
        writer = csv.DictWriter(stream, columns, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


@dataclass
class Table:
    """Rows that passed the gate, and the names of those that did not."""

    name: str
    rows: list[dict[str, object]] = field(default_factory=list)
    dropped: list[str] = field(default_factory=list)

    def add(self, row: dict[str, object]) -> None:
        """Keep and print a row."""
        self.rows.append(row)
        ratio = row["times_slower"]
        print(
            f"{row['problem']!s:<38} {row['tool']!s:<16} {row['cpu_s']:>10.5f} s"
            f"  excess {row['excess']:>9.1e}  gap {row['certified_gap']:>8.1e}  its {row['iterations']!s:>5}"
            f"  clusters {row['clusters']!s:>5}" + ("" if ratio == "" else f"  x {ratio:.1f}"),
            flush=True,
        )

    def drop(self, problem: str, tool: str, reason: str) -> None:
        """Record an answer that failed the gate."""
        self.dropped.append(f"{problem} / {tool}: {reason}")

    def write(self, folder: Path) -> Path:
        """Write <folder>/<name>.csv with a commented header that says where the numbers come from."""
        path = folder / f"{self.name}.csv"
        write_rows(path, COLUMNS, self.rows, self.dropped)
        return path


def cpu_seconds() -> float:
    """Processor time of this process and of those it had and has ended."""
    return sum(os.times()[:4])


def _cpu_model() -> str:
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _commit() -> str:
    root = Path(__file__).resolve().parent.parent
    try:
        head = subprocess.run(
            ["git", "rev-parse", "--short=12", "HEAD"], cwd=root, capture_output=True, text=True, check=True
        ).stdout.strip()
        changed = subprocess.run(
            ["git", "status", "--porcelain"], cwd=root, capture_output=True, text=True, check=True
        ).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "not a git checkout"
    return head + (" with local changes" if changed else "")


def provenance() -> dict[str, str]:
    """What a reader needs to judge or repeat the numbers."""
    packages = ("numpy", "scipy", "cvxpy", "clarabel", "scikit-learn")
    versions = ", ".join(f"{name} {importlib.metadata.version(name)}" for name in packages)
    return {
        "cpu": f"{_cpu_model()}, {os.cpu_count()} cores, one thread used",
        "system": f"{platform.system()} {platform.machine()}, Python {platform.python_version()}",
        "commit": _commit(),
        "versions": f"fusionopt {fusionopt.__version__}, {versions}",
        "tolerance": f"{EPS:g} (relative; every tool)",
        "times": "median CPU seconds of the whole call; times_slower = tool / fusionopt, same run",
        "load": " ".join(f"{value:.1f}" for value in os.getloadavg()),
    }


def build(problem: Problem) -> fusionopt.FusionProblem:
    """The problem as fusionopt sees it."""
    if isinstance(problem, RegressionProblem):
        models = fusionopt.LeastSquares(problem.designs, problem.responses, ridge=problem.ridge)
        return fusionopt.FusionProblem(models, lam=problem.lam)
    loss = fusionopt.SquaredDistance(problem.points)
    if problem.edges is None or problem.weights is None:
        graph = fusionopt.Graph.complete(len(problem.points))
    else:
        graph = fusionopt.Graph.from_edges(len(problem.points), problem.edges, problem.weights)
    return fusionopt.FusionProblem(loss, graph=graph, lam=problem.lam)


def _solve_numpy(
    kind: type[numpy_admm.TiledAdmm], problem: ClusteringProblem, rho: float
) -> numpy_admm.AdmmAnswer:
    return kind(problem.points, problem.lam, rho).solve(EPS)


class Judge:
    """One problem: the bound that answers are measured against, and the time they are compared with."""

    def __init__(self, problem: Problem, table: Table) -> None:
        self.problem = problem
        self.table = table
        self.bound = -float("inf")
        self.reference_cpu: float | None = None

    def _row(self, tool: str, timing: Timing, excess: float) -> dict[str, object]:
        m, d = self.problem.shape
        slower = "" if self.reference_cpu is None else timing.cpu / self.reference_cpu
        return {
            "problem": self.problem.name,
            "m": m,
            "d": d,
            "edges": len(self.problem.pairs()[0]),
            "lam": repr(self.problem.lam),
            "seed": self.problem.seed,
            "tool": tool,
            "cpu_s": timing.cpu,
            "wall_s": timing.wall,
            "runs": timing.runs,
            "excess": excess,
            "certified_gap": float("nan"),
            "iterations": "",
            "clusters": "",
            "clusters_expected": getattr(self.problem, "n_clusters", None) or "",
            "times_slower": slower,
        }

    def _excess(self, x: FloatArray) -> float:
        return (evaluate.objective(self.problem, x) - self.bound) / abs(self.bound)

    def fusionopt(self) -> bool:
        """Time fusionopt, take its certificate apart, and set the bound; False when the gate refuses it."""
        stated = build(self.problem)
        fine = fusionopt.solve(stated, fusionopt.AdmmSettings(eps_rel=1e-9))
        published = getattr(self.problem, "optimum", None)
        own = evaluate.dual_value(self.problem, fine.edge_duals())
        self.bound = own if published is None else published
        settings = fusionopt.AdmmSettings(eps_rel=EPS)
        result, timing = measure(lambda: fusionopt.solve(stated, settings))
        primal = evaluate.objective(self.problem, result.x)
        dual = evaluate.dual_value(self.problem, result.edge_duals())
        gap = (primal - dual) / max(abs(primal), abs(dual))
        row = self._row("fusionopt", timing, self._excess(result.x))
        distinct = evaluate.n_distinct_rows(result.x)
        row.update(certified_gap=gap, iterations=result.n_iter, clusters=distinct)
        reasons = []
        if not gap <= EPS * (1.0 + 1e-6):
            reasons.append(f"certified gap {gap:.2e}")
        if published is not None and abs(own - published) > 1e-8 * abs(published):
            reasons.append(f"dual value {own!r} at 1e-9 differs from the published optimum {published!r}")
        if reasons:
            self.table.drop(self.problem.name, "fusionopt", "; ".join(reasons))
            return False
        self.table.add(row)
        self.reference_cpu = timing.cpu
        return True

    def narrow(self) -> None:
        """The same with a float32 state; its certificate is float64 all the same."""
        stated, settings = build(self.problem), fusionopt.AdmmSettings(eps_rel=EPS, dtype="float32")
        result, timing = measure(lambda: fusionopt.solve(stated, settings))
        primal = evaluate.objective(self.problem, result.x)
        dual = evaluate.dual_value(self.problem, result.edge_duals())
        more = {"certified_gap": (primal - dual) / abs(primal), "iterations": result.n_iter}
        if not more["certified_gap"] <= EPS * (1.0 + 1e-6):
            self.table.drop(self.problem.name, "fusionopt-f32", f"certified gap {more['certified_gap']:.2e}")
            return
        self._other("fusionopt-f32", result.x, timing, clusters=evaluate.n_distinct_rows(result.x), **more)

    def _other(self, tool: str, x: FloatArray, timing: Timing, **more: object) -> None:
        excess = self._excess(x)
        if not excess <= EXCESS_OF_OTHERS:
            self.table.drop(self.problem.name, tool, f"relative excess {excess:.2e}")
            return
        row = self._row(tool, timing, excess)
        row.update(more)
        self.table.add(row)

    def clarabel(self) -> None:
        """CVXPY + CLARABEL with every tolerance at 1e-6."""
        x, timing = measure(lambda: cvxpy_baseline.solve(self.problem, EPS))
        self._other("cvxpy-clarabel", x, timing, clusters=evaluate.n_distinct_rows(x))

    def numpy(self) -> None:
        """Both NumPy baselines, each with the rho tuned for this problem."""
        problem = self.problem
        if not isinstance(problem, ClusteringProblem) or problem.edges is not None:
            raise ValueError("the NumPy baselines solve squared distances on the complete graph")
        rho = numpy_admm.tune(problem, EPS)
        for tool, kind in (
            ("numpy-rows", numpy_admm.RowBlockedAdmm),
            ("numpy-tiles", numpy_admm.TiledAdmm),
        ):
            answer, timing = measure(partial(_solve_numpy, kind, problem, rho))
            if not answer.converged:
                self.table.drop(problem.name, tool, f"certified gap {answer.rel_gap:.2e}")
                continue
            self._other(tool, answer.x, timing, certified_gap=answer.rel_gap, iterations=answer.n_iter)


def complete(table: Table) -> None:
    """Complete graphs: d = 2 with m = 200 and 400 against CLARABEL, m = 1000 (d = 2 and 10) against NumPy, and
    m = 4000 for the growth of the iterations with m."""
    for m, d in ((200, 2), (400, 2), (1000, 2), (1000, 10), (4000, 2)):
        for fraction in (0.3, 0.5, 0.9):
            judge = Judge(problems.gmm_complete(m, d, fraction), table)
            if not judge.fusionopt():
                continue
            if d == 2:
                judge.narrow()
            if m <= 400:
                judge.clarabel()
            if m <= 1000:
                judge.numpy()


def knn(table: Table) -> None:
    """Nearest-neighbour graphs, d = 2, k = 10, lam = 1."""
    for m in (5000, 20_000):
        judge = Judge(problems.gmm_knn(m, 2, 1.0), table)
        if judge.fusionopt():
            judge.clarabel()


def critical(table: Table) -> None:
    """Nearest-neighbour graphs, m = 5000, 15 % and less below and above the lam where two clusters become one."""
    moons, near, far = (
        problems.moons(5000, "few"),
        *(problems.gmm_knn(5000, 2, 1.0, sep=s) for s in (3.0, 10.0)),
    )
    unit = [
        dataclasses.replace(p, name=f"gmm knn 5000x2 k=10 sep {s} w = 1", weights=np.ones(len(p.pairs()[1])))
        for s, p in ((3, near), (10, far))
    ]
    for stated in (moons, *unit):
        critical_lam = fusionopt.lambda_max(build(stated))
        for share in (0.85, 0.95, 0.99, 1.01, 1.05, 1.15):
            problem = problems.with_lam(stated, share * critical_lam)
            name = f"{stated.name.removesuffix(' few')} lam {share:g} critical"
            Judge(dataclasses.replace(problem, name=name), table).fusionopt()


def published(table: Table) -> None:
    """Problems with a published certified optimum and cluster count."""
    for level in ("few", "half"):
        for n in (500, 1000, 2000, 5000):
            judge = Judge(problems.moons(n, level), table)
            if judge.fusionopt():
                judge.clarabel()
        for n in (100, 200, 500, 1000):
            judge = Judge(problems.gauss(n, level), table)
            if judge.fusionopt():
                judge.narrow()
                judge.numpy()
                if n <= 200:
                    judge.clarabel()


def regression(table: Table) -> None:
    """Least squares on the complete graph, m = 300, p = 10."""
    judge = Judge(problems.regression_complete(300, 10), table)
    if judge.fusionopt():
        judge.clarabel()


TABLES: dict[str, Callable[[Table], None]] = {
    "complete": complete,
    "knn": knn,
    "critical": critical,
    "published": published,
    "regression": regression,
}


def main(arguments: list[str] | None = None) -> int:
    """Run the named tables and write them; 1 when the gate dropped a row."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "tables", nargs="*", metavar="table", help=f"any of {', '.join(TABLES)} (default: all)"
    )
    folder = Path(__file__).resolve().parent / "results"
    parser.add_argument("--out", type=Path, default=folder, help="folder of the .csv files")
    options = parser.parse_args(arguments)
    unknown = set(options.tables) - set(TABLES)
    if unknown:
        parser.error(f"unknown table {', '.join(sorted(unknown))}: choose from {', '.join(TABLES)}")
    dropped: list[str] = []
    for name in options.tables or TABLES:
        table = Table(name)
        TABLES[name](table)
        print(table.write(options.out))
        dropped += table.dropped
    for line in dropped:
        print(f"dropped: {line}")
    return 1 if dropped else 0


if __name__ == "__main__":
    sys.exit(main())
