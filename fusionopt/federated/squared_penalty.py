"""Personal models held together by squared distances."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fusionopt import _checks
from fusionopt.federated._fleet import Fleet, Objective
from fusionopt.federated._system import IntArray, State, System


@dataclass(frozen=True)
class SquaredPenalty(System):
    """minimise sum_i f_i(w_i) + lam sum_{i<j} ||w_i - w_j||^2, the `penalties.SquaredL2` of all pairs.

    An active client takes `steps` proximal steps on f_i(w) + lam m ||w - mean||^2, mean being that of all m models
    at the start of the round: the terms of client i with the other models held, up to a term in w_i alone.

    Parameters
    ----------
    steps, rate
        As in `System`.
    lam : float >= 0

    Notes
    -----
    It pulls and never fuses: every client is a cluster of its own. A fixed point is a minimiser: there
    f_i'(w_i) + 2 lam m (w_i - mean) = 0 for each i.

    References
    ----------
    Armacki et al., Personalized Federated Learning via Convex Clustering, equation (4).

    Examples
    --------
    >>> SquaredPenalty().lam
    0.001
    """

    lam: float = 1e-3

    def __post_init__(self) -> None:
        super().__post_init__()
        _checks.as_nonnegative_scalar("lam", self.lam)

    def start(self, fleet: Fleet, rng: np.random.Generator) -> State:
        """One common random model."""
        return State(
            np.repeat(fleet.first_models(rng, 1), fleet.n_clients, axis=0),
            np.arange(fleet.n_clients, dtype=np.int64),
        )

    def round(self, state: State, fleet: Fleet, active: IntArray, rng: np.random.Generator) -> None:
        """Steps towards the mean of all models."""
        mean, pull = state.models.mean(axis=0), 2 * self.lam * fleet.n_clients
        objective = Objective(pull=pull, towards=np.repeat(mean[None], len(active), axis=0))
        state.models[active] = fleet.descend(active, state.models[active], self.work, rng, objective)
