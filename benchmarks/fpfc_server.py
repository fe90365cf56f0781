"""FPFC's server round beside a row-blocked NumPy round of the same arithmetic and beside memory.

    python -m benchmarks.fpfc_server            the table, also written to benchmarks/results/fpfc_server.csv

A round moves 30 % of the nodes and touches their pairs: delta = x_i - x_j + (1 - s) kept, its length, the prox, and the
sums of both ends. `kept`: no pair is saturated (FPFC-l1), so the vector of every touched pair is read and written:
`share` is the time of reading and writing as many bytes in place over the time of the round. `saturated`: SCAD with
four distant groups, where pairs of different groups have no vector. CPU time, one thread, best of the repeats.
"""

from __future__ import annotations

import argparse
import csv
import resource
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from benchmarks.compare import _cpu_model, provenance
from fusionopt import FpfcSettings, FusionProblem, Graph, L2Norm, SmoothedScad, SquaredDistance
from fusionopt._bridge_fpfc import FpfcServer

BLOCK = 128
"""Pairs of the NumPy round that are worked on at once: 16 to 64 were slower, whole rows as fast."""


class NumpyServer:
    """theta = s delta, v = rho (1 - s) delta by one vector and one number a pair, in blocks of the pairs of a node."""

    def __init__(
        self, x: np.ndarray, lam: float, rho: float, tau: Callable[[np.ndarray], np.ndarray]
    ) -> None:
        self.m, self.d = x.shape
        self.x, self.tau = x.copy(), tau
        self.kept = np.zeros((self.m * (self.m - 1) // 2, self.d))
        self.s = np.ones(len(self.kept))
        self.pull = np.zeros_like(x)
        self.update(np.arange(self.m), x)

    def update(self, active: np.ndarray, fresh: np.ndarray) -> None:
        m = self.m
        self.x[active] = fresh
        done = np.zeros(m, dtype=bool)
        self.pull[active] = 0.0
        on = np.zeros(m, dtype=bool)
        on[active] = True
        for i in active:
            others = np.flatnonzero(~done)
            others = others[others != i]
            for low in range(0, len(others), BLOCK):
                self._block(i, others[low : low + BLOCK], on)
            done[i] = True

    def _block(self, i: int, js: np.ndarray, on: np.ndarray) -> None:
        """The pairs of i and js; temporary arrays stay in the second-level cache."""
        first, second = np.minimum(i, js), np.maximum(i, js)
        rows: np.ndarray | slice = first * (2 * self.m - first - 1) // 2 + second - first - 1
        assert isinstance(rows, np.ndarray)
        if rows[-1] - rows[0] == len(rows) - 1:
            rows = slice(int(rows[0]), int(rows[-1]) + 1)  # rows of later nodes lie one after the other
        sign = np.where(js > i, 1.0, -1.0)[:, None]
        old, s = self.kept[rows], self.s[rows]
        before = old * (2.0 * s - 1.0)[:, None]
        delta = self.x[i] - self.x[js]
        delta *= sign
        delta += old * (1.0 - s)[:, None]
        length = np.sqrt(np.einsum("ij,ij->i", delta, delta))
        share = np.divide(self.tau(length), length, out=np.zeros_like(length), where=length > 0)
        self.kept[rows] = delta
        self.s[rows] = share
        now = delta
        now *= sign * (2.0 * share - 1.0)[:, None]
        self.pull[i] += now.sum(axis=0)
        before *= sign * ~on[js][:, None]
        now -= before
        self.pull[js] -= now


def machine() -> dict[str, str]:
    """What a time depends on beside the code."""
    told = provenance()
    return {"cpu": _cpu_model()} | {key: told[key] for key in ("system", "commit", "load")}


def _timed(action: Callable[..., object], *arguments: object) -> float:
    begun = time.process_time()
    action(*arguments)
    return time.process_time() - begun


def measure(kind: str, m: int, d: int, dtype: str, repeats: int, numpy: bool) -> dict[str, object]:
    """One row of the table."""
    rng = np.random.default_rng(0)
    groups = np.repeat(np.eye(4), m // 4 + 1, axis=0)[:m] @ rng.standard_normal((4, d))
    x = (0.0 if kind == "kept" else 1.0) * 10.0 * groups + 0.01 * rng.standard_normal((m, d))
    penalty = L2Norm() if kind == "kept" else SmoothedScad()
    problem = FusionProblem(SquaredDistance(x), Graph.complete(m, weight=1 / m), penalty, 0.7)
    server = FpfcServer(problem, FpfcSettings(dtype=dtype), 1.0)
    server.start(x)
    server.update(np.arange(m), x + 1e-3 * rng.standard_normal((m, d)))
    active = int(0.3 * m)
    twin = NumpyServer(x, 0.7, 1.0, lambda s: penalty.prox(s, 0.7, 1.0)) if numpy else None
    ours: list[float] = []
    theirs: list[float] = []
    streams: list[float] = []
    store = server.store
    pairs = active * (m - active) + active * (active - 1) // 2
    touched = pairs * store.share
    width = 4 if dtype == "float32" else 8
    array = np.ones(int(touched) * d, dtype=dtype)
    for _ in range(repeats):
        chosen = np.sort(rng.choice(m, active, replace=False))
        fresh = x[chosen] + 1e-3 * rng.standard_normal((active, d))
        ours.append(_timed(server.update, chosen, fresh))
        if twin is not None:
            theirs.append(_timed(twin.update, chosen, fresh))
        streams.append(_timed(np.multiply, array, array.dtype.type(1.0000001), array))
    row: dict[str, object] = {
        "pairs": kind,
        "m": m,
        "d": d,
        "dtype": dtype,
        "touched": pairs,
        "kept_share": round(store.share, 3),
        "gigabytes": round(2 * touched * d * width / 1e9, 3),
        "round_s": round(min(ours), 4),
        "stream_s": round(min(streams), 4),
        "share": round(min(streams) / min(ours), 2),
        "numpy_s": round(min(theirs), 3) if theirs else "",
        "times_numpy": round(min(theirs) / min(ours), 1) if theirs else "",
        "store_mib": store.bytes // 2**20,
        "peak_rss_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
    }
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--features", type=int, default=610)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--dtypes", nargs="+", default=["float64", "float32"])
    parser.add_argument("--kinds", nargs="+", default=["saturated", "kept"])
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "fpfc_server.csv")
    args = parser.parse_args()
    told = machine() | {"times": f"CPU, best of {args.repeats}, in turns, one thread"}
    rows = [
        measure(kind, args.nodes, args.features, dtype, args.repeats, dtype == "float64") | told
        for kind in args.kinds
        for dtype in args.dtypes
    ]
    with args.out.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    for row in rows:
        print(", ".join(f"{key} {value}" for key, value in row.items() if key not in told))


if __name__ == "__main__":
    main()
