"""Figures: drawn on given axes or fresh ones, with labels, and without touching pyplot."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from matplotlib.figure import Figure
from matplotlib.text import Text

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
from fusionopt.tree import Event


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
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


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
        svg, png = plotting.figure_files(ax)
        assert svg.rstrip().endswith("</svg>") and png.startswith(b"\x89PNG")


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


# -- trees and heat maps


def test_dendrogram_has_a_bar_for_every_merge_at_its_lam(path: PathResult) -> None:
    chosen = select_plateau(path).result
    ax = plotting.plot_dendrogram(path, chosen=chosen)
    (bars,) = ax.collections
    tree = path.linkage()
    tops = np.array([segment[1, 0] for segment in bars.get_segments()])
    np.testing.assert_allclose(tops, tree[np.isfinite(tree[:, 2]), 2])
    leaves = np.concatenate([[segment[0, 1], segment[3, 1]] for segment in bars.get_segments()])
    assert set(range(30)) <= set(leaves.tolist())
    assert len({tuple(color) for color in bars.get_colors()}) >= 2
    plotting.figure_files(ax)


def test_dendrogram_of_a_deep_chain_needs_no_recursion() -> None:
    n = 3000
    k = np.arange(n)
    problem = FusionProblem(SquaredDistance(k * (k + 1) / 2.0), Graph.chain(n))
    # A chain of merges: row k joins all rows before it.
    events = [Event("merge", float(j), (j - 1.0, float(j)), np.arange(j + 1)) for j in range(1, n)]
    top = solve(FusionProblem(SquaredDistance(np.zeros(n)), Graph.chain(n), lam=float(n)))
    deep = PathResult(problem, np.array([float(n)]), [top], 1.0, "optimal", events)
    ax = plotting.plot_dendrogram(deep)
    assert len(ax.collections[0].get_segments()) == n - 1
    plotting.figure_files(ax)
    assert plotting.plot_heat_map(deep).get_title(loc="left") == "Data, rows in the order of the tree"


def test_heat_map_is_ordered_by_the_tree_or_the_clusters(path: PathResult) -> None:
    chosen = select_plateau(path).result
    ax = plotting.plot_heat_map(path, chosen=chosen, column_names=["a", "b", "c"])
    shown = ax.images[0].get_array()
    assert shown.shape == (30, 3)
    # Neighbours in the tree are in one cluster: the first column changes sign once.
    assert np.count_nonzero(np.diff(np.sign(shown[:, 0]))) == 1
    split = solution_path(_problem(), lams=[0.3])
    assert "the table" in plotting.plot_heat_map(split).get_title(loc="left")
    ax = plotting.plot_heat_map(split, chosen=split.results[0])
    assert "the clusters" in ax.get_title(loc="left")
    holes = np.array([[0.0, 0.0], [2.0, np.nan], [np.nan, 4.0]])
    missing = solution_path(FusionProblem(SquaredDistance(holes)), lams=[0.2, 2.0])
    plotting.figure_files(plotting.plot_heat_map(missing))


def test_no_tree_no_dendrogram() -> None:
    split = solution_path(_problem(), lams=[0.3])
    with pytest.raises(InvalidArgumentError, match="the tree has no top"):
        plotting.plot_dendrogram(split)


def test_ink_is_light_on_dark_axes(path: PathResult) -> None:
    dark = Figure(facecolor="#14171c").add_subplot(facecolor="#14171c")
    assert plotting.plot_cluster_counts(path, ax=dark).xaxis.label.get_color() == plotting.LIGHT_INK
    assert plotting.plot_cluster_counts(path).xaxis.label.get_color() == plotting.INK


@pytest.mark.parametrize("draw", [plotting.plot_dendrogram, plotting.plot_heat_map, plotting.plot_paths])
def test_text_is_legible_at_phone_width(path: PathResult, draw: Callable[..., Any]) -> None:
    """4.9 inches shown at 360 pixels: the smallest text must stay at nine pixels or more."""
    ax = draw(path)
    figure = ax.figure
    sizes = [text.get_fontsize() for text in figure.findobj(Text) if text.get_text()]
    pixels = 360 / (figure.get_size_inches()[0] * 72)
    assert min(sizes) * pixels >= 9.0
