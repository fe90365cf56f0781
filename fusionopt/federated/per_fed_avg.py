"""A shared model that one gradient step makes personal (MAML)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fusionopt import _checks
from fusionopt.federated._fleet import Fleet
from fusionopt.federated._system import FloatArray, IntArray, State, System, Traffic


@dataclass
class PerFedAvgState(State):
    """shared : (dim,), the model before the personal step."""

    shared: FloatArray


@dataclass(frozen=True)
class PerFedAvg(System):
    """minimise over w the mean of f_k(w - alpha f_k'(w)); client k predicts with w - alpha f_k'(w).

    A local step: w' = w - alpha g(w; D_1), then w <- w - rate (I - alpha H(w; D_3)) g(w'; D_2). The server takes
    the plain mean over the active clients.

    Parameters
    ----------
    steps, rate
        As in `System`; rate is the paper's beta.
    alpha : float > 0
        Length of the personal step.
    variant : {"hessian_free", "first_order", "fine_tune"}
        H g by central differences of gradients along g, H dropped, or plain gradient steps at w (FedAvg with
        fine-tuning, which published benchmarks call Per-FedAvg).
    batch : int >= 1, or None
        Rows of D_1, D_2 and D_3, drawn afresh for each step; None is all rows for each.

    References
    ----------
    Fallah, Mokhtari and Ozdaglar, Personalized Federated Learning: A Meta-Learning Approach, algorithm 1.

    Examples
    --------
    >>> PerFedAvg().variant
    'hessian_free'
    """

    alpha: float = 0.1
    variant: str = "hessian_free"
    batch: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        _checks.as_positive_scalar("alpha", self.alpha)
        _checks.check_choice("variant", self.variant, ("hessian_free", "first_order", "fine_tune"))
        if self.batch is not None:
            _checks.as_count("batch", self.batch)

    def start(self, fleet: Fleet, rng: np.random.Generator) -> PerFedAvgState:
        """One random model."""
        w = fleet.first_models(rng, 1)
        state = PerFedAvgState(
            np.repeat(w, fleet.n_clients, axis=0), np.zeros(fleet.n_clients, dtype=np.int64), w[0]
        )
        self._personalise(state, fleet)
        return state

    def round(self, state: State, fleet: Fleet, active: IntArray, rng: np.random.Generator) -> Traffic:
        """Meta steps, plain mean, personal steps."""
        assert isinstance(state, PerFedAvgState)
        trained = np.empty((len(active), fleet.dim))
        for place, k in enumerate(active):
            w = state.shared
            for _ in range(self.steps):
                w = w - self.rate * self.meta_gradient(fleet, k, w, rng)
            trained[place] = w
        state.shared = trained.mean(axis=0)
        self._personalise(state, fleet)
        return Traffic(len(active) * fleet.dim, len(active) * fleet.dim)

    def meta_gradient(self, fleet: Fleet, k: int, w: FloatArray, rng: np.random.Generator) -> FloatArray:
        """(I - alpha H(w)) f_k'(w - alpha f_k'(w)) for "hessian_free", its parts for the others."""
        if self.variant == "fine_tune":
            return fleet.gradient(k, w, rows=self._rows(fleet, k, rng))
        ahead = w - self.alpha * fleet.gradient(k, w, rows=self._rows(fleet, k, rng))
        g = fleet.gradient(k, ahead, rows=self._rows(fleet, k, rng))
        length = float(np.linalg.norm(g))
        if self.variant == "first_order" or length == 0:
            return g
        return g - self.alpha * hessian_product(fleet, k, w, g, self._rows(fleet, k, rng))

    def _rows(self, fleet: Fleet, k: int, rng: np.random.Generator) -> IntArray | None:
        n = len(fleet.y[k])
        if self.batch is None or self.batch >= n:
            return None
        return rng.choice(n, self.batch, replace=False).astype(np.int64)

    def _personalise(self, state: PerFedAvgState, fleet: Fleet) -> None:
        for k in range(fleet.n_clients):
            state.models[k] = state.shared - self.alpha * fleet.gradient(k, state.shared)


def hessian_product(
    fleet: Fleet, k: int, w: FloatArray, g: FloatArray, rows: IntArray | None = None
) -> FloatArray:
    """H(w) g by [f'(w + t g) - f'(w - t g)] / (2 t).

    t g changes no margin z'W_c by more than 1e-4 or so: of the order at which rounding, eps / t, and the cubic
    term, t^2, are both small, whatever the lengths of g and of the rows.
    """
    x = fleet.x[k] if rows is None else fleet.x[k][rows]
    change = float(np.abs(x @ g.reshape(x.shape[1], -1)).max())
    if change == 0:
        return np.zeros_like(g)
    t = 1e-4 / change
    forward, back = fleet.gradient(k, w + t * g, rows=rows), fleet.gradient(k, w - t * g, rows=rows)
    result: FloatArray = (forward - back) / (2 * t)
    return result
