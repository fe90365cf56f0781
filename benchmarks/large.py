"""Nearest-neighbour problems up to a million points, and a path over the digits of MNIST.

    python -m benchmarks.large                           both groups
    python -m benchmarks.large knn --most 100000         one of them, smaller
    python -m benchmarks.large mnist --mnist FILE --n-lams 200

knn: `gmm` in d = 7 (four Gaussian clusters, centres N(0, 9 I), unit noise), k = 10, Gaussian weights, m = 1e4, 1e5 and
1e6, one solve each to a relative gap of 1e-4 at lams where next to nothing (1) and nearly everything (5) is fused.
Building the graph is timed apart. `growth` is the exponent of the CPU seconds over m.
mnist: 60,000 images in their first ten principal components (pixels in 0..1), k = 10, 200 lams down from lambda_max;
the worst gap of the path stands beside its time.

Each row is a process of its own. Objective and bound of the single solves are recomputed in NumPy by
`benchmarks.evaluate`; the gaps of the path are the product's own. A row whose gap is not met is dropped and named,
and the exit status is 1.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

import fusionopt
from benchmarks import evaluate
from benchmarks.compare import write_rows
from benchmarks.problems import ClusteringProblem, FloatArray

SIZES = (10_000, 100_000, 1_000_000)
LAMS = (1.0, 5.0)
EPS = 1e-4
D, NEIGHBORS, SEED = 7, 10, 0
PATH_EPS = 1e-6
COLUMNS = (
    "group",
    "m",
    "d",
    "edges",
    "lam",
    "n_threads",
    "graph_cpu_s",
    "cpu_s",
    "wall_s",
    "iterations",
    "gap",
    "clusters",
    "peak_rss_mb",
    "estimate_s",
    "estimate_mb",
    "growth",
    "message",
)


def mixture(m: int) -> FloatArray:
    """Four Gaussian clusters in D dimensions."""
    rng = np.random.default_rng(SEED)
    centres = 3.0 * rng.standard_normal((4, D))
    return centres[rng.integers(4, size=m)] + rng.standard_normal((m, D))


def principal_components(path: Path, n_components: int = 10) -> FloatArray:
    """The images of a file in their first principal components."""
    with np.load(path) as file:
        images = file["x_train"].reshape(len(file["x_train"]), -1) / 255.0
    images -= images.mean(axis=0)
    _, directions = np.linalg.eigh(images.T @ images)
    return np.ascontiguousarray(images @ directions[:, ::-1][:, :n_components])


def peak_mb() -> int:
    return round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)


def judged_gap(problem: fusionopt.FusionProblem, result: fusionopt.Result) -> float:
    """Relative gap of a result, recomputed."""
    graph = problem.graph
    stated = ClusteringProblem(
        "",
        problem.loss.targets,  # type: ignore[attr-defined]
        graph.edges,
        graph.weights,
        problem.lam,
        "",
    )
    primal = evaluate.objective(stated, result.x)
    return (primal - evaluate.dual_value(stated, result.edge_duals())) / abs(primal)


def graph_of(points: FloatArray, store: Path) -> tuple[fusionopt.Graph, float]:
    """The graph and the CPU seconds it took, from a file where it has been built before."""
    if not store.exists():
        start = time.process_time()
        built = fusionopt.Graph.knn(points, NEIGHBORS)
        seconds = time.process_time() - start
        np.savez(store, edges=built.edges, weights=built.weights, seconds=seconds)
    with np.load(store) as file:
        return fusionopt.Graph.from_edges(len(points), file["edges"], file["weights"]), float(file["seconds"])


def measure_solve(m: int, lam: float, n_threads: int, folder: Path) -> dict[str, object]:
    """One solve of the mixture."""
    points = mixture(m)
    store = folder / f"{m}.npz"
    if not store.exists():  # in a process of its own: what building takes is no part of the solve's peak
        build = "from benchmarks import large; from pathlib import Path; large.graph_of(large.mixture({}), Path({!r}))"
        subprocess.run([sys.executable, "-c", build.format(m, str(store))], check=True)
    graph, graph_seconds = graph_of(points, store)
    problem = fusionopt.FusionProblem(fusionopt.SquaredDistance(points), graph, lam=lam)
    estimate = problem.estimate()
    settings = fusionopt.AdmmSettings(eps_rel=EPS, n_threads=n_threads)
    start, start_wall = time.process_time(), time.perf_counter()
    result = fusionopt.solve(problem, settings)
    cpu, wall = time.process_time() - start, time.perf_counter() - start_wall
    row: dict[str, object] = {
        "group": "knn",
        "m": m,
        "d": D,
        "edges": graph.n_edges,
        "lam": lam,
        "n_threads": n_threads,
        "graph_cpu_s": round(graph_seconds, 1),
        "cpu_s": round(cpu, 2),
        "wall_s": round(wall, 2),
        "iterations": result.n_iter,
        "clusters": result.n_clusters,
        "peak_rss_mb": peak_mb(),
        "estimate_s": round(estimate.seconds, 1),
        "estimate_mb": round(estimate.memory_bytes / 2**20),
        "message": result.message,
    }
    gap = judged_gap(problem, result)
    return row | {"gap": gap, "fault": "" if gap <= EPS else f"gap {gap}: {result.message}"}


def measure_path(path: Path, n_lams: int, n_threads: int) -> dict[str, object]:
    """The path over MNIST."""
    points = principal_components(path)
    start = time.process_time()
    graph = fusionopt.Graph.knn(points, NEIGHBORS)
    graph_seconds = time.process_time() - start
    problem = fusionopt.FusionProblem(fusionopt.SquaredDistance(points), graph)
    start, start_wall = time.process_time(), time.perf_counter()
    settings = fusionopt.AdmmSettings(eps_rel=PATH_EPS, n_threads=n_threads)
    found = fusionopt.solution_path(problem, n_lams=n_lams, settings=settings)
    cpu, wall = time.process_time() - start, time.perf_counter() - start_wall
    results = found.results
    row: dict[str, object] = {
        "group": "mnist",
        "m": len(points),
        "d": points.shape[1],
        "edges": graph.n_edges,
        "lam": f"{found.lams.min():.4g} to {found.lams.max():.4g}, {len(found.lams)} lams",
        "n_threads": n_threads,
        "graph_cpu_s": round(graph_seconds, 1),
        "cpu_s": round(cpu, 2),
        "wall_s": round(wall, 2),
        "iterations": sum(r.n_iter for r in results),
        "gap": max(r.rel_gap for r in results),
        "clusters": f"{min(r.n_clusters for r in results)} to {max(r.n_clusters for r in results)}",
        "peak_rss_mb": peak_mb(),
        "message": f"{sum(r.status == 'optimal' for r in results)} of {len(results)} optimal",
    }
    return row | {"fault": "" if float(str(row["gap"])) <= PATH_EPS else f"worst gap {row['gap']}"}


def main() -> int:
    """Run the groups asked for and write benchmarks/results/large.csv."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("groups", nargs="*", help="of knn, mnist; both if none is given")
    parser.add_argument("--most", type=int, default=SIZES[-1], help="largest number of points")
    parser.add_argument("--n-threads", type=int, default=2)
    parser.add_argument("--n-lams", type=int, default=200)
    parser.add_argument("--mnist", type=Path, default=Path("../shared/data/mnist.npz"))
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results")
    parser.add_argument("--case", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.case:
        case = json.loads(arguments.case)
        told = (
            measure_path(Path(case["mnist"]), case["n_lams"], case["n_threads"])
            if "mnist" in case
            else measure_solve(case["m"], case["lam"], case["n_threads"], Path(case["folder"]))
        )
        print(json.dumps(told))
        return 0
    groups = arguments.groups or ["knn", "mnist"]
    if set(groups) - {"knn", "mnist"}:
        parser.error("choose from knn, mnist")
    rows: list[dict[str, object]] = []
    dropped: list[str] = []
    with tempfile.TemporaryDirectory() as folder:
        todo: list[dict[str, object]] = []
        if "knn" in groups:
            todo += [
                {"m": m, "lam": lam, "n_threads": arguments.n_threads, "folder": folder}
                for m in SIZES
                if m <= arguments.most
                for lam in LAMS
            ]
        if "mnist" in groups:
            if arguments.mnist.exists():
                todo.append(
                    {
                        "mnist": str(arguments.mnist),
                        "n_lams": arguments.n_lams,
                        "n_threads": arguments.n_threads,
                    }
                )
            else:
                dropped.append(f"mnist: {arguments.mnist} is not there; name the file with --mnist")
        for case in todo:
            told = subprocess.run(
                [sys.executable, "-m", "benchmarks.large", "--case", json.dumps(case)],
                check=True,
                capture_output=True,
                text=True,
            )
            row = json.loads(told.stdout)
            fault = row.pop("fault")
            if fault:
                dropped.append(f"{case}: {fault}")
                continue
            before = [r for r in rows if r["group"] == "knn" and r["lam"] == row["lam"]]
            if before and row["group"] == "knn":
                times = float(row["cpu_s"]) / float(str(before[-1]["cpu_s"]))
                row["growth"] = round(float(np.log(times) / np.log(row["m"] / int(str(before[-1]["m"])))), 2)
            rows.append(row)
            print(
                f"{row['group']:<6} m {row['m']:>8} lam {row['lam']} cpu {row['cpu_s']} s wall {row['wall_s']} s"
                f" it {row['iterations']} gap {row['gap']:.1e} K {row['clusters']} {row['peak_rss_mb']} MB"
                f" growth {row.get('growth', '')}",
                flush=True,
            )
    about = {"times": "CPU seconds of one call, all threads together, one process a row"}
    write_rows(arguments.out / "large.csv", COLUMNS, rows, dropped, about)
    for line in dropped:
        print(f"dropped: {line}")
    return 1 if dropped else 0


if __name__ == "__main__":
    sys.exit(main())
