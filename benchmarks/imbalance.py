"""Figure 2 of Wang, Zhang and Tao (RFedAvg): MNIST, a small CNN, 1, 2, 5 or 10 classes a device, 30 of 100 devices.

    python -m benchmarks.imbalance --data mnist.npz [--seeds 0] [--out benchmarks/results]

Writes imbalance.csv (accuracy of the four methods beside the paper's differences), imbalance_curves.csv and
imbalance.png. The paper states neither local work nor rounds; what was chosen is in the table. A run that was cut short
keeps the methods it has finished, and goes on when it is started again with the same arguments.
"""

from __future__ import annotations

import argparse
import csv
from pathlib import Path

import numpy as np

from benchmarks.compare import cpu_seconds, provenance
from fusionopt.datasets import load_mnist, split_imbalanced
from fusionopt.federated import FedAvg, KMeansAggregation, RFedAvg, System, TorchModel, mnist_cnn, simulate

ROUNDS = {1: 120, 2: 60, 5: 30, 10: 20}
WORK = {"rate": 0.1, "batch": 20, "epochs": 1}
TEST_ROWS = 5000
PAPER = {  # accuracy of RFedAvg less that of the other, in points, as its section IV.D words it
    1: {"FedAvg": "+10", "K-means": "+8", "Optimal": "about 0"},
    2: {"FedAvg": "+3", "K-means": "+1", "Optimal": ""},
    5: {"FedAvg": "+1.5", "K-means": "+0.5", "Optimal": "-0.5"},
    10: {"FedAvg": "about 0", "K-means": "about 0", "Optimal": "about 0"},
}


def systems() -> dict[str, System]:
    return {
        "FedAvg": FedAvg(**WORK),
        "RFedAvg": RFedAvg(**WORK),
        "K-means": KMeansAggregation(**WORK),
        "Optimal": RFedAvg(weights="optimal", **WORK),
    }


def run(data: Path, seed: int, n_classes: int, name: str) -> dict[str, object]:
    mnist = load_mnist(data)
    mnist = mnist._replace(x_test=mnist.x_test[:TEST_ROWS], y_test=mnist.y_test[:TEST_ROWS])
    clients = split_imbalanced(mnist, 100, n_classes, random_state=seed)
    begun = cpu_seconds()
    history = simulate(
        systems()[name],
        clients,
        ROUNDS[n_classes],
        participation=0.3,
        random_state=seed,
        model=TorchModel(mnist_cnn, shape=(1, 28, 28)),
        evaluate_every=2,
        n_threads=2,
    )
    groups = getattr(history.state, "groups", None)
    return {
        "seed": seed,
        "classes": n_classes,
        "method": name,
        "cpu_seconds": round(cpu_seconds() - begun, 1),
        "clusters_last": "" if groups is None else len(groups),
        "curve": [round(record.accuracy, 4) for record in history.rounds[1::2]],
    }


def read_curves(path: Path) -> list[dict[str, object]]:
    if not path.exists():
        return []
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    return [
        row
        | {key: int(row[key]) for key in ("seed", "classes")}
        | {"curve": [float(v) for v in row["curve"].split()]}
        for row in rows
    ]


def write_curves(path: Path, rows: list[dict[str, object]]) -> None:
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(
            file, ["seed", "classes", "method", "cpu_seconds", "clusters_last", "curve"], lineterminator="\n"
        )
        writer.writeheader()
        writer.writerows(row | {"curve": " ".join(map(str, row["curve"]))} for row in rows)


def level(row: dict[str, object]) -> float:
    """Mean accuracy over the measurements of the last fifth of the rounds."""
    curve = row["curve"]
    return float(np.mean(curve[-max(1, len(curve) // 5) :]))


def write_table(path: Path, rows: list[dict[str, object]], head: dict[str, str]) -> None:
    lines = [f"# {key}: {value}" for key, value in head.items()]
    lines.append("classes,method,seeds,rounds,accuracy,rfedavg_less_this_points,per_seed_points,paper_points")
    for n_classes in ROUNDS:
        for name in systems():
            mine = {r["seed"]: level(r) for r in rows if (r["classes"], r["method"]) == (n_classes, name)}
            theirs = {
                r["seed"]: level(r) for r in rows if (r["classes"], r["method"]) == (n_classes, "RFedAvg")
            }
            if not mine:
                continue
            both = [100 * (theirs[seed] - mine[seed]) for seed in mine if seed in theirs]
            told = f"{np.mean(both):+.1f},{' '.join(f'{d:+.1f}' for d in both)}" if name != "RFedAvg" else ","
            seeds = " ".join(map(str, sorted(mine)))
            lines.append(
                f"{n_classes},{name},{seeds},{ROUNDS[n_classes]},{np.mean(list(mine.values())):.4f},{told},"
                f"{PAPER[n_classes].get(name, '')}"
            )
    path.write_text("\n".join(lines) + "\n")


def draw(path: Path, rows: list[dict[str, object]]) -> None:
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 4, figsize=(12, 3), layout="constrained", sharey=True)
    for ax, n_classes in zip(axes, sorted(ROUNDS, reverse=True), strict=True):
        for colour, name in enumerate(systems()):
            curves = [r["curve"] for r in rows if (r["classes"], r["method"]) == (n_classes, name)]
            if curves:
                mean = np.mean(curves, axis=0)
                ax.plot(2 * np.arange(1, len(mean) + 1), mean, color=f"C{colour}", label=name, linewidth=1.2)
        ax.set_title(f"{n_classes} class{'es' if n_classes > 1 else ''} a device", fontsize=10)
        ax.set_xlabel("round")
    axes[0].set_ylabel("test accuracy")
    axes[0].legend(fontsize=8, loc="lower right")
    figure.savefig(path, dpi=80)
    plt.close(figure)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, default=Path("../shared/data/mnist.npz"))
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--classes", type=int, nargs="+", default=list(ROUNDS))
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results"))
    args = parser.parse_args()
    curves = args.out / "imbalance_curves.csv"
    rows = read_curves(curves)
    head = {key: provenance()[key] for key in ("cpu", "system", "commit")}
    head["work"] = f"{WORK}, 30 of 100 devices, the first {TEST_ROWS} test images, two processes"
    head["accuracy"] = "mean over the measurements (every second round) of the last fifth of the rounds"
    for seed in args.seeds:
        for n_classes in args.classes:
            for name in systems():
                if any((r["seed"], r["classes"], r["method"]) == (seed, n_classes, name) for r in rows):
                    continue
                rows.append(run(args.data, seed, n_classes, name))
                print(f"seed {seed}, {n_classes} classes, {name}: {level(rows[-1]):.4f}", flush=True)
                write_curves(curves, rows)
    write_table(args.out / "imbalance.csv", rows, head)
    draw(args.out / "imbalance.png", rows)


if __name__ == "__main__":
    main()
