"""Figures and page of ``fusionopt simulate``."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fusionopt.plotting import COLORS, dress, legend_below, new_axes
from fusionopt.report import Figure, escape, figure_grid, number, page, pairs, section, table

if TYPE_CHECKING:
    from matplotlib.axes import Axes

FloatArray = NDArray[np.float64]

_STYLES = ("-", "--", ":")

PAPER = {
    "Local": (0.8497, None, None),
    "FedAvg": (0.3035, None, None),
    "PerFedAvg": (0.5628, None, None),
    "Ifca": (0.6042, 2.33, 0.47),
    "Cfl": (0.8660, 42.0, 0.28),
    "FpfcL1": (0.8385, 5.67, 0.63),
    "Fpfc": (0.8946, 4.0, 1.0),
}
"""Accuracy, number of clusters and ARI of Table 1 of Yu et al., by class of the system."""

PAPER_ROUNDS = 2000

REASONS = {
    "": "The paper's data set is not published; it is drawn again here by its generator. Up to six points between "
    "seeds are usual, so methods are compared on one seed.",
    "PerFedAvg": "The paper's row is FedAvg with one gradient step before testing (variant=fine_tune here), not MAML.",
    "Ifca": "The paper's row comes from a port that divides models by all active clients, which shrinks them to zero.",
    "Cfl": "The paper's row comes from a port in which inactive clients enter every mean as zero updates, which splits "
    "at random.",
    "FedAvg": "The paper takes ten epochs of minibatch steps in a round, here they are ten full-batch steps.",
    "FpfcL1": "Its partition hangs on nu, for which the paper's text and code disagree; the code's are used.",
    "Fpfc": "The published code stops with an error before it writes results; its settings are used where the paper "
    "prints none.",
}
"""Why a row may differ from the paper's; the first concerns all."""


@dataclass(frozen=True)
class SimulateContent(ABC):
    """Everything the page tells; plain text, escaped when rendered."""

    version: str
    created: str
    command: str
    versions: dict[str, str]
    notes: list[str]
    facts: Sequence[tuple[str, str]]
    rows: Sequence[dict[str, Any]]
    curves: Sequence[dict[str, Any]]

    title = ""

    @abstractmethod
    def draw(self) -> Iterator[tuple[Figure, Axes]]:
        """The figures, without their SVG yet."""

    @abstractmethod
    def tables(self) -> list[str]:
        """The page's own sections."""

    @abstractmethod
    def summary(self) -> list[str]:
        """Lines for a reader in a hurry."""

    def names(self) -> list[str]:
        """Systems in the order asked for."""
        return list(dict.fromkeys(row["system"] for row in self.curves))

    def styles(self) -> dict[str, dict[str, Any]]:
        """Colour and dash of each system's curves."""
        return {name: _style(k) for k, name in enumerate(self.names())}

    def curve(self, name: str, x: str, y: str) -> tuple[FloatArray, list[FloatArray]]:
        """x, and y of each seed, cut to the shortest."""
        seeds = list(dict.fromkeys(row["seed"] for row in self.curves if row["system"] == name))
        runs = [
            [(row[x], row[y]) for row in self.curves if row["system"] == name and row["seed"] == seed]
            for seed in seeds
        ]
        n = min(len(run) for run in runs)
        arrays = [np.array(run[:n], dtype=np.float64) for run in runs]
        known = np.all([np.isfinite(array[:, 1]) for array in arrays], axis=0)
        return arrays[0][known, 0], [array[known, 1] for array in arrays]

    def render(self, figures: Sequence[Figure]) -> str:
        """The page as one string."""
        notes = "".join(f"<li>{escape(note)}</li>" for note in self.notes)
        head = (
            f"<header>\n<h1>{escape(self.title)}</h1>\n"
            + "".join(f"<p>{escape(line)}</p>\n" for line in self.summary())
            + (f"<ul class=notes>{notes}</ul>\n" if notes else "")
            + f"<p class=quiet>fusionopt {escape(self.version)}, {escape(self.created)}</p>\n</header>\n"
        )
        repeat = f"<pre>{escape(self.command)}</pre>\n<details><summary>Versions</summary>"
        repeat += f"{pairs(list(self.versions.items()))}</details>\n"
        sections = [
            head,
            section("What was run", pairs(self.facts)),
            *self.tables(),
            section("Figures", figure_grid(figures)),
            section("How to repeat this", repeat),
        ]
        return page(f"fusionopt simulate: {self.title}", sections)


