"""Points that span fewer dimensions than they have coordinates: solved in those, certified in the ones given.

With f_i(x) = h_i / 2 ||x - a_i||^2 and the l2 penalty the solution stays in the affine hull of the a_i: a rotation Q'
with orthonormal columns turns x - c = Q' z into the same problem for z with r = rank(a - c) coordinates. The duals
v_z of that problem give v = v_z Q for the one asked, ||v_e|| <= ||Q|| ||v_z,e||, and the gap is evaluated anew from
their row sums, at the point that is returned.
"""

from __future__ import annotations

import dataclasses
import math

import numpy as np
from numpy.typing import NDArray

from fusionopt.clusters import exact_labels
from fusionopt.losses import SquaredDistance
from fusionopt.losses.base import EPS
from fusionopt.losses.pooled import pooled_minimiser
from fusionopt.methods._check import relative_gap
from fusionopt.methods._monitor import Monitor
from fusionopt.methods.admm import AdmmSession
from fusionopt.penalties import L2Norm
from fusionopt.problem import FusionProblem
from fusionopt.result import Result
from fusionopt.settings import AdmmSettings

FloatArray = NDArray[np.float64]

_WORTH = 0.8
"""Most dimensions, relative to the coordinates, at which the rotation pays."""
_FEWEST = 4
"""Coordinates below which it does not."""


@dataclasses.dataclass(frozen=True, eq=False)
class Hull:
    """Affine hull of the points of a problem.

    Attributes
    ----------
    centre : float64 (n_nodes, n_features)
        The pooled minimiser of each node's component.
    basis : float64 (r, n_features)
        Orthonormal rows.
    """

    centre: FloatArray
    basis: FloatArray

    def turn(self, x: FloatArray) -> FloatArray:
        """The r coordinates of rows of x."""
        return np.ascontiguousarray((x - self.centre) @ self.basis.T)

    def back(self, z: FloatArray) -> FloatArray:
        """Rows of x from their coordinates; equal rows come from one product, so they stay equal in every bit."""
        unique, which = np.unique(z, axis=0, return_inverse=True)
        return np.asarray(self.centre + (unique @ self.basis)[which.ravel()] + 0.0)


def find_hull(problem: FusionProblem) -> Hull | None:
    """The hull where `RotatedSession` applies and pays, else None."""
    loss, d = problem.loss, problem.n_features
    if type(loss) is not SquaredDistance or type(problem.penalty) is not L2Norm:
        return None
    if problem.lam == 0 or problem.graph.n_edges == 0 or d < _FEWEST or problem.n_nodes < 2:
        return None
    weights = loss.hessians()
    if weights.ndim != 1 or not weights.min() > 0:
        return None
    centre = pooled_minimiser(loss, problem.graph.component_labels)[problem.graph.component_labels]
    centred = loss.targets - centre
    # A power of two near the largest entry: squares of any unit stay in range, and nothing is rounded.
    size = float(np.abs(centred).max())
    if not 0 < size < math.inf:
        return None
    centred = centred * 2.0 ** -math.frexp(size)[1]
    if d <= problem.n_nodes:
        # Cheap to tell: with a smallest eigenvalue this large every coordinate is needed.
        spectrum = np.linalg.eigvalsh(centred.T @ centred)
        if spectrum[int((1 - _WORTH) * d)] > 1e-8 * spectrum[-1]:
            return None
    _, values, basis = np.linalg.svd(centred, full_matrices=False)
    rank = int((values > max(centred.shape) * EPS * values[0]).sum())
    if rank > _WORTH * d:
        return None
    return Hull(centre, np.ascontiguousarray(basis[:rank]))


