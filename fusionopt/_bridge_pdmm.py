"""PDMM in the compiled core: arrays in, arrays out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fusionopt import _checks, _core
from fusionopt.losses.base import EPS, QuadraticNodeLoss
from fusionopt.problem import PairTerms
from fusionopt.settings import PdmmSettings

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

_SKIP_PERIOD = 10


@dataclass(frozen=True)
class Messages:
    """Vectors of n_features numbers sent so far, as Armacki et al. count them below their equation (19).

    Attributes
    ----------
    up : int
        Primal blocks (x_i and z_ij) refreshed.
    down : int
        The same, broadcast, and the dual blocks refreshed.
    pairs, skipped : int
        Pairs refreshed, and pairs that were due but left out because they are fused.
    """

    up: int
    down: int
    pairs: int
    skipped: int


@dataclass(frozen=True, eq=False)
class EdgeBalance:
    """The edges' part of the duality gap at a point.

    Attributes
    ----------
    penalty, product : float
        sum lam w_ij ||x_i - x_j|| and sum <v_ij, x_i - x_j>.
    sums : float64 (n_nodes, n_features)
        sum_j v_ij.
    """

    penalty: float
    product: float
    sums: FloatArray


class PdmmEngine:
    """The state of one run; x is kept relative to a common shift.

    Parameters
    ----------
    problem : FusionProblem
        The l2 penalty.
    settings : PdmmSettings
    rho, eta : float
        Of the pairs; eta without the curvature of the Bregman function.
    shift : float64 (n_features,)
        Subtracted from every row of x inside.

    Raises
    ------
    MemoryLimitError
        The pairs would not fit the machine's memory.
    """

    def __init__(
        self, problem: PairTerms, settings: PdmmSettings, rho: float, eta: float, shift: FloatArray
    ) -> None:
        graph, m, d = problem.graph, problem.n_nodes, problem.n_features
        copies = 2 if settings.scheme == "literal" else 1
        _checks.check_memory("The pair vectors of PDMM", graph.n_edges * (24.0 * d * copies + 32))
        edges = graph.edges.astype(np.int32)
        curvature = 2.0 if settings.bregman == "squared" else 1.0
        eta_users = np.full(m, curvature * eta)
        if not graph.is_complete:
            eta_users += rho * np.bincount(edges.ravel(), minlength=m)
        seed = np.random.SeedSequence(settings.random_state).generate_state(1, np.uint64)[0]
        self._shift = shift
        self._core = _core.Pdmm(
            m,
            d,
            np.ascontiguousarray(edges[:, 0]),
            np.ascontiguousarray(edges[:, 1]),
            problem.lam * graph.weights,
            eta_users,
            scheme=settings.scheme,
            participation=settings.participation,
            rho=rho,
            eta=curvature * eta,
            tau=settings.tau,
            nu=settings.nu,
            seed=int(seed),
            skip_after=settings.skip_fused or 0,
            skip_period=_SKIP_PERIOD,
        )

    def use_quadratic(self, loss: QuadraticNodeLoss) -> None:
        """Take the exact x-step in the core, by eigen-factors of the H_i."""
        base = np.broadcast_to(self._shift, (loss.n_nodes, loss.n_features))
        linear = -loss.gradient(base)
        hessians = loss.hessians()
        if hessians.ndim == 1:
            self._core.set_quadratic(np.ascontiguousarray(hessians), None, linear)
            return
        values, vectors = np.linalg.eigh(hessians)
        floor = 8 * loss.n_features * EPS * np.maximum(values[:, -1:], 0.0)
        self._core.set_quadratic(np.where(values > floor, values, 0.0), np.ascontiguousarray(vectors), linear)

    def start(self, x: FloatArray) -> None:
        self._core.start(np.ascontiguousarray(x - self._shift))

    def stretch(self, factor: float) -> None:
        """Multiply rho and every eta, keeping x, z and the duals."""
        self._core.stretch(factor)

    def run(self, iterations: int) -> None:
        """Whole iterations with the x-step of `use_quadratic`."""
        self._core.run(iterations)

    def begin(self, users: IntArray | None = None) -> tuple[IntArray, FloatArray]:
        """Draw an iteration, or take it with these users (ascending, scheme "users"): its active users, and
        b (n_nodes, n_features), for whose rows they find x_i = argmin f_i(x) + modulus_i / 2 ||x||^2 - <b_i, x>."""
        active, pull = self._core.begin(users)
        return active, pull + self.modulus[:, None] * self._shift

    def end(self, x: FloatArray) -> None:
        """Give those x (other rows are not read) and refresh the pairs."""
        self._core.end(np.ascontiguousarray(x - self._shift))

    def snapshot(self) -> dict[str, NDArray[Any]]:
        """All that iterations change but the random draws."""
        return {name: np.asarray(value) for name, value in self._core.snapshot().items()}

    def restore(self, arrays: dict[str, NDArray[Any]]) -> None:
        """Go on from a snapshot of an engine of the same problem."""
        self._core.restore(**{**arrays, "n_iter": int(arrays["n_iter"])})

    @property
    def modulus(self) -> FloatArray:
        """rho deg_i + eta_i, (n_nodes,)."""
        return self._core.modulus

    @property
    def x(self) -> FloatArray:
        return np.asarray(self._core.x + self._shift)

    @property
    def n_iter(self) -> int:
        return self._core.n_iter

    @property
    def messages(self) -> Messages:
        return Messages(**self._core.counts)

    def balance(self, x: FloatArray) -> EdgeBalance:
        """At any x, with the duals mu clipped into their balls (antisymmetric part, for "literal")."""
        penalty, product, sums = self._core.balance(np.ascontiguousarray(x - self._shift))
        return EdgeBalance(penalty, product, sums)

    def duals(self) -> FloatArray:
        """Those duals, in the order of `Graph.edges`."""
        return self._core.duals()

    def edge_state(self) -> tuple[FloatArray, NDArray[np.bool_]]:
        """||v_ij|| and whether z_ij = 0, edge by edge."""
        lengths, fused = self._core.state()
        return lengths, fused.astype(np.bool_)

    def primal_residual(self) -> float:
        """max ||x_i - x_j - z_ij||."""
        return self._core.largest_residual()

    def asymmetry(self) -> float:
        """max ||mu_ij + mu_ji||, 0 where pairs are units."""
        return self._core.asymmetry()
