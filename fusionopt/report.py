"""One self-contained HTML page about a solve: what was solved, the certificate, the clusters, the figures.

The page holds no network address at all: styles are inline, figures are inline SVG, and text that happens to
contain one is written with an escaped colon. It reads on a phone and on paper, on a light and on a dark page.
"""

from __future__ import annotations

import html
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from fusionopt._report_style import STYLE
from fusionopt.clusters import MIN_SHARE, n_large
from fusionopt.plotting import COLORS, INK

if TYPE_CHECKING:
    from fusionopt.comparison import Comparison
    from fusionopt.path import PathResult
    from fusionopt.result import Result

STATUS_WORDS = {
    "optimal": "Optimal: the duality gap is within the tolerance, so no x is better by more than the gap.",
    "stationary": "Stationary: first-order conditions hold; no bound on the global optimum exists here.",
    "user_limit": "Not finished: a limit came first. The gap says how far x may be from the optimum.",
    "interrupted": "Interrupted. The gap says how far x may be from the optimum.",
    "unbounded": "No minimiser is attained.",
    "numerical_error": "Numerical error: the tolerance was not met.",
}
_MAX_CLUSTER_ROWS = 25


@dataclass(frozen=True)
class Figure:
    """An SVG drawing (as matplotlib writes it) with the sentence under it."""

    name: str
    svg: str
    caption: str


@dataclass(frozen=True)
class ReportContent:
    """Everything the page tells; plain text, escaped when rendered.

    Attributes
    ----------
    source, version, created, command : str
        Data file, package version, time of the run, and the command that repeats it.
    data : list of (name, value)
        Facts about the table.
    result : Result
        The solution shown in full.
    path : PathResult or None
    partition : str
        Whether the partition is certified, in words.
    selection : str
        How lam was chosen.
    comparison : Comparison or None
    figures : list of Figure
    settings : dict
    notes : list of str
        Sentences the reader must know: columns left out, limits met, choices made.
    best_ari : float or None
        Largest adjusted Rand index anywhere on the path, which only the labels can find.
    verify : str
        Command, run in the folder of the results, that checks the certificate with NumPy alone.
    units : str
        In which units x and the objective are, e.g. ``"standardised units"``.
    """

    source: str
    version: str
    created: str
    command: str
    data: Sequence[tuple[str, str]]
    result: Result
    path: PathResult | None
    partition: str
    selection: str
    comparison: Comparison | None
    figures: Sequence[Figure]
    settings: dict[str, Any]
    units: str
    notes: Sequence[str] = field(default_factory=list)
    best_ari: float | None = None
    verify: str = ""


def escape(text: object) -> str:
    """HTML-escaped text, in which no network address remains as such."""
    return html.escape(str(text)).replace("://", "&#58;//")


def number(value: float | None, digits: int = 6) -> str:
    """A number as a reader wants it; a dash for one that was not computed."""
    if value is None or not math.isfinite(value):
        return "–"
    return f"{value:.{digits}g}"


def inline_svg(svg: str, prefix: str) -> str:
    """SVG as matplotlib writes it, made fit for embedding in HTML.

    The XML prologue, metadata and namespace declarations (network addresses, none needed in HTML) go; ids get
    `prefix`, so that several drawings share a page; the ink follows the colour of the text around.
    """
    body = svg[svg.index("<svg") :]
    body = re.sub(r"<metadata>.*?</metadata>", "", body, flags=re.DOTALL)
    body = re.sub(r'\s+xmlns(:\w+)?="[^"]*"', "", body)
    body = body.replace("xlink:href=", "href=")
    body = re.sub(r'\bid="([^"]+)"', rf'id="{prefix}-\1"', body)
    body = re.sub(r"url\(#([^)]+)\)", rf"url(#{prefix}-\1)", body)
    body = re.sub(r'href="#([^"]+)"', rf'href="#{prefix}-\1"', body)
    body = re.sub(re.escape(INK), "currentColor", body, flags=re.IGNORECASE)
    body = re.sub(re.escape(COLORS[0]), "var(--blue)", body, flags=re.IGNORECASE)
    body = re.sub(re.escape(COLORS[4]), "var(--sky)", body, flags=re.IGNORECASE)
    return re.sub(
        r'(<svg[^>]*?)\s+width="[^"]*"',
        r"\1",
        re.sub(r'(<svg[^>]*?)\s+height="[^"]*"', r"\1", body, count=1),
        count=1,
    )