class RotatedSession:
    """ADMM in the dimensions that the points span.

    Parameters
    ----------
    problem : FusionProblem
        One with a hull.
    hull : Hull
    settings : AdmmSettings
    point : float64 (n_nodes, n_features) or None
        Where to start.

    Notes
    -----
    O(n_nodes n_features min(n_nodes, n_features)) for the rotation, then the cost of `rank` features.
    """

    def __init__(
        self, problem: FusionProblem, hull: Hull, settings: AdmmSettings, point: FloatArray | None
    ) -> None:
        assert isinstance(problem.loss, SquaredDistance)  # for the type checker: find_hull gave the hull
        self._problem, self._hull, self._settings = problem, hull, settings
        loss = problem.loss
        turned = FusionProblem(
            SquaredDistance(hull.turn(loss.targets), loss.hessians()),
            problem.graph,
            problem.penalty,
            problem.lam,
        )
        self._inner = AdmmSession(turned, settings, None if point is None else hull.turn(point))
        basis = hull.basis
        r, d = basis.shape
        # ||Q||^2 <= 1 + ||Q Q' - I||; the rounding of that product and of the ones by Q is in the bound.
        self._stretch = (
            0.5 * float(np.linalg.norm(basis @ basis.T - np.eye(r))) + (0.5 * d + 2.0 * r + 16.0) * EPS
        )

    def set_lam(self, lam: float) -> None:
        """Go on at another lam."""
        self._problem = self._problem.with_lam(lam)
        self._inner.set_lam(lam)

    def state(self) -> dict[str, FloatArray]:
        """What the next `set_lam` builds on."""
        return self._inner.state()

    def restore(self, state: dict[str, FloatArray]) -> None:
        """Go on from such a state: what is computed from here on has the same bits."""
        self._inner.restore(state)

    def run(self, monitor: Monitor) -> Result:
        """Solve at the present lam."""
        found = self._inner.run(monitor)
        problem, settings, hull = self._problem, self._settings, self._hull
        scale = 1.0 / (1.0 + self._stretch)
        x = hull.back(found.x)
        sums, noise = self._inner.dual_sums(found.x)
        sums = sums @ hull.basis * scale
        residual = problem.loss.gradient(x) + sums
        objective, gap, rounding = self._judge(x, sums, residual, noise)
        size = max(abs(objective), abs(objective - gap))
        met = gap <= settings.eps_rel * size + settings.eps_abs or gap <= rounding
        status = found.status if met or found.status != "optimal" else "user_limit"
        r, d = hull.basis.shape
        result = Result(
            problem=problem,
            settings=settings,
            x=x,
            labels=exact_labels(x, problem.graph),
            objective=objective,
            dual_objective=objective - gap,
            gap=gap,
            rel_gap=relative_gap(gap, objective, rounding, settings),
            status=status,
            message=f"{found.message}; solved in the {r} dimensions that the points span, of {d}",
            n_iter=found.n_iter,
            primal_residual=found.primal_residual,
            dual_residual=float(np.sqrt((residual**2).sum(axis=1).max())),
            setup_time=found.setup_time,
            solve_time=found.solve_time,
            trace=found.trace,
        )
        result.keep_duals(lambda: np.asarray(found.edge_duals() @ hull.basis * scale))
        return result

    def _judge(
        self, x: FloatArray, sums: FloatArray, residual: FloatArray, noise: float
    ) -> tuple[float, float, float]:
        """Objective, gap and a bound on the gap's rounding, in the coordinates given."""
        problem = self._problem
        loss = problem.loss
        assert isinstance(loss, SquaredDistance)
        h, u = loss.hessians(), x - self._hull.centre
        penalty = problem.penalty_value(x)
        stat = math.fsum(0.5 * (residual**2).sum(axis=1) / h)
        slack = penalty - math.fsum((sums * u).sum(axis=1))
        value = loss.value(x)
        gap = max(stat + slack, 0.0)
        magnitude = value + penalty + float(np.abs(sums * u).sum()) + stat
        chain = x.shape[1] + self._hull.basis.shape[0] + 64.0
        rounding = noise + (EPS * chain + self._stretch) * magnitude
        return value + penalty, gap, rounding
