from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

def instruction_set() -> str: ...
def pair_length(x: NDArray[np.float64], weight: NDArray[np.float64], n_threads: int = 1) -> float: ...
def time_pair_sweep(
    n_nodes: int, n_features: int, narrow: bool, n_threads: int, repeats: int
) -> dict[str, Any]: ...

class Implicit:
    def __init__(
        self,
        targets: NDArray[np.float64],
        curvature: NDArray[np.float64],
        weight: NDArray[np.float64],
        lam: float,
        *,
        eps_rel: float,
        eps_abs: float,
        max_newton: int,
        seed: int,
        n_threads: int,
    ) -> None: ...
    def run(self, hook: Callable[[bool, int, float, float], bool]) -> bool: ...
    def fusing_bound(self, hook: Callable[[bool, int, float, float], bool]) -> float: ...
    def certify(self, centres: NDArray[np.float64]) -> dict[str, Any]: ...
    @property
    def point(self) -> NDArray[np.float64]: ...
    @property
    def dual_point(self) -> NDArray[np.float64]: ...
    @property
    def labels(self) -> NDArray[np.int64]: ...
    @property
    def n_clusters(self) -> int: ...
    @property
    def delta(self) -> float: ...
    @property
    def shrink(self) -> float: ...
    @property
    def counts(self) -> dict[str, float]: ...

def local_order(n_nodes: int, tail: NDArray[np.int32], head: NDArray[np.int32]) -> NDArray[np.int32]: ...

class Admm:
    @staticmethod
    def complete(
        eigenvalues: NDArray[np.float64],
        basis: NDArray[np.float64] | None,
        hessian: NDArray[np.float64] | None,
        linear: NDArray[np.float64],
        constant: float,
        lam: float,
        weight: float,
        node_weights: NDArray[np.float64],
        common_null: NDArray[np.float64],
        *,
        eps_rel: float,
        eps_abs: float,
        relaxation: float,
        rho: float,
        check_every: int,
        separable: bool = False,
        n_threads: int = 1,
        narrow: bool = False,
    ) -> Admm: ...
    @staticmethod
    def edges(
        eigenvalues: NDArray[np.float64],
        basis: NDArray[np.float64] | None,
        hessian: NDArray[np.float64] | None,
        linear: NDArray[np.float64],
        constant: float,
        lam: float,
        tail: NDArray[np.int32],
        head: NDArray[np.int32],
        weights: NDArray[np.float64],
        *,
        eps_rel: float,
        eps_abs: float,
        relaxation: float,
        rho: float,
        check_every: int,
        separable: bool = False,
        n_threads: int = 1,
        narrow: bool = False,
    ) -> Admm: ...
    def run(self, iterations: int) -> bool: ...
    def set_lam(self, lam: float) -> None: ...
    def set_loss(
        self,
        eigenvalues: NDArray[np.float64],
        basis: NDArray[np.float64] | None,
        hessian: NDArray[np.float64] | None,
        linear: NDArray[np.float64],
        constant: float,
    ) -> None: ...
    def state(self) -> NDArray[np.float64]: ...
    def restore(self, numbers: NDArray[np.float64]) -> None: ...
    def tighten(self, factor: float) -> None: ...
    def refine(self, budget: float) -> tuple[int, float, bool]: ...
    @property
    def sweep_work(self) -> float: ...
    def finish(self, share: float) -> dict[str, Any]: ...
    def certify(self, x: NDArray[np.float64]) -> dict[str, Any]: ...
    def warm_start(self, x: NDArray[np.float64]) -> None: ...
    def duals(self) -> NDArray[np.float64]: ...
    def primal_residual(self) -> float: ...
    def n_fused(self) -> int: ...
    @property
    def aggregated(self) -> bool: ...
    @property
    def n_between(self) -> int: ...
    def left_open(self, n_clusters: int) -> bool: ...
    def contract(self, any: bool, checks: int) -> bool: ...
    def apart(self) -> float: ...
    def finishing_work(self) -> float: ...
    def fused_point(self) -> NDArray[np.float64]: ...
    @property
    def last(self) -> dict[str, Any]: ...
    @property
    def x(self) -> NDArray[np.float64]: ...
    @property
    def dual_sums(self) -> NDArray[np.float64]: ...
    @property
    def labels(self) -> NDArray[np.int64]: ...
    @property
    def n_iter(self) -> int: ...
    @property
    def rho(self) -> float: ...
    @property
    def n_edges(self) -> int: ...

class Family:
    Squared: Family
    Logistic: Family
    SquaredHinge: Family
    Huber: Family
    Poisson: Family

