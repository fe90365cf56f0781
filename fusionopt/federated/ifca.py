"""Iterative federated clustering."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fusionopt import _checks
from fusionopt.federated._fleet import Fleet
from fusionopt.federated._system import FloatArray, IntArray, State, System, Traffic, check_weighting


@dataclass
class IfcaState(State):
    """starts : (n_starts, n_clusters, dim), one start only once it is chosen; choices : (n_starts, n_clients), what the
    clients take in each; best : the start with the smallest loss; sent : starts that went down in the last round;
    age : rounds done.
    """

    starts: FloatArray
    choices: IntArray
    best: int
    sent: int
    age: int

    @property
    def centres(self) -> FloatArray:
        """(n_clusters, dim), those of the best start."""
        result: FloatArray = self.starts[self.best]
        return result


@dataclass(frozen=True)
class Ifca(System):
    """k models; in each round a client takes the one with the smallest loss on its training data.

    averaging "models":     w_j <- mean of the clients of j after `steps` steps from w_j
    averaging "gradients":  w_j <- w_j - rate sum_{k of j} (share of k among all active) f_k'(w_j)

    A model that no active client takes stays as it is. Of `n_init` random starts, the one is kept for which
    sum_k n_k min_j f_k(w_j) / sum n (for weighting "uniform" the plain mean) is smallest after `init_rounds` rounds.

    Parameters
    ----------
    steps, rate
        As in `System`.
    n_clusters : int >= 1
        k.
    averaging : {"models", "gradients"}
    weighting : {"samples", "uniform"}
        "samples" weights client k by n_k, so that one cluster is FedAvg; "uniform" is the printed mean.
    n_init : int >= 1
        Random starts of the k models. They run side by side, on the same active clients.
    init_rounds : int >= 1
        Rounds that all starts run before one is kept; a run that ends sooner reports the best so far.

    Notes
    -----
    Models are divided by the weight of their own clients, gradients by that of all active ones. A published port
    divides models by all active clients, which shrinks them to zero.

    One start often ends in a local minimum, where two models share a cluster or one serves two. The published code
    counts the best of ten whole runs; here each start costs its traffic and local work for `init_rounds` rounds only,
    and once, at their end, all clients receive all models and send the loss of each start.

    References
    ----------
    Ghosh et al., An Efficient Framework for Clustered Federated Learning, algorithm 1; its experiments (random starts).

    Examples
    --------
    >>> Ifca().n_clusters
    4
    """

    state_type = IfcaState

    n_clusters: int = 4
    averaging: str = "models"
    weighting: str = "samples"
    n_init: int = 1
    init_rounds: int = 10

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("n_clusters", "n_init", "init_rounds"):
            _checks.as_count(name, getattr(self, name))
        _checks.check_choice("averaging", self.averaging, ("models", "gradients"))
        check_weighting(self.weighting)

    def start(self, fleet: Fleet, rng: np.random.Generator) -> IfcaState:
        """Random models, and the cluster of every client under the best of them."""
        starts = fleet.first_models(rng, self.n_init * self.n_clusters)
        starts = starts.reshape(self.n_init, self.n_clusters, fleet.dim)
        choices = np.zeros((self.n_init, fleet.n_clients), dtype=np.int64)
        state = IfcaState(starts[0, choices[0]], choices[0], starts, choices, 0, self.n_init, 0)
        self._choose(state, fleet)
        return state

    def sample(self, state: State, fleet: Fleet, count: int, rng: np.random.Generator) -> IntArray:
        """As in `System`."""
        assert isinstance(state, IfcaState)
        state.sent = len(state.starts)
        return super().sample(state, fleet, count, rng)

    def round(self, state: State, fleet: Fleet, active: IntArray, rng: np.random.Generator) -> None:
        """Choose, train, average; then every client's choice under the new models."""
        assert isinstance(state, IfcaState)
        for centres, choices in zip(state.starts, state.choices, strict=True):
            self._train(centres, choices[active], fleet, active, rng)
        state.age += 1
        self._choose(state, fleet)
        if state.age == self.init_rounds:
            kept = slice(state.best, state.best + 1)
            state.starts, state.choices, state.best = state.starts[kept].copy(), state.choices[kept].copy(), 0

    def _train(
        self, centres: FloatArray, choice: IntArray, fleet: Fleet, active: IntArray, rng: np.random.Generator
    ) -> None:
        """The round of one start, in place."""
        before = centres[choice]
        if self.averaging == "models":
            trained = fleet.descend(active, before, self.work, rng)
            for j in np.unique(choice):
                centres[j] = fleet.mean(trained[choice == j], active[choice == j], self.weighting)
        else:
            weight = fleet.sizes[active] if self.weighting == "samples" else np.ones(len(active))
            rows = fleet.draw(active, self.batch, rng)
            slopes = fleet.gradients(active, before, rows=rows) * (weight / weight.sum())[:, None]
            np.subtract.at(centres, choice, self.rate * slopes)

    def _choose(self, state: IfcaState, fleet: Fleet) -> None:
        """For each client the model with the smallest training loss, ties: the first; the same of the starts."""
        everyone, shape = np.arange(fleet.n_clients), (fleet.n_clients, fleet.dim)
        losses = np.stack(
            [[fleet.losses(everyone, np.broadcast_to(w, shape)) for w in centres] for centres in state.starts]
        )
        losses[~np.isfinite(losses)] = np.inf  # nobody takes a model that has diverged while another has not
        state.choices = losses.argmin(axis=1)
        weights = fleet.sizes if self.weighting == "samples" else None
        state.best = int(np.average(losses.min(axis=1), axis=1, weights=weights).argmin())
        state.labels = state.choices[state.best]
        state.models = state.centres[state.labels]

    def traffic(self, state: State, fleet: Fleet) -> Traffic:
        """Of each start all models down, a model (or gradient) and the choice up; where one start is chosen, all
        models to all clients besides, and the loss of each start from them."""
        assert isinstance(state, IfcaState)
        down = state.sent * self.n_clusters * fleet.dim
        up = state.sent * (fleet.dim + 1)
        if len(state.starts) == state.sent:
            return Traffic(down, up)
        return Traffic(down, up, fleet.n_clients * down, fleet.n_clients * state.sent)
