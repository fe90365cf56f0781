"""FPFC's part of Table 1 of Yu et al. on regenerated data: FPFC and FPFC-l1 at several lam, LOCAL on the same seeds.

python -m benchmarks.fpfc --out benchmarks/results/fpfc_table.csv

One row for each (seed, method, lam, round looked at, nu). Rows are appended as they are done; a run that is in the file
is not run again.
"""

from __future__ import annotations

import argparse
import csv
import platform
import resource
import subprocess
import time
from pathlib import Path
from typing import Any

import numpy as np

from fusionopt import FpfcSettings, FusionProblem, Graph, L2Norm, SmoothedScad, Softmax
from fusionopt._bridge_losses import loss_kernel
from fusionopt.comparison import adjusted_rand
from fusionopt.datasets import ClientData, make_fpfc_synthetic
from fusionopt.methods.fpfc import FpfcSession

LOOKS = (100, 300, 500, 1000, 1500, 2000)
NUS = {"FPFC": (1e-3, 0.01, 0.1, 0.5), "FPFC-l1": (0.5, 1.0, 2.0, 4.0)}
"""Below which ||theta_ij|| two devices are in one cluster: the paper's [xi, 0.5], and up to the 4 of its FPFC-l1."""
COLUMNS = (
    "seed", "method", "lam", "rounds", "accuracy", "nu", "n_clusters", "ari", "seconds", "cpu_seconds",
    "pairs_kept", "peak_rss_mib", "threads", "machine", "commit",
)  # fmt: skip


def with_bias(x: np.ndarray) -> np.ndarray:
    return np.column_stack([x, np.ones(len(x))])


def softmax_loss(clients: list[ClientData]) -> Softmax:
    designs = [with_bias(c.x_train) for c in clients]
    return Softmax(designs, [c.y_train.astype(np.int64) for c in clients], n_classes=10)


def accuracy(clients: list[ClientData], x: np.ndarray) -> float:
    """Mean over devices of the accuracy of each one's own model on its own test rows."""
    hits = [
        np.mean(np.argmax(with_bias(c.x_test) @ row.reshape(61, 10), axis=1) == c.y_test)
        for c, row in zip(clients, x, strict=True)
    ]
    return float(np.mean(hits))


def common_start(m: int, d: int, seed: int) -> np.ndarray:
    """w^0 ~ N(0, 1), the same for every device, as the published code draws it."""
    return np.tile(np.random.default_rng([seed, 2]).standard_normal(d), (m, 1))


class _Clock:
    """Wall and CPU seconds of the work alone, without the looks at it."""

    def __init__(self) -> None:
        self.seconds = self.cpu_seconds = 0.0

    def __enter__(self) -> None:
        self._wall, self._cpu = time.perf_counter(), time.process_time()

    def __exit__(self, *_: object) -> None:
        self.seconds += time.perf_counter() - self._wall
        self.cpu_seconds += time.process_time() - self._cpu

    def told(self) -> dict[str, Any]:
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
        return {
            "seconds": round(self.seconds, 1),
            "cpu_seconds": round(self.cpu_seconds, 1),
            "peak_rss_mib": peak,
        }


def run_local(loss: Softmax, clients: list[ClientData], seed: int, rounds: int, threads: int) -> Any:
    """Every device alone, ten gradient steps of length 0.1 in every round."""
    m, d = loss.n_nodes, loss.n_features
    kernel, x, clock, done = loss_kernel(loss, threads), common_start(m, d, seed), _Clock(), 0
    for look in [k for k in LOOKS if k < rounds] + [rounds]:
        with clock:
            x = kernel.descend(
                x,
                np.arange(m),
                np.zeros((m, d)),
                np.zeros(m),
                np.full(m, 0.1),
                np.full(m, 10 * (look - done)),
            )
        done = look
        yield {"rounds": look, "accuracy": accuracy(clients, x), **clock.told()}


def run_fpfc(
    loss: Softmax,
    clients: list[ClientData],
    labels: np.ndarray,
    method: str,
    lam: float,
    seed: int,
    rounds: int,
    threads: int,
) -> Any:
    """FPFC with the settings of the paper's experiment."""
    m, d = loss.n_nodes, loss.n_features
    penalty = SmoothedScad(a=3.7, xi=1e-3) if method == "FPFC" else L2Norm()
    problem = FusionProblem(loss, Graph.complete(m, weight=1 / m), penalty, lam)
    settings = FpfcSettings(
        participation=0.3, local_steps=10, alpha=0.1, rho=1.0, random_state=seed, n_threads=threads
    )
    session, clock = FpfcSession(problem, settings, common_start(m, d, seed)), _Clock()
    for k in range(1, rounds + 1):
        with clock:
            session.round()
        if k not in LOOKS and k != rounds:
            continue
        told = {"rounds": k, "accuracy": accuracy(clients, session.server.x), **clock.told()}
        told["pairs_kept"] = round(session.server.store.share, 3)
        for nu in NUS[method]:
            found = session.server.labels(nu)
            yield told | {
                "nu": nu,
                "n_clusters": int(found.max()) + 1,
                "ari": round(adjusted_rand(found, labels), 4),
            }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--lams", type=float, nargs="*", default=[0.7, 0.8, 0.6, 0.9, 0.5, 1.0])
    parser.add_argument("--l1-lams", type=float, nargs="*", default=[0.2], help="of FPFC-l1")
    parser.add_argument("--no-local", action="store_true")
    parser.add_argument("--rounds", type=int, default=2000)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=True
    ).stdout.strip()
    done = set()
    if args.out.exists():
        with args.out.open(newline="") as file:
            done = {
                (int(r["seed"]), r["method"], r["lam"])
                for r in csv.DictReader(file)
                if int(r["rounds"]) == args.rounds
            }
    jobs = [("FPFC", lam) for lam in args.lams] + [("FPFC-l1", lam) for lam in args.l1_lams]
    if not args.no_local:
        jobs.insert(min(len(jobs), 1), ("LOCAL", None))
    fresh = not args.out.exists()
    with args.out.open("a", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        if fresh:
            writer.writeheader()
        for method, lam in jobs:
            for seed in args.seeds:
                if (seed, method, "" if lam is None else str(lam)) in done:
                    continue
                clients, labels = make_fpfc_synthetic(random_state=seed)
                loss = softmax_loss(clients)
                common = {
                    "seed": seed, "method": method, "lam": lam, "threads": args.threads, "commit": commit,
                    "machine": f"{platform.machine()}, {platform.system()}",
                }  # fmt: skip
                rows = (
                    run_local(loss, clients, seed, args.rounds, args.threads)
                    if lam is None
                    else run_fpfc(loss, clients, labels, method, lam, seed, args.rounds, args.threads)
                )
                # A run that is cut off leaves no rows.
                writer.writerows([common | row for row in rows])
                file.flush()


if __name__ == "__main__":
    main()
