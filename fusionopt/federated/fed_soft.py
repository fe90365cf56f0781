"""Soft clustering with proximal local models."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fusionopt import _checks
from fusionopt.federated._fleet import Fleet, Objective
from fusionopt.federated._system import FloatArray, IntArray, State, System, Traffic


@dataclass
class FedSoftState(State):
    """centres : (n_clusters, dim); u : (n_clients, n_clusters), importance; draws : clients of each centre;
    touched : (n_clients,), whether a client has trained; age : rounds done.
    """

    centres: FloatArray
    u: FloatArray
    draws: list[IntArray]
    touched: FloatArray
    age: int


@dataclass(frozen=True)
class FedSoft(System):
    """Centres c_s and a local model for each client, w_k = argmin f_k(w) + lam/2 sum_s u_ks ||w - c_s||^2.

    u_ks = max(sigma, share of k's samples for which c_s has the smallest loss), estimated every `interval` rounds.
    Centre s draws clients with chances v_sk = u_ks n_k / sum over all clients, and becomes the mean of their w_k;
    with full participation c_s = sum_k v_sk w_k.

    Parameters
    ----------
    steps, rate
        As in `System`.
    n_clusters : int >= 1
    lam : float >= 0
    interval : int >= 1
        The paper's tau.
    sigma : float, 0 < sigma < 1
    replacement : bool
        Draw with replacement, for which the mean is unbiased; False is the published code.
    ridge : float >= 0
        mu/2 ||w||^2 is added to f_k.

    Notes
    -----
    The penalty is lam U/2 ||w - c||^2 with U = sum_s u_ks and c = sum_s u_ks c_s / U, up to a constant: O(dim)
    work, and the factor U that the printed gradient drops when the u do not add up to one. Chances are over all
    clients, not over those drawn. A client that has never trained predicts with, and starts from, its c. With f_k
    mu-strongly convex and exact solves, a round with full participation and u fixed brings two sets of centres
    together by the factor lam U / (lam U + mu) or better. The label of a client is its largest u.

    References
    ----------
    Ruan and Joe-Wong, FedSoft, algorithm 1, equations (5) and (6).

    Examples
    --------
    >>> FedSoft().lam
    0.1
    """

    state_type = FedSoftState

    n_clusters: int = 4
    lam: float = 0.1
    interval: int = 2
    sigma: float = 1e-4
    replacement: bool = True
    ridge: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        _checks.as_count("n_clusters", self.n_clusters)
        _checks.as_nonnegative_scalar("lam", self.lam)
        _checks.as_count("interval", self.interval)
        _checks.as_scalar_between("sigma", self.sigma, 0.0, 1.0, "it is the least importance")
        _checks.as_flag("replacement", self.replacement)
        _checks.as_nonnegative_scalar("ridge", self.ridge)

    def start(self, fleet: Fleet, rng: np.random.Generator) -> FedSoftState:
        """Random centres."""
        m = fleet.n_clients
        centres = fleet.first_models(rng, self.n_clusters)
        u = importance(fleet, centres, self.sigma)
        return FedSoftState(anchors(u, centres), u.argmax(axis=1), centres, u, [], np.zeros(m), 0)

    def sample(self, state: State, fleet: Fleet, count: int, rng: np.random.Generator) -> IntArray:
        """The clients that any centre drew, `count` draws for each; all clients when `count` is their number."""
        assert isinstance(state, FedSoftState)
        everyone = np.arange(fleet.n_clients)
        if count == fleet.n_clients:
            state.draws = []
            return everyone
        state.draws = [
            rng.choice(fleet.n_clients, count, replace=self.replacement, p=v)
            for v in self.chances(state, fleet)
        ]
        return np.unique(np.concatenate(state.draws)).astype(np.int64)

    def chances(self, state: FedSoftState, fleet: Fleet) -> FloatArray:
        """v, (n_clusters, n_clients), rows that add up to one."""
        v = (state.u * fleet.sizes[:, None]).T
        result: FloatArray = v / v.sum(axis=1, keepdims=True)
        return result

    def round(self, state: State, fleet: Fleet, active: IntArray, rng: np.random.Generator) -> None:
        """Proximal local work, means of the drawn, and importance when it is due."""
        assert isinstance(state, FedSoftState)
        aims, total = anchors(state.u, state.centres), state.u.sum(axis=1)
        begin = np.where(state.touched[active, None] > 0, state.models[active], aims[active])
        objective = Objective(ridge=self.ridge, pull=self.lam * total[active], towards=aims[active])
        state.models[active] = fleet.descend(active, begin, self.work, rng, objective)
        state.touched[active] = 1
        if state.draws:
            for s, drawn in enumerate(state.draws):
                answered = drawn[np.isin(drawn, active)]
                if len(answered):
                    state.centres[s] = state.models[answered].mean(axis=0)
        else:
            v = self.chances(state, fleet)[:, active]
            state.centres = v / v.sum(axis=1, keepdims=True) @ state.models[active]
        state.age += 1
        if state.age % self.interval == 0:
            state.u = importance(fleet, state.centres, self.sigma)
            state.labels = state.u.argmax(axis=1)
        fresh = state.touched == 0
        state.models[fresh] = anchors(state.u, state.centres)[fresh]

    def traffic(self, state: State, fleet: Fleet) -> Traffic:
        """Each client's weighted centre down, its model up; when importance is due, all centres to all clients."""
        assert isinstance(state, FedSoftState)
        if state.age % self.interval:
            return Traffic(fleet.dim, fleet.dim)
        return Traffic(fleet.dim, fleet.dim, fleet.n_clients * state.centres.size, state.u.size)


def importance(fleet: Fleet, centres: FloatArray, sigma: float) -> FloatArray:
    """u, (n_clients, n_clusters)."""
    everyone, shape = np.arange(fleet.n_clients), (fleet.n_clients, fleet.dim)
    losses = np.stack([fleet.sample_losses(everyone, np.broadcast_to(w, shape)) for w in centres])
    chosen = losses.argmin(axis=0)[:, None] == np.arange(len(centres))
    return np.maximum(fleet.means(everyone, chosen.astype(np.float64)), sigma)


def anchors(u: FloatArray, centres: FloatArray) -> FloatArray:
    """sum_s u_ks c_s / sum_s u_ks, one row for each client."""
    result: FloatArray = u @ centres / u.sum(axis=1, keepdims=True)
    return result
