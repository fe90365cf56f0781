"""Node losses f_i in plain NumPy: values, gradients and, where they are quadratic, the quadratic form."""

from fusionopt.losses.base import NodeLoss, QuadraticNodeLoss
from fusionopt.losses.least_squares import LeastSquares
from fusionopt.losses.squared_distance import SquaredDistance

__all__ = ["LeastSquares", "NodeLoss", "QuadraticNodeLoss", "SquaredDistance"]