def render_report(content: ReportContent) -> str:
    """The page as one string.

    Parameters
    ----------
    content : ReportContent

    Returns
    -------
    str
        HTML without any outside reference.
    """
    result = content.result
    sections = [
        _head(content),
        section("What was solved", _formula(result) + pairs(content.data)),
        section("Certificate", _certificate(content)),
        section("Clusters", _clusters(content)),
    ]
    if content.comparison is not None:
        sections.append(
            section("Against the known labels", _comparison(content.comparison, content.best_ari))
        )
    if content.figures:
        sections.append(section("Figures", figure_grid(content.figures)))
    if content.path is not None:
        sections.append(section("The path", _path_table(content.path, result)))
    sections.append(section("How to repeat this", _repeat(content)))
    return page(f"fusionopt: {content.source}", sections)


def page(title: str, sections: Sequence[str]) -> str:
    """The whole document around ready sections."""
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f'<meta name="color-scheme" content="light '
        f'dark">\n<title>{escape(title)}</title>\n<style>{STYLE}</style>\n</head>\n'
        f"<body>\n<main>\n{''.join(sections)}</main>\n</body>\n</html>\n"
    )


def section(title: str, body: str) -> str:
    """A titled card; `body` is ready HTML."""
    return f"<section>\n<h2>{escape(title)}</h2>\n{body}</section>\n"


def pairs(facts: Sequence[tuple[str, str]]) -> str:
    """A definition list of names and values."""
    rows = "".join(f"<dt>{escape(name)}</dt><dd>{escape(value)}</dd>" for name, value in facts)
    return f"<dl>{rows}</dl>\n"


def table(
    header: Sequence[str], rows: Sequence[Sequence[str]], marked: int | None = None, kind: str = "plain"
) -> str:
    """A table of ready HTML cells, scrolling sideways on its own where the page is narrow."""
    head = "".join(f"<th>{cell}</th>" for cell in header)
    body = "".join(
        f"<tr{' class=chosen' if i == marked else ''}>"
        + "".join(f"<td>{cell}</td>" for cell in row)
        + "</tr>\n"
        for i, row in enumerate(rows)
    )
    return (
        f"<div class=scroll><table class={kind}><thead><tr>{head}</tr></thead>"
        f"<tbody>{body}</tbody></table></div>\n"
    )


def _good(status: str) -> bool:
    return status in ("optimal", "stationary")


def _head(content: ReportContent) -> str:
    result = content.result
    statuses = [result.status] if content.path is None else [r.status for r in content.path.results]
    met = sum(map(_good, statuses))
    if met == len(statuses) == 1:
        badge = f"{result.status}, relative gap {number(result.rel_gap, 2)}"
    elif met == len(statuses):
        badge = f"all {met} values of lam within the tolerance"
    else:
        badge = f"{met} of {len(statuses)} values of lam within the tolerance"
    notes = "".join(f"<li>{escape(note)}</li>" for note in content.notes)
    kind = "good" if met == len(statuses) else "bad"
    singletons = int(np.sum(np.asarray(result.cluster_sizes) == 1))
    facts = [
        ("clusters", str(result.n_clusters)),
        (f"with {MIN_SHARE:.0%} of the rows or more", str(n_large(result.cluster_sizes))),
        ("rows alone", str(singletons)),
        ("lam", number(float(result.problem.lam), 5)),
    ]
    if content.comparison is not None:
        facts.append(("adjusted Rand index", f"{content.comparison.ari:.3f}"))
    tiles = "".join(f"<div><b>{escape(value)}</b><span>{escape(name)}</span></div>" for name, value in facts)
    return (
        f"<header>\n<h1>{escape(content.source)}</h1>\n<p class=badge><span "
        f"class={kind}>{escape(badge)}</span></p>\n<div class=tiles>{tiles}</div>\n"
        + (f"<ul class=notes>{notes}</ul>\n" if notes else "")
        + f"<p class=quiet>fusionopt {escape(content.version)}, {escape(content.created)}</p>\n</header>\n"
    )


