"""Node losses f_i in plain NumPy: values, gradients, Hessians, and bounds of their conjugates."""

from fusionopt.losses.base import FenchelGap, NodeLoss, QuadraticNodeLoss
from fusionopt.losses.callable_loss import CallableLoss
from fusionopt.losses.huber import Huber
from fusionopt.losses.huber_regression import HuberRegression
from fusionopt.losses.least_squares import LeastSquares
from fusionopt.losses.logistic import Logistic
from fusionopt.losses.poisson import Poisson
from fusionopt.losses.softmax import Softmax
from fusionopt.losses.squared_distance import SquaredDistance
from fusionopt.losses.squared_hinge import SquaredHinge

__all__ = [
    "CallableLoss",
    "FenchelGap",
    "Huber",
    "HuberRegression",
    "LeastSquares",
    "Logistic",
    "NodeLoss",
    "Poisson",
    "QuadraticNodeLoss",
    "Softmax",
    "SquaredDistance",
    "SquaredHinge",
]
