"""Table 1 of Yu et al. (FPFC, synthetic data): every method on the same regenerated seeds, beside the printed numbers.

python -m benchmarks.fpfc_table1 --seeds 1 2 3 --rounds 300 --out benchmarks/results/fpfc_table1.csv

With --resume the rows that the file has are kept and not run again.

As in the published code all start from w ~ N(0, 1), 30 % of the devices take part (LOCAL and CFL: all), and a device
takes 10 full-batch steps of length 0.1; the paper runs 2000 rounds.
"""

from __future__ import annotations

import argparse
import csv
from pathlib import Path

import numpy as np

from benchmarks.federated import origin
from fusionopt import federated as f
from fusionopt.datasets import ClientData, make_fpfc_synthetic

PRINTED = {  # accuracy in percent, number of clusters, ARI
    "LOCAL": (84.97, None, None), "FedAvg": (30.35, None, None), "Per-FedAvg": (56.28, None, None),
    "IFCA": (60.42, 2.33, 0.47), "CFL": (86.60, 42.0, 0.28), "FPFC-l1": (83.85, 5.67, 0.63), "FPFC": (89.46, 4.0, 1.0),
}  # fmt: skip
COLUMNS = (
    "seed", "method", "rounds", "accuracy", "pooled_accuracy", "n_clusters", "ari", "printed_accuracy",
    "printed_n_clusters", "printed_ari", "majority", "seconds", "threads", "machine", "commit",
)  # fmt: skip


def methods(labels: list[int]) -> list[tuple[str, str, f.System, float]]:
    """Row of the table, name, system, participation."""
    out: list[tuple[str, str, f.System, float]] = [
        ("LOCAL", "LOCAL", f.Local(), 1.0),
        ("FedAvg", "FedAvg", f.FedAvg(), 0.3),
        ("Per-FedAvg", "FedAvg and one step (the paper's Per-FedAvg)", f.PerFedAvg(variant="fine_tune"), 0.3),
        ("Per-FedAvg", "Per-FedAvg, Hessian-free", f.PerFedAvg(), 0.3),
        ("IFCA", "IFCA", f.Ifca(), 0.3),
        ("IFCA", "IFCA, the best of 30 starts", f.Ifca(n_init=30, init_rounds=3), 0.3),
        ("CFL", "CFL", f.Cfl(), 1.0),
        ("", "FedAvg in the true clusters", f.Oracle(labels=labels), 0.3),
        ("FPFC-l1", "FPFC-l1, lam 0.2", f.FpfcL1(), 0.3),
    ]
    return out + [("FPFC", f"FPFC, lam {lam}", f.Fpfc(lam=lam), 0.3) for lam in (0.75, 1.0)]


def majority(clients: list[ClientData], labels: np.ndarray) -> float:
    """Accuracy of always saying the most frequent class of one's own cluster: what the skewed labels give away."""
    shares = []
    for client, label in zip(clients, labels, strict=True):
        y = np.concatenate([c.y_train for c, other in zip(clients, labels, strict=True) if other == label])
        shares.append(np.mean(client.y_test == np.bincount(y.astype(int)).argmax()))
    return float(np.mean(shares))


def pooled(history: f.History, fleet: f.Fleet) -> float:
    """Accuracy with the n_k-weighted mean model of each found cluster (the paper's alpha_l)."""
    accuracy, _ = fleet.measure(
        fleet.predict(np.arange(fleet.n_clients), history.cluster_models[history.labels])
    )
    return float(accuracy.mean())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--rounds", type=int, default=300)
    parser.add_argument("--resume", action="store_true")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    model = f.SoftmaxModel(spread=1.0)
    done = set[tuple[str, str, str]]()
    if args.resume and args.out.exists():
        with args.out.open(newline="") as file:
            done = {(row["seed"], row["method"], row["rounds"]) for row in csv.DictReader(file)}
    with args.out.open("a" if done else "w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS)
        if not done:
            writer.writeheader()
        for seed in args.seeds:
            clients, labels = make_fpfc_synthetic(random_state=seed)
            fleet = model.fleet(clients)
            for row, name, system, participation in methods(labels.tolist()):
                if (str(seed), name, str(args.rounds)) in done:
                    continue
                history = f.simulate(
                    system, clients, args.rounds, participation, seed, model=model, labels=labels,
                    evaluate_every=100, n_threads=args.threads,
                )  # fmt: skip
                printed = PRINTED.get(row, (None, None, None))
                last, clusters = history.rounds[-1], row in ("IFCA", "CFL", "FPFC-l1", "FPFC")
                told = {
                    "seed": seed, "method": name, "rounds": args.rounds, "accuracy": round(100 * last.accuracy, 2),
                    "pooled_accuracy": round(100 * pooled(history, fleet), 2) if clusters else "",
                    "n_clusters": last.n_clusters if clusters else "", "ari": round(last.ari, 3) if clusters else "",
                    "printed_accuracy": printed[0], "printed_n_clusters": printed[1], "printed_ari": printed[2],
                    "majority": round(100 * majority(clients, labels), 2), "seconds": round(last.seconds, 1),
                    "threads": args.threads,
                }  # fmt: skip
                writer.writerow(told | origin())
                print(told, flush=True)
                file.flush()


if __name__ == "__main__":
    main()