def _formula(result: Result) -> str:
    problem = result.problem
    if type(problem.loss).__name__ == "SquaredDistance":
        loss = "½&thinsp;‖<var>x<sub>i</sub></var> − <var>a<sub>i</sub></var>‖²"
        where = "<var>a<sub>i</sub></var> is row <var>i</var> of the table"
    else:
        loss = "<var>f<sub>i</sub></var>(<var>x<sub>i</sub></var>)"
        where = f"<var>f<sub>i</sub></var> is the loss {escape(type(problem.loss).__name__)}"
    if type(problem.penalty).__name__ == "L2Norm":
        penalty = "λ ‖<var>x<sub>i</sub></var> − <var>x<sub>j</sub></var>‖"
    else:
        name = escape(type(problem.penalty).__name__)
        penalty = f"{name}(<var>x<sub>i</sub></var> − <var>x<sub>j</sub></var>; λ)"
    return (
        f"<p class=formula>minimise over <var>x</var>: &ensp;∑<sub><var>i</var></sub> {loss} &ensp;+&ensp; "
        f"∑<sub>(<var>i,j</var>)∈<var>E</var></sub> <var>w<sub>ij</sub></var> {penalty}</p>\n<p>Here "
        f"{where}; each pair of the graph <var>E</var> counts once. Rows whose <var>x</var> is exactly equal "
        "and joined by edges are one cluster; no distance threshold is used.</p>\n"
    )


def _certificate(content: ReportContent) -> str:
    result = content.result
    rows = [
        ["objective P(x)", number(result.objective, 12), "value at the x returned"],
        ["lower bound D", number(result.dual_objective, 12), "no x whatever has an objective below this"],
        ["gap P − D", number(result.gap, 3), "x is at most this much above the best possible"],
        ["relative gap", number(result.rel_gap, 3), f"asked for: {number(result.settings.eps_rel, 2)}"],
        [
            "partition",
            escape(content.partition),
            "a separate check that exactly these rows are equal at the optimum",
        ],
        ["iterations", str(result.n_iter), f"{result.setup_time + result.solve_time:.3g} s"],
    ]
    words = STATUS_WORDS.get(result.status, result.status)
    message = f"<p>{escape(result.message)}</p>\n" if result.message else ""
    kind = "good" if _good(result.status) else "bad"
    return (
        f"<p><strong class={kind}>{escape(words)}</strong></p>\n{message}"
        + table(["", f"at lam = {number(float(result.problem.lam), 6)}", "meaning"], rows, kind="explained")
        + f"<p class=quiet>Values are in {escape(content.units)}.</p>\n"
    )


def _clusters(content: ReportContent) -> str:
    result = content.result
    sizes = np.asarray(result.cluster_sizes)
    order = np.argsort(-sizes, kind="stable")
    several = [int(k) for k in order if sizes[k] > 1]
    n = len(result.labels)
    rows = [
        [
            str(k),
            str(int(sizes[k])),
            f"{sizes[k] / n:.1%}",
            f"<i style='width:{100 * sizes[k] / n:.2f}%'></i>",
        ]
        for k in several[:_MAX_CLUSTER_ROWS]
    ]
    rest = len(several) - len(rows)
    alone = int(np.sum(sizes == 1))
    lines = []
    if rest > 0:
        lines.append(f"{rest} smaller clusters are in labels.csv.")
    if alone:
        words = f"{alone} rows ({alone / n:.1%}) are alone: each is a cluster of its own."
        lines.append(words if alone > 1 else f"1 row ({1 / n:.1%}) is alone: a cluster of its own.")
    text = f"<p>{escape(content.selection)}</p>\n"
    if rows:
        text += table(["cluster", "rows", "share", ""], rows)
    return text + "".join(f"<p>{escape(line)}</p>\n" for line in lines)


