"""Figures 1 and 2 of Sattler, Mueller and Samek (CFL): the two toy data sets, and paths of federated learning.

python -m benchmarks.cfl_toys --out benchmarks/results

Figure 1: one linear model fails on both data sets, CFL finds the clusters. Figure 2: two clients with quadratic risks.
Incongruent ones end where the gradients are opposite and not zero, congruent ones where both vanish.
"""

from __future__ import annotations

import argparse
import csv
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from benchmarks.federated import origin
from fusionopt import federated as f
from fusionopt.datasets import ClientData, make_conflict, make_xor
from fusionopt.federated.cfl import cosines

SEED = 1


def quadratic(design: list[list[float]], y: list[float]) -> ClientData:
    """A client whose risk is the mean of (z'w - y)^2 / 2 over these rows."""
    return ClientData(np.array(design), np.array(y), np.array(design), np.array(y))


def risks() -> dict[str, list[ClientData]]:
    """The two pairs of clients of Figure 2; the second pair's minimisers are two lines that cross at (1, 1)."""
    return {
        "incongruent": [
            quadratic([[1.0, 0.0], [0.0, 2.0]], [-1.0, 1.0]),
            quadratic([[2.0, 0.5], [0.0, 1.0]], [2.0, 2.0]),
        ],
        "congruent": [quadratic([[1.0, 0.5]], [1.5]), quadratic([[-0.5, 1.5]], [1.0])],
    }


def path(clients: list[ClientData], rounds: int) -> tuple[np.ndarray, np.ndarray]:
    """Models (rounds + 1, 2) of FedAvg with one gradient step a round, and the clients' gradients at the last."""
    fleet = f.LinearModel(intercept=False).fleet(clients)
    system, rng = f.FedAvg(steps=1, rate=0.2), np.random.default_rng(SEED)
    everyone = np.arange(fleet.n_clients)
    state = system.start(fleet, rng)
    state.models[:] = [-2.5, 3.5]
    models = [state.models[0].copy()]
    for _ in range(rounds):
        system.round(state, fleet, everyone, rng)
        models.append(state.models[0].copy())
    return np.array(models), fleet.gradients(everyone, state.models)


def draw_risks(ax: plt.Axes, clients: list[ClientData], models: np.ndarray, title: str) -> None:
    side = np.linspace(-3, 4, 80)
    grid = np.stack(np.meshgrid(side, side), axis=-1)
    for k, client in enumerate(clients):
        risk = ((grid @ client.x_train.T - client.y_train) ** 2).mean(axis=-1) / 2
        ax.contour(side, side, risk, levels=[0.02, 0.2, 0.8, 2.0], colors=f"C{k}", linewidths=0.8)
    ax.plot(models[:, 0], models[:, 1], "k.-", markersize=2, linewidth=0.8)
    ax.set_title(title)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    figure, axes = plt.subplots(2, 2, figsize=(9, 8))
    rows: list[dict[str, object]] = []
    for ax, (name, make) in zip(axes[0], (("xor", make_xor), ("conflict", make_conflict)), strict=True):
        clients, labels = make(random_state=SEED)
        for system in (f.FedAvg(rate=0.5), f.Cfl(rate=0.5), f.Oracle(rate=0.5, labels=labels.tolist())):
            history = f.simulate(system, clients, 200, random_state=SEED, labels=labels)
            last = history.rounds[-1]
            split = next((r.round for r in history.rounds if r.n_clusters > 1), "")
            split = split if isinstance(system, f.Cfl) else ""
            rows.append(
                {
                    "toy": name, "system": type(system).__name__, "accuracy": round(last.accuracy, 4),
                    "n_clusters": last.n_clusters, "ari": last.ari, "split_in_round": split,
                }
            )  # fmt: skip
        for label in (0, 1):
            mine = [c for c, other in zip(clients, labels, strict=True) if other == label]
            x, y = np.concatenate([c.x_train for c in mine]), np.concatenate([c.y_train for c in mine])
            for value, mark in ((0, "o"), (1, "x")):
                ax.plot(*x[y == value].T, mark, color=f"C{label}", markersize=3, alpha=0.4)
        ax.set_title(f"Figure 1: {name}")
    for ax, (name, clients) in zip(axes[1], risks().items(), strict=True):
        models, slopes = path(clients, 400)
        norms = np.linalg.norm(slopes, axis=1)
        cosine = float(cosines(slopes)[0, 1]) if norms.min() > 1e-8 else float("nan")
        rows.append(
            {
                "toy": name, "system": "FedAvg", "gradient_norm_1": f"{norms[0]:.2e}",
                "gradient_norm_2": f"{norms[1]:.2e}", "cosine": round(cosine, 6),
            }
        )  # fmt: skip
        draw_risks(ax, clients, models, f"Figure 2: {name}")
    figure.tight_layout()
    figure.savefig(args.out / "cfl_toys.png", dpi=80)
    columns = ("toy", "system", "accuracy", "n_clusters", "ari", "split_in_round", "gradient_norm_1",
               "gradient_norm_2", "cosine", "machine", "commit")  # fmt: skip
    with (args.out / "cfl_toys.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, columns)
        writer.writeheader()
        for row in rows:
            writer.writerow(row | origin())
            print(row)


if __name__ == "__main__":
    main()
