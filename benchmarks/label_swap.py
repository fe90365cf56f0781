"""Clustered federated learning on MNIST with a small CNN: 20 clients in 4 clusters, labels swapped or permuted.

    python -m benchmarks.label_swap --data mnist.npz [--out benchmarks/results]

Writes label_swap.csv (clusters found and accuracy of CFL, whose accuracy before its first split is that of FedAvg, of
FPFC, and with swapped labels of every client alone and of the true clusters), label_swap_cfl.csv (CFL round by
round) and label_swap.png: Figure 3 of Sattler et al. in shape. The paper has permuted labels of CIFAR-10, a larger
network and three epochs a round (20 % before the first split, 60 % at the end); here it is a fifth of MNIST.
"""

from __future__ import annotations

import argparse
import csv
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.metrics import adjusted_rand_score

from benchmarks.compare import cpu_seconds, provenance
from fusionopt.datasets import label_swap, load_mnist, permute_labels, split_evenly
from fusionopt.federated import (
    Cfl,
    Fpfc,
    History,
    Local,
    Oracle,
    System,
    TorchModel,
    mnist_cnn,
    simulate,
)
from fusionopt.federated.cfl import cosines

WORK: dict[str, Any] = {"rate": 0.1, "batch": 50, "epochs": 1}
# CFL's gates are norms of updates, from a look at their course; its steps fall by 1.5 % a round (public code: 1 %).
EPS, CFL_DECAY = {"swapped": (0.12, 0.42), "permuted": (0.15, 0.5)}, 0.985
LAM, RHO, DECAY = 0.45, 1.0, 0.9**0.2  # FPFC; the steps fall as in its public code, by 0.9 every five rounds
ROWS, TEST_ROWS = 12000, 4000
KINDS = {"swapped": label_swap, "permuted": permute_labels}
COLUMNS = ["labels", "method", "rounds", "n_clusters", "ari", "accuracy", "remark", "cpu_seconds"]


@dataclass(frozen=True)
class WatchedCfl(Cfl):
    """CFL that notes, after each round, the clusters before it and the cosines of the updates."""

    log: list[tuple[Any, Any]] = field(default_factory=list)

    def round(self, state: Any, fleet: Any, active: Any, rng: Any) -> None:
        before = state.labels.copy()
        super().round(state, fleet, active, rng)
        self.log.append((before, cosines(state.updates)))


def deal(data: Path, kind: str, seed: int) -> tuple[list[Any], Any]:
    mnist = load_mnist(data)
    mnist = mnist._replace(
        x_train=mnist.x_train[:ROWS], y_train=mnist.y_train[:ROWS],
        x_test=mnist.x_test[:TEST_ROWS], y_test=mnist.y_test[:TEST_ROWS],
    )  # fmt: skip
    clients = split_evenly(mnist, 20, random_state=seed)
    return label_swap(clients) if kind == "swapped" else permute_labels(clients, 4, random_state=seed)


def run(
    system: System, clients: list[Any], labels: Any, rounds: int, seed: int, share: float = 1.0
) -> tuple[History, float]:
    begun = cpu_seconds()
    history = simulate(
        system, clients, rounds, share, seed, labels=labels,
        model=TorchModel(mnist_cnn, shape=(1, 28, 28)), n_threads=2,
    )  # fmt: skip
    return history, round(cpu_seconds() - begun, 1)


def cfl_remark(history: History) -> str:
    """Accuracy before each split and some rounds after the last."""
    counts = [record.n_clusters for record in history.rounds]
    accuracy = [record.accuracy for record in history.rounds]
    told = [
        f"round {k + 1}: {before} -> {after} clusters at {accuracy[k]:.3f}"
        for k, (before, after) in enumerate(zip([1, *counts[:-1]], counts, strict=True))
        if after > before
    ]
    return "; ".join(told)


