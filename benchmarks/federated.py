"""Every federated system on FPFC's synthetic data (100 clients, 4 clusters, 610 parameters): time and what they reach.

python -m benchmarks.federated --rounds 300 --out benchmarks/results/federated.csv
"""

from __future__ import annotations

import argparse
import csv
import platform
import subprocess
import time
from pathlib import Path

from fusionopt import federated
from fusionopt.datasets import make_fpfc_synthetic

COLUMNS = (
    "system", "seed", "rounds", "participation", "accuracy", "weighted_accuracy", "n_clusters", "ari",
    "megabytes_down", "megabytes_up", "cpu_seconds", "wall_seconds", "threads", "machine", "commit",
)  # fmt: skip


def origin() -> dict[str, str]:
    """Machine and commit of a row."""
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=True
    )
    return {"machine": f"{platform.machine()}, {platform.system()}", "commit": commit.stdout.strip()}


def systems(labels: list[int]) -> dict[str, federated.System]:
    """One of each, with its defaults."""
    f = federated
    return {
        "Local": f.Local(), "FedAvg": f.FedAvg(), "PerFedAvg": f.PerFedAvg(), "Ifca": f.Ifca(), "Cfl": f.Cfl(),
        "RFedAvg": f.RFedAvg(), "RFedAvg uniform": f.RFedAvg(weights="uniform"),
        "RFedAvg optimal": f.RFedAvg(weights="optimal"), "KMeansAggregation": f.KMeansAggregation(),
        "FedSoft": f.FedSoft(), "FedEm": f.FedEm(), "SquaredPenalty": f.SquaredPenalty(),
        "Oracle": f.Oracle(labels=labels), "Fpfc": f.Fpfc(), "FpfcL1": f.FpfcL1(), "Pdmm": f.Pdmm(),
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--participation", type=float, default=0.3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    clients, labels = make_fpfc_synthetic(random_state=args.seed)
    total = 0.0
    with args.out.open("w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS)
        writer.writeheader()
        for name, system in systems(labels.tolist()).items():
            wall, cpu = time.perf_counter(), time.process_time()
            history = federated.simulate(
                system,
                clients,
                args.rounds,
                args.participation,
                args.seed,
                labels=labels,
                n_threads=args.threads,
            )
            wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
            total += wall
            last = history.rounds[-1]
            row = {
                "system": name, "seed": args.seed, "rounds": args.rounds, "participation": args.participation,
                "accuracy": round(last.accuracy, 4), "weighted_accuracy": round(last.weighted_accuracy, 4),
                "n_clusters": last.n_clusters, "ari": round(last.ari, 4),
                "megabytes_down": round(history.bytes_down / 1e6, 1),
                "megabytes_up": round(history.bytes_up / 1e6, 1), "cpu_seconds": round(cpu, 1),
                "wall_seconds": round(wall, 1), "threads": args.threads,
            }  # fmt: skip
            writer.writerow(row | origin())
            file.flush()
            print(f"{name:20s} {cpu:7.1f} s CPU {wall:7.1f} s  accuracy {last.accuracy:.3f}", flush=True)
    print(f"all: {total:.0f} s")


if __name__ == "__main__":
    main()
