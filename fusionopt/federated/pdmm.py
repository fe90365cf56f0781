"""Personalised learning by convex clustering: the solver's PDMM, the fleet's local work."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fusionopt import _checks
from fusionopt._bridge_pdmm import PdmmEngine
from fusionopt.clusters import components
from fusionopt.federated._fleet import Fleet, Objective
from fusionopt.federated._system import Arrays, IntArray, State, System
from fusionopt.federated.fpfc import (
    Pairs,
    average_rest,
    check_layers,
    fused_columns,
    fused_part,
    whole_models,
)
from fusionopt.graph import Graph
from fusionopt.penalties import L2Norm
from fusionopt.settings import PdmmSettings


@dataclass
class PdmmState(State):
    """pairs : the arrays of the pairs that a run goes on from; taken into the engine when the next round begins."""

    pairs: Arrays

    def __post_init__(self) -> None:
        self.engine: PdmmEngine | None = None

    def to_arrays(self) -> Arrays:
        """Models, labels and pairs."""
        pairs = self.pairs if self.engine is None else self.engine.snapshot()
        return {"models": self.models, "labels": self.labels} | {f"pairs.{k}": v for k, v in pairs.items()}

    @classmethod
    def from_arrays(cls, arrays: Arrays) -> PdmmState:
        """What `to_arrays` gave."""
        pairs = {k.removeprefix("pairs."): v for k, v in arrays.items() if k.startswith("pairs.")}
        return cls(arrays["models"], arrays["labels"], pairs)


@dataclass(frozen=True)
class Pdmm(System):
    """minimise sum_i f_i(w_i) + lam sum_{i<j} ||w_i - w_j|| by PDMM, pairs as units.

    An iteration of `methods.pdmm` with scheme "users": the active users move, then the pairs they have a part in.
    Where the paper takes the minimiser of f_i(w) + modulus/2 ||w||^2 - <b_i, w>, a client takes local steps towards
    it from its last model.

    Parameters
    ----------
    steps, rate, batch, epochs, decay
        As in `System`.
    lam : float >= 0
        In the canonical scale: each unordered pair once, f_i without 1/N.
    rho : float > 0, or None
        Of the pairs. None is 1 / (m steps rate), the strength that local steps can follow.
    layers : sequence of str, str, or None
        As in `Fpfc`.

    Notes
    -----
    Pairs with z = 0 are fused, and the clusters are their components. Corrections as in `PdmmSettings`: one z and
    one dual a pair, so that a partly active round keeps the optimum its only fixed point. The server keeps the pairs
    and sends each active user b_i, one vector; in the paper every user keeps all models and its own pairs.

    References
    ----------
    Armacki et al., Personalized Federated Learning via Convex Clustering, Algorithm 1.

    Examples
    --------
    >>> Pdmm().lam
    0.002
    """

    state_type = PdmmState

    lam: float = 2e-3
    rho: float | None = None
    layers: Sequence[str] | str | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        _checks.check_lam(self.lam)
        check_layers(self.layers)
        if self.rho is not None:
            _checks.as_positive_scalar("rho", self.rho)

    def start(self, fleet: Fleet, rng: np.random.Generator) -> PdmmState:
        """One common random model."""
        models = np.repeat(fleet.first_models(rng, 1), fleet.n_clients, axis=0)
        return PdmmState(models, np.zeros(fleet.n_clients, dtype=np.int64), {})

    def engine(self, state: PdmmState, fleet: Fleet) -> PdmmEngine:
        """The pairs, made from ``state.pairs`` where a run goes on."""
        if state.engine is None:
            m, columns = fleet.n_clients, fused_columns(fleet, self.layers)
            n = fleet.dim if columns is None else len(columns)
            rho = self.rho or 1.0 / (m * self.steps * self.rate)
            terms = Pairs(Graph.complete(m), L2Norm(), float(self.lam), m, n)
            state.engine = PdmmEngine(
                terms, PdmmSettings(scheme="users", rho=rho, eta=rho), rho, rho, np.zeros(n)
            )
            if state.pairs:
                state.engine.restore(state.pairs)
            else:
                state.engine.start(fused_part(state.models, columns))
            state.pairs = {}
        return state.engine

    def round(self, state: State, fleet: Fleet, active: IntArray, rng: np.random.Generator) -> None:
        """Local work of the active users, then their pairs."""
        assert isinstance(state, PdmmState)
        engine, columns = self.engine(state, fleet), fused_columns(fleet, self.layers)
        _, b = engine.begin(active)
        modulus = engine.modulus[active]
        towards = whole_models(state.models[active], b[active] / modulus[:, None], columns)
        objective = Objective(pull=modulus, towards=towards, columns=columns)
        state.models[active] = fleet.descend(active, state.models[active], self.work, rng, objective)
        engine.end(fused_part(state.models, columns))
        average_rest(state.models, fleet, active, columns)
        fused = engine.edge_state()[1]
        state.labels = components(fleet.n_clients, Graph.complete(fleet.n_clients).edges[fused])
