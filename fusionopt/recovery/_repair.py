"""Flows from duals: repair to exact divergence, then clip and repair again until they are short enough."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fusionopt.recovery._coupling import tally
from fusionopt.recovery._nodes import BEYOND, EPS
from fusionopt.recovery._regions import Patch, Region

FloatArray = NDArray[np.float64]
BoolArray = NDArray[np.bool_]

_FIRST_SHRINK = 0.1
_CHECK_EVERY = 10
_ROUNDS = 400
_WORK = 2e9
"""Numbers touched by all rounds together, which bounds them on large clusters. Measured on random problems:
ten to a hundred rounds find a flow whose margin is 1e-4 of the balls.
"""
_ENOUGH = 1e-9
"""Relative room that ends the rounds."""


@dataclass(frozen=True, eq=False)
class FoundFlow:
    """A flow with the wanted divergence, in the units of the model."""

    flow: FloatArray
    ratios: FloatArray
    """Largest ||q_e|| / w_e of each cluster of the region."""
    potentials: FloatArray
    """(n, d): a witness of how short the flow can be at best; see `potential_bounds`."""


@BEYOND
def repaired(region: Region, demand: FloatArray, flow: FloatArray, lam: float) -> FoundFlow:
    """Repair `flow`, in place, to exact divergence; then rounds for the clusters where it is longer than lam.

    Rounds end where a flow is found, where a potential proves that there is none, or after some hundred.
    """
    region.correct(flow, demand - region.divergence(flow))
    found = FoundFlow(flow, region.cluster_max(region.ratios(flow)), np.zeros_like(demand))
    if lam == 0 or bool((found.ratios <= (1.0 - _ENOUGH) * lam).all()):
        return found
    left = int(np.clip(_WORK / flow.size, 50, _ROUNDS))
    chase = _Chase(region, demand, found, flow.copy(), lam)
    while left > 0:
        chase.advance(min(left, _CHECK_EVERY))
        left -= _CHECK_EVERY
        still = chase.check()
        if not still.any():
            break
        if isinstance(region, Patch) and 2 * np.count_nonzero(still) <= len(still):
            chase = chase.narrowed(still)
    chase.hand_over()
    return found


class _Chase:
    """Accelerated projections between shrunk balls ||q_e|| <= shrink lam w_e and the plane of exact
    divergence.

    With shrink < 1 finitely many rounds are enough where there is room. Where there is not, what every
    round cuts tends to a potential that proves it, and shrink moves up to half way between that bound and 1.
    """

    def __init__(
        self,
        region: Region,
        demand: FloatArray,
        found: FoundFlow,
        last: FloatArray,
        lam: float,
        shrink: FloatArray | None = None,
        lower: FloatArray | None = None,
        parent: tuple[_Chase, BoolArray] | None = None,
    ) -> None:
        self.region, self.demand, self.found, self.last, self.lam = region, demand, found, last, lam
        excess = np.clip(2.0 * (found.ratios / lam - 1.0), 1e-4, _FIRST_SHRINK)
        self.shrink: FloatArray = 1.0 - excess if shrink is None else shrink
        self.lower = np.zeros_like(found.ratios) if lower is None else lower
        self.parent = parent
        self.excess = demand
        self._restart()

    def _restart(self) -> None:
        self.ahead = self.last.copy()
        self.momentum, self.previous = 1.0, np.inf

    def advance(self, turns: int) -> None:
        """That many rounds, or fewer when every cluster is settled."""
        region = self.region
        for _ in range(turns):
            cut = region.clip(self.ahead, self.shrink * self.lam)
            self.excess = self.demand - region.divergence(self.ahead)
            region.correct(self.ahead, self.excess)
            self._keep_better(region.cluster_max(region.ratios(self.ahead)))
            if bool((self.found.ratios <= (1.0 - _ENOUGH) * self.lam).all()):
                return
            following = 0.5 * (1.0 + np.sqrt(1.0 + 4.0 * self.momentum * self.momentum))
            speed = (self.momentum - 1.0) / following if cut < self.previous else 0.0
            self.momentum = following if cut < self.previous else 1.0
            self.previous = cut
            # ahead is the new point: keep it as `last`, and move past it by `speed` times the step just made.
            np.subtract(self.ahead, self.last, out=self.last)
            self.last *= speed
            self.last += self.ahead
            self.last, self.ahead = self.ahead, self.last

    def _keep_better(self, ratios: FloatArray) -> None:
        better = ratios < self.found.ratios
        if isinstance(self.region, Patch):
            rows = better[self.region.cluster_of_edge]
            self.found.flow[rows] = self.ahead[rows]
        elif better[0]:
            self.found.flow[...] = self.ahead
        self.found.ratios[better] = ratios[better]

    def check(self) -> BoolArray:
        """Which clusters are neither settled nor proved impossible; moves their shrink where it is in the way."""
        self.found.potentials[...] = self.region.potentials(self.excess)
        bounds = potential_bounds(self.region, self.demand, self.found.potentials) / self.lam
        self.lower = np.maximum(self.lower, bounds)
        blocked = (self.lower >= self.shrink) & (self.shrink < 1.0)
        if bool(blocked.any()):
            self.shrink = np.where(blocked, np.minimum(0.5 * (1.0 + self.lower), 1.0), self.shrink)
            self._restart()
        open_clusters: BoolArray = (self.found.ratios > (1.0 - _ENOUGH) * self.lam) & (
            bounds <= 1.0 + 2.0 * _ENOUGH
        )
        return open_clusters

    def narrowed(self, still: BoolArray) -> _Chase:
        """The same chase for some of the clusters of a patch."""
        assert isinstance(self.region, Patch)
        nodes, edges = still[self.region.cluster_of_node], still[self.region.cluster_of_edge]
        found = FoundFlow(self.found.flow[edges], self.found.ratios[still], self.found.potentials[nodes])
        return _Chase(
            self.region.subset(still),
            self.demand[nodes],
            found,
            self.last[edges],
            self.lam,
            self.shrink[still],
            self.lower[still],
            (self, still),
        )

    def hand_over(self) -> None:
        """Write what was found back to the chase that this one was narrowed from, and on to the first."""
        if self.parent is None:
            return
        parent, still = self.parent
        assert isinstance(parent.region, Patch)
        parent.found.flow[still[parent.region.cluster_of_edge]] = self.found.flow
        parent.found.potentials[still[parent.region.cluster_of_node]] = self.found.potentials
        parent.found.ratios[still] = self.found.ratios
        parent.hand_over()


def potential_bounds(
    region: Region, demand: FloatArray, potentials: FloatArray, doubt: FloatArray | None = None
) -> FloatArray:
    """Lower bounds on max_e ||q_e|| / w_e in each cluster, for every demand within `doubt` (n,) of the
    given one.

    Weak duality: <demand, p> = sum_e <q_e, p_i - p_j> <= max_e (||q_e|| / w_e) * sum_e w_e ||p_i - p_j||.
    """
    gains = np.einsum("ia,ia->i", demand, potentials)
    if doubt is not None:
        lengths = np.sqrt(np.einsum("ia,ia->i", potentials, potentials))
        n_terms = len(gains) + demand.shape[1]
        doubts = (doubt + n_terms * EPS * np.sqrt(np.einsum("ia,ia->i", demand, demand))) * lengths
    else:
        doubts = np.zeros_like(gains)
    if isinstance(region, Patch):
        n = len(region.clusters)
        gain = tally(region.cluster_of_node, gains, n)
        loss = tally(region.cluster_of_node, doubts, n)
        length = tally(region.cluster_of_edge, region.edge_lengths(potentials), n)
    else:
        gain, loss = np.array([gains.sum()]), np.array([doubts.sum()])
        length = np.array([region.length(potentials)])
    bounds: FloatArray = np.divide(np.abs(gain) - loss, length, out=np.zeros_like(gain), where=length > 0)
    return np.maximum(bounds, 0.0)
