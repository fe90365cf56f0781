"""Solution paths beside single solves: what a path costs in units of one cold solve of its middle lam.

    python -m benchmarks.paths                           every path
    python -m benchmarks.paths complete1000 moons5000    some of them

complete1000: 1,000 points in the plane (four Gaussian clusters), complete graph, 100 lams down from lambda_max.
knn20000: 20,000 such points, 10 nearest neighbours, Gaussian weights, 100 lams from 0.05 to 50 (lambda_max is beyond
1e50 there: single far points hang on edges whose weights are next to nothing).
gauss500, moons5000: problems of `benchmarks.problems`, 50 lams over three decades up to the lam of "few".

Every lam is certified to a relative gap of 1e-6 or the row is dropped and named, with exit status 1. `ratio` is the
path's CPU seconds over the median of three cold solves of the middle lam; `warm` and `cold` are mean iterations of the
path and of the same lams from scratch (not for knn20000: 100 cold solves). Iterations between the clusters
of the lam before, at the price of the edges that are left, are not part of `warm`. One thread, one process.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

import fusionopt
from benchmarks import problems
from benchmarks.compare import write_rows
from benchmarks.problems import FloatArray

EPS = 1e-6
COLUMNS = (
    "path", "m", "d", "edges", "lams", "smallest", "largest", "path_cpu_s", "cold_cpu_s", "ratio", "warm", "cold",
    "worst_gap", "proven", "clusters",
)  # fmt: skip
Case = tuple[fusionopt.FusionProblem, FloatArray | None]


def blobs(m: int) -> FloatArray:
    """Four Gaussian clusters in the plane."""
    rng = np.random.default_rng(0)
    noise = rng.standard_normal((m, 2))
    return noise + 3.0 * rng.standard_normal((4, 2))[rng.integers(0, 4, m)]


def complete1000() -> Case:
    """An automatic grid."""
    return fusionopt.FusionProblem(fusionopt.SquaredDistance(blobs(1000))), None


def knn20000() -> Case:
    """A grid over the lams where groups form."""
    points = blobs(20_000)
    graph = fusionopt.Graph.knn(points, 10)
    return fusionopt.FusionProblem(fusionopt.SquaredDistance(points), graph), np.geomspace(0.05, 50.0, 100)


def published(stated: problems.ClusteringProblem) -> Case:
    """Three decades up to the lam of a published problem."""
    graph = (
        fusionopt.Graph.complete(len(stated.points))
        if stated.edges is None or stated.weights is None
        else fusionopt.Graph.from_edges(len(stated.points), stated.edges, stated.weights)
    )
    problem = fusionopt.FusionProblem(fusionopt.SquaredDistance(stated.points), graph)
    return problem, np.geomspace(stated.lam / 1000.0, stated.lam, 50)


CASES: dict[str, Callable[[], Case]] = {
    "complete1000": complete1000,
    "knn20000": knn20000,
    "gauss500": lambda: published(problems.gauss(500, "few")),
    "moons5000": lambda: published(problems.moons(5000, "few")),
}


def cold(problem: fusionopt.FusionProblem, lam: float) -> tuple[float, int]:
    """CPU seconds and iterations of one solve."""
    start = time.process_time()
    result = fusionopt.solve(problem.with_lam(lam), fusionopt.AdmmSettings(eps_rel=EPS))
    return time.process_time() - start, result.n_iter


def measure(name: str) -> dict[str, object]:
    """One path; "fault" names what was not met."""
    problem, grid = CASES[name]()
    if grid is None:
        grid = np.geomspace(1e-3, 1.0, 100) * fusionopt.lambda_max(problem)
    middle = float(grid[len(grid) // 2])
    single = statistics.median(cold(problem, middle)[0] for _ in range(3))
    start = time.process_time()
    path = fusionopt.solution_path(problem, grid, settings=fusionopt.AdmmSettings(eps_rel=EPS))
    seconds = time.process_time() - start
    results = path.results
    scratch = [] if name == "knn20000" else [cold(problem, float(lam))[1] for lam in grid]
    worst = max(r.rel_gap for r in results)
    good = all(r.status == "optimal" for r in results) and len(results) == len(grid)
    return {
        "path": name,
        "m": problem.n_nodes,
        "d": problem.n_features,
        "edges": problem.graph.n_edges,
        "lams": len(grid),
        "smallest": f"{grid.min():.4g}",
        "largest": f"{grid.max():.4g}",
        "path_cpu_s": round(seconds, 2),
        "cold_cpu_s": round(single, 4),
        "ratio": round(seconds / single, 1),
        "warm": round(statistics.mean(r.n_iter for r in results), 1),
        "cold": round(statistics.mean(scratch), 1) if scratch else "",
        "worst_gap": f"{worst:.1e}",
        "proven": sum(r.proven for r in results),
        "clusters": f"{min(r.n_clusters for r in results)} to {max(r.n_clusters for r in results)}",
        "fault": "" if good and worst <= EPS else f"{path.status}, worst gap {worst:.1e}",
    }


def main() -> int:
    """Run the paths asked for and write benchmarks/results/paths.csv."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("paths", nargs="*", help=f"of {', '.join(CASES)}; all if none is given")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results")
    arguments = parser.parse_args()
    unknown = set(arguments.paths) - set(CASES)
    if unknown:
        parser.error(f"unknown path {', '.join(sorted(unknown))}; choose from {', '.join(CASES)}")
    rows: list[dict[str, object]] = []
    dropped: list[str] = []
    for name in arguments.paths or CASES:
        row = measure(name)
        fault = row.pop("fault")
        if fault:
            dropped.append(f"{name}: {fault}")
            continue
        rows.append(row)
        print(", ".join(f"{key} {value}" for key, value in row.items()), flush=True)
    write_rows(arguments.out / "paths.csv", COLUMNS, rows, dropped)
    for line in dropped:
        print(f"dropped: {line}")
    return 1 if dropped else 0


if __name__ == "__main__":
    sys.exit(main())
