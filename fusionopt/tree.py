"""Merges and splits along a path, and the tree they make where there is one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from fusionopt import _checks
from fusionopt.graph import Graph
from fusionopt.problem import FusionProblem

if TYPE_CHECKING:
    from fusionopt.result import Result

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]


@dataclass(frozen=True)
class Event:
    """A change of the partition between two neighbouring lams.

    Attributes
    ----------
    kind : "merge" or "split"
    lam : float
        Upper end of the bracket.
    bracket : (float, float)
        The change lies in (low, high].
    members : int64 array
        Nodes of the cluster that was made (merge) or broken (split).
    """

    kind: str
    lam: float
    bracket: tuple[float, float]
    members: IntArray


def find_events(lams: FloatArray, labels: Sequence[IntArray], start: IntArray) -> list[Event]:
    """Events in ascending lam; `start` is the partition at lam = 0."""
    out: list[Event] = []
    low, before = 0.0, start
    for k in np.argsort(lams, kind="stable"):
        after, high = labels[int(k)], float(lams[int(k)])
        if not np.array_equal(before, after):
            for kind, whole, parts in (("merge", after, before), ("split", before, after)):
                for c in _composed(whole, parts):
                    out.append(Event(kind, high, (low, high), np.flatnonzero(whole == c)))
        low, before = high, after
    return out


def _composed(whole: IntArray, parts: IntArray) -> IntArray:
    """Clusters of `whole` that hold nodes of more than one cluster of `parts`."""
    pairs = np.unique(np.stack([whole, parts], axis=1), axis=0)
    found, counts = np.unique(pairs[:, 0], return_counts=True)
    return found[counts > 1]


def refuse_linkage(
    problem: FusionProblem, events: list[Event], results: Sequence[Result], lams: FloatArray
) -> None:
    """Raise with the reason when a path has no tree."""
    splits = [event for event in events if event.kind == "split"]
    if splits:
        low, high = splits[0].bracket
        _checks.refuse(
            f"the path is no hierarchy: a cluster of {len(splits[0].members)} nodes splits between lam {low:g} and "
            f"{high:g}, so no tree describes it; use events instead.",
            argument="linkage",
            got=f"{len(splits)} splits",
            wanted="a path without splits",
        )
    top = results[int(np.argmax(lams))]
    if top.n_clusters > problem.graph.n_components:
        _checks.refuse(
            f"the path ends at lam {float(lams.max()):g} with {top.n_clusters} clusters for "
            f"{problem.graph.n_components} component(s), so the tree has no top; extend it to lambda_max.",
            argument="linkage",
            got=top.n_clusters,
            wanted=f"{problem.graph.n_components} clusters at the largest lam",
        )


def linkage_of(graph: Graph, events: list[Event], n: int, start: IntArray) -> FloatArray:
    """Binary merges for SciPy: rows (cluster a, cluster b, height, size)."""
    rows: list[tuple[float, float, float, float]] = []
    node = np.arange(n)  # SciPy's number of the cluster that each node is in
    size = np.ones(2 * n - 1)

    def join(members: IntArray, height: float) -> None:
        present = np.unique(node[members])
        current = int(present[0])
        for other in (int(c) for c in present[1:]):
            made = n + len(rows)
            size[made] = size[current] + size[other]
            rows.append((min(current, other), max(current, other), height, size[made]))
            current = made
        # Only the last number is ever looked up again.
        node[members] = current

    # Nodes that already coincide at lam = 0 merge at height 0.
    for c in range(int(start.max()) + 1):
        members = np.flatnonzero(start == c)
        if len(members) > 1:
            join(members, 0.0)
    for event in events:
        join(event.members, event.lam)
    if graph.n_components > 1:
        join(np.arange(n), np.inf)
    return np.array(rows, dtype=np.float64).reshape(-1, 4)
