"""The explorer in a real browser: `make test-browser`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import fusionopt
from fusionopt.selection import select_plateau
from tests import catalogue
from tests.browser.chromium import Browser, find_chromium


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    # Not at import: `make test` imports every module for its doctests, with or without a browser.
    program = find_chromium()
    assert program is not None, "make test-browser needs Chromium (Debian: apt-get install chromium)"
    with Browser(program) as page:
        yield page


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    points, _ = fusionopt.datasets.make_gaussian_groups(60, spread=1.0, random_state=1)
    problem = fusionopt.FusionProblem(fusionopt.SquaredDistance(points), fusionopt.Graph.knn(points, 8))
    path = fusionopt.solution_path(problem, n_lams=40)
    file = tmp_path_factory.mktemp("page") / "explorer.html"
    return path.explore(file, selection=select_plateau(path), title="Three <groups>")


@pytest.mark.parametrize("width", [1280, 360])
@pytest.mark.parametrize("dark", [False, True])
def test_the_slider_moves_the_clusters(browser: Browser, page: Path, width: int, dark: bool) -> None:
    browser.errors.clear()
    browser.requests.clear()
    browser.open(page, width=width, height=800, dark=dark)
    assert browser.run("document.title") == "Three <groups>"
    before = browser.run("explorer.placed"), browser.run("explorer.clusters")
    browser.run(
        "(() => { const s = document.getElementById('lam'); s.value = s.max;"
        " s.dispatchEvent(new Event('input', {bubbles: true})); })()"
    )
    browser.settle()
    after = browser.run("explorer.placed"), browser.run("explorer.clusters")
    assert after[1] < before[1]
    assert np.abs(np.array(after[0]) - before[0]).max() > 5
    spread = np.ptp(np.array(after[0]).reshape(-1, 2), axis=0)
    assert (spread < np.ptp(np.array(before[0]).reshape(-1, 2), axis=0)).all()
    assert browser.run("document.getElementById('count').textContent") == f"{after[1]} cluster" + (
        "" if after[1] == 1 else "s"
    )
    # Something is drawn, in the theme's colours, and nothing is wider than the page.
    assert (
        browser.run(
            "(() => { const c = document.getElementById('map'); const d = c.getContext('2d')"
            ".getImageData(0, 0, c.width, c.height).data; let k = 0;"
            " for (let i = 3; i < d.length; i += 4) k += d[i] > 0;"
            " return k; })()"
        )
        > 100
    )
    assert browser.run("document.documentElement.scrollWidth <= innerWidth")
    page_colour = browser.run("getComputedStyle(document.body).backgroundColor")
    assert (int(page_colour[4:].split(",")[0]) < 60) == dark
    assert browser.errors == []
    assert [url for url in browser.requests if not url.startswith(("file:", "data:", "blob:"))] == []


def test_keys_and_export(browser: Browser, page: Path) -> None:
    browser.errors.clear()
    browser.open(page)
    start = browser.run("explorer.index")
    browser.press("ArrowRight")
    assert browser.run("explorer.index") == start + 1
    browser.press("Home")
    assert browser.run("explorer.index") == 0
    count = browser.run("explorer.clusters")
    browser.press("]")
    assert browser.run("explorer.index") > 0
    assert browser.run("explorer.clusters") != count
    lines = browser.run("explorer.csv()").strip().splitlines()
    assert lines[0] == "row,name,label"
    assert len(lines) == 61
    assert len({line.split(",")[2] for line in lines[1:]}) == browser.run("explorer.clusters")
    assert browser.errors == []


def test_a_path_without_a_tree_shows_its_events(browser: Browser, tmp_path: Path) -> None:
    browser.errors.clear()
    path = fusionopt.solution_path(catalogue.splitting(0.0).problem(), lams=[0.3, 1.0, 3.0, 8.0, 20.0])
    browser.open(path.explore(tmp_path / "page.html"))
    assert browser.run("document.getElementById('treehead').textContent") == "Merges and splits"
    assert "no hierarchy" in browser.run("document.getElementById('treenote').textContent")
    assert browser.errors == []


def test_ten_thousand_rows_are_drawn(browser: Browser, tmp_path: Path) -> None:
    points = np.random.default_rng(0).normal(size=(10_000, 2))
    problem = fusionopt.FusionProblem(fusionopt.SquaredDistance(points), fusionopt.Graph.knn(points, 4))
    path = fusionopt.solution_path(problem, lams=[0.1, 1.0], settings=fusionopt.AdmmSettings(eps_rel=1e-3))
    browser.errors.clear()
    browser.open(path.explore(tmp_path / "page.html"))
    before = np.array(browser.run("explorer.placed"))
    browser.run("explorer.show(0)")
    browser.settle()
    after = np.array(browser.run("explorer.placed"))
    assert len(after) == 20_000
    assert (np.abs(after - before) > 0.1).any()
    assert browser.errors == []
