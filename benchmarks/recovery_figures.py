"""Section V and Appendix C of Armacki et al. (Personalized Federated Learning via Convex Clustering) from seeds.

    python -m benchmarks.recovery_figures [folder]

The paper does not print its ellipses; two geometries were recorded after a look at 33 (theory in docs/recovery.md):
P (narrow) and W (wide). Writes section5.csv (Figures 2 and 3), section5_summary.csv (beside the paper's numbers),
appendix_c.csv (Figure 6), appendix_c_pdmm.csv (Figure 5) and the six figures.
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import fusionopt as fo
from fusionopt import simulate
from fusionopt.datasets import ClientData, make_ellipses
from fusionopt.recovery import recovery_interval, solve_restricted

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

RIDGE = 1e-3
GEOMETRIES: dict[str, dict[str, Any]] = {
    "P": {"delta": 1.62, "axes": (1.55, 2.2), "random_state": 1},
    "W": {"delta": 2.0, "axes": (1.5, 2.4), "random_state": 4},
}
APPENDIX_C: dict[str, Any] = simulate.APPENDIX_C | {"random_state": 0}
APPENDIX_C_LAMS = (1000.0, 1.0, 0.12, 0.08, 0.05, 0.03, 0.02, 0.01)
EXTRA_LAMS = {"P": (0.04, 0.0766, 0.0898), "W": (0.02, 0.0435, 0.1132)}
RECORDED = {
    "P": {
        "local": 0.8711,
        "global": 0.5347,
        "oracle": 0.9171,
        "squared": 0.9127,
        "proposed": 0.9167,
        "refit": 0.9171,
    },
    "W": {
        "local": 0.9227,
        "global": 0.4997,
        "oracle": 0.9573,
        "squared": 0.9512,
        "proposed": 0.9556,
        "refit": 0.9573,
    },
}
"""Mean accuracies that an independent computation (CVXPY) recorded for these seeds."""
PAPER = {"squared": 0.866, "proposed": 0.868}
"""What the paper reports for its own ellipses; it gives no other number."""


def hinge(clients: Sequence[ClientData]) -> fo.SquaredHinge:
    """The loss of Section V: one node for each user, b without ridge."""
    return fo.SquaredHinge([c.x_train for c in clients], [c.y_train for c in clients], ridge=RIDGE)


def accuracy(clients: Sequence[ClientData], x: FloatArray) -> float:
    """Mean over the users of the accuracy on the test rows of their own cluster."""
    shares = [
        float(np.mean(np.where(c.x_test @ row[:2] - row[2] > 0, 1.0, -1.0) == c.y_test))
        for c, row in zip(clients, x, strict=True)
    ]
    return float(np.mean(shares))


def pooled(loss: fo.SquaredHinge, labels: IntArray) -> FloatArray:
    """Every node gets the minimiser of its cluster's summed losses."""
    alone = solve_restricted(fo.FusionProblem(loss), labels)
    return alone.centers[alone.labels]


def spread(x: FloatArray, labels: IntArray) -> float:
    """Mean distance of two users of one cluster, over the clusters (Figure 3)."""
    means = []
    for k in np.unique(labels):
        rows = x[labels == k]
        i, j = np.triu_indices(len(rows), 1)
        means.append(float(np.linalg.norm(rows[i] - rows[j], axis=1).mean()))
    return float(np.mean(means))


@dataclass(frozen=True)
class Row:
    """One method at one weight."""

    config: str
    method: str
    lam: float
    """Canonical: sum f + lam sum_{i<j} (squared penalty: its weight g_c there)."""
    accuracy: float
    n_models: int
    within_distance: float
    certified: str
    refit_accuracy: float