def _comparison(comparison: Comparison, best_ari: float | None) -> str:
    measures = [
        ["adjusted Rand index", f"{comparison.ari:.3f}", "all rows, rows alone counted as clusters of one"],
        [
            "adjusted Rand index, grouped rows only",
            number(comparison.ari_without_singletons, 3),
            "leaves out the rows alone, so it flatters",
        ],
        ["adjusted mutual information", f"{comparison.ami:.3f}", ""],
        [
            "homogeneity",
            f"{comparison.homogeneity:.3f}",
            "do clusters hold one label? (tiny clusters make it 1)",
        ],
        ["completeness", f"{comparison.completeness:.3f}", "do labels stay in one cluster?"],
        ["V-measure", f"{comparison.v_measure:.3f}", "harmonic mean of the two"],
        ["rows matched", f"{comparison.matched:.1%}", "best one-to-one matching of clusters and labels"],
        ["rows alone", str(comparison.n_singletons), ""],
        ["largest cluster", f"{comparison.largest_share:.1%}", "share of the rows"],
    ]
    if best_ari is not None:
        row = [
            "best on the path",
            f"{best_ari:.3f}",
            "largest adjusted Rand index at any lam; only the labels find it",
        ]
        measures.insert(2, row)
    counts = comparison.counts
    sizes = counts.sum(axis=1)
    several = [int(k) for k in np.argsort(-sizes, kind="stable") if sizes[k] > 1]
    shown = several[:_MAX_CLUSTER_ROWS]
    rows = [[str(k), *map(str, counts[k].tolist())] for k in shown]
    if len(several) > len(shown):
        rows.append(["smaller ones", *map(str, counts[several[len(shown) :]].sum(axis=0).tolist())])
    if np.any(sizes == 1):
        rows.append(["alone", *map(str, counts[sizes == 1].sum(axis=0).tolist())])
    return (
        "<p>The labels were not used in solving or in choosing lam.</p>\n"
        + table(["measure", "value", "meaning"], measures, kind="explained")
        + "<h3>Rows by cluster and known label</h3>\n"
        + table(["cluster", *map(escape, comparison.known)], rows)
    )


def figure_grid(figures: Sequence[Figure]) -> str:
    """The drawings with their captions, side by side where there is room."""
    parts = [
        f"<figure role=img aria-label='{escape(figure.caption)}'>{inline_svg(figure.svg, figure.name)}"
        f"<figcaption>{escape(figure.caption)}</figcaption></figure>\n"
        for figure in figures
    ]
    return f"<div class=figures>{''.join(parts)}</div>\n"


def _path_table(path: PathResult, chosen: Result) -> str:
    rows = [
        [
            number(float(lam), 6),
            str(result.n_clusters),
            str(n_large(result.cluster_sizes)),
            number(result.objective, 8),
            number(result.rel_gap, 2),
            escape(result.status),
            str(result.n_iter),
        ]
        for lam, result in zip(path.lams, path.results, strict=True)
    ]
    marked = next((i for i, result in enumerate(path.results) if result is chosen), None)
    header = [
        "lam",
        "clusters",
        f"of {MIN_SHARE:.0%} or more",
        "objective",
        "relative gap",
        "status",
        "iterations",
    ]
    worst = max((r.rel_gap for r in path.results if math.isfinite(r.rel_gap)), default=math.nan)
    return (
        f"<p>{len(rows)} values of lam; the largest relative gap is {number(worst, 2)}.</p>\n"
        f"<details><summary>Table of all values</summary>{table(header, rows, marked)}</details>\n"
    )


def _repeat(content: ReportContent) -> str:
    settings = [(name, "none" if value is None else str(value)) for name, value in content.settings.items()]
    check = ""
    if content.verify:
        check = (
            "<p>The certificate can be checked in the folder of this report without the solver:</p>\n"
            f"<pre>{escape(content.verify)}</pre>\n"
        )
    return (
        f"<pre>{escape(content.command)}</pre>\n{check}<details><summary>Settings and "
        f"versions</summary>{pairs(settings)}</details>\n"
    )