class LossKernel:
    @staticmethod
    def glm(
        family: Family,
        delta: float,
        data: NDArray[np.float64],
        indices: NDArray[np.int32] | None,
        row_starts: NDArray[np.int64] | None,
        n_columns: int,
        offsets: NDArray[np.int64],
        weights: NDArray[np.float64],
        targets: NDArray[np.float64],
        ridge: float,
        n_ridge: int,
        n_threads: int,
    ) -> LossKernel: ...
    @staticmethod
    def softmax(
        data: NDArray[np.float64],
        indices: NDArray[np.int32] | None,
        row_starts: NDArray[np.int64] | None,
        n_columns: int,
        offsets: NDArray[np.int64],
        weights: NDArray[np.float64],
        classes: NDArray[np.int64],
        n_classes: int,
        ridge: float,
        n_threads: int,
    ) -> LossKernel: ...
    @staticmethod
    def distance(
        targets: NDArray[np.float64], weights: NDArray[np.float64], delta: float, n_threads: int
    ) -> LossKernel: ...
    def values(
        self, x: NDArray[np.float64], active: NDArray[np.int64] | None = None
    ) -> NDArray[np.float64]: ...
    def gradient(
        self, x: NDArray[np.float64], active: NDArray[np.int64] | None = None
    ) -> NDArray[np.float64]: ...
    def descend(
        self,
        x: NDArray[np.float64],
        active: NDArray[np.int64],
        centre: NDArray[np.float64],
        modulus: NDArray[np.float64],
        alpha: NDArray[np.float64],
        steps: NDArray[np.int64],
    ) -> NDArray[np.float64]: ...
    def samples(
        self, x: NDArray[np.float64], active: NDArray[np.int64] | None = None
    ) -> NDArray[np.float64]: ...
    def hessians(
        self, x: NDArray[np.float64], active: NDArray[np.int64] | None = None
    ) -> NDArray[np.float64]: ...

class PenaltyKind:
    L2Norm: PenaltyKind
    SquaredL2: PenaltyKind
    Scad: PenaltyKind
    SmoothedScad: PenaltyKind
    Mcp: PenaltyKind

class RadialPenalty:
    def __init__(self, kind: PenaltyKind, shape: float, xi: float) -> None: ...
    def value(self, t: ArrayLike, lam: ArrayLike) -> NDArray[np.float64]: ...
    def derivative(self, t: ArrayLike, lam: ArrayLike) -> NDArray[np.float64]: ...
    def prox(self, t: ArrayLike, lam: ArrayLike, step: ArrayLike) -> NDArray[np.float64]: ...

class Pdmm:
    def __init__(
        self,
        n_nodes: int,
        n_features: int,
        tail: NDArray[np.int32],
        head: NDArray[np.int32],
        radius: NDArray[np.float64],
        eta_users: NDArray[np.float64],
        *,
        scheme: str,
        participation: float,
        rho: float,
        eta: float,
        tau: float,
        nu: float,
        seed: int,
        skip_after: int,
        skip_period: int,
    ) -> None: ...
    def set_quadratic(
        self,
        eigenvalues: NDArray[np.float64],
        basis: NDArray[np.float64] | None,
        linear: NDArray[np.float64],
    ) -> None: ...
    def start(self, x: NDArray[np.float64]) -> None: ...
    def stretch(self, factor: float) -> None: ...
    def run(self, iterations: int) -> None: ...
    def begin(
        self, users: NDArray[np.int64] | None = None
    ) -> tuple[NDArray[np.int64], NDArray[np.float64]]: ...
    def snapshot(self) -> dict[str, Any]: ...
    def restore(self, **arrays: Any) -> None: ...
    def end(self, x: NDArray[np.float64]) -> None: ...
    def balance(self, x: NDArray[np.float64]) -> tuple[float, float, NDArray[np.float64]]: ...
    def duals(self) -> NDArray[np.float64]: ...
    def state(self) -> tuple[NDArray[np.float64], NDArray[np.uint8]]: ...
    def largest_residual(self) -> float: ...
    def asymmetry(self) -> float: ...
    @property
    def x(self) -> NDArray[np.float64]: ...
    @property
    def modulus(self) -> NDArray[np.float64]: ...
    @property
    def counts(self) -> dict[str, int]: ...
    @property
    def n_iter(self) -> int: ...

def tilt_complete(
    penalty: RadialPenalty, lam: float, x: NDArray[np.float64], r: NDArray[np.float64]
) -> tuple[NDArray[np.float64], float]: ...
def tilt_edges(
    penalty: RadialPenalty,
    lam: float,
    tail: NDArray[np.int32],
    head: NDArray[np.int32],
    weights: NDArray[np.float64],
    x: NDArray[np.float64],
) -> tuple[NDArray[np.float64], float]: ...

class Fpfc:
    @staticmethod
    def complete(
        n_nodes: int,
        n_features: int,
        weight: float,
        node_weights: NDArray[np.float64] | None,
        penalty: RadialPenalty,
        lam: float,
        rho: float,
        *,
        both_ends: bool,
        single: bool,
        n_threads: int,
    ) -> Fpfc: ...
    @staticmethod
    def edges(
        n_nodes: int,
        n_features: int,
        tail: NDArray[np.int32],
        head: NDArray[np.int32],
        weights: NDArray[np.float64],
        penalty: RadialPenalty,
        lam: float,
        rho: float,
        *,
        both_ends: bool,
        single: bool,
        n_threads: int,
    ) -> Fpfc: ...
    def start(self, x: NDArray[np.float64]) -> None: ...
    def set_lam(self, lam: float) -> None: ...
    def zeta(self, active: NDArray[np.int64]) -> NDArray[np.float64]: ...
    def update(self, active: NDArray[np.int64], fresh: NDArray[np.float64]) -> None: ...
    def report(self) -> dict[str, Any]: ...
    def counts(self) -> dict[str, int]: ...
    def duals(self) -> NDArray[np.float64]: ...
    def thetas(self) -> NDArray[np.float64]: ...
    def snapshot(self) -> dict[str, Any]: ...
    def restore(self, **arrays: Any) -> None: ...
    def labels(self, nu: float) -> NDArray[np.int64]: ...
    @property
    def x(self) -> NDArray[np.float64]: ...
    @property
    def kappa(self) -> NDArray[np.float64]: ...
