"""Mixtures of shared models."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import softmax

from fusionopt import _checks
from fusionopt.federated._fleet import Fleet, Objective
from fusionopt.federated._system import FloatArray, IntArray, State, System, Traffic


@dataclass
class FedEmState(State):
    """centres : (n_components, dim); pi : (n_clients, n_components), shares of the components."""

    centres: FloatArray
    pi: FloatArray


@dataclass(frozen=True)
class FedEm(System):
    """M shared models; client k predicts with the mixture sum_m pi_km softmax(z'W_m).

    Each active client: q_s(m) proportional to pi_km exp(-loss(W_m; s)), pi_km = mean_s q_s(m), then `steps` steps
    from W_m on (1/n_k) sum_s q_s(m) loss(.; s); the server: W_m <- sum_k (n_k / sum n) W_km over active clients.

    Parameters
    ----------
    steps, rate
        As in `System`.
    n_components : int >= 1
        M; 1 is FedAvg.

    Notes
    -----
    Corrections: probabilities are mixed, not logits; weights stay with their samples (full batches, nothing is
    shuffled or dropped); the mean is over the clients that trained, where the published code counts the others
    with the last broadcast and so shortens the step. The label of a client is its largest share.

    References
    ----------
    Marfoq et al., Federated Multi-Task Learning under a Mixture of Distributions, algorithm 1.

    Examples
    --------
    >>> FedEm().n_components
    4
    """

    state_type = FedEmState

    n_components: int = 4

    def __post_init__(self) -> None:
        super().__post_init__()
        _checks.as_count("n_components", self.n_components)

    def start(self, fleet: Fleet, rng: np.random.Generator) -> FedEmState:
        """Random models, equal shares."""
        m, shape = fleet.n_clients, (fleet.n_clients, self.n_components)
        centres = fleet.first_models(rng, self.n_components)
        return FedEmState(
            np.repeat(centres[:1], m, axis=0),
            np.zeros(m, dtype=np.int64),
            centres,
            np.full(shape, 1 / shape[1]),
        )

    def round(self, state: State, fleet: Fleet, active: IntArray, rng: np.random.Generator) -> None:
        """E step, M step, mean."""
        assert isinstance(state, FedEmState)
        shape = (len(active), fleet.dim)
        copies = [np.broadcast_to(w, shape) for w in state.centres]
        losses = np.stack([fleet.sample_losses(active, w) for w in copies], axis=1)
        counts = fleet.sizes[active].astype(np.int64)
        with np.errstate(divide="ignore"):  # a share of zero stays zero
            q = softmax(np.repeat(np.log(state.pi[active]), counts, axis=0) - losses, axis=1)
        state.pi[active] = fleet.means(active, q)
        for j, w in enumerate(copies):
            objective = Objective(weights=np.ascontiguousarray(q[:, j]))
            trained = fleet.descend(active, w, self.work, rng, objective)
            state.centres[j] = fleet.mean(trained, active, "samples")
        state.labels = state.pi.argmax(axis=1)
        state.models = state.centres[state.labels]

    def traffic(self, state: State, fleet: Fleet) -> Traffic:
        """All components each way."""
        return Traffic(self.n_components * fleet.dim, self.n_components * fleet.dim)

    def predict(self, state: State, fleet: Fleet) -> FloatArray:
        """The mixture's probabilities (or numbers)."""
        assert isinstance(state, FedEmState)
        everyone, shape = np.arange(fleet.n_clients), (fleet.n_clients, fleet.dim)
        shares = np.repeat(state.pi, fleet.test_sizes.astype(np.int64), axis=0)
        parts = [fleet.predict(everyone, np.broadcast_to(w, shape)) for w in state.centres]
        result: FloatArray = np.add.reduce([shares[:, j, None] * part for j, part in enumerate(parts)])
        return result
