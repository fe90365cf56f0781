"""FPFC's part of Table 1 of Yu et al. on regenerated data: FPFC at several lam, and LOCAL, on the same seed.

python -m benchmarks.fpfc --seeds 1 2 3 --lams 0.75 --rounds 2000 --out benchmarks/results/fpfc_table.csv
"""

from __future__ import annotations

import argparse
import csv
import platform
import resource
import subprocess
import time
from pathlib import Path

import numpy as np
from sklearn.metrics import adjusted_rand_score

from fusionopt import FpfcSettings, FusionProblem, Graph, SmoothedScad, Softmax
from fusionopt._bridge_losses import loss_kernel
from fusionopt.datasets import ClientData, make_fpfc_synthetic
from fusionopt.methods.fpfc import FpfcSession

NUS = (1e-3, 0.01, 0.1, 0.5)
COLUMNS = (
    "seed", "method", "lam", "rounds", "accuracy", "nu", "n_clusters", "ari", "seconds", "pairs_kept",
    "peak_pairs_kept", "peak_rss_mib", "threads", "machine", "commit",
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--lams", type=float, nargs="+", default=[0.6, 0.75, 1.0])
    parser.add_argument("--rounds", type=int, default=2000)
    parser.add_argument(
        "--local-steps", type=int, default=20000, help="gradient steps of LOCAL; 0 leaves it out"
    )
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=True
    ).stdout.strip()
    fresh = not args.out.exists()
    with args.out.open("a", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS)
        if fresh:
            writer.writeheader()
        for seed in args.seeds:
            clients, labels = make_fpfc_synthetic(random_state=seed)
            loss = softmax_loss(clients)
            m, d = loss.n_nodes, loss.n_features
            row = {"seed": seed, "threads": args.threads, "commit": commit}
            row["machine"] = f"{platform.machine()}, {platform.system()}"
            if args.local_steps:
                begun = time.perf_counter()
                x = loss_kernel(loss, args.threads).descend(
                    common_start(m, d, seed), np.arange(m), np.zeros((m, d)), np.zeros(m), np.full(m, 0.1),
                    np.full(m, args.local_steps),
                )  # fmt: skip
                taken = time.perf_counter() - begun
                told = {"method": "LOCAL", "rounds": args.local_steps // 10, "accuracy": accuracy(clients, x)}
                writer.writerow(row | told | {"seconds": round(taken, 1)})
                file.flush()
            for lam in args.lams:
                problem = FusionProblem(loss, Graph.complete(m, weight=1 / m), SmoothedScad(), lam)
                settings = FpfcSettings(
                    participation=0.3,
                    local_steps=10,
                    alpha=0.1,
                    rho=1.0,
                    random_state=seed,
                    n_threads=args.threads,
                )
                session = FpfcSession(problem, settings, common_start(m, d, seed))
                seconds = 0.0
                for k in range(1, args.rounds + 1):
                    begun = time.perf_counter()
                    session.round()
                    seconds += time.perf_counter() - begun
                    if k not in (100, 300, 500, 1000, 1500, args.rounds):
                        continue
                    store = session.server.store
                    common = row | {
                        "method": "FPFC",
                        "lam": lam,
                        "rounds": k,
                        "accuracy": accuracy(clients, session.server.x),
                        "seconds": round(seconds, 1),
                        "pairs_kept": round(store.share, 3),
                        "peak_pairs_kept": store.peak,
                        "peak_rss_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
                    }
                    for nu in NUS:
                        found = session.server.labels(nu)
                        writer.writerow(
                            common
                            | {
                                "nu": nu,
                                "n_clusters": int(found.max()) + 1,
                                "ari": round(float(adjusted_rand_score(labels, found)), 4),
                            }
                        )
                    file.flush()


if __name__ == "__main__":
    main()