@dataclass(frozen=True)
class BenchContent(SimulateContent):
    """Systems side by side."""

    warm_ups: Sequence[dict[str, Any]]
    classes: dict[str, str]
    is_paper: bool

    @property
    def score(self) -> str:
        """What the systems are compared by."""
        return "accuracy" if any(math.isfinite(row["accuracy"]) for row in self.rows) else "loss"

    title = "Federated systems on the same clients"

    def draw(self) -> Iterator[tuple[Figure, Axes]]:
        """Accuracy and clusters along the rounds, accuracy against bytes."""
        spread = (
            "Mean over the seeds, and their range." if len({row["seed"] for row in self.rows}) > 1 else ""
        )
        yield (
            Figure(
                self.score,
                "",
                f"{self.score.title()} on the clients' own test rows, mean over clients. {spread}",
            ),
            self._along(self.score, f"{self.score.title()} along the rounds", f"mean {self.score}"),
        )
        yield (
            Figure("clusters", "", f"Number of clusters along the rounds. {spread}"),
            self._along("n_clusters", "Clusters along the rounds", "clusters", log=True),
        )
        if any(row["bytes_up"] + row["bytes_down"] > 0 for row in self.rows):
            yield (
                Figure(
                    "traffic",
                    "",
                    f"The same {self.score} against what was sent until then, both ways, all clients together.",
                ),
                self._traffic(),
            )
        if self.warm_ups:
            yield (
                Figure(
                    "warm-up",
                    "",
                    "Held-out training rows after the warm-up: accuracy (minus the loss where nothing is classified) "
                    "of the models at each lam and, in full lines, of one refitted model for each cluster they form; "
                    "the lam chosen is filled.",
                ),
                self._warm_up(),
            )

    def _along(self, column: str, title: str, words: str, log: bool = False) -> Axes:
        ax = new_axes(None)
        for name, style in self.styles().items():
            x, runs = self.curve(name, "round", column)
            _band(ax, x, runs, name, style)
        if log:
            ax.set_yscale("log")
            _plain_ticks(ax, max(float(row["n_clusters"]) for row in self.curves))
        dress(ax, title, "round", words)
        legend_below(ax)
        return ax

    def _traffic(self) -> Axes:
        ax = new_axes(None)
        for name, style in self.styles().items():
            _, ups = self.curve(name, "round", "bytes_up")
            _, downs = self.curve(name, "round", "bytes_down")
            at, runs = self.curve(name, "round", self.score)
            sent = np.cumsum(np.mean(ups, axis=0) + np.mean(downs, axis=0))[at.astype(int) - 1] / 2**20
            if len(sent) and sent[-1] > 0:
                ax.plot(sent, np.mean(runs, axis=0), label=name, linewidth=1.4, **style)
        ax.set_xscale("log")
        dress(ax, f"{self.score.title()} against traffic", "MiB sent", f"mean {self.score}")
        legend_below(ax)
        return ax

    def _warm_up(self) -> Axes:
        ax = new_axes(None)
        keys = list(dict.fromkeys((row["system"], row["seed"]) for row in self.warm_ups))
        for k, key in enumerate(keys):
            mine = [row for row in self.warm_ups if (row["system"], row["seed"]) == key]
            color = COLORS[k % len(COLORS)]
            for column, words, line in (("refit", "clusters refitted", "-"), ("score", "models", ":")):
                points = [(row["lam"], row[column]) for row in mine if math.isfinite(row[column])]
                if not points:
                    continue
                ax.plot(
                    *zip(*points, strict=True),
                    marker="o",
                    markersize=6,
                    markerfacecolor="none",
                    label=f"{key[0]}, seed {key[1]}: {words}",
                    color=color,
                    linestyle=line,
                )
                chosen = next(row for row in mine if row["chosen"])
                ax.plot(chosen["lam"], chosen[column], marker="o", markersize=6, color=color)
        dress(ax, "Warm-up", "lam", "held-out score")
        legend_below(ax)
        return ax

    def _groups(self) -> list[tuple[str, list[dict[str, Any]]]]:
        return [(name, [row for row in self.rows if row["system"] == name]) for name in self.names()]

    def tables(self) -> list[str]:
        """Means over the seeds beside the paper's, every run, and why they may differ from the paper's."""
        score = self.score
        local = {row["seed"]: row[score] for row in self.rows if self.classes[row["system"]] == "Local"}
        header = ["system", score, "clusters", "adjusted Rand", "MiB up", "MiB down", "CPU s"]
        if local and len(self.classes) > 1:
            header.insert(2, "above Local")
        if self.is_paper:
            header += ["paper: accuracy", "clusters", "adjusted Rand"]
        body = []
        for name, rows in self._groups():
            cells = [
                escape(name),
                _spread(rows, lambda row: row[score], 4),
                _spread(rows, lambda row: row["n_clusters"], 3),
                _spread(rows, lambda row: row["ari"], 3),
                _spread(rows, lambda row: row["bytes_up"] / 2**20, 4),
                _spread(rows, lambda row: row["bytes_down"] / 2**20, 4),
                _spread(rows, lambda row: row["cpu_seconds"], 3),
            ]
            if local and len(self.classes) > 1:
                both = [row for row in rows if row["seed"] in local]
                cells.insert(2, _spread(both, lambda row: row[score] - local[row["seed"]], 3))
            if self.is_paper:
                told = PAPER.get(self.classes[name], (None, None, None))
                cells += ["–" if value is None else number(value, 4) for value in told]
            body.append(cells)
        words = "<p>Mean over the seeds ± their standard deviation.</p>\n"
        out = [section("Systems", words + table(header, body))]
        if self.is_paper:
            classes = dict.fromkeys(self.classes.values())
            reasons = [REASONS[""], *(f"{name}: {REASONS[name]}" for name in classes if name in REASONS)]
            if any(row["rounds"] < PAPER_ROUNDS for row in self.rows):
                reasons.insert(
                    1, f"The paper's code runs {PAPER_ROUNDS} rounds; FPFC gains to the end of them."
                )
            lines = "".join(f"<li>{escape(reason)}</li>" for reason in reasons)
            out.append(section("Why rows differ from the paper's", f"<ul>{lines}</ul>\n"))
        if self.warm_ups:
            out.append(section("Choice of lam", self._choice()))
        each = [
            "system",
            "seed",
            "lam",
            "rounds",
            "accuracy",
            "weighted accuracy",
            "loss",
            "clusters",
            "adjusted Rand",
        ]
        keys = [
            "system",
            "seed",
            "lam",
            "rounds",
            "accuracy",
            "weighted_accuracy",
            "loss",
            "n_clusters",
            "ari",
        ]
        cells_of = [[_cell(row[key]) for key in keys] for row in self.rows]
        out.append(
            section("Runs", f"<details><summary>Every run</summary>{table(each, cells_of)}</details>\n")
        )
        return out

    def _choice(self) -> str:
        """The warm-ups as a table."""
        words = "<p>On training rows held out, after the warm-up: the score of the models and the clusters they form"
        if any(math.isfinite(row["refit"]) for row in self.warm_ups):
            words += (
                "; refitted: one model for each of these clusters, trained without penalty. A lam remains whose refit "
                "is behind the best by no more than the standard error over clients, and whose models are behind the "
                "best by no more than half of what the refit gains; of these the fewest clusters, then the largest "
                "lam.</p>\n"
            )
        else:
            words += ". The largest lam behind the best by no more than the standard error over clients is taken.</p>\n"
        header = ["system", "seed", "lam", "models", "clusters", "refitted", "behind", "error", "chosen"]
        keys = ["system", "seed", "lam", "score", "n_clusters", "refit", "behind", "error"]
        body = [[*(_cell(row[key]) for key in keys), "yes" if row["chosen"] else ""] for row in self.warm_ups]
        return words + table(header, body)

    def summary(self) -> list[str]:
        """Each system in a line."""
        lines = []
        for name, rows in self._groups():
            told = [
                f"{self.score} {_spread(rows, lambda row: row[self.score], 4)}",
                f"clusters {_spread(rows, lambda row: row['n_clusters'], 3)}",
                f"adjusted Rand {_spread(rows, lambda row: row['ari'], 3)}",
            ]
            if not math.isnan(rows[0]["lam"]):
                told.append("lam " + ", ".join(f"{row['lam']:g}" for row in rows))
            lines.append(f"{name}: {', '.join(told)}")
        return lines


