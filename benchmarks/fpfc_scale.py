"""Time, memory and share of pairs stored of FPFC's rounds at many clients.

python -m benchmarks.fpfc_scale            the table, also written to benchmarks/results/fpfc_scale.csv

FPFC's synthetic clients with at most 200 rows each, the settings of the paper (30 % active, ten local steps, lam = 0.7)
and a common start, so that first every pair is kept and then pairs of different clusters saturate and lose their
vectors. Each size runs in a process of its own; seconds are CPU seconds of one thread.
"""

from __future__ import annotations

import argparse
import csv
import resource
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

from benchmarks.fpfc import common_start, softmax_loss
from benchmarks.fpfc_server import machine
from fusionopt import FpfcSettings, FusionProblem, Graph, SmoothedScad
from fusionopt.datasets import make_fpfc_synthetic
from fusionopt.methods.fpfc import FpfcSession

LOOKS = (1, 5, 10, 20, 40, 60, 80, 100, 150, 200, 300)
LAM = 0.7


def run(m: int, dtype: str, rounds: int, writer: csv.DictWriter[str]) -> None:
    """Rows at the looks, the last round among them."""
    clients, _ = make_fpfc_synthetic(n_clients=m, random_state=1, max_samples=200)
    loss = softmax_loss(clients)
    problem = FusionProblem(loss, Graph.complete(m, weight=1 / m), SmoothedScad(), LAM)
    settings = FpfcSettings(
        participation=0.3, local_steps=10, alpha=0.1, rho=1.0, random_state=1, dtype=dtype
    )
    session = FpfcSession(problem, settings, common_start(m, loss.n_features, 1))
    server, spent = 0.0, time.process_time()
    update = session.server.update

    def timed(active: np.ndarray, fresh: np.ndarray) -> None:
        nonlocal server
        begun = time.process_time()
        update(active, fresh)
        server += time.process_time() - begun

    session.server.update = timed  # type: ignore[method-assign]
    last, last_server, done = spent, 0.0, 0
    told = machine()
    for k in range(1, rounds + 1):
        session.round()
        if k not in LOOKS and k != rounds:
            continue
        now, store = time.process_time(), session.server.store
        writer.writerow(
            {
                "m": m,
                "dtype": dtype,
                "round": k,
                "cpu_s_per_round": round((now - last) / (k - done), 3),
                "server_s_per_round": round((server - last_server) / (k - done), 3),
                "pairs_kept": round(store.share, 4),
                "peak_pairs_kept": round(store.peak / (m * (m - 1) // 2), 4),
                "store_mib": store.bytes // 2**20,
                "dense_mib": m * m * loss.n_features * 8 // 2**20,
                "peak_rss_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
            }
            | told
        )
        last, last_server, done = time.process_time(), server, k


COLUMNS = (
    "m", "dtype", "round", "cpu_s_per_round", "server_s_per_round", "pairs_kept", "peak_pairs_kept", "store_mib",
    "dense_mib", "peak_rss_mib",
)  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs=3, metavar=("M", "DTYPE", "ROUNDS"), help="one size, in this process")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "fpfc_scale.csv")
    args = parser.parse_args()
    columns = [*COLUMNS, *machine()]
    if args.only:
        with args.out.open("a", newline="") as file:
            run(
                int(args.only[0]),
                args.only[1],
                int(args.only[2]),
                csv.DictWriter(file, columns, lineterminator="\n"),
            )
        return
    with args.out.open("w", newline="") as file:
        csv.DictWriter(file, columns, lineterminator="\n").writeheader()
    for m, dtype, rounds in (("1000", "float64", "200"), ("3000", "float32", "60")):
        command = [
            sys.executable,
            "-m",
            "benchmarks.fpfc_scale",
            "--out",
            str(args.out),
            "--only",
            m,
            dtype,
            rounds,
        ]
        subprocess.run(command, check=True)


if __name__ == "__main__":
    main()
