"""`Result`: what `solve` returns."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fusionopt import _archive, _checks
from fusionopt._duals import ImplicitDuals
from fusionopt.clusters import cluster_sizes
from fusionopt.errors import NotConvergedError
from fusionopt.losses.base import QuadraticNodeLoss
from fusionopt.losses.pooled import newton_minimiser, pooled_minimiser
from fusionopt.penalties import L2Norm
from fusionopt.problem import FusionProblem
from fusionopt.settings import Settings

if TYPE_CHECKING:
    from fusionopt.certificate import Certificate

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

CERTIFY_LIMIT = 1500
"""Centres times features up to which `labels_certified` is computed: `recovery.certify` factors a dense matrix."""
CERTIFY_BYTES = 2**30
"""... and duals beyond which it is not: they would be formed for that alone."""
CONVERGED = ("optimal", "stationary")
TRACE_COLUMNS = ("iteration", "time", "objective", "dual_objective", "gap")


class Trace:
    """One row a check; a method may add columns of its own, the same at every check."""

    def __init__(self) -> None:
        self._columns: dict[str, list[float]] = {name: [] for name in TRACE_COLUMNS}

    def add(
        self,
        iteration: int,
        time: float,
        objective: float,
        dual_objective: float,
        gap: float,
        **extra: float,
    ) -> None:
        row = (iteration, time, objective, dual_objective, gap)
        for name, value in (dict(zip(TRACE_COLUMNS, row, strict=True)) | extra).items():
            self._columns.setdefault(name, []).append(value)

    def arrays(self) -> dict[str, NDArray[np.generic]]:
        return {name: np.array(values) for name, values in self._columns.items()}


@dataclass(frozen=True)
class Start:
    """What became of one starting point of a non-convex problem.

    Attributes
    ----------
    name : str
    first_objective, objective : float
        F at the start and where it led.
    n_clusters, n_steps : int
    dual_residual : float
        Distance of the subdifferential where it led.
    status : str
        "stationary", or why it was stopped.
    """

    name: str
    first_objective: float
    objective: float
    n_clusters: int
    n_steps: int
    dual_residual: float
    status: str


class Result:
    """A solution with its certificate.

    Attributes
    ----------
    x : float64 (n_nodes, n_features)
        Rows of one cluster are bitwise equal (but for FPFC, whose x is as the nodes left it). Results of a path keep
        one row a cluster, and x is made on access.
    labels : int64 (n_nodes,)
        Clusters in order of first appearance: nodes joined by edges whose ends are exactly equal; of FPFC, by touched
        pairs with ||theta|| <= nu.
    n_clusters : int
    centers : float64 (n_clusters, n_features)
        The rows of x; where they are not equal within a cluster, their mean weighted by the samples of each node.
    cluster_sizes : int64 (n_clusters,)
    proven : bool
        The method's own duals showed the flow inside every cluster, up to rounding (see docs/architecture.md).
    labels_certified : bool or None
        What `recovery.certify` says of the partition; computed on first access. None without duals, and where
        certify would take minutes or gigabytes (CERTIFY_LIMIT, CERTIFY_BYTES); call it yourself there.
    objective, dual_objective, gap, rel_gap : float
        F(x), D(edge_duals()), their difference, and gap / max(|P|, |D|) (0.0 within rounding).
    lower_bound : float or None
        A number that F is nowhere below, by a convex envelope; non-convex problems only.
    starts : tuple of Start
        Every start of a non-convex problem, in the order tried; empty otherwise.
    status : str
        "optimal", "user_limit", "interrupted" or "numerical_error".
    message : str
    n_iter : int
        Iterations with every node; `message` tells of those between the clusters of a path's lam before.
    primal_residual, dual_residual : float
        ||Bx - theta|| of the ADMM splitting; max_i ||grad f_i(x_i) + sum_j v_ij||.
    setup_time, solve_time : float
        Seconds.
    trace : dict of arrays
        Columns "iteration", "time", "objective", "dual_objective", "gap", one row a check; FPFC and PDMM add some.
    problem : FusionProblem
    settings : Settings
    """

    def __init__(
        self,
        *,
        problem: FusionProblem,
        settings: Settings,
        x: FloatArray,
        labels: IntArray,
        objective: float,
        dual_objective: float,
        gap: float,
        rel_gap: float,
        status: str,
        message: str,
        n_iter: int,
        primal_residual: float,
        dual_residual: float,
        setup_time: float,
        solve_time: float,
        trace: dict[str, NDArray[np.generic]],
        lower_bound: float | None = None,
        starts: tuple[Start, ...] = (),
        proven: bool = False,
    ) -> None:
        self.problem = problem
        self.settings = settings
        self._x: FloatArray | None = x
        self._labels: NDArray[np.integer[Any]] = labels
        self.objective = objective
        self.dual_objective = dual_objective
        self.gap = gap
        self.rel_gap = rel_gap
        self.status = status
        self.message = message
        self.n_iter = n_iter
        self.primal_residual = primal_residual
        self.dual_residual = dual_residual
        self.setup_time = setup_time
        self.solve_time = solve_time
        self.trace = trace
        self.lower_bound = lower_bound
        self.starts = starts
        self.proven = proven
        self._duals: Callable[[], FloatArray] | None = None

    @property
    def x(self) -> FloatArray:
        return self.centers[self._labels] if self._x is None else self._x

    @property
    def labels(self) -> IntArray:
        return self._labels.astype(np.int64, copy=False)

    @property
    def is_compact(self) -> bool:
        """Whether one row a cluster is kept in the place of x."""
        return self._x is None

    def compact(self) -> Result:
        """Itself, keeping one row a cluster in the place of x, where that gives back the same bits."""
        if self._x is not None:
            # Negative zeros would come back as whichever zero the first row has: compare bits, not values.
            same = self.centers[self._labels].tobytes() == np.ascontiguousarray(self._x).tobytes()
            if same:
                self._labels, self._x = self._labels.astype(np.int32), None
        return self

    def keep_duals(self, source: Callable[[], FloatArray]) -> None:
        """Where `edge_duals` takes its array from."""
        self._duals = source

    @property
    def dual_source(self) -> Callable[[], FloatArray] | None:
        """What `edge_duals` calls; None without duals."""
        return self._duals

    def drop_duals(self) -> None:
        """Forget them (a path too large to keep them all)."""
        self._duals = None

    def __getstate__(self) -> dict[str, object]:
        # The engine behind the duals stays in its process; the duals themselves travel.
        state = self.__dict__.copy()
        if self._duals is not None and not isinstance(self._duals, ImplicitDuals):
            state["_duals"] = self.edge_duals().copy
        return state

    @property
    def has_duals(self) -> bool:
        """Whether `edge_duals` can answer."""
        return self._duals is not None

    @property
    def implicit_duals(self) -> ImplicitDuals | None:
        """The duals as the point that implies them, O(n_nodes) numbers, where the method keeps them so; else None."""
        return self._duals if isinstance(self._duals, ImplicitDuals) else None

    @cached_property
    def n_clusters(self) -> int:
        return int(self._labels.max()) + 1

    @cached_property
    def centers(self) -> FloatArray:
        assert self._x is not None  # compact() keeps this value
        x, labels = self._x, self._labels
        _, first = np.unique(labels, return_index=True)
        rows = x[first]
        if (rows[labels] == x).all():
            return rows
        # Not fused exactly: the mean of the rows, weighted by the samples of each node (Yu et al.).
        samples = np.asarray(getattr(self.problem.loss, "n_samples", np.ones(len(x))), dtype=np.float64)
        means = np.zeros_like(rows)
        np.add.at(means, labels, samples[:, None] * x)
        return np.asarray(means / np.bincount(labels, samples)[:, None])

    @cached_property
    def cluster_sizes(self) -> IntArray:
        return cluster_sizes(self.labels)

    @cached_property
    def labels_certified(self) -> bool | None:
        many = self.n_clusters * self.problem.n_features > CERTIFY_LIMIT
        l2 = isinstance(self.problem.penalty, L2Norm)
        large = 8 * self.problem.graph.n_edges * self.problem.n_features > CERTIFY_BYTES
        if self._duals is None or self.status != "optimal" or many or large or not l2:
            return None
        from fusionopt.recovery import certify

        # Quadratic losses have better centres in their duals; others start from what the solver reached.
        start = None if isinstance(self.problem.loss, QuadraticNodeLoss) else self.centers
        return bool(certify(self.problem, self.labels, duals=self.edge_duals(), centers=start).holds)

    def edge_duals(self) -> FloatArray:
        """v_ij with ||v_ij|| <= lam w_ij and D(v) = dual_objective.

        Returns
        -------
        float64 (n_edges, n_features)
            Rows in the order of ``problem.graph.edges`` (i < j), allocated at each call.

        Raises
        ------
        InvalidArgumentError
            The duals were not kept (a path too large to keep them all).
        MemoryLimitError
            A solution found without storing pairs, whose pairs do not fit the machine.
        """
        if self._duals is None:
            _checks.refuse(
                "the duals of this result were not kept; solve(result.problem, warm_start=result) gives them.",
                argument="edge_duals",
                got="a result without duals",
                wanted="a result of solve()",
            )
        return self._duals()

    def certificate(self) -> Certificate:
        """A saved proof that `python -m fusionopt.verify` checks without this package's solver."""
        from fusionopt.certificate import build_certificate

        return build_certificate(
            self.problem,
            self.x,
            self.labels,
            self.edge_duals(),
            objective=self.objective,
            dual_objective=self.dual_objective,
            gap=self.gap,
            status=self.status,
            eps_rel=self.settings.eps_rel,
            eps_abs=self.settings.eps_abs,
        )

    def refit(self) -> FloatArray:
        """Minimiser of the summed losses of each cluster, (n_clusters, n_features).

        Fused estimates are pulled towards each other; these are not. Minimum norm where not unique.
        """
        loss = self.problem.loss
        if isinstance(loss, QuadraticNodeLoss):
            return pooled_minimiser(loss, self.labels)
        return newton_minimiser(loss, self.labels, self.centers)

    def summary(self) -> str:
        """A few lines for a reader in a hurry."""
        sizes = np.sort(self.cluster_sizes)[::-1]
        bound = f"dual {self.dual_objective:.10g}, relative gap {self.rel_gap:.2e}"
        if self.lower_bound is not None:
            bound = f"lower bound {self.lower_bound:.10g}"
        shown = ", ".join(str(int(s)) for s in sizes[:10]) + (", ..." if len(sizes) > 10 else "")
        return "\n".join(
            [
                f"{self.status}: {self.message}",
                f"lam {self.problem.lam:.6g}, objective {self.objective:.10g}, {bound}",
                f"{self.n_clusters} clusters of sizes {shown}",
                f"{self.n_iter} iterations, {self.setup_time:.3g} s setup, {self.solve_time:.3g} s solve",
            ]
        )

    def require_converged(self) -> Result:
        """Itself when the status is "optimal" or "stationary".

        Raises
        ------
        NotConvergedError
            Otherwise; `.result` is this result.
        """
        if self.status not in CONVERGED:
            raise NotConvergedError(f"status is {self.status!r}: {self.message}", result=self)
        return self

    def save(self, path: str | Path) -> None:
        """Write everything, problem and duals included, to one .npz file without pickle."""
        arrays = _archive.pack_problem(self.problem) | _archive.pack_result(self, "result.")
        if isinstance(self._duals, ImplicitDuals):
            arrays |= {f"result.implicit.{name}": values for name, values in self._duals.arrays().items()}
        elif self._duals is not None:
            arrays["result.duals"] = self.edge_duals()
        _archive.write(path, "result", arrays)

    @staticmethod
    def load(path: str | Path) -> Result:
        """Read what `save` wrote.

        Raises
        ------
        InvalidArgumentError
            Not such a file.
        """
        arrays = _archive.read(path, "result")
        result = _archive.unpack_result(arrays, "result.", _archive.unpack_problem(arrays))
        if "result.duals" in arrays:
            duals = arrays["result.duals"]
            result.keep_duals(duals.copy)
        elif "result.implicit.points" in arrays:
            names = ("points", "weights", "scalars")
            result.keep_duals(ImplicitDuals.of(*(arrays[f"result.implicit.{name}"] for name in names)))
        return result

    def __repr__(self) -> str:
        return (
            f"Result({self.status}, lam={self.problem.lam:g}, objective={self.objective:.8g}, "
            f"rel_gap={self.rel_gap:.1e}, n_clusters={self.n_clusters})"
        )