@dataclass(frozen=True)
class ConvergenceContent(SimulateContent):
    """PDMM's way to the optimum."""

    title = "PDMM on the data of Appendix C"

    def draw(self) -> Iterator[tuple[Figure, Axes]]:
        """F(x_t) - F* against iterations, and against vectors sent."""
        ax = new_axes(None)
        for name, style in self.styles().items():
            x, runs = self.curve(name, "iteration", "gap")
            # What is below F* is the rounding and the tolerance of F*.
            _band(
                ax, x, [np.where(run > 0, run, np.nan) for run in runs], name.partition(":")[2] or name, style
            )
        ax.set_yscale("log")
        dress(ax, "Distance from the optimum", "iteration t", "F(x_t) - F*")
        legend_below(ax)
        yield (
            Figure(
                "convergence",
                "",
                "F(x_t) - F*, F* from CVXPY. The literal scheme draws z_ij, z_ji and their duals apart and stops "
                "at a point that is not optimal.",
            ),
            ax,
        )

    def tables(self) -> list[str]:
        """The gaps at powers of ten."""
        at = [10**k for k in range(2, 8) if any(row["iteration"] == 10**k for row in self.curves)]
        header = ["run", "seed", *(f"t = {k}" for k in at), "last", "CPU s"]
        body, stars = [], []
        for row in self.rows:
            if row["system"] == "F*":
                stars.append(
                    [str(row["seed"]), _cell(row["lam"]), repr(row["objective"]), f"{row['gap']:.1e}"]
                )
                continue
            mine = {
                point["iteration"]: point["gap"]
                for point in self.curves
                if point["system"] == row["system"] and point["seed"] == row["seed"]
            }
            cells = [f"{mine[k]:.2e}" if k in mine else "–" for k in at]
            body.append(
                [
                    escape(row["system"]),
                    str(row["seed"]),
                    *cells,
                    f"{row['gap']:.2e}",
                    _cell(row["cpu_seconds"]),
                ]
            )
        words = "<p>F* of CVXPY, and how far the certified solver's F lies from it; the lower of the two counts.</p>\n"
        star = table(["seed", "lam", "F*", "certified F less F*"], stars)
        sent = "".join(
            f"<li>{escape(row['system'])}, seed {row['seed']}: {escape(row['message'])}</li>"
            for row in self.rows
            if row["system"] != "F*"
        )
        return [
            section("F(x_t) - F*", table(header, body) + words + star),
            section("What each run says", f"<ul>{sent}</ul>\n"),
        ]

    def summary(self) -> list[str]:
        """Each run in a line."""
        return [
            f"{row['system']}: F - F* = {row['gap']:.2e} after {row['rounds']} iterations"
            + (f" (seed {row['seed']})" if len({other["seed"] for other in self.rows}) > 1 else "")
            for row in self.rows
            if row["system"] != "F*"
        ]


