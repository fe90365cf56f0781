"""The pair sweep beside the stream rate of its own array and beside a row-blocked NumPy sweep.

    python -m benchmarks.sweep            the table, also written to benchmarks/results/sweep.csv

A sweep moves the state in and out once, and nothing else that is large: `share` is the time of reading and writing an
array of that size in place over the time of the sweep. Best of 20 against best of 20, wall-clock, taken in turns. The
NumPy sweep (`numpy_admm.RowBlockedAdmm`, preallocated, float64) is timed in the same process.
"""

from __future__ import annotations

import argparse
import csv
import os
import time
from pathlib import Path

import numpy as np

from benchmarks.compare import _cpu_model, provenance
from benchmarks.numpy_admm import RowBlockedAdmm
from fusionopt._bridge import time_pair_sweep

_SHAPES = [(200, 2), (200, 10), (1000, 1), (1000, 2), (1000, 4), (1000, 10), (1000, 24), (1000, 100)]
_SHAPES += [(2000, 2), (2000, 10), (4000, 2), (4000, 10)]
_NUMPY_SHAPES = [(1000, 2), (1000, 10)]
_REPEATS = 20


def numpy_seconds(m: int, d: int, repeats: int = _REPEATS) -> float:
    """Best time of one row-blocked NumPy sweep."""
    admm = RowBlockedAdmm(np.random.default_rng(0).normal(size=(m, d)), 1.0 / m, 1.0 / m)
    best = np.inf
    for _ in range(repeats):
        start = time.perf_counter()
        admm.sweep()
        best = min(best, time.perf_counter() - start)
    return best


def rows(n_threads: tuple[int, ...] = (1, 2), repeats: int = _REPEATS) -> list[dict[str, object]]:
    """One row for each shape, dtype and number of threads."""
    out: list[dict[str, object]] = []
    for m, d in _SHAPES:
        numpy_best = numpy_seconds(m, d, repeats) if (m, d) in _NUMPY_SHAPES else None
        for dtype in ("float64", "float32"):
            one = 0.0
            for threads in n_threads:
                times = time_pair_sweep(m, d, dtype, threads, repeats)
                sweep, check, stream = (min(times[key]) for key in ("sweep", "check", "stream"))
                one = one or sweep
                out.append(
                    {
                        "m": m,
                        "d": d,
                        "dtype": dtype,
                        "threads": threads,
                        "megabytes": round(times["bytes"] / 2e6, 2),
                        "sweep_ms": round(1e3 * sweep, 4),
                        "check_ms": round(1e3 * check, 4),
                        "stream_ms": round(1e3 * stream, 4),
                        "stream_gb_per_s": round(times["bytes"] / stream / 1e9, 1),
                        "share": round(stream / sweep, 3),
                        "times_one_thread": round(one / sweep, 2),
                        "times_numpy": "" if numpy_best is None else round(numpy_best / sweep, 1),
                    }
                )
    return out


def main(arguments: list[str] | None = None) -> int:
    """Print the table and write it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--threads", type=int, nargs="+", default=[1, min(2, os.cpu_count() or 1)])
    parser.add_argument("--results", type=Path, default=Path(__file__).parent / "results")
    chosen = parser.parse_args(arguments)
    table = rows(tuple(chosen.threads))
    told = provenance() | {
        "cpu": _cpu_model(),
        "times": f"best of {_REPEATS}, wall-clock, in turns",
        "tolerance": "",
    }
    chosen.results.mkdir(parents=True, exist_ok=True)
    with (chosen.results / "sweep.csv").open("w", newline="") as file:
        for name, value in told.items():
            if value:
                file.write(f"# {name}: {value}\n")
        writer = csv.DictWriter(file, list(table[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(table)
    print("  ".join(f"{name:>9}" for name in table[0]))
    for row in table:
        print("  ".join(f"{value!s:>9}" for value in row.values()))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