def section5(config: str, n_lams: int = 30) -> list[Row]:
    """All methods on one recorded geometry."""
    clients, labels = make_ellipses(**GEOMETRIES[config])
    loss = hinge(clients)
    everyone = np.zeros(len(labels), dtype=np.int64)
    rows = []
    for method, names in (("local", np.arange(len(labels))), ("global", everyone), ("oracle", labels)):
        x = pooled(loss, names)
        score = accuracy(clients, x)
        rows.append(Row(config, method, np.nan, score, len(np.unique(names)), spread(x, labels), "", score))
    for lam in np.unique([*np.geomspace(0.002, 0.2, n_lams), *EXTRA_LAMS[config]]).tolist():
        result = fo.solve(fo.FusionProblem(loss, lam=lam))
        if result.status != "optimal":
            raise RuntimeError(f"{config}: lam {lam:g} ended with {result.status}")
        proof = {True: "yes", False: "no", None: ""}[result.labels_certified]
        rows.append(
            Row(
                config,
                "proposed",
                lam,
                accuracy(clients, result.x),
                result.n_clusters,
                spread(result.x, labels),
                proof,
                accuracy(clients, pooled(loss, result.labels)),
            )
        )
    for weight in np.unique([*np.geomspace(1e-3, 100.0, n_lams), 0.04, 0.1]).tolist():
        result = fo.solve(fo.FusionProblem(loss, penalty=fo.SquaredL2(), lam=weight))
        score = accuracy(clients, result.x)
        distinct = len(np.unique(result.x, axis=0))
        rows.append(Row(config, "squared", weight, score, distinct, spread(result.x, labels), "", np.nan))
    return rows


def summary(config: str, rows: list[Row]) -> list[dict[str, Any]]:
    """The best of each method beside the recorded and the paper's numbers, and the intervals."""
    clients, labels = make_ellipses(**GEOMETRIES[config])
    interval = recovery_interval(fo.FusionProblem(hinge(clients)), labels)
    low, high = interval.exact[0]
    inside = [row for row in rows if row.method == "proposed" and low <= row.lam <= high]
    told: list[dict[str, Any]] = []
    for method in ("local", "global", "oracle", "squared", "proposed"):
        best = max((row for row in rows if row.method == method), key=lambda row: row.accuracy)
        told.append(_line(config, method, best.accuracy, best.n_models, best.lam))
    exact = max(inside, key=lambda row: row.refit_accuracy)
    told.append(_line(config, "refit", exact.refit_accuracy, exact.n_models, exact.lam))
    told.append({"config": config, "what": "recovery interval, certified", "low": low, "high": high})
    told.append(
        {
            "config": config,
            "what": "guaranteed by (6) and (13)",
            "low": interval.theorem1_from,
            "high": interval.theorem2_to,
        }
    )
    return told


def _line(config: str, method: str, score: float, models: int, lam: float) -> dict[str, Any]:
    return {
        "config": config,
        "what": method,
        "accuracy": score,
        "recorded": RECORDED[config][method],
        "paper": PAPER.get(method, ""),
        "n_models": models,
        "lam": lam,
    }


def appendix_c() -> list[dict[str, Any]]:
    """Number of models on the grid of Figure 6, lam read in the scales of theory and of the printed formulas."""
    clients, labels = make_ellipses(**APPENDIX_C)
    loss, m = hinge(clients), len(labels)
    rows: list[dict[str, Any]] = []
    for printed in APPENDIX_C_LAMS:
        row: dict[str, Any] = {"lam_printed": printed}
        for convention in ("canonical", "ordered", "mean_ordered"):
            lam = fo.scaling.to_canonical(printed, convention, m)
            result = fo.solve(fo.FusionProblem(loss, lam=lam))
            row[f"n_models_{convention}"] = result.n_clusters
            row[f"certified_{convention}"] = result.labels_certified
            if convention == "canonical":
                row["accuracy"] = accuracy(clients, result.x)
        squared = fo.solve(fo.FusionProblem(loss, penalty=fo.SquaredL2(), lam=printed))
        row["n_models_squared"] = len(np.unique(squared.x, axis=0))
        row["largest_distance_squared"] = float(np.ptp(squared.x, axis=0).max())
        rows.append(row)
    return rows


