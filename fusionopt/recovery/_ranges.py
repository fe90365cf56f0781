"""How far the curvature of a loss can change on a ball, and what rounding did to its gradients."""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np
from numpy.typing import NDArray

from fusionopt import _checks
from fusionopt.losses.base import NodeLoss

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]


class LossRanges(ABC):
    """Bounds for one loss, in the units of the data; x (m, d) has one point for each node."""

    @abstractmethod
    def within(self, x: FloatArray, radius: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Matrices (m, d, d) below and above every Hessian of f_i on the ball of radius_i around x_i."""

    @abstractmethod
    def gradient_errors(self, x: FloatArray) -> FloatArray:
        """(m,): bounds on the norm of the rounding error of each gradient, x itself rounded once."""

    @abstractmethod
    def hessian_errors(self, x: FloatArray) -> FloatArray:
        """(m,): bounds on the spectral norm of the rounding error of each Hessian at the given x."""


def ranges_of(loss: NodeLoss) -> LossRanges:
    """The bounds for a loss; refused where nothing is known about it."""
    _checks.refuse(
        f"loss is {type(loss).__name__}, whose curvature is not known beyond the points where it was evaluated; "
        "recovery needs one of the losses of fusionopt.losses.",
        argument="problem",
        got=type(loss).__name__,
        wanted="a loss with known curvature",
    )
