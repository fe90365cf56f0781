"""Large complete graphs without storing a pair: CPU time to a certified gap of 1e-6, and the memory it takes.

    python -m benchmarks.implicit                        every group
    python -m benchmarks.implicit twenty kinds           some of them

Groups: twenty (m = 20,000, d = 2), ten (m = 20,000, d = 10), hundred (m = 100,000, d = 2 and 3), kinds (18 kinds of
data at m = 5,000), agree (m = 1,000 against the sweep that stores pairs). Data `gmm`: four Gaussian clusters,
centres N(0, 9 I), unit noise, seed 0; lam = share * max_i ||a_i - mean|| / (m - 1). Each problem is solved once, in a
process of its own, on one thread.

A row is kept only if the gap is met: recomputed in NumPy by `benchmarks.evaluate`, which shares no code with the
solver, up to m = 20,000 (column checked: numpy), beyond that as the solver's own float64 pass says (product). A row
that fails is dropped and named, and the exit status is 1. `near` rows are near total fusion in d = 10 and have to
reach 1e-5. `bar_s` is what was promised for a core whose peak is 190 Gflop/s, `bar_here_s` the same for this one, by
its rate in a float32 matrix product.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from sklearn.datasets import make_moons

import fusionopt
from benchmarks import evaluate
from benchmarks.compare import write_rows
from benchmarks.problems import FloatArray

EPS = 1e-6
NEAR_EPS = 1e-5
REFERENCE_PEAK = 190.0
"""Gflop/s, float32, of the core that the bars were measured on."""
CHECKED_UP_TO = 20_000
BRACKET = 1e-9
COLUMNS = (
    "group",
    "data",
    "m",
    "d",
    "share",
    "seed",
    "n_threads",
    "cpu_s",
    "wall_s",
    "peak_rss_mb",
    "gap",
    "checked",
    "clusters",
    "newton_steps",
    "bar_s",
    "bar_here_s",
    "message",
)


@dataclass(frozen=True)
class Case:
    """One problem; bar_s is NaN where nothing was promised."""

    group: str
    data: str
    m: int
    d: int
    share: float
    bar_s: float = float("nan")
    seed: int = 0


def cases() -> list[Case]:
    """All problems of all groups."""
    out = [Case("twenty", "gmm", 20_000, 2, share, bar) for share, bar in ((0.3, 2), (0.6, 5), (0.9, 2))]
    out += [Case("ten", "gmm", 20_000, 10, 0.6, 10), Case("ten", "near", 20_000, 10, 0.9)]
    out += [
        Case("hundred", "gmm", 100_000, 2, share, bar) for share, bar in ((0.3, 20), (0.6, 80), (0.9, 40))
    ]
    out += [Case("hundred", "gmm", 100_000, 3, 0.9, 60)]
    out += [Case("kinds", "moons", 5000, 2, share) for share in (0.5, 0.7, 0.9, 1.0, 1.1)]
    out += [Case("kinds", "moons", 5000, 10, share) for share in (0.5, 0.9, 1.1)]
    out += [Case("kinds", "t2", 5000, 2, share) for share in (0.05, 0.2, 0.5)]
    out += [Case("kinds", "t2", 5000, 10, share) for share in (0.05, 0.5)]
    out += [Case("kinds", "sep10", 5000, 2, share) for share in (0.6, 0.95)]
    out += [Case("kinds", "sep10", 5000, 10, 0.9)]
    out += [Case("kinds", "duplicates", 5000, 2, 0.6), Case("kinds", "duplicates", 5000, 10, 0.9)]
    out += [Case("agree", "gmm", 1000, d, share) for d in (2, 10) for share in (0.3, 0.6, 0.9)]
    return out


def points(case: Case) -> FloatArray:
    """The rows of one problem."""
    rng = np.random.default_rng(case.seed)
    m, d = case.m, case.d
    if case.data == "moons":
        flat, _ = make_moons(m, noise=0.05, random_state=case.seed)
        return np.hstack([flat, 0.05 * rng.standard_normal((m, d - 2))])
    if case.data == "t2":
        return rng.standard_t(2, size=(m, d))
    copies = 5 if case.data == "duplicates" else 1
    centres = (10.0 if case.data == "sep10" else 3.0) * rng.standard_normal((4, d))
    rows = centres[rng.integers(4, size=m // copies)] + rng.standard_normal((m // copies, d))
    return np.repeat(rows, copies, axis=0)


def problem(case: Case) -> fusionopt.FusionProblem:
    """The problem as fusionopt sees it."""
    a = points(case)
    reach = float(np.linalg.norm(a - a.mean(axis=0), axis=1).max())
    return fusionopt.FusionProblem(fusionopt.SquaredDistance(a), lam=case.share * reach / (case.m - 1))


def measure(case: Case) -> dict[str, object]:
    """Solve once and judge; run in a process of its own."""
    from fusionopt.methods import Interrupt, Monitor
    from fusionopt.methods.implicit import ImplicitSession

    stated = problem(case)
    settings = fusionopt.AdmmSettings(eps_rel=EPS)
    start, start_wall = time.process_time(), time.perf_counter()
    session = ImplicitSession(stated, settings)
    result = session.run(Monitor(settings, Interrupt()))
    cpu, wall = time.process_time() - start, time.perf_counter() - start_wall
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    row: dict[str, object] = asdict(case) | {
        "n_threads": settings.n_threads,
        "cpu_s": round(cpu, 3),
        "wall_s": round(wall, 3),
        "peak_rss_mb": round(peak),
        "gap": result.gap / abs(result.objective),
        "checked": "product",
        "clusters": result.n_clusters,
        "newton_steps": result.n_iter,
        "message": result.message,
        "fault": "",
    }
    allowed = NEAR_EPS if case.data == "near" else EPS
    duals = result.implicit_duals
    if case.m <= CHECKED_UP_TO and duals is not None:
        a = stated.loss.targets  # type: ignore[attr-defined]
        primal, dual = evaluate.complete_certificate(
            a, stated.lam, result.x, duals.points, duals.delta, duals.reach
        )
        row |= {"gap": (primal - dual) / abs(primal), "checked": "numpy"}
        if abs(primal - result.objective) > BRACKET * abs(primal):
            row["fault"] = f"objective {result.objective!r}, recomputed {primal!r}"
    if not float(str(row["gap"])) <= allowed:
        row["fault"] = f"gap {row['gap']}: {result.message}"
    if case.group == "agree":
        stored = fusionopt.solve(stated, fusionopt.AdmmSettings(eps_rel=EPS))
        slack = BRACKET * abs(stored.objective)
        if not (
            result.dual_objective <= stored.objective + slack
            and stored.dual_objective <= result.objective + slack
        ):
            row["fault"] = f"bounds cross those of the stored sweep: {result!r}, {stored!r}"
    return row


def peak_gflops() -> float:
    """float32 matrix product on one thread, best of three."""
    a = np.ones((2048, 2048), dtype=np.float32)
    best = 0.0
    for _ in range(3):
        start = time.process_time()
        a @ a
        best = max(best, 2 * 2048**3 / (time.process_time() - start) / 1e9)
    return best


def main() -> int:
    """Run the groups asked for, one process a problem, and write benchmarks/results/implicit.csv."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    names = sorted({case.group for case in cases()})
    parser.add_argument("groups", nargs="*", help=f"of {', '.join(names)}; all if none is given")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results")
    parser.add_argument("--case", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.case:
        print(json.dumps(measure(Case(**json.loads(arguments.case)))))
        return 0
    for name in arguments.groups:
        if name not in names:
            parser.error(f"unknown group {name!r}; choose from {', '.join(names)}")
    peak = peak_gflops()
    rows: list[dict[str, object]] = []
    dropped: list[str] = []
    for case in cases():
        if arguments.groups and case.group not in arguments.groups:
            continue
        told = subprocess.run(
            [sys.executable, "-m", "benchmarks.implicit", "--case", json.dumps(asdict(case))],
            check=True,
            capture_output=True,
            text=True,
        )
        row = json.loads(told.stdout)
        row["bar_here_s"] = round(case.bar_s * REFERENCE_PEAK / peak, 1)
        fault = row.pop("fault")
        if fault:
            dropped.append(f"{case}: {fault}")
            continue
        rows.append(row)
        print(
            f"{case.group:<8} {case.data:<10} m {case.m:>6} d {case.d:>2} share {case.share:<4} {row['cpu_s']:>8.2f} s"
            f"  bar {row['bar_here_s']:>6} s  gap {row['gap']:.1e} ({row['checked']})  {row['peak_rss_mb']} MB"
            f"  clusters {row['clusters']}",
            flush=True,
        )
    about = {
        "times": "CPU seconds of one call, one process a row",
        "peak": f"{peak:.0f} Gflop/s, float32 matrix product, one thread",
    }
    write_rows(arguments.out / "implicit.csv", COLUMNS, rows, dropped, about)
    for line in dropped:
        print(f"dropped: {line}")
    return 1 if dropped else 0


if __name__ == "__main__":
    sys.exit(main())
