"""Merges and splits along a path, and the tree they make where there is one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fusionopt import _checks
from fusionopt.graph import Graph
from fusionopt.problem import FusionProblem

if TYPE_CHECKING:
    from fusionopt.result import Result

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

KINDS = ("merge", "split")
WAYS = ("grid", "closed form", "flow", "bisection")


@dataclass(frozen=True)
class Change:
    """One cluster that was made of several, or broken into several.

    Attributes
    ----------
    kind : "merge" or "split"
    members : int64 array
        Nodes of the cluster that was made (merge) or broken (split), ascending.
    """

    kind: str
    members: IntArray


@dataclass(frozen=True)
class Event:
    """A change of the partition between two neighbouring lams.

    Attributes
    ----------
    kind : "merge" or "split"
    lam : float
        Where it happens: the value that was located, else the upper end of the bracket.
    bracket : (float, float)
        The change lies in (low, high].
    members : int64 array
        Nodes of the cluster that was made (merge) or broken (split).
    how : "grid", "closed form", "flow" or "bisection"
        What the bracket rests on; see `locate`.
    certified : bool
        The partitions at both ends of the bracket are proven by their duals (see `Result.proven`).
    """

    kind: str
    lam: float
    bracket: tuple[float, float]
    members: IntArray
    how: str = "grid"
    certified: bool = False

    @property
    def located(self) -> bool:
        """Whether lam is more than an end of a bracket."""
        return self.how in ("closed form", "flow")

    def at(self, lam: float) -> Event:
        """The same event at another lam of its bracket."""
        return replace(self, lam=lam)


def changes(before: IntArray, after: IntArray) -> list[Change]:
    """Merges, then splits, between two partitions."""
    return [
        Change(kind, members)
        for kind, whole, parts in (("merge", after, before), ("split", before, after))
        for members in _composed(whole, parts)
    ]


def find_events(
    lams: FloatArray,
    labels: Sequence[IntArray],
    start: IntArray,
    how: str = "grid",
    certified: Sequence[bool] | None = None,
) -> list[Event]:
    """Events in ascending lam; `start` is the partition at lam = 0, `certified` says which partitions are proven."""
    out: list[Event] = []
    low, before, sure_before = 0.0, start, True
    for k in np.argsort(lams, kind="stable"):
        after, high = labels[int(k)], float(lams[int(k)])
        sure = certified is not None and certified[int(k)]
        out += [
            Event(change.kind, high, (low, high), change.members, how, sure and sure_before)
            for change in changes(before, after)
        ]
        low, before, sure_before = high, after, sure
    return out


def _composed(whole: IntArray, parts: IntArray) -> list[IntArray]:
    """Members of the clusters of `whole` that hold nodes of more than one cluster of `parts`."""
    if np.array_equal(whole, parts):
        return []
    order = np.argsort(whole, kind="stable")
    ordered, inner = whole[order], parts[order]
    starts = np.flatnonzero(np.r_[True, ordered[1:] != ordered[:-1]])
    ends = np.r_[starts[1:], len(order)]
    mixed = np.minimum.reduceat(inner, starts) != np.maximum.reduceat(inner, starts)
    return [order[first:last] for first, last in zip(starts[mixed], ends[mixed], strict=True)]


def refuse_linkage(
    problem: FusionProblem, events: list[Event], results: Sequence[Result], lams: FloatArray
) -> None:
    """Raise with the reason when a path has no tree."""
    splits = [event for event in events if event.kind == "split"]
    if splits:
        low, high = splits[0].bracket
        where = f"at lam {splits[0].lam:g}" if splits[0].located else f"between lam {low:g} and {high:g}"
        _checks.refuse(
            f"the path is no hierarchy: a cluster of {len(splits[0].members)} nodes splits {where}, so no tree "
            "describes it; use events instead.",
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
    for members in _composed(start, np.arange(n)):
        join(members, 0.0)
    for event in events:
        join(event.members, event.lam)
    if graph.n_components > 1:
        join(np.arange(n), np.inf)
    return np.array(rows, dtype=np.float64).reshape(-1, 4)


def pack_events(events: Sequence[Event]) -> dict[str, NDArray[Any]]:
    """Events as named arrays, for a file."""
    members = [event.members for event in events]
    return {
        "events.lam": np.array([event.lam for event in events], dtype=np.float64),
        "events.bracket": np.array([event.bracket for event in events], dtype=np.float64).reshape(-1, 2),
        "events.kind": np.array([KINDS.index(event.kind) for event in events], dtype=np.int8),
        "events.how": np.array([WAYS.index(event.how) for event in events], dtype=np.int8),
        "events.certified": np.array([event.certified for event in events], dtype=np.bool_),
        "events.offsets": np.cumsum([0, *map(len, members)]),
        "events.members": np.concatenate([np.empty(0, dtype=np.int64), *members]),
    }


def unpack_events(arrays: dict[str, NDArray[Any]]) -> list[Event] | None:
    """What `pack_events` packed; None where there is none."""
    if "events.lam" not in arrays:
        return None
    cuts = arrays["events.offsets"][1:-1]
    members = np.split(arrays["events.members"], cuts) if len(arrays["events.lam"]) else []
    return [
        Event(KINDS[kind], float(lam), (float(low), float(high)), inside, WAYS[how], bool(sure))
        for lam, (low, high), kind, how, sure, inside in zip(
            arrays["events.lam"],
            arrays["events.bracket"],
            arrays["events.kind"],
            arrays["events.how"],
            arrays["events.certified"],
            members,
            strict=True,
        )
    ]
