"""Figures and page of ``fusionopt recover``."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from fusionopt.forces import EdgeForces, Parting, Tie, Together
from fusionopt.plotting import (
    COLORS,
    INK,
    cluster_styles,
    dress,
    legend_below,
    log_axis,
    new_axes,
)
from fusionopt.report import Figure, escape, figure_grid, number, page, pairs, section, table

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from fusionopt.recovery import FlowCurve, RecoveryInterval
    from fusionopt.result import Result

_MAX_CHAIN = 12
_MAX_CURVES = 6


@dataclass(frozen=True)
class RecoverContent:
    """Everything the page tells; plain text, escaped when rendered."""

    source: str
    version: str
    created: str
    command: str
    data: Sequence[tuple[str, str]]
    verdict: Sequence[str]
    interval: RecoveryInterval
    lambda_max: float
    points: Sequence[Any]
    flows: FlowCurve
    chosen: Result
    why_chosen: str
    forces: EdgeForces
    together: Together | None
    parting: Parting | None
    score_words: str
    names: Sequence[str]
    settings: dict[str, Any]
    notes: Sequence[str]


def draw(content: RecoverContent) -> Iterator[tuple[Figure, Axes]]:
    """The figures, without their SVG yet."""
    yield (
        Figure(
            "flow",
            "",
            "The least force that holds the known groups together, against lam. Left of the diagonal lam is too small "
            "to supply it; where the curve ends the groups' centres have met.",
        ),
        _flow(content),
    )
    yield (
        Figure("accuracy", "", f"Agreement with the known groups along lam. Score: {content.score_words}."),
        _scores(content),
    )
    yield (
        Figure("clusters", "", "Number of clusters along lam; filled where the partition is proved exact."),
        _counts(content),
    )
    if content.forces.inside.any():
        yield (
            Figure(
                "forces",
                "",
                "How much of their limit the edges inside each cluster use at the lam shown. A curve that reaches the "
                "right edge early belongs to a cluster that is about to part.",
            ),
            _shares(content),
        )


def _shade(ax: Axes, content: RecoverContent, right: float) -> None:
    for k, (low, high) in enumerate(content.interval.exact):
        ax.axvspan(
            low,
            min(high, right),
            color=COLORS[2],
            alpha=0.18,
            linewidth=0,
            label="exactly recovered" if k == 0 else None,
        )
    if content.interval.guaranteed is not None:
        low, high = content.interval.guaranteed
        ax.axvspan(
            low,
            min(high, right),
            fill=False,
            hatch="///",
            edgecolor=COLORS[1],
            linewidth=0,
            label="guaranteed",
        )


def _flow(content: RecoverContent) -> Axes:
    ax = new_axes(None)
    lams, lower, upper = content.flows
    known = np.isfinite(upper) & (upper > 0)
    if known.any():
        ax.fill_between(lams[known], lower[known], upper[known], color=COLORS[0], alpha=0.25, linewidth=0)
        ax.plot(lams[known], upper[known], color=COLORS[0], marker=".", label="least force needed")
    ends = np.array([lams[0], lams[-1]])
    ax.plot(ends, ends, color=INK, linewidth=1.2, linestyle="--", label="lam: what there is")
    _shade(ax, content, float(lams[-1]))
    log_axis(ax, lams)
    if known.any():
        ax.set_yscale("log")
    else:
        ax.text(0.5, 0.5, "no forces inside the graph can hold\nevery known group together", transform=ax.transAxes,
                ha="center", color=INK)  # fmt: skip
    dress(ax, "Force needed, and force there is", "lam", "largest force per unit weight")
    legend_below(ax)
    return ax


def _series(content: RecoverContent, name: str) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    rows = sorted((point.lam, getattr(point, name)) for point in content.points)
    lams, values = zip(*rows, strict=True)
    return np.array(lams), np.array(values, dtype=np.float64)


def _scores(content: RecoverContent) -> Axes:
    ax = new_axes(None)
    for name, color, style, words in (
        ("ari", COLORS[0], "-", "adjusted Rand index"),
        ("score", COLORS[1], "-", "score of x"),
        ("refit_score", COLORS[1], "--", "score after refit"),
    ):
        lams, values = _series(content, name)
        ax.plot(lams, values, color=color, linestyle=style, marker=".", label=words)
    _shade(ax, content, float(lams[-1]))
    log_axis(ax, lams)
    ax.axvline(float(content.chosen.problem.lam), color=INK, linewidth=1.0, linestyle=":", label="lam shown")
    dress(ax, "Agreement with the known groups", "lam", "")
    legend_below(ax)
    return ax


def _counts(content: RecoverContent) -> Axes:
    ax = new_axes(None)
    lams, counts = _series(content, "n_clusters")
    proved = np.array([point.proved is True for point in sorted(content.points, key=lambda p: p.lam)])
    ax.plot(lams, counts, color=COLORS[0], drawstyle="steps-mid", linewidth=1.2)
    ax.plot(lams[proved], counts[proved], "o", color=COLORS[0], markersize=5, label="proved")
    ax.plot(
        lams[~proved],
        counts[~proved],
        "o",
        color=COLORS[0],
        markersize=5,
        markerfacecolor="none",
        label="not proved",
    )
    _shade(ax, content, float(lams[-1]))
    log_axis(ax, lams)
    ax.set_yscale("log")
    low, high = 1, int(counts.max())
    ticks = [k * 10**p for p in range(6) for k in (1, 2, 5) if low <= k * 10**p <= high] or [1]
    ax.set_yticks(ticks, [str(tick) for tick in ticks])
    ax.set_yticks([], minor=True)
    dress(ax, "Number of clusters", "lam", "clusters")
    legend_below(ax)
    return ax


def _shares(content: RecoverContent) -> Axes:
    ax = new_axes(None)
    forces, labels = content.forces, content.chosen.labels
    cluster = labels[forces.edges[:, 0]]
    styles = list(cluster_styles(labels).items())
    for number_of, (color, _, words) in styles[:_MAX_CURVES]:
        shares = np.sort(forces.share[forces.inside & (cluster == number_of)])
        if len(shares):
            heights = np.arange(1, len(shares) + 1) / len(shares)
            ax.plot(
                np.r_[0.0, shares],
                np.r_[0.0, heights],
                color=color,
                drawstyle="steps-post",
                label=words.replace("rows", "nodes"),
            )
    ax.set_xlim(0, 1.02)
    ax.set_ylim(0, 1.02)
    dress(
        ax,
        f"Edges inside clusters at lam = {content.chosen.problem.lam:.4g}",
        "force / limit",
        "share of the edges",
    )
    legend_below(ax)
    return ax


def render(content: RecoverContent, figures: Sequence[Figure]) -> str:
    """The page as one string."""
    sections = [
        _head(content),
        section("What was asked", pairs(content.data)),
        section("Intervals of lam", _intervals(content)),
        section("Figures", figure_grid(figures)),
        section("Why are they together, and what would part them?", _why(content)),
        section("Along lam", _curve(content)),
        section("How to repeat this", _repeat(content)),
    ]
    return page(f"fusionopt recover: {content.source}", sections)


def _span(low: float, high: float) -> str:
    return f"[{number(low, 5)}, {'∞' if math.isinf(high) else number(high, 5)}]"


def _short(low: float, high: float) -> str:
    return f"{number(low, 3)} – {'∞' if math.isinf(high) else number(high, 3)}"


def _head(content: RecoverContent) -> str:
    found, chosen = content.interval, content.chosen
    good = bool(found.exact)
    badge = "the known groups are recovered exactly" if good else "the known groups are not recovered exactly"
    best = max(point.ari for point in content.points)
    facts = [
        ("exact for lam in", ", ".join(_short(*run) for run in found.exact) or "none"),
        ("guaranteed by the theorems", "none" if found.guaranteed is None else _short(*found.guaranteed)),
        ("lambda_max", number(content.lambda_max, 5)),
        ("lam shown", number(float(chosen.problem.lam), 5)),
        ("clusters there", str(chosen.n_clusters)),
        ("best adjusted Rand index", f"{best:.3f}"),
    ]
    tiles = "".join(f"<div><b>{escape(value)}</b><span>{escape(name)}</span></div>" for name, value in facts)
    lines = "".join(f"<p>{escape(line)}</p>\n" for line in content.verdict)
    notes = "".join(f"<li>{escape(note)}</li>" for note in content.notes)
    return (
        f"<header>\n<h1>{escape(content.source)}</h1>\n<p class=badge><span class={'good' if good else 'bad'}>"
        f"{escape(badge)}</span></p>\n<div class=tiles>{tiles}</div>\n{lines}"
        + (f"<ul class=notes>{notes}</ul>\n" if notes else "")
        + f"<p class=quiet>fusionopt {escape(content.version)}, {escape(content.created)}</p>\n</header>\n"
    )


def _intervals(content: RecoverContent) -> str:
    found = content.interval
    rows = [
        ["exact", _span(low, high), "every lam looked at in here carries a proof; see scan.csv"]
        for low, high in found.exact
    ] or [
        [
            "exact",
            "none found",
            f"looked at {len(found.lams)} values, neighbours {found.resolution:.3f} apart",
        ]
    ]
    guaranteed = "none" if found.guaranteed is None else _span(*found.guaranteed)
    rows.append(
        [
            "guaranteed",
            guaranteed,
            "conditions (6) and (13) of Armacki et al., which suffice but are not needed",
        ]
    )
    if not math.isnan(found.theorem1_from):
        first = number(found.theorem1_from, 5) if math.isfinite(found.theorem1_from) else "not met"
        rows.append(["condition (6) from", first, "enough force inside every group"])
        rows.append(["condition (13) to", number(found.theorem2_to, 5), "groups stay apart"])
    rows.append(["lambda_max", number(content.lambda_max, 6), "one cluster for each component from here on"])
    return table(["", "lam", "meaning"], rows, kind="explained")


def _why(content: RecoverContent) -> str:
    chosen, forces = content.chosen, content.forces
    lam = number(float(chosen.problem.lam), 5)
    text = f"<p>At lam = {lam}, {escape(content.why_chosen)}.</p>\n"
    text += (
        "<p>Nodes of one cluster are tied by the edges between them. Each edge may pull with a force up to lam times "
        "its weight. An edge below its limit holds its two ends together by itself; an edge at its limit is "
        "<strong>binding</strong>: it has nothing left. A cluster parts when its binding edges cut it in two. Forces "
        "inside a cluster can be shared out in more than one way; shown are those of the certificate.</p>\n"
    )
    text += _cluster_table(content)
    if content.together is None:
        return text + "<p>No two nodes are held together by an edge with slack at this lam.</p>\n"
    why, names = content.together, content.names
    first, second = escape(names[why.i]), escape(names[why.j])
    text += f"<h3>Why are {first} and {second} together?</h3>\n"
    text += (
        f"<p>Both are in cluster {why.cluster} ({why.size} nodes, {why.n_inside} inside edges, {why.n_binding} of them "
        "binding). "
    )
    if why.direct is None:
        text += "There is no edge between them; the chain below ties them.</p>\n"
    else:
        text += (
            f"The edge between them uses {why.direct.share:.1%} of its limit; its slack is "
            f"{number(why.direct.slack, 4)}.</p>\n"
        )
    if len(why.chain) > 1:
        text += "<p>The strongest chain between them, whose weakest link has the most room:</p>\n"
        text += table(
            ["link", "force / limit", "slack"], [_link(tie, names) for tie in why.chain[:_MAX_CHAIN]]
        )
    text += f"<h3>What would part them?</h3>\n<p>{escape(_parting(content))}</p>\n"
    loose = int(np.count_nonzero(forces.binding))
    return (
        text
        + f"<p class=quiet>{loose} of {int(forces.inside.sum())} inside edges are binding; all in forces.csv.</p>\n"
    )


def _link(tie: Tie, names: Sequence[str]) -> list[str]:
    return [f"{escape(names[tie.i])} – {escape(names[tie.j])}", f"{tie.share:.1%}", number(tie.slack, 4)]


def _cluster_table(content: RecoverContent) -> str:
    forces, labels = content.forces, content.chosen.labels
    cluster = labels[forces.edges[:, 0]]
    rows = []
    for name, (_, _, words) in list(cluster_styles(labels).items())[:12]:
        mine = forces.inside & (cluster == name)
        if not mine.any():
            continue
        e = int(np.flatnonzero(mine)[int(np.argmax(forces.share[mine]))])
        i, j = (escape(content.names[int(node)]) for node in forces.edges[e])
        rows.append(
            [
                escape(words.replace("rows", "nodes")),
                str(int(mine.sum())),
                str(int(np.count_nonzero(forces.binding & mine))),
                f"{float(np.median(forces.share[mine])):.1%}",
                f"{i} – {j}: {float(forces.share[e]):.1%}",
            ]
        )
    if not rows:
        return ""
    return table(["cluster", "inside edges", "binding", "median force / limit", "most loaded edge"], rows)


def _parting(content: RecoverContent) -> str:
    part = content.parting
    assert part is not None
    words = []
    if part.below is not None:
        sizes = ", ".join(map(str, part.parts[:8])) + (", ..." if len(part.parts) > 8 else "")
        words.append(
            f"A smaller lam: at {part.below:.5g} they are apart, and their cluster has come apart into "
            f"{len(part.parts)} parts of {sizes} nodes."
        )
    else:
        words.append("No smaller lam of this path parts them.")
    if part.above is not None:
        words.append(
            f"A larger lam parts them too, at {part.above:.5g}: clusters may split again where nodes differ in "
            "curvature or weights."
        )
    return " ".join(words)


def _curve(content: RecoverContent) -> str:
    proofs = {True: "yes", False: "no", None: "–"}
    ordered = sorted(content.points, key=lambda point: -point.lam)
    rows = [
        [
            number(p.lam, 5),
            str(p.n_clusters),
            f"{p.ari:.3f}",
            number(p.score, 4),
            number(p.refit_score, 4),
            proofs[p.proved],
            escape(p.status),
        ]
        for p in ordered
    ]
    marked = next((i for i, p in enumerate(ordered) if p.lam == float(content.chosen.problem.lam)), None)
    return (
        f"<p>{len(rows)} values of lam. Score: {escape(content.score_words)}; after refit: with the minimiser of each "
        "cluster's own losses, which is not pulled towards other clusters.</p>\n"
        "<details><summary>Table of all values</summary>"
        + table(
            ["lam", "clusters", "adjusted Rand", "score", "after refit", "proved", "status"], rows, marked
        )
        + "</details>\n"
    )


def _repeat(content: RecoverContent) -> str:
    settings = [(name, "none" if value is None else str(value)) for name, value in content.settings.items()]
    return (
        f"<pre>{escape(content.command)}</pre>\n<details><summary>Settings and versions</summary>"
        f"{pairs(settings)}</details>\n"
    )
