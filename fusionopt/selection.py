"""Choosing one lam from a path, with a sentence that tells how it was chosen."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from fusionopt.path import PathResult
    from fusionopt.result import Result


MIN_SHARE = 0.05


@dataclass(frozen=True)
class Selection:
    """One result of a path and why it was taken.

    Attributes
    ----------
    result : Result
    criterion : "plateau" or "coarsest"
    sentence : str
    """

    result: Result
    criterion: str
    sentence: str


def coarse_hint(path: PathResult) -> str:
    """A sentence when even the smallest lam of a path leaves few clusters, else an empty string.

    A few far-off rows, tied to the rest by tiny weights, raise lambda_max and with it the whole grid.
    """
    finest = path.results[int(np.argmin(path.lams))]
    if path.lambda_max == 0 or finest.n_clusters > len(finest.labels) / 2:
        return ""
    return (
        f"Already at the smallest lam, {float(np.min(path.lams)):.4g}, the {len(finest.labels)} rows are in "
        f"{finest.n_clusters} clusters; a smaller lam_min_ratio shows finer clusterings."
    )


def select_plateau(path: PathResult) -> Selection:
    """The middle of the longest plateau, or the coarsest clustering when there is none.

    A plateau is a run of consecutive lams with the same number of clusters, at least two of which hold 5 % of
    the rows each; the longest in log lam is taken. When no clustering on the path has two such clusters, the
    path shows no groups, and the result at the largest lam is returned (one cluster for every component of
    the graph): splitting the rows further would claim structure that the path does not show.

    Parameters
    ----------
    path : PathResult

    Returns
    -------
    Selection
    """
    try:
        result = path.select("plateau")
    except ValueError:
        last = int(np.argmax(path.lams))
        result = path.results[last]
        finer = coarse_hint(path)
        return Selection(
            result,
            "coarsest",
            "No lam on the path gives two clusters that each hold 5 % of the rows, so the path shows no "
            f"groups: the coarsest clustering is taken, at the largest lam = {float(path.lams[last]):.4g}."
            + (f" {finer}" if finer else ""),
        )
    lams = np.asarray(path.lams, dtype=np.float64)
    n_large = [np.sum(np.asarray(r.cluster_sizes) >= MIN_SHARE * len(r.labels)) for r in path.results]
    kinds = [(r.n_clusters, k >= 2) for r, k in zip(path.results, n_large, strict=True)]
    order = [int(i) for i in np.argsort(lams, kind="stable")]
    place = next(k for k, i in enumerate(order) if path.results[i] is result)
    first = last = place
    while first > 0 and kinds[order[first - 1]] == kinds[order[place]]:
        first -= 1
    while last + 1 < len(order) and kinds[order[last + 1]] == kinds[order[place]]:
        last += 1
    low, high = float(lams[order[first]]), float(lams[order[last]])
    return Selection(
        result,
        "plateau",
        f"lam = {float(lams[order[place]]):.4g} was chosen by plateau: the longest run of lam, {low:.4g} to "
        f"{high:.4g}, over which the number of clusters stays the same and at least two of them hold 5 % of "
        "the rows each.",
    )
