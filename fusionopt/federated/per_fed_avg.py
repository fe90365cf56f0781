"""A shared model that one gradient step makes personal (MAML)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fusionopt import _checks
from fusionopt.federated._fleet import Fleet, Rows
from fusionopt.federated._system import FloatArray, IntArray, State, System


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
    steps, rate, batch, epochs, decay
        As in `System`; rate is the paper's beta, and batch the rows of D_1, D_2 and D_3, drawn afresh for each step.
    alpha : float > 0
        Length of the personal step.
    variant : {"hessian_free", "first_order", "fine_tune"}
        H g by central differences of gradients along g, H dropped, or plain gradient steps at w (FedAvg with
        fine-tuning, which published benchmarks call Per-FedAvg).

    References
    ----------
    Fallah, Mokhtari and Ozdaglar, Personalized Federated Learning: A Meta-Learning Approach, algorithm 1.

    Examples
    --------
    >>> PerFedAvg().variant
    'hessian_free'
    """

    state_type = PerFedAvgState

    alpha: float = 0.1
    variant: str = "hessian_free"

    def __post_init__(self) -> None:
        super().__post_init__()
        _checks.as_positive_scalar("alpha", self.alpha)
        _checks.check_choice("variant", self.variant, ("hessian_free", "first_order", "fine_tune"))

    def start(self, fleet: Fleet, rng: np.random.Generator) -> PerFedAvgState:
        """One random model."""
        w = fleet.first_models(rng, 1)
        state = PerFedAvgState(
            np.repeat(w, fleet.n_clients, axis=0), np.zeros(fleet.n_clients, dtype=np.int64), w[0]
        )
        self._personalise(state, fleet)
        return state

    def round(self, state: State, fleet: Fleet, active: IntArray, rng: np.random.Generator) -> None:
        """Meta steps, plain mean, personal steps."""
        assert isinstance(state, PerFedAvgState)
        w = np.repeat(state.shared[None], len(active), axis=0)
        if self.variant == "fine_tune":
            w = fleet.descend(active, w, self.work, rng)
        else:
            steps = fleet.steps(active, self.work)
            for step in range(int(steps.max())):
                busy = np.flatnonzero(steps > step)
                w[busy] -= self.rate * self.meta_gradients(fleet, active[busy], w[busy], rng)
        state.shared = w.mean(axis=0)
        self._personalise(state, fleet)

    def meta_gradients(
        self, fleet: Fleet, clients: IntArray, w: FloatArray, rng: np.random.Generator
    ) -> FloatArray:
        """(I - alpha H(w)) f_k'(w - alpha f_k'(w)) for "hessian_free", without H for "first_order"; a row a client."""

        def rows() -> Rows:
            return fleet.draw(clients, self.batch, rng)

        g = fleet.gradients(clients, w - self.alpha * fleet.gradients(clients, w, rows=rows()), rows=rows())
        if self.variant == "first_order":
            return g
        return g - self.alpha * hessian_products(fleet, clients, w, g, rows())

    def _personalise(self, state: PerFedAvgState, fleet: Fleet) -> None:
        w = np.repeat(state.shared[None], fleet.n_clients, axis=0)
        state.models = w - self.alpha * fleet.gradients(np.arange(fleet.n_clients), w)


def hessian_products(
    fleet: Fleet, clients: IntArray, w: FloatArray, g: FloatArray, rows: Rows = None
) -> FloatArray:
    """H_k(w_k) g_k by [f'(w + t g) - f'(w - t g)] / (2 t), a row a client.

    t g changes no score by more than 1e-4 or so: of the order at which rounding, eps / t, and the cubic
    term, t^2, are both small, whatever the lengths of g and of the rows.
    """
    change = fleet.largest_change(clients, w, g)
    t = np.divide(1e-4, change, out=np.zeros_like(change), where=change > 0)[:, None]
    forward, back = (fleet.gradients(clients, w + sign * t * g, rows=rows) for sign in (1, -1))
    result: FloatArray = np.divide(forward - back, 2 * t, out=np.zeros_like(g), where=t > 0)
    return result
