"""Figures of results and paths, with matplotlib (imported when a figure is drawn).

Every function draws on `ax` when one is given, and otherwise on a new ``matplotlib.figure.Figure``, so that
neither pyplot's list of figures nor the chosen backend is touched. Each returns the axes; the figure is
``ax.figure``.

Colours are those of Okabe and Ito (without black and yellow), told apart also by marker, and dark enough for
white paper as well as bright enough for a dark page. Ink is one colour, `INK`, so that an embedding page can
replace it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fusionopt.clusters import n_large
from fusionopt.errors import InvalidArgumentError, MissingDependencyError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from fusionopt.path import PathResult
    from fusionopt.result import Result

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

INK = "#20242b"
LIGHT_INK = "#e8eaee"
QUIET = "#8a9099"
COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00")
MARKERS = ("o", "s", "^", "D", "v", "P")
_RASTER_ABOVE = 3000  # markers, and points of lines, beyond which an SVG holds them as a picture
_RASTER_POINTS = 40_000
_LEGEND_CLUSTERS = 5
_MAX_LINES = 2000
_LONG_LABEL = 24


def require_matplotlib() -> None:
    """Raise MissingDependencyError, with the command that installs it, when matplotlib is not installed."""
    try:
        import matplotlib  # noqa: F401
    except ImportError as error:
        raise MissingDependencyError(
            "Figures need matplotlib, which is not installed; install it with: pip install matplotlib",
            package="matplotlib",
        ) from error


def figure_files(ax: Axes) -> tuple[str, bytes]:
    """(SVG on a transparent ground with text as text, PNG on white) of the figure that holds `ax`."""
    import io

    import matplotlib

    figure: Any = ax.figure  # a Figure; a SubFigure has no savefig of its own
    figure = getattr(figure, "figure", None) or figure
    text, picture = io.StringIO(), io.BytesIO()
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "fusionopt"}):
        figure.savefig(text, format="svg", transparent=True, dpi=160, metadata={"Date": None})
    figure.set_layout_engine("none")  # the layout is settled; finding it again takes longer than drawing
    figure.savefig(picture, format="png", dpi=160, facecolor="white")
    return text.getvalue(), picture.getvalue()


def on_white(svg: str) -> str:
    """An SVG with a white ground, for viewers that show a transparent one dark."""
    end = svg.index(">", svg.index("<svg")) + 1
    return svg[:end] + '\n<rect width="100%" height="100%" fill="#ffffff"/>' + svg[end:]


def new_axes(ax: Axes | None, width: float = 4.9, height: float = 3.7) -> Axes:
    """The axes given, or those of a new figure."""
    if ax is not None:
        return ax
    require_matplotlib()
    from matplotlib.figure import Figure

    axes: Axes = Figure(figsize=(width, height), layout="constrained").add_subplot()
    return axes


def _ink(ax: Axes) -> str:
    """`INK`, or a light one on axes whose own ground is dark (matplotlib's dark styles)."""
    from matplotlib.colors import to_rgba

    red, green, blue, alpha = to_rgba(ax.get_facecolor())
    return INK if alpha == 0 or 0.3 * red + 0.59 * green + 0.11 * blue > 0.5 else LIGHT_INK


def dress(ax: Axes, title: str, x: str, y: str) -> None:
    """Title, names, spines and grid in the style of all figures."""
    ink = _ink(ax)
    ax.set_title(title, loc="left", color=ink, fontsize=11.5)
    ax.set_xlabel(x, color=ink, fontsize=10.5)
    ax.set_ylabel(y, color=ink, fontsize=10.5)
    ax.tick_params(which="both", colors=ink, labelsize=9.5)
    for side, spine in ax.spines.items():
        spine.set_visible(side in ("left", "bottom"))
        spine.set_color(QUIET)
    ax.grid(True, color=QUIET, alpha=0.25, linewidth=0.6)
    ax.set_axisbelow(True)


def legend_below(ax: Axes) -> None:
    """The legend of what carries a label, below the axes; long labels one below the other."""
    handles, labels = ax.get_legend_handles_labels()
    if handles:
        # Below the axes: nowhere inside is sure to be free of data.
        legend = ax.legend(
            handles,
            labels,
            loc="upper center",
            bbox_to_anchor=(0.5, -0.16),
            ncols=2 if max(map(len, labels)) <= _LONG_LABEL else 1,
            frameon=False,
            labelcolor=_ink(ax),
            fontsize=9.5,
            handlelength=1.6,
            columnspacing=1.4,
        )
        for handle in legend.legend_handles:
            if handle is not None:
                handle.set_alpha(1.0)


def _rows(n: int) -> str:
    return "1 row" if n == 1 else f"{n} rows"


def cluster_styles(labels: NDArray[np.integer[Any]]) -> dict[int, tuple[str, str, str]]:
    """(colour, marker, legend text) of each cluster with two rows or more, largest first.

    Rows alone in their cluster are not in the answer: they are drawn grey.
    """
    numbers, sizes = np.unique(labels, return_counts=True)
    order = sorted((-int(size), int(number)) for number, size in zip(numbers, sizes, strict=True) if size > 1)
    styles = {}
    for rank, (size, number) in enumerate(order):
        marker = MARKERS[(rank // len(COLORS) + rank) % len(MARKERS)]
        styles[number] = (COLORS[rank % len(COLORS)], marker, f"cluster {number} ({_rows(-size)})")
    return styles


def _points(problem: Any) -> FloatArray | None:
    """The data rows of a squared-distance problem, in the units solved; None for other losses."""
    targets = getattr(problem.loss, "targets", None)
    if isinstance(targets, np.ndarray) and targets.shape == (problem.n_nodes, problem.n_features):
        return targets
    return None


def principal_axes(points: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """(mean, directions (2, d), share of variance (2,)) of the two leading principal components.

    The sign of each direction makes its largest entry positive, so that figures do not flip between runs.
    """
    mean = points.mean(axis=0)
    centred = points - mean
    scale = np.abs(centred).max(initial=0.0)
    _, singular, directions = np.linalg.svd(centred / scale if scale > 0 else centred, full_matrices=False)
    total = float((singular**2).sum())
    shares = singular**2 / total if total > 0 else np.zeros_like(singular)
    d = points.shape[1]
    axes, share = np.zeros((2, d)), np.zeros(2)
    for k in range(min(2, len(directions))):
        lead = directions[k, np.argmax(np.abs(directions[k]))]
        axes[k] = directions[k] * (1.0 if lead >= 0 else -1.0)
        share[k] = shares[k]
    return mean, axes, share


def _grid(path: PathResult) -> tuple[FloatArray, list[Result]]:
    """lams in increasing order with their results."""
    order = np.argsort(path.lams, kind="stable")
    return np.asarray(path.lams, dtype=np.float64)[order], [path.results[int(i)] for i in order]


def _plain_log(axis: Any, low: float, high: float) -> None:
    """Ticks of a log axis as plain text (TeX takes ten times as long); 2 and 5 too where decades are few."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

    few = not high > 20.0 * low
    axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if few else (1.0,), numticks=8))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))


def log_axis(ax: Axes, lams: FloatArray) -> None:
    """A logarithmic x axis for ascending lams."""
    positive = lams[lams > 0]
    if len(positive) == 0:
        return
    if lams[0] > 0:
        ax.set_xscale("log")
        _plain_log(ax.xaxis, float(positive[0]), float(positive[-1]))
    else:  # zero has no place on a log axis: linear below the smallest positive value
        ax.set_xscale("symlog", linthresh=float(positive[0]))


def _mark_lam(ax: Axes, chosen: Result | None) -> None:
    if chosen is not None:
        lam = float(chosen.problem.lam)
        ax.axvline(lam, color=_ink(ax), linewidth=1.2, linestyle="--", label=f"chosen lam = {lam:.4g}")


def plot_paths(
    path: PathResult,
    feature: int | None = None,
    *,
    chosen: Result | None = None,
    feature_name: str | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Draw how every row of x moves with lam: lines that meet have been fused.

    Parameters
    ----------
    path : PathResult
    feature : int, optional
        Column of x on the vertical axis; None takes the first principal component of the data.
    chosen : Result, optional
        Marks its lam and colours the lines by its clusters.
    feature_name : str, optional
        Axis label.
    ax : matplotlib axes, optional

    Returns
    -------
    matplotlib axes

    Raises
    ------
    InvalidArgumentError
        `feature` is not a column of x.

    Notes
    -----
    At most 2000 lines are drawn, evenly spread over the rows; the title says so when there are more rows.
    """
    d = path.problem.n_features
    if feature is not None and not 0 <= feature < d:
        raise InvalidArgumentError(
            f"feature={feature} is not a column of x; give an index from 0 to {d - 1}, or None for the "
            "first principal component.",
            argument="feature",
            got=feature,
            wanted=f"0 to {d - 1}",
        )
    lams, results = _grid(path)
    if feature is None and d > 1:
        mean, axes, share = principal_axes(reference_points(path))
        heights = np.stack([(result.x - mean) @ axes[0] for result in results])
        name = feature_name or f"x, component 1 ({share[0]:.0%} of variance)"
    else:
        column = feature or 0
        heights = np.stack([result.x[:, column] for result in results])
        name = feature_name or f"x, feature {column}"

    ax = new_axes(ax)
    n = heights.shape[1]
    shown = np.arange(n) if n <= _MAX_LINES else np.unique(np.linspace(0, n - 1, _MAX_LINES).astype(np.int64))
    labels = np.zeros(n, dtype=np.int64) if chosen is None else chosen.labels
    styles = cluster_styles(labels)
    from matplotlib.collections import LineCollection

    raster = heights[:, shown].size > _RASTER_POINTS
    opacity = 0.8 if len(shown) < 50 else 0.45
    for rank, number in enumerate([*styles, None]):
        rows = shown[
            [
                (int(labels[i]) == number) if number is not None else int(labels[i]) not in styles
                for i in shown
            ]
        ]
        if len(rows) == 0:
            continue
        color, text = (
            (QUIET, f"alone ({_rows(len(rows))})")
            if number is None
            else (styles[number][0], styles[number][2])
        )
        segments = np.stack([np.broadcast_to(lams, (len(rows), len(lams))), heights[:, rows].T], axis=-1)
        show_text = chosen is not None and (number is None or rank < _LEGEND_CLUSTERS)
        ax.add_collection(
            LineCollection(
                list(segments),
                colors=color,
                linewidths=0.9,
                alpha=opacity,
                zorder=2.0 - rank / (len(styles) + 1),
                rasterized=raster,
                label=text if show_text else "_nolegend_",
            )
        )
    ax.autoscale_view()
    log_axis(ax, lams)
    _mark_lam(ax, chosen)
    suffix = "" if len(shown) == n else f" ({len(shown)} of {n} rows drawn)"
    dress(ax, f"Solution path{suffix}", "lam", name)
    legend_below(ax)
    return ax


def reference_points(item: PathResult | Result) -> FloatArray:
    """The data; for losses without data points, x at the smallest lam."""
    points = _points(item.problem)
    if points is not None:
        return points
    return _finest(item).x


def _finest(item: PathResult | Result) -> Result:
    from fusionopt.path import PathResult

    return _grid(item)[1][0] if isinstance(item, PathResult) else item


def plot_projection(
    item: PathResult | Result,
    *,
    chosen: Result | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Draw the data in its two leading principal components, with clusters, centres and the centres' paths.

    Parameters
    ----------
    item : PathResult or Result
        For a path, thin lines show where each row of x goes as lam grows.
    chosen : Result, optional
        The clustering that is coloured; for a Result it is that result. None leaves a path uncoloured.
    ax : matplotlib axes, optional

    Returns
    -------
    matplotlib axes

    Notes
    -----
    For one feature the vertical axis is the row number. Losses without data points show x instead.
    """
    from fusionopt.path import PathResult

    results: list[Result] = []
    if isinstance(item, PathResult):
        results = _grid(item)[1]
    elif chosen is None:
        chosen = item
    points = reference_points(item)
    mean, axes, share = principal_axes(points)
    flat = points.shape[1] == 1

    def project(x: FloatArray, rows: IntArray) -> FloatArray:
        if flat:
            return np.column_stack([x[:, 0], rows.astype(np.float64)])
        return np.asarray((x - mean) @ axes.T, dtype=np.float64)

    ax = new_axes(ax, 4.9, 4.6)
    n = len(points)
    everyone = np.arange(n, dtype=np.int64)
    raster = n > _RASTER_ABOVE
    if len(results) > 1:
        from matplotlib.collections import LineCollection

        shown = everyone if n <= _MAX_LINES else np.unique(np.linspace(0, n - 1, _MAX_LINES).astype(np.int64))
        tracks = np.stack([project(result.x[shown], shown) for result in results], axis=1)
        ax.add_collection(
            LineCollection(
                list(tracks),
                colors=QUIET,
                linewidths=0.6,
                alpha=0.4,
                rasterized=tracks.size > 2 * _RASTER_POINTS,
            )
        )
    labels = np.zeros(n, dtype=np.int64) if chosen is None else chosen.labels
    styles = cluster_styles(labels) if chosen is not None else {0: (COLORS[0], "o", "rows")}
    placed = project(points, everyone)
    size = 26.0 if n <= 500 else 10.0
    alone = np.array([int(label) not in styles for label in labels])
    if alone.any():
        text = f"alone ({_rows(int(alone.sum()))})"
        ax.scatter(
            placed[alone, 0],
            placed[alone, 1],
            s=size,
            marker="x",
            linewidths=1.0,
            color=QUIET,
            label=text,
            rasterized=raster,
        )
    for rank, (number, (color, marker, text)) in enumerate(styles.items()):
        rows = labels == number
        ax.scatter(
            placed[rows, 0],
            placed[rows, 1],
            s=size,
            marker=marker,
            color=color,
            alpha=0.8,
            linewidths=0,
            label=text if rank < _LEGEND_CLUSTERS else "_nolegend_",
            rasterized=raster,
        )
    if chosen is not None and styles:
        numbers = np.array(list(styles), dtype=np.int64)
        centres = project(chosen.centers[numbers], numbers)
        if flat:
            centres[:, 1] = [float(np.mean(everyone[labels == number])) for number in numbers]
        ax.scatter(
            centres[:, 0],
            centres[:, 1],
            s=110,
            marker="X",
            color=_ink(ax),
            label="centres x of these",
            zorder=5,
            linewidths=0,
        )
    ax.autoscale_view()
    title = "Data and centres" if flat else "Data and centres, principal components"
    x_name = "x" if flat else f"component 1 ({share[0]:.0%} of variance)"
    y_name = "row" if flat else f"component 2 ({share[1]:.0%} of variance)"
    dress(ax, title, x_name, y_name)
    legend_below(ax)
    return ax


def plot_cluster_counts(path: PathResult, *, chosen: Result | None = None, ax: Axes | None = None) -> Axes:
    """Draw the number of clusters over lam, with the runs of one partition shaded.

    Parameters
    ----------
    path : PathResult
    chosen : Result, optional
        Its lam is marked, and the run it belongs to is shaded more strongly.
    ax : matplotlib axes, optional

    Returns
    -------
    matplotlib axes

    Notes
    -----
    A run is shaded when it has three grid points or more and at least two clusters that each hold 5 % of the
    rows.
    """
    lams, results = _grid(path)
    counts = np.array([result.n_clusters for result in results])
    large = np.array([n_large(result.cluster_sizes) for result in results])
    ax = new_axes(ax)
    starts = np.flatnonzero(np.r_[True, np.diff(counts) != 0])
    ends = np.r_[starts[1:] - 1, len(counts) - 1]
    for first, last in zip(starts, ends, strict=True):
        inside = chosen is not None and lams[first] <= chosen.problem.lam <= lams[last]
        if (last - first >= 2 and large[first] >= 2) or (inside and last > first):
            color = COLORS[1] if inside else COLORS[0]
            ax.axvspan(lams[first], lams[last], color=color, alpha=0.22 if inside else 0.10, linewidth=0)
    marker = "." if len(lams) < 200 else "None"
    ax.plot(lams, counts, drawstyle="steps-mid", color=COLORS[0], marker=marker, label="clusters")
    ax.plot(lams, large, drawstyle="steps-mid", color=COLORS[2], linestyle=":", linewidth=1.8,
            label="clusters of 5 % or more")  # fmt: skip
    log_axis(ax, lams)
    ax.set_yscale("symlog", linthresh=1.0)
    _whole_ticks(ax, int(counts.max()))
    _mark_lam(ax, chosen)
    dress(ax, "Number of clusters", "lam", "clusters")
    legend_below(ax)
    return ax


def _whole_ticks(ax: Axes, top: int) -> None:
    """Ticks 0, 1, 2, 5, 10, 20, ... as plain numbers, up to the largest count."""
    ticks = [0, *(k * 10**p for p in range(len(str(top)) + 1) for k in (1, 2, 5))]
    ticks = [tick for tick in ticks if tick <= max(top, 1)]
    ax.set_yticks(ticks, [str(tick) for tick in ticks])
    ax.set_yticks([], minor=True)
    ax.set_ylim(0, max(top, 1) * 1.25)


def plot_gap(result: Result, *, ax: Axes | None = None) -> Axes:
    """Draw the relative duality gap over time, against the tolerance that was asked for.

    Parameters
    ----------
    result : Result
        Its `trace` holds the gap at every check.
    ax : matplotlib axes, optional

    Returns
    -------
    matplotlib axes

    Notes
    -----
    The gap is divided by max(|P|, |D|) of the same check. Gaps of zero or below (rounding) cannot be drawn on
    a log axis; they are shown as triangles at the bottom.
    """
    trace = result.trace
    time = np.asarray(trace["time"], dtype=np.float64)
    size = np.fmax(np.abs(trace["objective"]), np.abs(trace["dual_objective"]))
    gap = np.divide(trace["gap"], size, out=np.zeros(len(time)), where=size > 0)
    ax = new_axes(ax)
    _draw_gaps(ax, time, gap, float(result.settings.eps_rel), line="-")
    dress(
        ax,
        f"Duality gap of the solve at lam = {float(result.problem.lam):.4g}",
        "seconds",
        "gap / |objective|",
    )
    legend_below(ax)
    return ax


def plot_gaps(path: PathResult, *, ax: Axes | None = None) -> Axes:
    """Draw the relative duality gap reached at every lam, against the tolerance that was asked for.

    Parameters
    ----------
    path : PathResult
    ax : matplotlib axes, optional

    Returns
    -------
    matplotlib axes

    Notes
    -----
    Zero (at the rounding level) cannot be drawn on a log axis: such gaps are triangles at the bottom.
    """
    lams, results = _grid(path)
    gaps = np.array([result.rel_gap for result in results], dtype=np.float64)
    ax = new_axes(ax)
    _draw_gaps(ax, lams, gaps, max(float(result.settings.eps_rel) for result in results), line="None")
    log_axis(ax, lams)
    dress(ax, "Certified relative gap at every lam", "lam", "gap / |objective|")
    legend_below(ax)
    return ax


def _draw_gaps(ax: Axes, x: FloatArray, gaps: FloatArray, tolerance: float, line: str) -> None:
    positive = np.isfinite(gaps) & (gaps > 0)
    floor = np.isfinite(gaps) & (gaps <= 0)
    met, missed = positive & (gaps <= tolerance), positive & (gaps > tolerance)
    if line == "-" and positive.any():
        ax.plot(
            x[positive], gaps[positive], color=COLORS[0], linewidth=1.2, marker="o", markersize=4, label="gap"
        )
    else:
        if met.any():
            ax.plot(x[met], gaps[met], "o", color=COLORS[0], markersize=4, label="within the tolerance")
        if missed.any():
            ax.plot(x[missed], gaps[missed], "s", color=COLORS[1], markersize=5, label="tolerance not met")
    lowest = [*gaps[positive], tolerance] if tolerance > 0 else list(gaps[positive])
    ax.set_yscale("log")
    bottom = 0.1 * float(min(lowest, default=1.0))
    _plain_log(ax.yaxis, bottom, float(max([*lowest, bottom])))
    if floor.any():
        ax.plot(x[floor], np.full(int(floor.sum()), bottom), "v", color=COLORS[2], markersize=4,
                label="zero, to rounding")  # fmt: skip
    if tolerance > 0:
        ax.axhline(
            tolerance, color=COLORS[1], linestyle="--", linewidth=1.4, label=f"tolerance {tolerance:.0e}"
        )


def plot_dendrogram(path: PathResult, *, chosen: Result | None = None, ax: Axes | None = None) -> Axes:
    """Draw the tree of merges: leaves are rows, a bar joins two clusters at the lam of their merge.

    Parameters
    ----------
    path : PathResult
        A hierarchy that reaches one cluster a component.
    chosen : Result, optional
        Marks its lam, and colours each of its clusters.
    ax : matplotlib axes, optional

    Returns
    -------
    matplotlib axes

    Raises
    ------
    InvalidArgumentError
        The path has no tree; the message says why.

    Notes
    -----
    Drawn without recursion, so that chains of thousands of merges are no trouble. Joins of components, which never
    merge, are left out. Merges at lam = 0 (equal rows) stand at the left of the smallest other merge.
    """
    from matplotlib.collections import LineCollection

    tree = path.linkage()
    n = path.problem.n_nodes
    across = _leaf_places(tree, n)
    finite = np.isfinite(tree[:, 2])
    heights = tree[finite, 2]
    positive = heights[heights > 0]
    floor = 0.5 * float(positive.min()) if len(positive) else 1.0
    level = np.full(n + len(tree), floor)
    level[n:] = np.where(finite, np.maximum(tree[:, 2], floor), np.nan)
    left, right = tree[finite, 0].astype(np.int64), tree[finite, 1].astype(np.int64)
    top = level[n:][finite]
    corners = np.stack(
        [
            np.column_stack([level[left], across[left]]),
            np.column_stack([top, across[left]]),
            np.column_stack([top, across[right]]),
            np.column_stack([level[right], across[right]]),
        ],
        axis=1,
    )
    ax = new_axes(ax)
    ink = _ink(ax)
    colors: Any = ink
    if chosen is not None:
        styles = cluster_styles(chosen.labels)
        names = _single_label(tree, n, chosen.labels)[n:][finite]
        colors = [styles[name][0] if name in styles else ink for name in names.tolist()]
    raster = len(corners) > _RASTER_ABOVE
    ax.add_collection(LineCollection(list(corners), colors=colors, linewidths=0.9, rasterized=raster))
    ax.set_ylim(n - 0.5, -0.5)  # the first leaf at the top, as in the heat map
    if len(positive):
        ax.set_xlim(floor, 1.1 * float(positive.max()))
        ax.set_xscale("log")
        _plain_log(ax.xaxis, floor, float(positive.max()))
    ax.set_yticks([])
    _mark_lam(ax, chosen)
    dress(ax, "Tree of merges", "lam", f"{_rows(n)}, in the order of the tree")
    legend_below(ax)
    return ax


def plot_heat_map(
    path: PathResult,
    *,
    chosen: Result | None = None,
    column_names: Sequence[str] | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Draw the data as a heat map, its rows in the order of the tree (of the chosen clusters where there is none).

    Parameters
    ----------
    path : PathResult
    chosen : Result, optional
        A bar at the left shows its clusters.
    column_names : sequence of str, optional
    ax : matplotlib axes, optional

    Returns
    -------
    matplotlib axes

    Notes
    -----
    Each column is shown in units of its own standard deviation, cut at 3. Losses without data points show x at the
    smallest lam. Missing cells stay blank.
    """
    points = reference_points(path)
    order, sorted_by = _row_order(path, chosen)
    centred = points - np.nanmean(points, axis=0)
    spread = np.sqrt(np.nanmean(np.square(centred), axis=0))
    scaled = centred / np.where(spread > 0, spread, 1.0)
    n, d = points.shape
    ax = new_axes(ax, 4.9, 4.6)
    image = ax.imshow(
        np.clip(scaled[order], -3, 3), aspect="auto", cmap="PuOr_r", vmin=-3, vmax=3, interpolation="nearest"
    )
    if chosen is not None:
        styles = cluster_styles(chosen.labels)
        labels = chosen.labels[order]
        for first, last in _runs(labels):
            color = styles[int(labels[first])][0] if int(labels[first]) in styles else QUIET
            ax.add_patch(_bar(-0.5 - 0.06 * d, first - 0.5, 0.04 * d, last - first + 1, color))
        ax.set_xlim(-0.5 - 0.08 * d, d - 0.5)
    dress(ax, f"Data, rows in the order of {sorted_by}", "column", _rows(n))
    ax.grid(False)
    ax.set_yticks([])
    if column_names is not None and d <= 12:
        ax.set_xticks(range(d), [str(name) for name in column_names], rotation=45, ha="right")
    bar = ax.figure.colorbar(image, ax=ax, shrink=0.6, pad=0.02)
    bar.ax.tick_params(labelsize=9.5, colors=_ink(ax))
    bar.set_label("standard deviations", color=_ink(ax), fontsize=9.5)
    return ax


def _bar(x: float, y: float, width: float, height: float, color: str) -> Any:
    from matplotlib.patches import Rectangle

    return Rectangle((x, y), width, height, color=color, linewidth=0)


def _leaf_places(tree: FloatArray, n: int) -> FloatArray:
    """Place of every node of a linkage across the tree: leaves in order, each merge between its two parts."""
    places = np.zeros(n + len(tree))
    places[_leaves(tree, n)] = np.arange(n)
    for k, (left, right) in enumerate(tree[:, :2].astype(np.int64)):
        places[n + k] = 0.5 * (places[left] + places[right])
    return places


def _leaves(tree: FloatArray, n: int) -> IntArray:
    """Leaves of a linkage from one side to the other; an explicit stack, for trees may be n deep."""
    pairs = tree[:, :2].astype(np.int64)
    out: list[int] = []
    stack = [n + len(tree) - 1]
    while stack:
        node = stack.pop()
        if node < n:
            out.append(node)
        else:
            stack += [int(pairs[node - n, 1]), int(pairs[node - n, 0])]
    return np.array(out, dtype=np.int64)


def _single_label(tree: FloatArray, n: int, labels: IntArray) -> IntArray:
    """Label of the leaves below each node of a linkage; -1 where they differ."""
    out = np.concatenate([labels, np.zeros(len(tree), dtype=np.int64)])
    for k, (left, right) in enumerate(tree[:, :2].astype(np.int64)):
        out[n + k] = out[left] if out[left] == out[right] else -1
    return out


def _row_order(path: PathResult, chosen: Result | None) -> tuple[IntArray, str]:
    try:
        return _leaves(path.linkage(), path.problem.n_nodes), "the tree"
    except InvalidArgumentError:
        if chosen is None:
            return np.arange(path.problem.n_nodes), "the table"
        return np.argsort(chosen.labels, kind="stable"), "the clusters"


def _runs(labels: IntArray) -> list[tuple[int, int]]:
    starts = np.flatnonzero(np.r_[True, labels[1:] != labels[:-1]])
    ends = np.r_[starts[1:] - 1, len(labels) - 1]
    return list(zip(starts.tolist(), ends.tolist(), strict=True))
