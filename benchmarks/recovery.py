"""The flow test from duals against the cone program, and what a certificate costs beside the solve.

    python -m benchmarks.recovery [m]

Correctness gate first: both find the same verdict, and the value from duals is an upper bound of the
exact one. CPU seconds of the process; run with OPENBLAS_NUM_THREADS=1 for one thread.
"""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass

import numpy as np

import fusionopt as fo
from fusionopt.recovery import certify, min_flow


@dataclass(frozen=True)
class Row:
    """One problem at one lam."""

    name: str
    n_clusters: int
    seconds_duals: float
    seconds_socp: float
    value_duals: float
    value_socp: float
    lam: float
    seconds_certify: float
    seconds_solve: float

    def __str__(self) -> str:
        return (
            f"{self.name:24s} K {self.n_clusters:4d}  flow test: duals {self.seconds_duals:8.4f} s  "
            f"SOCP {self.seconds_socp:8.3f} s  ratio {self.seconds_socp / self.seconds_duals:7.0f}  "
            f"value/lam {self.value_duals / self.lam:.6f} {self.value_socp / self.lam:.6f}  "
            f"certify {self.seconds_certify:.4f} s  solve {self.seconds_solve:.4f} s"
        )


def points(m: int, d: int) -> np.ndarray:
    """Four Gaussian clusters, centres N(0, 9 I), unit noise."""
    rng = np.random.default_rng(1000 * d + m)
    return 3.0 * rng.standard_normal((4, d))[rng.integers(4, size=m)] + rng.standard_normal((m, d))


def measure(name: str, problem: fo.FusionProblem) -> Row:
    """Solve, test the flows both ways, certify."""
    start = time.process_time()
    result = fo.solve(problem)
    solved = time.process_time() - start
    duals = result.edge_duals()
    start = time.process_time()
    repaired = min_flow(problem, result.labels, centers=result.centers, duals=duals)
    from_duals = time.process_time() - start
    start = time.process_time()
    exact = min_flow(problem, result.labels, centers=result.centers)
    by_socp = time.process_time() - start
    start = time.process_time()
    verdict = certify(problem, result.labels, duals=duals, centers=result.centers)
    certified = time.process_time() - start
    assert exact.value <= repaired.value * (1 + 1e-6)
    assert (repaired.value <= problem.lam) == (exact.value <= problem.lam) == verdict.holds
    return Row(
        name,
        result.n_clusters,
        from_duals,
        by_socp,
        repaired.value,
        exact.value,
        problem.lam,
        certified,
        solved,
    )


def main(m: int) -> None:
    """Total fusion and two partly fused lams on the complete graph, and nearest neighbours."""
    for d, shares in ((2, (0.9, 1.01, 1.5)), (5, (1.01, 1.5))):
        a = points(m, d)
        problem = fo.FusionProblem(fo.SquaredDistance(a))
        top = fo.lambda_max(problem)
        for share in shares:
            print(
                measure(f"complete {m} x {d}, {share:g} lam_max", problem.with_lam(share * top)), flush=True
            )
    a = points(m, 2)
    knn = fo.FusionProblem(fo.SquaredDistance(a), fo.Graph.knn(a, 10))
    top = fo.lambda_max(knn)
    for share in (0.3, 1.01):
        print(measure(f"10-NN {m} x 2, {share:g} lam_max", knn.with_lam(share * top)), flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 300)
