"""The only importer of the compiled core: brings a problem into its coordinates and results back.

Inside the core every quadratic problem is shifted to the pooled minimiser of each component and scaled by
powers of two, so that its numbers are of order one whatever the units and the offset of the data:

    x = shift + s x',   H = h H',   q - H shift = (h s) q',   f = (h s^2) f',   w = u w',   lam = (h s / u) lam'
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fusionopt import _checks, _core
from fusionopt.estimate import edge_bytes, pair_bytes
from fusionopt.losses.base import EPS, QuadraticNodeLoss
from fusionopt.losses.pooled import null_projectors, pooled_hessians, pooled_minimiser
from fusionopt.penalties import L1Norm, L2Norm
from fusionopt.problem import FusionProblem
from fusionopt.settings import AdmmSettings

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]


CoreLoss = tuple[FloatArray, FloatArray | None, FloatArray | None, FloatArray, float]
"""Eigenvalues, basis and Hessians (dense losses), linear parts, constant."""

_CAP = 2.0
"""Largest ball of an edge, in units of the sum of all forces (half the sum is the most that can pass an edge)."""


_ORDERED_FROM = 100_000
"""Numbers of x from which the core numbers the nodes of an edge list so that neighbours share caches."""


@dataclass(frozen=True)
class Certificate:
    """What one pass of the core says of a point and its duals, in the caller's units.

    Attributes
    ----------
    objective, dual_objective, gap : float
        F(x), D(v) and their difference.
    rounding : float
        Bound on the rounding error of `gap`.
    penalty : float
        sum w_ij ||x_i - x_j||.
    dual_residual : float
        max_i ||grad f_i(x_i) + sum_j v_ij||.
    met : bool
        The stop rule holds.
    """

    objective: float
    dual_objective: float
    gap: float
    rounding: float
    penalty: float
    dual_residual: float
    met: bool


@dataclass(frozen=True)
class _Numbering:
    """The core's own numbers of nodes and edges.

    Attributes
    ----------
    order : int (n_nodes,)
        The node that is the core's k-th.
    rank : int (n_nodes,)
        Its inverse.
    edges : int64 (n_edges,)
        The edge of the graph that is the core's k-th.
    turned : bool (n_edges,)
        The core has that edge's ends exchanged.
    """

    order: NDArray[np.int32]
    rank: NDArray[np.int32]
    edges: IntArray
    turned: NDArray[np.bool_]


@dataclass(frozen=True)
class Judgement:
    """The penalty's part of a certificate, in the caller's units.

    Attributes
    ----------
    penalty : float
        sum w_ij g(x_i - x_j; lam).
    slack : float
        penalty - <v, Bx> >= 0.
    model_gap : float
        Duality gap of the quadratic model in the engine.
    rounding : float
        Bound on the rounding error of `model_gap`.
    sums : float64 (n_nodes, n_features)
        Row sums of the duals.
    """

    penalty: float
    slack: float
    model_gap: float
    rounding: float
    sums: FloatArray


@dataclass(frozen=True)
class Finish:
    """Outcome of partition finishing.

    Attributes
    ----------
    accepted : bool
        No worse than the raw point.
    proven : bool
        The flow inside every cluster fits its balls: the partition is exact up to rounding.
    enough : bool
        Another attempt is not worth its price: next to nothing is fused, or next to everything proven.
    n_clusters : int
    work : float
        Edges visited.
    """

    accepted: bool
    proven: bool
    enough: bool
    n_clusters: int
    work: float


def core_info() -> dict[str, object]:
    """What the compiled core tells of itself."""
    return {"instruction_set": _core.instruction_set()}


def time_pair_sweep(
    n_nodes: int, n_features: int, dtype: str, n_threads: int, repeats: int
) -> dict[str, Any]:
    """Seconds of the pair sweep, of its check pass and of the stream of the same array; bytes that a sweep moves."""
    return _core.time_pair_sweep(n_nodes, n_features, dtype == "float32", n_threads, repeats)


def _plain_zeros(x: FloatArray) -> FloatArray:
    """-0.0 becomes 0.0, so that equal rows have the same bits."""
    return np.asarray(x + 0.0)


def _power_of_two(value: float) -> float:
    """The power of two just above value; 1 for 0."""
    return math.ldexp(1.0, math.frexp(value)[1]) if value > 0 else 1.0


class Engine:
    """A FusionProblem in the core, ready to run; state is kept from one lam to the next.

    Raises
    ------
    InvalidTypeError
        A loss or penalty that this engine does not solve.
    MemoryLimitError
        The pairs of a complete graph would not fit the machine's memory.
    """

    def __init__(self, problem: FusionProblem, settings: AdmmSettings) -> None:
        loss = problem.loss
        _checks.check_instance("problem.loss", loss, QuadraticNodeLoss, "this engine solves quadratic losses")
        penalty = problem.penalty
        _checks.check_instance("problem.penalty", penalty, (L2Norm, L1Norm), "this engine solves the norms")
        # With one feature both norms are the same, and the l2 form finishes partitions.
        self.separable = isinstance(penalty, L1Norm) and problem.n_features > 1
        assert isinstance(loss, QuadraticNodeLoss)  # for the type checker: refused above otherwise
        self.problem = problem
        self._loss = loss
        self._past_iterations = 0
        self._cap_lam = problem.lam
        self._settings = settings
        self._numbering: _Numbering | None = None
        graph = problem.graph
        self._components: IntArray = graph.component_labels
        self.shift = pooled_minimiser(loss, self._components)[self._components]
        self._null = null_projectors(pooled_hessians(loss, self._components), loss.n_features)
        # Below the rounding error of its own computation a gradient is zero: equal rows stay equal.
        linear = -loss.gradient(self.shift)
        linear[np.abs(linear) <= loss.gradient_error(self.shift)] = 0.0
        hessians = loss.hessians()
        self._h = _power_of_two(float(np.abs(hessians).max()))
        self._s = _power_of_two(float(np.abs(linear).max())) / self._h
        with np.errstate(over="ignore", under="ignore"):
            unit = float(np.float64(self._h) * np.float64(self._s) ** 2)
            value = float(loss.value(self.shift))
        if not (0 < unit < math.inf and math.isfinite(value)):
            _checks.refuse(
                "the loss leaves the range of float64 (its values are squares of the data times the weights); give "
                "data and weights in more moderate units, for instance divided by their largest entry.",
                argument="problem.loss",
                got=f"a unit of {unit:g} for the objective",
                wanted="squares within about 1e-300 to 1e300",
            )
        self._linear = linear / (self._h * self._s)
        self._u = _power_of_two(self._largest_weight())
        self._hessians = hessians / self._h
        self._constant = value / unit
        # Where every node agrees with its component's minimiser there is nothing to trade off, at any lam.
        self.agreed = not linear.any()
        self.coupled = graph.n_edges > 0 and not self.agreed
        self._core: Any = self._build() if self.coupled and problem.lam > 0 else None

    def _capped_weights(self, lam: float) -> FloatArray:
        """Edge weights with lam w_e at most a few times all forces together.

        An edge whose ball could carry every force is fused at the optimum, so a smaller ball changes nothing, and wild
        weights stay out of the loop. No answer depends on that being so: duals in the smaller balls are feasible, and
        `certify` takes the penalty from the true weights.
        """
        weights = self.problem.graph.weights
        if lam == 0 or len(weights) == 0:
            return weights
        force = float(np.linalg.norm(self._linear, axis=1).sum()) * self._h * self._s
        return np.minimum(weights, _CAP * force / lam)

    def _capped(self, lam: float) -> bool:
        graph = self.problem.graph
        return not graph.is_complete and bool((self._capped_weights(lam) < graph.weights).any())

    def _largest_weight(self) -> float:
        graph = self.problem.graph
        if not graph.is_complete:
            return float(self._capped_weights(self.problem.lam).max(initial=0.0))
        r = graph.node_weights
        return graph.weight if r is None else graph.weight * float(r.max()) ** 2

    def _capped_lam(self, lam: float) -> float:
        """On a complete graph: lam where even the lightest pair could carry every force (see `_capped_weights`)."""
        graph = self.problem.graph
        if not graph.is_complete:
            return lam
        r = graph.node_weights
        least = graph.weight if r is None else graph.weight * float(r[r > 0].min()) ** 2
        force = float(np.linalg.norm(self._linear, axis=1).sum()) * self._h * self._s
        return min(lam, _CAP * force / least) if least > 0 else lam

    def _scaled_lam(self, lam: float) -> float:
        return self._capped_lam(lam) * self._u / (self._h * self._s)

    def _core_loss(self) -> tuple[CoreLoss, FloatArray]:
        """What the core takes of the loss, in its coordinates, and the projector on the common null space."""
        d = self.problem.n_features
        eigenvalues, basis, hessian = self._hessians, None, None
        linear = self._linear
        null = np.zeros((d, d))
        if eigenvalues.ndim == 3:
            hessian = np.ascontiguousarray(eigenvalues)
            eigenvalues, basis = np.linalg.eigh(hessian)
            # An eigenvalue within the rounding error of its matrix is zero, and q_i has nothing in its direction.
            floor = 8 * d * EPS * eigenvalues.max(axis=1, keepdims=True)
            eigenvalues = np.where(eigenvalues > floor, eigenvalues, 0.0)
            along = np.einsum("iac,ia->ic", basis, linear)
            linear = np.einsum("iac,ic->ia", basis, np.where(eigenvalues > 0, along, 0.0))
            common = null_projectors(hessian.sum(axis=0, keepdims=True), d)
            null = null if common is None else common[0]
        if basis is not None and hessian is not None:
            basis, hessian = self._numbered(basis), self._numbered(hessian)
        return (
            self._numbered(eigenvalues),
            basis,
            hessian,
            self._numbered(linear),
            self._constant,
        ), null

    def _numbered(self, rows: FloatArray) -> FloatArray:
        """Rows of nodes in the order of the core."""
        return np.ascontiguousarray(rows if self._numbering is None else rows[self._numbering.order])

    def _unnumbered(self, rows: FloatArray) -> FloatArray:
        """Rows of the core in the order of the nodes."""
        return rows if self._numbering is None else rows[self._numbering.rank]

    def _number_edges(self) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """Ends i < j of the edges in the core's numbering, sorted; sets it where x is larger than the caches."""
        graph = self.problem.graph
        tail, head = (np.ascontiguousarray(column, dtype=np.int32) for column in graph.edges.T)
        if graph.n_nodes * self.problem.n_features < _ORDERED_FROM:
            return tail, head
        if self._numbering is None:
            order = _core.local_order(graph.n_nodes, tail, head)
            rank = np.empty_like(order)
            rank[order] = np.arange(len(order), dtype=np.int32)
            i, j = rank[tail], rank[head]
            keys = np.minimum(i, j) * np.int64(len(order)) + np.maximum(i, j)
            self._numbering = _Numbering(order, rank, np.argsort(keys), i > j)
        known = self._numbering
        i, j = known.rank[tail[known.edges]], known.rank[head[known.edges]]
        return np.minimum(i, j), np.maximum(i, j)

    def update(self, loss: QuadraticNodeLoss) -> None:
        """Put another quadratic of the same shape in the place of the loss; coordinates, duals and rho stay.

        The proximal Newton method's models of a smooth loss come this way.
        """
        self._loss = loss
        self.problem = replace(self.problem, loss=loss)
        self._linear = -loss.gradient(self.shift) / (self._h * self._s)
        self._hessians = loss.hessians() / self._h
        self._constant = float(loss.value(self.shift)) / (self._h * self._s**2)
        self._core.set_loss(*self._core_loss()[0])

    def judge(self, x: FloatArray) -> Judgement:
        """The penalty's part of a certificate at x (caller's coordinates), with the present duals."""
        told = self._core.certify(self._numbered((x - self.shift) / self._s))
        lam, unit = self.problem.lam, self._h * self._s**2
        penalty = lam * told["penalty"] * self._s * self._u
        true = penalty
        if self._capped(self._cap_lam) or self._capped(lam) or self._capped_lam(lam) < lam:
            true = self.problem.penalty_value(x)
            penalty *= self._capped_lam(lam) / lam
        # What capping left out of the penalty belongs to every gap.
        left_out = max(true - penalty, 0.0)
        return Judgement(
            penalty=true,
            slack=told["slack"] * unit + left_out,
            model_gap=told["gap"] * unit + left_out,
            rounding=told["rounding"] * unit,
            sums=self._unnumbered(self._core.dual_sums) * (self._h * self._s),
        )

    def _build(self) -> Any:
        problem, settings, graph = self.problem, self._settings, self.problem.graph
        m, d = problem.n_nodes, problem.n_features
        options: dict[str, Any] = {
            "eps_rel": settings.eps_rel,
            "eps_abs": settings.eps_abs / (self._h * self._s**2),
            "relaxation": settings.relaxation,
            "rho": 0.0 if settings.rho is None else settings.rho * self._u / self._h,
            "check_every": settings.check_every or 0,
            "separable": self.separable,
            "n_threads": settings.n_threads,
            "narrow": settings.dtype == "float32",
        }
        if not graph.is_complete:
            needed = edge_bytes(m, graph.n_edges, d, settings.n_threads)
            _checks.check_memory("The edge duals", needed)
            tail, head = self._number_edges()
            weights = self._capped_weights(problem.lam) / self._u
            if self._numbering is not None:
                weights = weights[self._numbering.edges]
            self._cap_lam = problem.lam
            return _core.Admm.edges(
                *self._core_loss()[0], self._scaled_lam(problem.lam), tail, head, weights, **options
            )
        _checks.check_memory("The pair duals of the complete graph", pair_bytes(m, d))
        r = np.ones(m) if graph.node_weights is None else graph.node_weights / graph.node_weights.max()
        loss, null = self._core_loss()
        quadratic = (*loss, self._scaled_lam(problem.lam))
        return _core.Admm.complete(*quadratic, self._largest_weight() / self._u, r, null, **options)

    def pooled_force(self) -> FloatArray:
        """-grad f_i at the pooled minimiser of i's component."""
        return self._linear * (self._h * self._s)

    def component_penalties(self, z: FloatArray) -> FloatArray:
        """sum w_ij ||z_i - z_j|| over the edges of each component."""
        graph, unit = self.problem.graph, FusionProblem(self._loss, self.problem.graph, lam=1.0)
        n = int(self._components.max()) + 1
        if graph.is_complete:
            # One component holds every edge; nodes of weight zero are components without any.
            out = np.zeros(n)
            joined = 0 if graph.node_weights is None else int(np.argmax(graph.node_weights > 0))
            out[self._components[joined]] = unit.penalty_value(z)
            return out
        i, j = graph.edges.T
        lengths = graph.weights * np.linalg.norm(z[i] - z[j], axis=1)
        return np.asarray(np.bincount(self._components[i], lengths, minlength=n), dtype=np.float64)

    # -- running ------------------------------------------------------------------------------------------

    @property
    def check_every(self) -> int:
        """Iterations between two checks of the core."""
        return self._settings.check_every or (5 if self.problem.graph.is_complete else 10)

    @property
    def n_iter(self) -> int:
        return self._past_iterations + (0 if self._core is None else int(self._core.n_iter))

    @property
    def narrow(self) -> bool:
        """The pairs are kept in float32, as far as its range and digits serve."""
        return self._core is not None and bool(self._core.narrow)

    def set_lam(self, lam: float) -> None:
        """Move to another lam, keeping the state."""
        before = self.problem.lam
        self.problem = self.problem.with_lam(lam)
        if not self.coupled or lam == 0:
            self._core = None
        elif self._core is None or (
            not self._cap_lam / 2 <= lam <= self._cap_lam * 2 and (self._capped(before) or self._capped(lam))
        ):
            # Capped weights depend on lam: a fresh core, from the point of the old one.
            point = None if self._core is None else self.point()
            self._past_iterations = self.n_iter
            self._u = _power_of_two(self._largest_weight())
            self._core = self._build()
            if point is not None:
                self.warm_start(point)
        else:
            self._core.set_lam(self._scaled_lam(lam))

    def state(self) -> dict[str, FloatArray]:
        """What the next `set_lam` builds on; `restore` of an engine of the same problem and settings takes it."""
        head = np.array([self.problem.lam, self._cap_lam, float(self._past_iterations)])
        return {"head": head} | ({} if self._core is None else {"core": self._core.state()})

    def restore(self, state: dict[str, FloatArray]) -> None:
        """Go on from a state of `state`: the answers to come have the same bits."""
        lam, cap_lam, past = (float(number) for number in state["head"])
        self.problem = self.problem.with_lam(cap_lam)  # capped weights and their unit depend on it
        self._core = None
        if "core" in state:
            self._u = _power_of_two(self._largest_weight())
            self._core = self._build()
            self._core.restore(state["core"])
        self.problem = self.problem.with_lam(lam)
        self._cap_lam = cap_lam
        self._past_iterations = int(past)

    def warm_start(self, x: FloatArray) -> None:
        """Start from a point in the caller's coordinates."""
        if self._core is not None:
            self._core.warm_start(self._numbered((x - self.shift) / self._s))

    @property
    def unique(self) -> bool:
        """The minimiser is unique in each component (of each node where nodes are solved on their own)."""
        null = self._null
        if self._core is None:
            null = null_projectors(self._loss.hessians(), self._loss.n_features)
        return null is None

    @property
    def decoupled(self) -> bool:
        """No edges or lam = 0: every node is solved on its own, in closed form."""
        return self._core is None

    def run(self, iterations: int) -> bool:
        return bool(self._core.run(iterations))

    @property
    def aggregated(self) -> bool:
        """The iteration runs between the clusters of the lam before: `last` tells of that problem, whose dual value is
        no bound for this one, until `finish` has accepted a solution or gone back to every node."""
        return bool(self._core.aggregated)

    @property
    def n_swept(self) -> int:
        """Edges of the problem that the iteration runs on."""
        return int(self._core.n_swept)

    @property
    def n_between(self) -> int:
        """Iterations at this lam between the clusters of the one before; `n_iter` leaves them out."""
        return 0 if self._core is None else int(self._core.n_between)

    @property
    def n_fused(self) -> int:
        """Components of the edges whose dual lies inside its ball."""
        return int(self._core.n_fused())

    @property
    def half_open(self) -> bool:
        """Groups have begun to form, more than an eighth of the nodes still count as centres of their own, and
        finishing will try to settle them."""
        n = self.n_fused
        return self.problem.n_nodes < 8 * n < 8 * self.problem.n_nodes and not self._core.left_open(n)

    def contract(self, any_set: bool, checks: int) -> bool:
        """Put proven clusters of a complete graph in the place of their nodes: where that at least halves the pairs, or
        whatever is found. Costs a pass over the pairs and a few over those inside candidate sets."""
        return bool(self._core.contract(any_set, checks))

    def apart(self) -> float:
        """How much larger the gap could be and still show that all rows of `point` differ at the solution too, but for
        those that are contracted."""
        return float(self._core.apart())

    @property
    def finishing_work(self) -> float:
        """Edges that `finish` typically visits."""
        return float(self._core.finishing_work())

    def finish(self, share: float = 0.25) -> Finish:
        """Finish the partition for at most that share of what the sweeps have cost."""
        told = self._core.finish(share)
        return Finish(told["accepted"], told["proven"], told["enough"], told["n_clusters"], told["work"])

    def tighten(self, factor: float) -> None:
        self._core.tighten(factor)

    def refine(self, budget: float) -> tuple[int, float, bool]:
        """The second stage to the tolerance, where its expected work fits `budget`.

        Returns Newton steps (0: not tried), edges visited, and whether the gap is lower than it was (else the state
        is what it was).
        """
        steps, work, improved = self._core.refine(budget)
        return int(steps), float(work), bool(improved)

    @property
    def sweep_work(self) -> float:
        """Edges visited at this lam by sweeps, x-steps and the second stage."""
        return float(self._core.sweep_work)

    def last(self) -> Certificate:
        """The certificate of the last check (of a point that is not kept)."""
        return self._in_units(self._core.last)

    def point(self) -> FloatArray:
        """The present primal point; rows of a finished cluster are bitwise equal."""
        return self.alone() if self._core is None else self._back(self._core.x)

    def fused_point(self) -> FloatArray:
        """The mean over the components of edges whose dual lies inside its ball."""
        return self._back(self._core.fused_point())

    def _back(self, x: FloatArray) -> FloatArray:
        x = self._unnumbered(x)
        if self._null is not None:
            # A motion of a whole component that no loss feels: the shift has minimum norm, so none is added.
            n = len(self._null)
            mean = np.zeros((n, x.shape[1]))
            np.add.at(mean, self._components, x)
            mean /= np.bincount(self._components, minlength=n)[:, None]
            x = x - np.einsum("kab,kb->ka", self._null, mean)[self._components]
        return _plain_zeros(self.shift + self._s * x)

    def certify(self, x: FloatArray) -> Certificate:
        """Judge a point (caller's coordinates, as rounded) by the present duals."""
        if self._core is None:
            objective = self._loss.value(x)
            residual = float(np.sqrt(((self._loss.gradient(x)) ** 2).sum(axis=1).max()))
            rounding = EPS * (8 * len(x) + 64) * (objective + abs(objective))
            return Certificate(objective, objective, 0.0, rounding, 0.0, residual, True)
        told = self._in_units(self._core.certify(self._numbered((x - self.shift) / self._s)))
        lam, penalty = self.problem.lam, told.penalty
        if self._capped(self._cap_lam) or self._capped(lam):
            penalty = self.problem.with_lam(1.0).penalty_value(x)
        # The loss is taken from residuals at the point itself; the core's expansion only feeds the gap. What capping
        # left out of the penalty belongs to the gap, and the verdict is made on the whole of it.
        objective = self._loss.value(x) + lam * penalty
        gap = told.gap + max(lam * penalty - self._capped_lam(lam) * told.penalty, 0.0)
        size = max(abs(objective), abs(objective - gap))
        tolerance = self._settings.eps_rel * size + self._settings.eps_abs
        met = math.isfinite(gap) and (gap <= tolerance or gap <= told.rounding)
        return Certificate(objective, objective - gap, gap, told.rounding, penalty, told.dual_residual, met)

    def primal_residual(self) -> float:
        return 0.0 if self._core is None else float(self._core.primal_residual()) * self._s

    def duals(self) -> FloatArray:
        """v_ij in the order of `Graph.edges`, (n_edges, n_features)."""
        graph = self.problem.graph
        if self._core is None:
            return np.zeros((graph.n_edges, self.problem.n_features))
        v = self._core.duals()
        if graph.is_complete and graph.node_weights is not None and (graph.node_weights == 0).any():
            joined = graph.node_weights > 0
            i, j = np.triu_indices(graph.n_nodes, 1)
            v = v[joined[i] & joined[j]]
        v *= self._h * self._s
        if self._numbering is not None:
            own = np.empty_like(v)
            own[self._numbering.edges] = v
            own[self._numbering.turned] *= -1.0
            v = own
        return np.asarray(v)

    def pooled(self) -> FloatArray:
        """Every component at the minimiser of its summed losses."""
        return _plain_zeros(self.shift)

    def alone(self) -> FloatArray:
        """argmin f_i of each node, of minimum norm (or the common minimiser, where all agree on it)."""
        if self.agreed and self.problem.lam > 0 and self.problem.graph.n_edges > 0:
            return self.pooled()
        hessians, linear = self._loss.hessians(), self._loss.linear()
        if hessians.ndim == 1:
            # q_i / h_i is the target itself; the division would round it.
            base = np.zeros_like(linear)
            targets = getattr(self._loss, "targets", None)
            if targets is not None:
                return _plain_zeros(np.where(hessians[:, None] > 0, targets, base))
            return _plain_zeros(np.divide(linear, hessians[:, None], out=base, where=hessians[:, None] > 0))
        inverse = np.linalg.pinv(hessians, rcond=8 * self.problem.n_features * EPS, hermitian=True)
        x = np.einsum("iab,ib->ia", inverse, linear)
        return _plain_zeros(x - np.einsum("iab,ib->ia", inverse, self._loss.gradient(x)))

    def _in_units(self, told: dict[str, Any]) -> Certificate:
        f = self._h * self._s**2
        return Certificate(
            objective=told["objective"] * f,
            dual_objective=told["dual_objective"] * f,
            gap=told["gap"] * f,
            rounding=told["rounding"] * f,
            penalty=told["penalty"] * self._s * self._u,
            dual_residual=told["residual"] * self._h * self._s,
            met=bool(told["met"]),
        )