def draw(path: Path, runs: dict[str, tuple[History, list[Any]]], labels: Any) -> None:
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(
        len(runs), 2, figsize=(10, 3.2 * len(runs)), layout="constrained", squeeze=False
    )
    same = labels[:, None] == labels
    upper = np.triu(np.ones_like(same), 1).astype(bool)
    for (left, right), (kind, (history, log)) in zip(axes, runs.items(), strict=True):
        rounds = np.arange(1, len(log) + 1)
        for k, label in enumerate(labels):
            left.plot(rounds, history.client_accuracies[:, k], color=f"C{label}", linewidth=0.6, alpha=0.7)
        left.plot(rounds, [r.accuracy for r in history.rounds], color="black", linewidth=1.5, label="mean")
        left.set(title=f"labels {kind}: accuracy of each client", xlabel="round", ylabel="test accuracy")
        left.legend(loc="lower right", fontsize=8)
        alpha = np.array([cosine[upper] for _, cosine in log])
        apart = np.array([(before[:, None] != before)[upper] for before, _ in log])
        done = np.array([_settled(before, labels)[upper] for before, _ in log])
        pair_same = same[upper]
        for j in range(alpha.shape[1]):
            colour = "C0" if pair_same[j] else "C1"
            right.plot(
                rounds, np.where(done[:, j] | apart[:, j], alpha[:, j], np.nan), color="0.8", linewidth=0.3
            )
            right.plot(
                rounds, np.where(done[:, j] | apart[:, j], np.nan, alpha[:, j]), color=colour, linewidth=0.3
            )
        right.set(title="cosines (blue same cluster, orange not)", xlabel="round", ylabel="cosine")
        for k in np.flatnonzero(np.diff([r.n_clusters for r in history.rounds])):
            for ax in (left, right):
                ax.axvline(k + 2, color="0.4", linewidth=0.6, linestyle=":")
    figure.savefig(path, dpi=70)
    plt.close(figure)


def _settled(found: Any, labels: Any) -> Any:
    """Pairs inside a cluster that holds one kind of client only."""
    pure = np.array([len(np.unique(labels[found == label])) == 1 for label in found])
    return (found[:, None] == found) & pure[:, None]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, default=Path("../shared/data/mnist.npz"))
    parser.add_argument("--kinds", nargs="+", choices=list(KINDS), default=list(KINDS))
    parser.add_argument("--rounds", type=int, default=72)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results"))
    args = parser.parse_args()
    head = {key: provenance()[key] for key in ("cpu", "system", "commit")}
    head["work"] = (
        f"{WORK}, {ROWS} training and {TEST_ROWS} test images over 20 clients, seed {args.seed}, two processes"
    )
    rows: list[dict[str, Any]] = []
    runs: dict[str, tuple[History, list[Any]]] = {}
    for kind in args.kinds:
        clients, labels = deal(args.data, kind, args.seed)

        def note(
            method: str,
            history: History,
            seconds: float,
            remark: str = "",
            kind: str = kind,
            labels: Any = labels,
        ) -> None:
            found = history.labels
            rows.append(
                {
                    "labels": kind, "method": method, "rounds": len(history.rounds),
                    "n_clusters": history.n_clusters, "ari": round(adjusted_rand_score(labels, found), 4),
                    "accuracy": round(history.final_accuracy, 4), "remark": remark, "cpu_seconds": seconds,
                }
            )  # fmt: skip
            print(rows[-1], flush=True)
            with (args.out / "label_swap.csv").open("w", newline="") as file:
                file.writelines(f"# {key}: {value}\n" for key, value in head.items())
                writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
                writer.writeheader()
                writer.writerows(rows)

        eps_1, eps_2 = EPS[kind]
        cfl = WatchedCfl(eps_1=eps_1, eps_2=eps_2, decay=CFL_DECAY, **WORK)
        history, seconds = run(cfl, clients, labels, args.rounds, args.seed)
        runs[kind] = history, cfl.log
        note(f"CFL, eps_1={eps_1} eps_2={eps_2}", history, seconds, cfl_remark(history))
        if kind != "swapped":
            continue
        fpfc = Fpfc(lam=LAM, rho=RHO, layers=("fc2",), decay=DECAY, **WORK)
        others: list[tuple[str, System, int, float]] = [
            (f"FPFC, fc2 fused, lam={LAM} rho={RHO} nu={fpfc.nu}", fpfc, args.rounds * 5 // 6, 0.5),
            ("Local", Local(**WORK), args.rounds // 3, 1.0),
            ("true clusters", Oracle(labels=labels, **WORK), args.rounds // 3, 1.0),
        ]
        for method, system, rounds, share in others:
            note(method, *run(system, clients, labels, rounds, args.seed, share))
    draw(args.out / "label_swap.png", runs, labels)
    with (args.out / "label_swap_cfl.csv").open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(
            ["labels", "round", "accuracy", "n_clusters", "least_cosine_same", "largest_cosine_other"]
        )
        same = labels[:, None] == labels
        for kind, (history, log) in runs.items():
            for record, (_, cosine) in zip(history.rounds, log, strict=True):
                alike, other = cosine[same].min(), cosine[~same].max()
                writer.writerow(
                    [
                        kind,
                        record.round,
                        f"{record.accuracy:.4f}",
                        record.n_clusters,
                        f"{alike:.3f}",
                        f"{other:.3f}",
                    ]
                )


if __name__ == "__main__":
    main()
