"""Which method serves which problem: the one place where settings, loss, penalty and graph meet."""

from __future__ import annotations

import dataclasses
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from fusionopt import _checks
from fusionopt.estimate import chooses_storage_free, default_dtype
from fusionopt.losses import Logistic, Poisson, Softmax, SquaredDistance
from fusionopt.losses.base import QuadraticNodeLoss
from fusionopt.methods._monitor import Monitor
from fusionopt.methods.admm import AdmmSession
from fusionopt.methods.by_coordinates import ByCoordinatesSession
from fusionopt.methods.difference_of_convex import DcSession
from fusionopt.methods.fpfc import FpfcSession
from fusionopt.methods.implicit import ImplicitSession
from fusionopt.methods.pdmm import PdmmSession
from fusionopt.methods.proximal_newton import ProximalNewtonSession
from fusionopt.methods.rotated import RotatedSession, find_hull
from fusionopt.methods.smooth import SmoothSession
from fusionopt.methods.unattained import UnattainedSession
from fusionopt.penalties import L1Norm, Mcp, SmoothedScad, SquaredL2
from fusionopt.penalties.base import Penalty, RadialPenalty
from fusionopt.problem import FusionProblem
from fusionopt.result import Result
from fusionopt.settings import AdmmSettings, DcSettings, FpfcSettings, PdmmSettings, Settings

FloatArray = NDArray[np.float64]


class Session(Protocol):
    """A method at work on one problem, which may go on at another lam."""

    def set_lam(self, lam: float) -> None:
        """Go on at another lam, from the present answer."""

    def run(self, monitor: Monitor) -> Result:
        """Solve at the present lam."""


@runtime_checkable
class ResumableSession(Session, Protocol):
    """A session that can hand out what it carries from one lam to the next."""

    def state(self) -> dict[str, FloatArray]:
        """What the next `set_lam` builds on."""

    def restore(self, state: dict[str, FloatArray]) -> None:
        """Go on from such a state: what is computed from here on has the same bits."""


def default_settings(problem: FusionProblem) -> Settings:
    """The settings of the best certified method for a problem."""
    if isinstance(problem.penalty, SmoothedScad):
        return FpfcSettings(local_steps=None, max_iter=AdmmSettings.max_iter, nu=problem.penalty.xi)
    return DcSettings() if _steps_down(problem.penalty) else AdmmSettings(dtype=default_dtype(problem))


def _steps_down(penalty: Penalty) -> bool:
    """Whether difference-of-convex steps serve a penalty."""
    return isinstance(penalty, RadialPenalty) and penalty.concave and not penalty.convex


def _may_lack_minimiser(problem: FusionProblem) -> bool:
    """Whether `existence` has something to find out."""
    loss = problem.loss
    return isinstance(loss, Logistic | Softmax | Poisson) and not (loss.strong_convexity() > 0).all()


def check_rho(penalty: Penalty, rho: float) -> None:
    """Refuse a fixed rho (per unit weight) that a non-convex penalty does not allow.

    Its prox with step 1 / rho is continuous only while rho exceeds the penalty's weak convexity.

    Raises
    ------
    InvalidArgumentError
        rho <= 1 / (a - 1) for SCAD, rho <= 1 / gamma for MCP.
    """
    least = penalty.weak_convexity
    if rho <= least and least > 0:
        formula = "1 / gamma" if isinstance(penalty, Mcp) else "1 / (a - 1)"
        _checks.refuse(
            f"rho={rho:g} breaks rho > {formula} = {least:g} of {penalty!r}, below which an update of one pair has two "
            "answers; give a larger rho, or None.",
            argument="rho",
            got=rho,
            wanted=f"rho > {least:g}",
        )


def open_session(problem: FusionProblem, settings: Settings, point: FloatArray | None) -> Session:
    """The session that serves this problem under these settings, before any work.

    Raises
    ------
    InvalidTypeError
        No method serves this combination; the message says which part does not fit.
    InvalidArgumentError
        A fixed rho that the penalty does not allow.
    """
    rho = getattr(settings, "rho", None)
    if rho is not None:
        check_rho(problem.penalty, rho)
    if isinstance(settings, PdmmSettings):
        return PdmmSession(problem, settings, point)
    if isinstance(settings, FpfcSettings):
        return FpfcSession(problem, settings, point)
    _checks.check_instance("settings", settings, AdmmSettings, "for instance AdmmSettings(), or None")
    assert isinstance(settings, AdmmSettings)  # for the type checker: refused above otherwise
    if _steps_down(problem.penalty):
        own = {f.name: getattr(settings, f.name) for f in dataclasses.fields(settings)}
        steps = settings if isinstance(settings, DcSettings) else DcSettings(**own)
        if _may_lack_minimiser(problem):
            # No penalty of differences holds a direction that all nodes share, bounded or not.
            return UnattainedSession(
                problem, steps, lambda attained: DcSession(attained, steps, point, open_session)
            )
        return DcSession(problem, steps, point, open_session)
    if chooses_storage_free(problem, settings):
        return ImplicitSession(problem, settings)
    if _may_lack_minimiser(problem):
        smooth = isinstance(problem.penalty, SquaredL2)
        way = SmoothSession if smooth else ProximalNewtonSession
        return UnattainedSession(problem, settings, lambda attained: way(attained, settings, point))
    if isinstance(problem.penalty, SquaredL2):
        return SmoothSession(problem, settings, point)
    l1 = isinstance(problem.penalty, L1Norm) and problem.n_features > 1
    if l1 and type(problem.loss) is SquaredDistance:
        return ByCoordinatesSession(problem, settings, point, open_session)
    if isinstance(problem.loss, QuadraticNodeLoss) and not l1:
        hull = find_hull(problem)
        if hull is not None:
            return RotatedSession(problem, hull, settings, point)
        return AdmmSession(problem, settings, point)
    return ProximalNewtonSession(problem, settings, point)
