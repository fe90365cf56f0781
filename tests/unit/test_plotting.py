"""Figures: drawn on given axes or fresh ones, with labels, and without touching pyplot."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from matplotlib.figure import Figure

from fusionopt import (
    AdmmSettings,
    FusionProblem,
    Graph,
    PathResult,
    Result,
    SquaredDistance,
    plotting,
    solution_path,
    solve,
)
from fusionopt.errors import InvalidArgumentError
from fusionopt.selection import select_plateau


def _problem(n: int = 30, d: int = 3, lam: float = 0.0) -> FusionProblem:
    rng = np.random.default_rng(3)
    points = rng.standard_normal((n, d)) + 8.0 * (np.arange(n) % 2)[:, None]
    return FusionProblem(SquaredDistance(points), Graph.knn(points, n_neighbors=n // 2), lam=lam)


@pytest.fixture(scope="module")
def path() -> PathResult:
    return solution_path(_problem(), n_lams=12)


@pytest.fixture(scope="module")
def result() -> Result:
    return solve(_problem(lam=0.2))


def test_every_figure_has_a_title_and_labelled_axes(path: PathResult, result: Result) -> None:
    chosen = select_plateau(path).result
    drawn = [
        plotting.plot_paths(path),
        plotting.plot_paths(path, feature=1, chosen=chosen),
        plotting.plot_projection(path, chosen=chosen),
        plotting.plot_projection(result),
        plotting.plot_cluster_counts(path),
        plotting.plot_cluster_counts(path, chosen=chosen),
        plotting.plot_gap(result),
        plotting.plot_gaps(path),
    ]
    for ax in drawn:
        assert ax.get_title(loc="left")
        assert ax.get_xlabel()
        assert ax.get_ylabel()
        svg, png = plotting.figure_files(ax)
        assert "<svg" in svg
        assert png.startswith(b"\x89PNG")


def test_figures_are_the_same_twice(path: PathResult) -> None:
    assert plotting.figure_files(plotting.plot_gaps(path)) == plotting.figure_files(plotting.plot_gaps(path))


def test_given_axes_are_used(path: PathResult, result: Result) -> None:
    ax = Figure().add_subplot()
    for draw in (
        plotting.plot_paths,
        plotting.plot_projection,
        plotting.plot_cluster_counts,
        plotting.plot_gaps,
    ):
        assert draw(path, ax=ax) is ax
    assert plotting.plot_gap(result, ax=ax) is ax


def test_pyplot_is_never_imported() -> None:
    code = (
        "import sys, numpy as np\n"
        "from fusionopt import FusionProblem, SquaredDistance, plotting, solve\n"
        "r = solve(FusionProblem(SquaredDistance(np.arange(6.0)[:, None]), lam=0.1))\n"
        "ax = plotting.plot_gap(r)\n"
        "assert 'matplotlib' in sys.modules and 'matplotlib.pyplot' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_feature_out_of_range_is_refused(path: PathResult) -> None:
    with pytest.raises(InvalidArgumentError, match=r"feature=3 is not a column of x; .* from 0 to 2"):
        plotting.plot_paths(path, feature=3)


@pytest.mark.parametrize("points", [[[3.0, 4.0]], [[1.0, 2.0]] * 4, [[1.0], [2.0], [5.0]]])
def test_degenerate_tables_are_drawn(points: list[list[float]]) -> None:
    path = solution_path(FusionProblem(SquaredDistance(points)), n_lams=4)
    chosen = select_plateau(path).result
    for ax in (
        plotting.plot_paths(path, chosen=chosen),
        plotting.plot_projection(path, chosen=chosen),
        plotting.plot_cluster_counts(path, chosen=chosen),
        plotting.plot_gaps(path),
        plotting.plot_gap(chosen),
    ):
        plotting.figure_files(ax)


def test_lam_zero_and_any_order(path: PathResult) -> None:
    mixed = solution_path(_problem(), lams=[0.3, 0.0, 0.1])
    for ax in (plotting.plot_paths(mixed), plotting.plot_cluster_counts(mixed), plotting.plot_gaps(mixed)):
        assert ax.get_xscale() == "symlog"
        plotting.figure_files(ax)


def test_gap_not_met_is_told_apart() -> None:
    loose = solution_path(_problem(), lams=[0.3, 0.1], settings=AdmmSettings(max_iter=1))
    labels = [text.get_text() for text in plotting.plot_gaps(loose).get_legend().get_texts()]
    assert "tolerance not met" in labels


def test_cluster_styles_leave_out_rows_alone_and_order_by_size() -> None:
    styles = plotting.cluster_styles(np.array([0, 1, 1, 2, 2, 2]))
    assert list(styles) == [2, 1]
    looks = plotting.cluster_styles(np.repeat(np.arange(36), 2)).values()
    assert len({look[:2] for look in looks}) == 36
