"""Which method serves which problem: the one place where settings, loss, penalty and graph meet."""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from fusionopt import _checks
from fusionopt.losses.base import QuadraticNodeLoss
from fusionopt.methods._monitor import Monitor
from fusionopt.methods.admm import AdmmSession
from fusionopt.methods.pdmm import PdmmSession
from fusionopt.methods.proximal_newton import ProximalNewtonSession
from fusionopt.methods.smooth import SmoothSession
from fusionopt.penalties import L1Norm, SquaredL2
from fusionopt.problem import FusionProblem
from fusionopt.result import Result
from fusionopt.settings import AdmmSettings, PdmmSettings, Settings

FloatArray = NDArray[np.float64]


class Session(Protocol):
    """A method at work on one problem, which may go on at another lam."""

    def set_lam(self, lam: float) -> None:
        """Go on at another lam, from the present answer."""

    def run(self, monitor: Monitor) -> Result:
        """Solve at the present lam."""


def open_session(problem: FusionProblem, settings: Settings, point: FloatArray | None) -> Session:
    """The session that serves this problem under these settings, before any work.

    Raises
    ------
    InvalidTypeError
        No method serves this combination; the message says which part does not fit.
    """
    if isinstance(settings, PdmmSettings):
        return PdmmSession(problem, settings, point)
    _checks.check_instance("settings", settings, AdmmSettings, "for instance AdmmSettings(), or None")
    assert isinstance(settings, AdmmSettings)  # for the type checker: refused above otherwise
    if isinstance(problem.penalty, SquaredL2):
        return SmoothSession(problem, settings, point)
    l1 = isinstance(problem.penalty, L1Norm) and problem.n_features > 1
    if isinstance(problem.loss, QuadraticNodeLoss) and not l1:
        return AdmmSession(problem, settings, point)
    return ProximalNewtonSession(problem, settings, point)
