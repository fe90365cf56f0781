"""The pictures of docs/penalties.md: value, derivative and prox of each penalty.

python -m benchmarks.penalty_figures          writes docs/figures/penalty_*.svg
"""

from __future__ import annotations

from pathlib import Path

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure

import fusionopt as fo
from fusionopt.penalties import Penalty, RadialPenalty

FOLDER = Path(__file__).resolve().parent.parent / "docs" / "figures"
PENALTIES: dict[str, Penalty] = {
    "l2_norm": fo.L2Norm(),
    "squared_l2": fo.SquaredL2(),
    "l1_norm": fo.L1Norm(),
    "scad": fo.Scad(),
    "smoothed_scad": fo.SmoothedScad(xi=0.5),
    "mcp": fo.Mcp(),
}
STEPS = (1.0, 4.0)
"""One below and one above the step from which the prox of Scad and Mcp jumps."""


def curves(penalty: Penalty, t: np.ndarray) -> tuple[np.ndarray, np.ndarray, list[np.ndarray]]:
    """Value, derivative, and the prox at each of STEPS, at lam = 1; along one coordinate for the l1 norm."""
    if isinstance(penalty, RadialPenalty):
        proxes = [penalty.prox(t, 1.0, step) for step in STEPS]
        return penalty.value(t, 1.0), penalty.derivative(t, 1.0), proxes
    column = t[:, None]
    proxes = [penalty.prox_vector(column, 1.0, step)[:, 0] for step in STEPS]
    return penalty.value_vector(column, 1.0), np.ones_like(t), proxes


def draw(penalty: Penalty) -> Figure:
    """Three panels beside each other."""
    t = np.linspace(0.0, 6.0, 601)
    value, slope, proxes = curves(penalty, t)
    figure = Figure(figsize=(9.0, 2.6), layout="constrained")
    panels = figure.subplots(1, 3)
    panels[0].plot(t, value, color="black")
    panels[1].plot(t, slope, color="black")
    for step, prox, style in zip(STEPS, proxes, ("-", "--"), strict=True):
        # A jump is drawn as a gap.
        gaps = np.where(np.diff(prox, prepend=0.0) > 0.5, np.nan, prox)
        panels[2].plot(t, gaps, style, color="black", label=f"step {step:g}")
    panels[2].plot(t, t, ":", color="grey", linewidth=0.8)
    panels[2].legend(frameon=False, fontsize=8)
    for panel, title in zip(panels, ("value", "derivative", "prox"), strict=True):
        panel.set_title(title, fontsize=10)
        panel.set_xlabel("t", fontsize=9)
        panel.tick_params(labelsize=8)
        panel.set_xlim(0.0, 6.0)
        panel.spines[["top", "right"]].set_visible(False)
    panels[0].set_ylim(0.0, 6.5)
    panels[1].set_ylim(-0.05, 2.5)
    return figure


def main(folder: Path = FOLDER) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    with mpl.rc_context(
        {"svg.hashsalt": "penalties", "svg.fonttype": "none", "path.simplify_threshold": 0.2}
    ):
        for name, penalty in PENALTIES.items():
            draw(penalty).savefig(folder / f"penalty_{name}.svg", metadata={"Date": None})


if __name__ == "__main__":
    main()
