"""Table 1 of Ruan and Joe-Wong (FedSoft, synthetic data): where the two centres lie between the two true models.

python -m benchmarks.fedsoft_table1 --seeds 1 2 3 4 5 --out benchmarks/results/fedsoft_table1.csv

A centre's place is its projection on the segment from theta_0 (0) to theta_1 (1); the printed errors depend on the draw
of theta, the places do not. Published settings: 100 clients, 60 drawn for each centre without replacement, lam = 1.
"""

from __future__ import annotations

import argparse
import csv
import time
from pathlib import Path

import numpy as np

from benchmarks.federated import origin
from fusionopt import federated as f
from fusionopt.datasets import make_fedsoft_synthetic

PRINTED = {  # mean squared errors of c_0, c_1 on theta_0, then on theta_1
    "10:90": ((68.4, 29.5), (21.8, 58.6)),
    "30:70": ((44.2, 49.6), (41.3, 36.3)),
    "linear": ((38.2, 59.1), (47.1, 27.8)),
    "random": ((42.2, 60.6), (42.7, 27.0)),
}
COLUMNS = (
    "partition", "system", "seed", "low", "high", "off", "mse_low_0", "mse_low_1", "mse_high_0", "mse_high_1",
    "printed_low", "printed_high", "seconds", "machine", "commit",
)  # fmt: skip


def printed(partition: str) -> tuple[float, float]:
    """The places that the printed errors imply, for noise of variance 1 and centres on the segment."""
    far = np.sqrt(np.array(PRINTED[partition]) - 1.0)
    low, high = np.sort(far[0] / far.sum(axis=0))
    return float(low), float(high)


def places(centres: np.ndarray, theta: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Projections on the segment, and distances from it, in units of its length."""
    along = theta[1] - theta[0]
    at = (centres - theta[0]) @ along / (along @ along)
    off = np.linalg.norm(centres - theta[0] - at[:, None] * along, axis=1)
    return at, off / np.linalg.norm(along)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3, 4, 5])
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    soft = {"n_clusters": 2, "lam": 1.0, "steps": 20, "rate": 0.1}
    systems = {
        "FedSoft, without replacement (published)": (f.FedSoft(**soft, replacement=False), 0.6),
        "FedSoft, with replacement": (f.FedSoft(**soft), 0.6),
        "FedSoft, all clients": (f.FedSoft(**soft), 1.0),
        "IFCA": (f.Ifca(n_clusters=2, steps=20), 0.6),
        "FedEM": (f.FedEm(n_components=2, steps=20), 0.6),
    }
    model = f.LinearModel(intercept=False)
    with args.out.open("w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS)
        writer.writeheader()
        for partition in PRINTED:
            for name, (system, participation) in systems.items():
                found = []
                for seed in args.seeds:
                    clients, _, theta = make_fedsoft_synthetic(partition, random_state=seed)
                    begun = time.process_time()
                    history = f.simulate(
                        system,
                        clients,
                        args.rounds,
                        participation,
                        seed,
                        model=model,
                        evaluate_every=args.rounds,
                    )
                    centres = history.state.centres
                    at, off = places(centres, theta)
                    centres, at = centres[np.argsort(at)], np.sort(at)
                    found.append(at)
                    mse = 1.0 + ((centres[:, None] - theta) ** 2).sum(axis=2)
                    row = {
                        "partition": partition, "system": name, "seed": seed, "low": round(at[0], 3),
                        "high": round(at[1], 3), "off": round(off.max(), 3), "mse_low_0": round(mse[0, 0], 1),
                        "mse_low_1": round(mse[0, 1], 1), "mse_high_0": round(mse[1, 0], 1),
                        "mse_high_1": round(mse[1, 1], 1), "seconds": round(time.process_time() - begun, 2),
                    }  # fmt: skip
                    if name.startswith("FedSoft"):
                        low, high = printed(partition)
                        row |= {"printed_low": round(low, 3), "printed_high": round(high, 3)}
                    writer.writerow(row | origin())
                print(
                    f"{partition:7s} {name:42s} {np.mean(found, axis=0).round(2)} printed {printed(partition)}"
                )


if __name__ == "__main__":
    main()
