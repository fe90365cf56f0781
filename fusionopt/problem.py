"""The problem: losses on the nodes, a penalty on the pairs, one scale for lam."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fusionopt import _checks
from fusionopt.estimate import Estimate, estimate
from fusionopt.graph import Graph
from fusionopt.losses.base import NodeLoss
from fusionopt.penalties.base import Penalty
from fusionopt.penalties.l2_norm import L2Norm
from fusionopt.settings import AdmmSettings, Settings

FloatArray = NDArray[np.float64]

_BLOCK_NUMBERS = 2**20
"""Most numbers (8 MiB) of pair differences that are held at once."""


class PairTerms(Protocol):
    """What couples the nodes of a problem, whatever their losses."""

    @property
    def graph(self) -> Graph: ...
    @property
    def penalty(self) -> Penalty: ...
    @property
    def lam(self) -> float: ...
    @property
    def n_nodes(self) -> int: ...
    @property
    def n_features(self) -> int: ...


@dataclass(frozen=True, init=False, eq=False, repr=False)
class FusionProblem:
    """minimise over x:  F(x) = sum_i f_i(x_i) + sum_{(i,j) in E, i<j} w_ij g(x_i - x_j; lam).

    Each unordered pair counts once, f_i is as given (no 1/N): this is the canonical scale of lam; `scaling`
    converts others.

    Parameters
    ----------
    loss : NodeLoss
        The f_i.
    graph : Graph or None
        E and w; None is the complete graph with weight 1.
    penalty : Penalty or None
        g; None is `L2Norm`.
    lam : float >= 0
        Regularisation weight.

    Raises
    ------
    InvalidTypeError
        An argument of another class.
    InvalidArgumentError
        The graph does not have one node for each node of the loss; a negative or non-finite lam.

    Examples
    --------
    >>> from fusionopt import SquaredDistance
    >>> problem = FusionProblem(SquaredDistance([0.0, 2.0]), lam=0.5)
    >>> problem.objective([0.5, 1.5])
    0.75
    """

    loss: NodeLoss
    graph: Graph
    penalty: Penalty
    lam: float

    def __init__(
        self, loss: NodeLoss, graph: Graph | None = None, penalty: Penalty | None = None, lam: float = 0.0
    ) -> None:
        _checks.check_instance("loss", loss, NodeLoss, "for instance SquaredDistance(points)")
        chosen_graph = Graph.complete(loss.n_nodes) if graph is None else graph
        _checks.check_instance(
            "graph", chosen_graph, Graph, "for instance Graph.knn(points), or None for all pairs"
        )
        chosen_penalty = L2Norm() if penalty is None else penalty
        _checks.check_instance("penalty", chosen_penalty, Penalty, "for instance L2Norm(), or None for that")
        if chosen_graph.n_nodes != loss.n_nodes:
            _checks.refuse(
                f"graph has {chosen_graph.n_nodes} nodes and loss has {loss.n_nodes}; build both from the "
                "same rows.",
                argument="graph",
                got=chosen_graph.n_nodes,
                wanted=f"{loss.n_nodes} nodes",
            )
        for name, value in (
            ("loss", loss),
            ("graph", chosen_graph),
            ("penalty", chosen_penalty),
            ("lam", _checks.check_lam(lam)),
        ):
            object.__setattr__(self, name, value)

    @property
    def n_nodes(self) -> int:
        """Number of rows of x."""
        return self.loss.n_nodes

    @property
    def n_features(self) -> int:
        """Number of columns of x."""
        return self.loss.n_features

    def with_lam(self, lam: float) -> FusionProblem:
        """The same problem at another lam; loss, graph and penalty are shared."""
        return replace(self, lam=lam)

    def objective(self, x: ArrayLike) -> float:
        """F(x).

        Parameters
        ----------
        x : array-like (n_nodes, n_features)

        Returns
        -------
        float

        Raises
        ------
        InvalidArgumentError
            Wrong shape, NaN or Inf.
        """
        return self.loss_value(x) + self.penalty_value(x)

    def loss_value(self, x: ArrayLike) -> float:
        """sum_i f_i(x_i). Arguments as in `objective`."""
        return self.loss.value(x)

    def penalty_value(self, x: ArrayLike) -> float:
        """sum of w_ij g(x_i - x_j; lam). Arguments as in `objective`.

        Notes
        -----
        O(E d) time; pair differences are formed in blocks of 8 MiB, also for a complete graph.
        """
        points = _checks.as_point("x", x, (self.n_nodes, self.n_features))
        if self.lam == 0 or self.graph.n_edges == 0:
            return 0.0
        return self._complete_penalty(points) if self.graph.is_complete else self._edge_penalty(points)

    def _edge_penalty(self, points: FloatArray) -> float:
        edges, weights = self.graph.edges, self.graph.weights
        step = max(1, _BLOCK_NUMBERS // self.n_features)
        sums = []
        for start in range(0, len(edges), step):
            block = edges[start : start + step]
            values = self.penalty.value_vector(points[block[:, 0]] - points[block[:, 1]], self.lam)
            sums.append(float(weights[start : start + step] @ values))
        return math.fsum(sums)

    def _complete_penalty(self, points: FloatArray) -> float:
        # Rows [i, i + rows) against columns [j, j + columns) of the upper triangle; blocks on the diagonal
        # count half, without the pairs of a node with itself.
        graph, m = self.graph, self.n_nodes
        side = max(1, math.isqrt(_BLOCK_NUMBERS // self.n_features))
        r = np.ones(m) if graph.node_weights is None else graph.node_weights
        at_zero = float(self.penalty.value_vector(np.zeros(self.n_features), self.lam))
        sums = []
        for i in range(0, m, side):
            rows = points[i : i + side, None, :]
            for j in range(i, m, side):
                values = self.penalty.value_vector(rows - points[None, j : j + side, :], self.lam)
                total = float(r[i : i + side] @ values @ r[j : j + side])
                sums.append(
                    (total - at_zero * float(r[i : i + side] @ r[i : i + side])) / 2 if i == j else total
                )
        return graph.weight * math.fsum(sums)

    def estimate(self, settings: Settings | None = None) -> Estimate:
        """Memory and time of a solve, before it starts; nothing is built.

        Parameters
        ----------
        settings : Settings or None
            Its n_threads and rho matter; None takes the defaults.

        Returns
        -------
        Estimate

        Examples
        --------
        >>> from fusionopt import FusionProblem, SquaredDistance
        >>> FusionProblem(SquaredDistance([0.0, 2.0, 5.0]), lam=0.1).estimate().method
        'ADMM on stored pairs'
        """
        chosen = AdmmSettings() if settings is None else settings
        _checks.check_instance("settings", chosen, Settings, "for instance AdmmSettings(), or None")
        return estimate(self, chosen)

    def __repr__(self) -> str:
        return f"FusionProblem({self.loss!r}, {self.graph!r}, {self.penalty!r}, lam={self.lam:g})"
