"""The explorer page as data: what it holds, that it is whole, and what is refused. Its behaviour: tests/browser."""

from __future__ import annotations

import base64
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fusionopt
from fusionopt.errors import InvalidArgumentError
from fusionopt.explorer import explorer_html
from fusionopt.selection import select_plateau
from tests import catalogue


def payload(page: str) -> dict[str, Any]:
    found = re.search(r'<script id="data" type="application/json">(.*?)</script>', page, flags=re.DOTALL)
    assert found is not None
    told: dict[str, Any] = json.loads(found.group(1))
    return told


def array(text: str, dtype: str) -> np.ndarray:
    return np.frombuffer(base64.b64decode(text), dtype=dtype)


@pytest.fixture(scope="module")
def path() -> fusionopt.PathResult:
    points, _ = fusionopt.datasets.make_gaussian_groups(30, random_state=0)
    problem = fusionopt.FusionProblem(fusionopt.SquaredDistance(points), fusionopt.Graph.knn(points, 6))
    return fusionopt.solution_path(problem, lams=[2.0, 0.01, 0.5, 50.0])


def test_labels_are_exact_and_positions_within_a_step(path: fusionopt.PathResult) -> None:
    told = payload(explorer_html(path))
    order = np.argsort(path.lams)
    assert told["lams"] == np.sort(path.lams).tolist()
    labels = array(told["labels"], "<u2").reshape(4, 30)
    for row, k in zip(labels, order, strict=True):
        np.testing.assert_array_equal(row, path.results[k].labels)
    counts = [facts["n_clusters"] for facts in told["at"]]
    assert counts == path.n_clusters[order].tolist()
    spots = array(told["spots"], "<u2").reshape(-1, 2).astype(float)
    assert len(spots) == sum(counts)
    # Positions keep distances along the first component up to one common factor.
    first = path.results[order[0]].centers
    true = np.linalg.norm(first[0] - first[1:], axis=1)
    shown = spots[: counts[0]] * [told["aspect"], 1.0]
    seen = np.linalg.norm(shown[0] - shown[1:], axis=1)
    np.testing.assert_allclose(seen / true, seen[0] / true[0], rtol=2e-3)


def test_the_page_is_whole_and_asks_for_nothing(path: fusionopt.PathResult) -> None:
    page = explorer_html(path, title="a <b> & c", row_names=[f"</script>{i}" for i in range(30)])
    assert "@@" not in page
    assert "://" not in page
    assert not re.search(r"<(?:link|img|iframe|script)[^>]+(?:src|href)", page)
    assert page.count("</script>") == 2
    assert "<title>a &lt;b&gt; &amp; c</title>" in page
    assert payload(page)["names"][3] == "</script>3"


def test_it_opens_at_the_choice(path: fusionopt.PathResult, tmp_path: Path) -> None:
    selection = select_plateau(path)
    file = path.explore(tmp_path / "page.html", selection=selection)
    told = payload(file.read_text(encoding="utf-8"))
    assert told["lams"][told["chosen"]] == selection.lam
    assert payload(explorer_html(path))["chosen"] == -1


def test_tree_or_events() -> None:
    line = fusionopt.solution_path(
        catalogue.line_complete([0.0, 1.0, 3.0, 7.0, 12.0], 0.0).problem(), lams=[0.7, 2.0], events="locate"
    )
    told = payload(explorer_html(line))
    np.testing.assert_array_equal(array(told["tree"]["heights"], "<f8"), line.linkage()[:, 2])
    np.testing.assert_array_equal(
        array(told["tree"]["pairs"], "<i4").reshape(-1, 2), line.linkage()[:, :2].astype(int)
    )
    split = fusionopt.solution_path(catalogue.splitting(0.0).problem(), lams=[1.0, 3.0, 20.0])
    told = payload(explorer_html(split))
    assert told["tree"] is None
    assert "splits between lam 1 and 3" in told["treenote"]
    assert [event[0] for event in told["events"]] == [event.kind for event in split.events]


def test_other_losses_and_missing_cells_have_a_page() -> None:
    rng = np.random.default_rng(0)
    designs = [rng.normal(size=(5, 3)) for _ in range(4)]
    loss = fusionopt.LeastSquares(designs, [z[:, 0] for z in designs], ridge=0.1)
    told = payload(explorer_html(fusionopt.solution_path(fusionopt.FusionProblem(loss), lams=[0.01, 1.0])))
    assert told["n"] == 4
    holes = np.array([[0.0, 0.0], [2.0, np.nan], [np.nan, 4.0]])
    told = payload(
        explorer_html(
            fusionopt.solution_path(fusionopt.FusionProblem(fusionopt.SquaredDistance(holes)), lams=[0.2, 2])
        )
    )
    assert np.isfinite(array(told["means"], "<f4")).all()


def test_thousand_rows_and_hundred_lams_stay_under_three_megabytes() -> None:
    """The worst case: no two rows are fused at any lam."""
    rng = np.random.default_rng(0)
    problem = fusionopt.FusionProblem(fusionopt.SquaredDistance(rng.normal(size=(1000, 2))))
    lams = np.linspace(1e-9, 2e-9, 100)
    one = fusionopt.solution_path(
        fusionopt.FusionProblem(problem.loss, fusionopt.Graph.chain(1000)), lams=lams[:1]
    ).results[0]
    path = fusionopt.PathResult(problem, lams, [one] * 100, lambda_max=1.0, events=[])
    assert set(path.n_clusters.tolist()) == {1000}
    assert len(explorer_html(path).encode()) < 3e6


def test_refusals(path: fusionopt.PathResult) -> None:
    with pytest.raises(InvalidArgumentError, match="row_names has 2 entries; the path needs 30"):
        explorer_html(path, row_names=["a", "b"])
    with pytest.raises(InvalidArgumentError, match="column_names has 1 entries; the path needs 2"):
        explorer_html(path, column_names=["a"])
    empty = fusionopt.PathResult(path.problem, path.lams[:0], [], 1.0, "interrupted")
    with pytest.raises(InvalidArgumentError, match="the path is empty"):
        explorer_html(empty)