def _style(k: int) -> dict[str, Any]:
    return {"color": COLORS[k % len(COLORS)], "linestyle": _STYLES[k // len(COLORS) % len(_STYLES)]}


def _band(ax: Axes, x: FloatArray, runs: Sequence[FloatArray], name: str, style: dict[str, Any]) -> None:
    values = np.array(runs)
    if len(runs) > 1:
        ax.fill_between(
            x, values.min(axis=0), values.max(axis=0), color=style["color"], alpha=0.15, linewidth=0
        )
    marker: dict[str, Any] = {"marker": "o", "markersize": 4} if len(x) == 1 else {}
    _whole_rounds(ax)
    ax.plot(x, values.mean(axis=0), label=name, linewidth=1.4, **marker, **style)


def _whole_rounds(ax: Axes) -> None:
    from matplotlib.ticker import MaxNLocator

    ax.xaxis.set_major_locator(MaxNLocator(integer=True))


def _plain_ticks(ax: Axes, top: float) -> None:
    ticks = [k * 10**p for p in range(6) for k in (1, 2, 5) if k * 10**p <= max(top, 2.0)]
    ax.set_yticks(ticks, [str(tick) for tick in ticks])
    ax.set_yticks([], minor=True)


def _spread(rows: Sequence[dict[str, Any]], value: Callable[[dict[str, Any]], float], digits: int) -> str:
    values = np.array([value(row) for row in rows], dtype=np.float64)
    if not len(values):
        return "–"
    mean = number(float(values.mean()), digits)
    return mean if np.ptp(values) == 0 else f"{mean} ± {number(float(values.std(ddof=1)), 2)}"


def _cell(value: Any) -> str:
    if isinstance(value, float):
        return "–" if math.isnan(value) else number(value, 4)
    return escape(str(value))
