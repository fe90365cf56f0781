"""FPFC and FPFC-l1: the solver's server, the fleet's local work."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from fusionopt import _checks
from fusionopt._bridge_fpfc import FpfcServer
from fusionopt.federated._fleet import Fleet, Objective
from fusionopt.federated._system import Arrays, FloatArray, IntArray, State, System
from fusionopt.graph import Graph
from fusionopt.penalties import L2Norm, Penalty, SmoothedScad
from fusionopt.settings import FpfcSettings


class Pairs(NamedTuple):
    """What couples the clients: `problem.PairTerms`."""

    graph: Graph
    penalty: Penalty
    lam: float
    n_nodes: int
    n_features: int


@dataclass
class FpfcState(State):
    """pairs : the arrays of the pairs and of the fused parameters that a run goes on from; taken into the server when
    the next round begins.
    """

    pairs: Arrays

    def __post_init__(self) -> None:
        self.server: FpfcServer | None = None

    def to_arrays(self) -> Arrays:
        """Models, labels and pairs."""
        pairs = self.pairs if self.server is None else self.server.snapshot()
        return {"models": self.models, "labels": self.labels} | {f"pairs.{k}": v for k, v in pairs.items()}

    @classmethod
    def from_arrays(cls, arrays: Arrays) -> FpfcState:
        """What `to_arrays` gave."""
        pairs = {k.removeprefix("pairs."): v for k, v in arrays.items() if k.startswith("pairs.")}
        return cls(arrays["models"], arrays["labels"], pairs)


@dataclass(frozen=True)
class Fpfc(System):
    """minimise sum_i f_i(w_i) + (1/m) sum_{i<j} g(||w_i - w_j||; lam), g smoothed SCAD, by Algorithm 1 of FPFC.

    A round of `methods.fpfc`: each active client takes local steps w <- w - rate (f_i'(w) + rho (w - zeta_i)) from
    its own last model, the server refreshes theta and v of the pairs that they touch.

    Parameters
    ----------
    steps, rate, batch, epochs, decay
        As in `System`; rate is the paper's alpha.
    lam : float >= 0
        In the scale of the paper: 1/m a pair. It needs tuning: the window in which few clusters remain is narrow.
    rho : float > 0, or None
        Per unit weight, above 1 / (a - 1). None is 1 / (steps rate), the strength that the local steps can follow,
        but at least 2 / (a - 1); with the defaults it is the 1 of the published code.
    a, xi
        As in `penalties.SmoothedScad`.
    nu : float >= 0
        Clients joined by touched pairs with ||theta|| <= nu are one cluster; in the units of w.
    layers : sequence of str, str, or None
        Layers whose parameters are fused (a str is one layer), where the model has named ones; the rest is averaged
        over the active clients (n_k-weighted) and given to all. None fuses all parameters.
    pairs : {"any", "both"}
        Pairs that a round touches: those with an active end, or with two.

    Notes
    -----
    ``state.models`` are the w_i; the models of the clusters are ``History.cluster_models``. Corrections: a pair is
    refreshed once a round; clusters are components (lists of neighbours overlap); with `layers`, the averaged layers
    go to all clients and theta is kept from round to round.

    References
    ----------
    Yu et al., Clustered Federated Learning for Heterogeneous Data, Algorithm 1.

    Examples
    --------
    >>> Fpfc().penalty.xi
    0.001
    """

    state_type = FpfcState

    lam: float = 0.75
    rho: float | None = None
    a: float = 3.7
    xi: float = 1e-3
    nu: float = 0.5
    layers: Sequence[str] | str | None = None
    pairs: str = "any"

    def __post_init__(self) -> None:
        super().__post_init__()
        _checks.check_lam(self.lam)
        _checks.as_nonnegative_scalar("nu", self.nu)
        _checks.check_choice("pairs", self.pairs, ("any", "both"))
        check_layers(self.layers)
        self._check_rho()

    @property
    def penalty(self) -> Penalty:
        """g."""
        return SmoothedScad(self.a, self.xi)

    def _check_rho(self) -> None:
        if self.rho is not None:
            _checks.as_positive_scalar("rho", self.rho)
            low = self.penalty.weak_convexity
            _checks.as_scalar_above("rho", self.rho, low, "the pair step of SCAD needs rho > 1 / (a - 1)")

    @property
    def strength(self) -> float:
        """rho."""
        if self.rho is not None:
            return float(self.rho)
        return float(max(1.0 / (self.steps * self.rate), 2.0 * self.penalty.weak_convexity))

    def start(self, fleet: Fleet, rng: np.random.Generator) -> FpfcState:
        """One common random model; no pair touched."""
        models = np.repeat(fleet.first_models(rng, 1), fleet.n_clients, axis=0)
        state = FpfcState(models, np.zeros(fleet.n_clients, dtype=np.int64), {})
        self.server(state, fleet)
        return state

    def server(self, state: FpfcState, fleet: Fleet) -> FpfcServer:
        """The pairs, made from ``state.pairs`` where a run goes on."""
        if state.server is None:
            m, columns = fleet.n_clients, fused_columns(fleet, self.layers)
            n = fleet.dim if columns is None else len(columns)
            terms = Pairs(Graph.complete(m, weight=1.0 / m), self.penalty, float(self.lam), m, n)
            state.server = FpfcServer(terms, FpfcSettings(pairs=self.pairs), self.strength)
            if state.pairs:
                state.server.restore(state.pairs)
            else:
                state.server.start(fused_part(state.models, columns))
            state.pairs = {}
        return state.server

    def round(self, state: State, fleet: Fleet, active: IntArray, rng: np.random.Generator) -> None:
        """zeta down, local work, models up, pairs."""
        assert isinstance(state, FpfcState)
        server, columns = self.server(state, fleet), fused_columns(fleet, self.layers)
        pull = self.strength * server.kappa[active]
        towards = whole_models(state.models[active], server.zeta(active), columns)
        objective = Objective(pull=pull, towards=towards, columns=columns, implicit=False)
        state.models[active] = fleet.descend(active, state.models[active], self.work, rng, objective)
        server.update(active, fused_part(state.models[active], columns))
        average_rest(state.models, fleet, active, columns)
        state.labels = server.labels(self.nu)


def check_layers(value: object) -> None:
    """None, a name, or names.

    Raises
    ------
    InvalidTypeError, InvalidArgumentError
    """
    if value is None or isinstance(value, str):
        return
    if not isinstance(value, Sequence) or not all(isinstance(name, str) for name in value):
        _checks.refuse_type(
            f"layers={value!r} holds what is no name of a layer; give names such as ['fc2'], or None for all.",
            argument="layers",
            got=value,
            wanted="names of layers",
        )
    if not value:
        _checks.refuse(
            "layers is empty, so nothing would be fused; give names such as ['fc2'], or None for all parameters.",
            argument="layers",
            got=value,
            wanted="at least one name",
        )


def fused_columns(fleet: Fleet, layers: Sequence[str] | str | None) -> IntArray | None:
    """Which parameters are fused, None for all."""
    if layers is None:
        return None
    return fleet.columns([layers] if isinstance(layers, str) else layers)


def fused_part(models: FloatArray, columns: IntArray | None) -> FloatArray:
    """The parameters that are fused."""
    return np.ascontiguousarray(models if columns is None else models[:, columns])


def whole_models(models: FloatArray, part: FloatArray, columns: IntArray | None) -> FloatArray:
    """A copy of `models` with `part` in the place of what is fused."""
    if columns is None:
        return part
    out = models.copy()
    out[:, columns] = part
    return out


def average_rest(models: FloatArray, fleet: Fleet, active: IntArray, columns: IntArray | None) -> None:
    """Give all clients the n_k-weighted mean of the active ones' parameters that are not fused, in place."""
    if columns is not None:
        rest = np.setdiff1d(np.arange(fleet.dim), columns)
        models[:, rest] = fleet.mean(models[np.ix_(active, rest)], active, "samples")


@dataclass(frozen=True)
class FpfcL1(Fpfc):
    """`Fpfc` with g(t; lam) = lam t (the paper calls it l1; it is the l2 norm of the difference): convex.

    Parameters
    ----------
    steps, rate, batch, epochs, decay, lam, rho, nu, layers, pairs
        As in `Fpfc`; a, xi have no effect.

    References
    ----------
    Yu et al., FPFC-l1.

    Examples
    --------
    >>> FpfcL1().lam
    0.2
    """

    lam: float = 0.2
    nu: float = 4.0

    @property
    def penalty(self) -> Penalty:
        """g."""
        return L2Norm()

    def _check_rho(self) -> None:
        if self.rho is not None:
            _checks.as_positive_scalar("rho", self.rho)
