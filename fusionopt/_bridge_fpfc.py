"""FPFC's server and local work in the compiled core: arrays in, arrays out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fusionopt import _checks, _core
from fusionopt._bridge_losses import loss_kernel
from fusionopt._bridge_penalties import native_penalty
from fusionopt.losses._sampled import SampledLoss
from fusionopt.losses.base import NodeLoss
from fusionopt.problem import PairTerms
from fusionopt.settings import FpfcSettings

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class PairReport:
    """All pairs at the present models.

    Attributes
    ----------
    penalty : float
        sum w_ij g(x_i - x_j).
    magnitude : float
        sum w_ij lam ||x_i - x_j||, what the rounding of penalty and product scales with.
    product : float
        sum w_ij <v_ij, x_i - x_j>.
    residual, squares : float
        max ||x_i - x_j - theta_ij||, and sum w_ij^2 of its square.
    prox_squares : float
        ||theta - prox_g(theta + v)||^2 over ordered pairs, unit step: the ||G||^2 of Theorem 1.
    sums : float64 (n_nodes, n_features)
        sum_j w_ij v_ij.
    """

    penalty: float
    magnitude: float
    product: float
    residual: float
    squares: float
    prox_squares: float
    sums: FloatArray


@dataclass(frozen=True)
class PairStore:
    """How the pairs are kept.

    Attributes
    ----------
    kept, dropped, untouched : int
        Pairs with a vector, saturated pairs without one, pairs never touched.
    peak : int
        Most pairs with a vector at once.
    bytes : int
        Memory of the vectors.
    """

    kept: int
    dropped: int
    untouched: int
    peak: int
    bytes: int

    @property
    def share(self) -> float:
        """Share of the pairs that have a vector."""
        return self.kept / max(self.kept + self.dropped + self.untouched, 1)


class FpfcServer:
    """Models, pairs and zeta of one run.

    Raises
    ------
    InvalidTypeError
        A penalty that does not depend on the length of a difference only.
    MemoryLimitError
        Every pair kept would not fit the machine's memory, and saturation cannot be counted on.
    """

    def __init__(self, problem: PairTerms, settings: FpfcSettings, rho: float) -> None:
        graph, m, d = problem.graph, problem.n_nodes, problem.n_features
        single = settings.dtype == "float32"
        _checks.check_memory(
            "The pair vectors of FPFC",
            graph.n_edges * ((4.0 if single else 8.0) * d + 12),
            "use dtype='float32', a sparser graph, fewer nodes or a larger machine",
        )
        penalty = native_penalty(problem.penalty)
        options: dict[str, Any] = {
            "both_ends": settings.pairs == "both",
            "single": single,
            "n_threads": settings.n_threads,
        }
        if graph.is_complete:
            self._core = _core.Fpfc.complete(
                m, d, graph.weight, graph.node_weights, penalty, problem.lam, rho, **options
            )
        else:
            tail, head = (np.ascontiguousarray(end.astype(np.int32)) for end in graph.edges.T)
            self._core = _core.Fpfc.edges(
                m, d, tail, head, graph.weights, penalty, problem.lam, rho, **options
            )
        self._zero_weight = graph.is_complete and graph.n_edges < m * (m - 1) // 2
        self._problem = problem

    @property
    def x(self) -> FloatArray:
        return self._core.x

    @property
    def kappa(self) -> FloatArray:
        """kappa_i of the local problem, (n_nodes,); m w on a complete graph of weight w, where it is 1 at w = 1 / m."""
        return self._core.kappa

    def start(self, x: FloatArray) -> None:
        """From these models. Pairs of equal rows begin untouched; otherwise all are touched once, with v = 0 before."""
        self._core.start(np.ascontiguousarray(x))
        if (x != x[0]).any():
            self.update(np.arange(len(x)), x)

    def set_lam(self, lam: float) -> None:
        """Go on at another lam, models and pairs as they are."""
        self._core.set_lam(lam)

    def zeta(self, active: IntArray) -> FloatArray:
        """Row k is zeta_i of the k-th active node."""
        return self._core.zeta(active)

    def update(self, active: IntArray, fresh: FloatArray) -> None:
        """New models of the active nodes; the pairs that they touch."""
        self._core.update(active, np.ascontiguousarray(fresh))

    def report(self) -> PairReport:
        return PairReport(**self._core.report())

    @property
    def store(self) -> PairStore:
        return PairStore(**self._core.counts())

    def labels(self, nu: float) -> IntArray:
        """Components of {||theta_ij|| <= nu} among touched pairs."""
        return self._core.labels(nu)

    def snapshot(self) -> dict[str, NDArray[Any]]:
        """All that rounds change."""
        return dict(self._core.snapshot())

    def restore(self, arrays: dict[str, NDArray[Any]]) -> None:
        """Go on from a snapshot of a server of the same problem."""
        self._core.restore(**arrays)

    def duals(self) -> FloatArray:
        """w_ij v_ij in the order of `Graph.edges`."""
        return self._in_edge_order(self._core.duals())

    def thetas(self) -> FloatArray:
        """theta_ij in the order of `Graph.edges`."""
        return self._in_edge_order(self._core.thetas())

    def _in_edge_order(self, rows: FloatArray) -> FloatArray:
        if not self._zero_weight:
            return rows
        # Nodes of weight zero have pairs in the core and no edges.
        i, j = np.triu_indices(self._problem.n_nodes, 1)
        r = self._problem.graph.node_weights
        linked = (
            np.zeros(len(i), np.bool_)
            if r is None or self._problem.graph.weight == 0
            else (r[i] > 0) & (r[j] > 0)
        )
        return rows[linked]


class LocalSteps:
    """T steps of gradient descent on f_i(x) + modulus_i / 2 ||x - zeta_i||^2 for each active node.

    Parameters
    ----------
    loss : NodeLoss
    settings : FpfcSettings
        Its local_steps, batch_size and n_threads.
    rng : numpy Generator
        Draws the batches.
    """

    def __init__(self, loss: NodeLoss, settings: FpfcSettings, rng: np.random.Generator) -> None:
        self._loss = loss
        self._steps = settings.local_steps or 1
        self._batch = settings.batch_size
        self._rng = rng
        self._weights: FloatArray | None = None
        if self._batch is not None:
            if not isinstance(loss, SampledLoss):
                _checks.refuse_type(
                    f"batch_size={self._batch} needs a loss with samples; {type(loss).__name__} has none: give "
                    "batch_size=None.",
                    argument="batch_size",
                    got=type(loss).__name__,
                    wanted="a loss with samples",
                )
            self._weights = np.array(loss.sample_weight)
            self._offsets, self._plain = loss.offsets, loss.sample_weight
        self._kernel = loss_kernel(loss, settings.n_threads, weights=self._weights)

    def __call__(
        self, x: FloatArray, active: IntArray, zeta: FloatArray, modulus: FloatArray, alpha: FloatArray
    ) -> FloatArray:
        """New rows of the active nodes, (n_active, d); x has a row for every node."""
        if isinstance(self._kernel, _core.LossKernel) and self._weights is None:
            steps = np.full(len(active), self._steps, dtype=np.int64)
            return self._kernel.descend(x, active, zeta, modulus, alpha, steps)
        x = x.copy()
        for _ in range(self._steps):
            if self._weights is not None:
                self._draw(active)
            slope = self._kernel.gradient(x, active) + modulus[:, None] * (x[active] - zeta)
            x[active] -= alpha[:, None] * slope
        return np.asarray(x[active])

    def _draw(self, active: IntArray) -> None:
        """Weights that pick batch_size samples of each active node and leave the mean's scale as it is."""
        assert self._weights is not None and self._batch is not None
        counts = np.diff(self._offsets)[active]
        nodes = np.repeat(np.arange(len(active)), counts)
        starts = np.cumsum(counts) - counts
        rows = np.arange(len(nodes)) - starts[nodes] + self._offsets[active][nodes]
        # The ranks of random numbers within a node are a random permutation of its samples.
        order = np.lexsort((self._rng.random(len(nodes)), nodes))
        rank = np.empty(len(nodes), dtype=np.int64)
        rank[order] = np.arange(len(nodes)) - starts[nodes]
        taken = np.minimum(self._batch, counts)
        scale = np.where(rank < taken[nodes], (counts / taken)[nodes], 0.0)
        self._weights[rows] = self._plain[rows] * scale