def pdmm_convergence(n_iter: int = 2000) -> list[dict[str, Any]]:
    """F(x_t) - F* of Figure 5 at canonical lam = 0.02: all users, and 40 % with pairs as units."""
    problem = simulate.appendix_c(random_state=APPENDIX_C["random_state"])
    best = fo.solve(problem, fo.AdmmSettings(eps_rel=1e-10)).objective
    rows = []
    for scheme, share in (("full", 1.0), ("users", 0.4)):
        settings = simulate.paper_settings(n_iter, scheme=scheme, participation=share, random_state=0)
        _, iterations, gaps = simulate.follow_pdmm(problem, settings, best)
        rows += [
            {"scheme": scheme, "iteration": k, "gap": gap}
            for k, gap in zip(iterations.tolist(), gaps.tolist(), strict=True)
        ]
    return rows


def write(path: Path, rows: Iterable[dict[str, Any]]) -> None:
    """One .csv; columns in the order of their first appearance."""
    listed = list(rows)
    names = list(dict.fromkeys(name for row in listed for name in row))
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, names, restval="")
        writer.writeheader()
        for row in listed:
            writer.writerow({k: f"{v:.6g}" if isinstance(v, float) else v for k, v in row.items()})


def draw(folder: Path, rows: list[Row], grid: list[dict[str, Any]], pdmm: list[dict[str, Any]]) -> None:
    """The six figures, P and W side by side where both have one."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    colors = ("#0072b2", "#d55e00", "#009e73")
    fig1, axes1 = plt.subplots(1, 2, figsize=(9, 4.2), layout="constrained")
    fig2, axes2 = plt.subplots(1, 2, figsize=(9, 3.8), layout="constrained", sharey=False)
    fig3, axes3 = plt.subplots(1, 2, figsize=(9, 3.8), layout="constrained")
    for place, config in enumerate(GEOMETRIES):
        _data(axes1[place], {"n_samples": 10, "n_users": 20, **GEOMETRIES[config]}, colors)
        axes1[place].set_title(f"{config}: training data and separators on all of it")
        mine = [row for row in rows if row.config == config]
        for method, color in (("proposed", colors[0]), ("squared", colors[1])):
            curve = [row for row in mine if row.method == method]
            axes2[place].plot([r.lam for r in curve], [r.accuracy for r in curve], color=color, label=method)
            axes3[place].plot(
                [r.lam for r in curve], [r.within_distance for r in curve], color=color, label=method
            )
        fused = [row for row in mine if row.method == "proposed"]
        axes2[place].plot(
            [r.lam for r in fused], [r.refit_accuracy for r in fused], "--", color=colors[0], label="refit"
        )
        for method, dash in (("local", ":"), ("global", "-."), ("oracle", "--")):
            level = next(row.accuracy for row in mine if row.method == method)
            axes2[place].axhline(level, color="0.4", linestyle=dash, linewidth=1, label=method)
        for axes, name in ((axes2, "mean test accuracy"), (axes3, "mean distance inside clusters")):
            axes[place].set(xscale="log", xlabel="lam, canonical (squared: g_c)", ylabel=name, title=config)
        axes3[place].set_yscale("symlog", linthresh=1e-4)
    axes2[1].legend(fontsize=8)
    axes3[1].legend(fontsize=8)
    for k, fig in enumerate((fig1, fig2, fig3), start=1):
        fig.savefig(folder / f"section5_figure{k}.png", dpi=100)
    fig4, ax4 = plt.subplots(figsize=(4.6, 4.4), layout="constrained")
    _data(ax4, APPENDIX_C, colors)
    ax4.set_title("Appendix C: data")
    fig4.savefig(folder / "appendix_c_figure4.png", dpi=100)
    fig5, ax5 = plt.subplots(figsize=(5.2, 3.8), layout="constrained")
    for scheme, color in (("full", colors[0]), ("users", colors[1])):
        curve5 = [row for row in pdmm if row["scheme"] == scheme]
        words = "all users" if scheme == "full" else "40 % of the users"
        ax5.plot([r["iteration"] for r in curve5], [r["gap"] for r in curve5], color=color, label=words)
    ax5.set(
        yscale="log",
        xlabel="iteration",
        ylabel="F(x) - F*",
        title="PDMM, rho = eta = 10, canonical lam = 0.02",
    )
    ax5.legend()
    fig5.savefig(folder / "appendix_c_figure5.png", dpi=100)
    _models(folder / "appendix_c_figure6.png", grid, colors)
    plt.close("all")


def _line_of(ax: Any, w: FloatArray, **style: Any) -> None:
    """The line w_0 a + w_1 b = w_2 inside [-4, 4]^2."""
    direction, point = np.array([-w[1], w[0]]), w[:2] * w[2] / float(w[:2] @ w[:2])
    ends = point + np.outer([-8.0, 8.0], direction / np.linalg.norm(direction))
    ax.plot(*ends.T, **style)


def _data(ax: Any, geometry: dict[str, Any], colors: tuple[str, ...]) -> None:
    whole, _ = make_ellipses(**(geometry | {"n_users": 1, "n_samples": 200}))
    separators = pooled(hinge(whole), np.arange(len(whole)))
    for client, w, color in zip(whole, separators, colors, strict=True):
        for sign, marker in ((1.0, "o"), (-1.0, "x")):
            ax.scatter(
                *client.x_train[client.y_train == sign].T, s=9, marker=marker, color=color, linewidths=0.8
            )
        _line_of(ax, w, color=color, linestyle="--")
    ax.set(xlim=(-4.6, 4.6), ylim=(-4.6, 4.6), aspect="equal")


def _models(path: Path, grid: list[dict[str, Any]], colors: tuple[str, ...]) -> None:
    from matplotlib import pyplot as plt

    clients, labels = make_ellipses(**APPENDIX_C)
    whole, _ = make_ellipses(**(APPENDIX_C | {"n_users": 1, "n_samples": 200}))
    best = pooled(hinge(whole), np.arange(3))
    fig, axes = plt.subplots(4, 4, figsize=(11, 11.6), layout="constrained")
    for place, row in enumerate(grid):
        lam = float(row["lam_printed"])
        for side, penalty, words in ((0, fo.L2Norm(), "proposed"), (1, fo.SquaredL2(), "squared")):
            ax = axes[place // 2, 2 * (place % 2) + side]
            result = fo.solve(fo.FusionProblem(hinge(clients), penalty=penalty, lam=lam))
            for w, label in zip(result.x, labels, strict=True):
                _line_of(ax, w, color=colors[label], linewidth=0.8)
            for w, color in zip(best, colors, strict=True):
                _line_of(ax, w, color=color, linestyle="--", linewidth=0.8)
            models = len(np.unique(result.x, axis=0))
            ax.set(xlim=(-2, 2), ylim=(-2, 2), aspect="equal", xticks=[], yticks=[])
            ax.set_title(f"{words}, lam {lam:g}: {models} model{'s' * (models != 1)}", fontsize=9)
    fig.savefig(path, dpi=80)


def main(folder: Path) -> None:
    """Everything, into one folder."""
    folder.mkdir(parents=True, exist_ok=True)
    rows = [row for config in GEOMETRIES for row in section5(config)]
    write(folder / "section5.csv", (dict(vars(row)) for row in rows))
    told = [
        line
        for config in GEOMETRIES
        for line in summary(config, [row for row in rows if row.config == config])
    ]
    write(folder / "section5_summary.csv", told)
    grid = appendix_c()
    write(folder / "appendix_c.csv", grid)
    pdmm = pdmm_convergence()
    write(folder / "appendix_c_pdmm.csv", pdmm)
    draw(folder, rows, grid, pdmm)
    for line in told:
        sys.stdout.write(
            "  ".join(f"{k}={v:.4g}" if isinstance(v, float) else f"{k}={v}" for k, v in line.items()) + "\n"
        )


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent / "results")
