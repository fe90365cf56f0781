"""The report: self-contained, escaped, honest about what was not met."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import numpy as np
import pytest

from fusionopt import (
    AdmmSettings,
    FusionProblem,
    Graph,
    PathResult,
    Result,
    SquaredDistance,
    plotting,
    solution_path,
)
from fusionopt.comparison import compare_labels
from fusionopt.report import Figure, ReportContent, escape, inline_svg, number, render_report

VOID = {"meta", "br", "hr", "img", "link", "input"}


class _Checker(HTMLParser):
    """Collects ids and checks that tags are closed in order."""

    def __init__(self) -> None:
        super().__init__()
        self.ids: list[str] = []
        self.open: list[str] = []
        self.addresses: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in VOID:
            self.open.append(tag)
        for name, value in attrs:
            if name == "id":
                self.ids.append(str(value))
            if name in ("src", "href", "xlink:href", "action", "xmlns"):
                self.addresses.append(str(value))

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def _content(drawn: PathResult, result: Result, **changes: object) -> ReportContent:
    figures = [
        Figure("paths", plotting.figure_files(plotting.plot_paths(drawn, chosen=result))[0], "paths"),
        Figure("gaps", plotting.figure_files(plotting.plot_gaps(drawn))[0], "gaps"),
    ]
    values: dict[str, object] = {
        "source": "table.csv",
        "version": "1.2.3",
        "created": "today",
        "command": "fusionopt path table.csv",
        "data": [("table", "20 rows")],
        "result": result,
        "path": drawn,
        "partition": "certified",
        "selection": "lam was chosen.",
        "comparison": compare_labels(result.labels, np.arange(20) % 2),
        "figures": figures,
        "settings": {"eps_rel": 1e-6, "time_limit": None},
        "units": "the units of the table",
        "notes": ["a note"],
    }
    return ReportContent(**(values | changes))  # type: ignore[arg-type]


def _path(settings: AdmmSettings | None = None) -> PathResult:
    points = np.random.default_rng(0).standard_normal((20, 2)) + 6.0 * (np.arange(20) % 2)[:, None]
    problem = FusionProblem(SquaredDistance(points), Graph.knn(points, n_neighbors=5))
    return solution_path(problem, n_lams=5, settings=settings)


@pytest.fixture(scope="module")
def path() -> PathResult:
    return _path()


def test_page_is_whole_and_holds_no_network_address(path: PathResult) -> None:
    page = render_report(_content(path, path.results[2]))
    assert not re.search(r"https?:|ftp:|//\w+\.\w", page)
    checker = _Checker()
    checker.feed(page)
    assert checker.open == []
    assert len(checker.ids) == len(set(checker.ids))
    assert all(address.startswith(("#", "data:")) for address in checker.addresses)
    for used in re.findall(r"url\(#([^)]+)\)", page) + [
        a[1:] for a in checker.addresses if a.startswith("#")
    ]:
        assert used in checker.ids
    for word in (
        "Certificate",
        "lower bound",
        "relative gap",
        "adjusted Rand index",
        "1.2.3",
        "a note",
        "lam was chosen",
    ):
        assert word in page


def test_text_from_outside_is_escaped(path: PathResult) -> None:
    nasty = "<script>alert('x')</script> & http://example.org/\"q\""
    page = render_report(
        _content(
            path,
            path.results[0],
            source=nasty,
            command=nasty,
            selection=nasty,
            notes=[nasty],
            data=[(nasty, nasty)],
        )
    )
    assert "<script" not in page
    assert "http://" not in page
    assert "http&#58;//example.org" in page
    checker = _Checker()
    checker.feed(page)
    assert checker.open == []


def test_one_lam_without_figures_or_labels(path: PathResult) -> None:
    page = render_report(_content(path, path.results[1], path=None, comparison=None, figures=[], notes=[]))
    assert "known labels" not in page
    assert "The path" not in page
    assert "Optimal: the duality gap is within the tolerance" in page


def test_tolerance_not_met_is_told_first() -> None:
    loose = _path(AdmmSettings(max_iter=1))
    unfinished = next(result for result in loose.results if result.status == "user_limit")
    page = render_report(_content(loose, unfinished))
    met = sum(result.status == "optimal" for result in loose.results)
    assert f"{met} of 5 values of lam within the tolerance" in page
    assert "Not finished: a limit came first" in page
    assert page.index("class=bad") < page.index("Certificate")


def test_ink_and_blue_follow_the_page(path: PathResult) -> None:
    svg = inline_svg(plotting.figure_files(plotting.plot_cluster_counts(path))[0], "f")
    assert svg.startswith("<svg")
    assert "currentColor" in svg
    assert "var(--blue)" in svg
    assert plotting.INK not in svg
    assert not re.match(r"<svg[^>]*\s(width|height)=", svg)


def test_numbers_not_computed_are_a_dash() -> None:
    assert number(None) == number(float("nan")) == number(float("inf")) == "–"
    assert number(1.5) == "1.5"
    assert escape("a<b") == "a&lt;b"
