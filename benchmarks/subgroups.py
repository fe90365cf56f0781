"""Subgroup regression after Ma and Huang (JASA 2017): groups recovered and bias of the centres, SCAD and MCP beside l2.

    python -m benchmarks.subgroups          writes benchmarks/results/subgroups.csv

m nodes with ten samples of three covariates each (the first is 1), noise 0.5, two or three groups of equal size in
turn; complete graph with weight 5 / m. Each method runs over a grid of lam and keeps the answer with the lowest
m n log(RSS / (m n)) + log(m n) K p. A centre's error is the distance between the mean of a group's rows and the least-
squares fit of the true group (the oracle); its unit is the oracle's own standard error, sqrt(trace of its covariance).
"""

from __future__ import annotations

import csv
import time
from pathlib import Path

import numpy as np
from sklearn.metrics import adjusted_rand_score

import fusionopt as fo
from benchmarks.compare import provenance

FOLDER = Path(__file__).resolve().parent / "results"
SAMPLES, NOISE, WEIGHT = 10, 0.5, 5.0
CENTRES = {
    2: np.array([[1.0, 1.0, 1.0], [-1.0, -1.0, -1.0]]),
    3: np.array([[2.0, 0.0, 1.0], [-1.0, 2.0, 0.0], [-1.0, -2.0, -1.0]]),
}
RUNS = [(100, 5), (300, 3), (1000, 1)]
LAMS = [0.3, 0.4, 0.5, 0.6, 0.8]


def subgroups(m: int, n_groups: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Designs (m, n, p), targets (m, n) and the true groups (m,)."""
    rng = np.random.default_rng([seed, m, n_groups])
    centres, labels = CENTRES[n_groups], np.arange(m) % n_groups
    designs = rng.normal(size=(m, SAMPLES, centres.shape[1]))
    designs[:, :, 0] = 1.0
    noise = NOISE * rng.normal(size=(m, SAMPLES))
    return designs, np.einsum("inp,ip->in", designs, centres[labels]) + noise, labels


def oracle(designs: np.ndarray, targets: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Least squares of each true group, and the standard error of each."""
    centres, errors = [], []
    for group in range(labels.max() + 1):
        z, y = np.concatenate(designs[labels == group]), np.concatenate(targets[labels == group])
        centres.append(np.linalg.lstsq(z, y, rcond=None)[0])
        errors.append(NOISE * np.sqrt(np.trace(np.linalg.inv(z.T @ z))))
    return np.array(centres), np.array(errors)


def criterion(designs: np.ndarray, targets: np.ndarray, result: fo.Result) -> float:
    """m n log(RSS / (m n)) + log(m n) K p."""
    residuals = np.einsum("inp,ip->in", designs, result.x) - targets
    count = targets.size
    return float(
        count * np.log((residuals**2).sum() / count) + np.log(count) * result.n_clusters * designs.shape[2]
    )


def measure(m: int, n_groups: int, seed: int) -> list[dict[str, object]]:
    """One row a method."""
    designs, targets, labels = subgroups(m, n_groups, seed)
    fits, errors = oracle(designs, targets, labels)
    loss, graph = fo.LeastSquares(list(designs), list(targets)), fo.Graph.complete(m, WEIGHT / m)
    rows: list[dict[str, object]] = []
    for penalty in (fo.Scad(), fo.Mcp(), fo.L2Norm()):
        problem = fo.FusionProblem(loss, graph, penalty)
        start = time.perf_counter()
        if penalty.convex:
            path = fo.solution_path(problem, n_lams=30, lam_min_ratio=0.05)
        else:
            path = fo.solution_path(problem, LAMS)
        seconds = time.perf_counter() - start
        path.require_converged()
        best = min(path.results, key=lambda result: criterion(designs, targets, result))
        means = np.array([best.x[labels == group].mean(axis=0) for group in range(n_groups)])
        bias = np.linalg.norm(means - fits, axis=1) / errors
        bound = best.dual_objective if best.lower_bound is None else best.lower_bound
        rows.append(
            {
                "m": m,
                "groups": n_groups,
                "seed": seed,
                "penalty": type(penalty).__name__,
                "lam": f"{best.problem.lam:.4g}",
                "n_clusters": best.n_clusters,
                "ari": f"{adjusted_rand_score(labels, best.labels):.4f}",
                "groups_recovered_at": sum(
                    adjusted_rand_score(labels, result.labels) == 1.0 for result in path.results
                ),
                "lams": len(path.results),
                "centre_error": f"{np.linalg.norm(means - fits, axis=1).max():.3g}",
                "oracle_se": f"{errors.max():.3g}",
                "error_in_se": f"{bias.max():.3g}",
                "objective": f"{best.objective:.8g}",
                "lower_bound": f"{bound:.8g}",
                "status": best.status,
                "seconds": f"{seconds:.2f}",
            }
        )
        print(rows[-1], flush=True)
    return rows


def main() -> None:
    rows = [
        row
        for m, seeds in RUNS
        for n_groups in CENTRES
        for seed in range(seeds)
        for row in measure(m, n_groups, seed)
    ]
    FOLDER.mkdir(exist_ok=True)
    with (FOLDER / "subgroups.csv").open("w", newline="", encoding="utf-8") as stream:
        told = provenance()
        for key in ("cpu", "system", "commit", "versions", "load"):
            stream.write(f"# {key}: {told[key]}\n")
        stream.write("# seconds: wall time of the path over all its lams, starts and bounds included\n")
        writer = csv.DictWriter(stream, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


if __name__ == "__main__":
    main()
