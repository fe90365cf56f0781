"""Personalised models that fuse into clusters: convex clustering and its relatives, with certificates.

    minimise over x:  sum_i f_i(x_i) + sum_{i<j} w_ij g(x_i - x_j; lam)

Names are loaded on first use, so importing the package is fast and `fusionopt.verify` loads no solver.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fusionopt import datasets, federated, plotting, recovery, reference, scaling, verify
    from fusionopt.critical import lambda_max, lambda_max_bounds
    from fusionopt.errors import (
        FusionoptError,
        InvalidArgumentError,
        InvalidTypeError,
        MemoryLimitError,
        MissingDependencyError,
        NotConvergedError,
        WorkerError,
    )
    from fusionopt.estimators import ConvexClustering
    from fusionopt.fused_models import FusedClassifier, FusedRegression
    from fusionopt.graph import Graph
    from fusionopt.losses import (
        CallableLoss,
        Huber,
        HuberRegression,
        LeastSquares,
        Logistic,
        Poisson,
        Softmax,
        SquaredDistance,
        SquaredHinge,
    )
    from fusionopt.path import PathResult, solution_path
    from fusionopt.penalties import L1Norm, L2Norm, Mcp, Scad, SmoothedScad, SquaredL2
    from fusionopt.problem import FusionProblem
    from fusionopt.result import Result
    from fusionopt.settings import AdmmSettings, DcSettings, FpfcSettings, PdmmSettings
    from fusionopt.solver import solve, solve_many

    __version__: str

_MODULES = ("datasets", "federated", "plotting", "recovery", "reference", "scaling", "verify")

_NAMES = {
    "AdmmSettings": "settings",
    "CallableLoss": "losses",
    "ConvexClustering": "estimators",
    "DcSettings": "settings",
    "FpfcSettings": "settings",
    "FusedClassifier": "fused_models",
    "FusedRegression": "fused_models",
    "FusionProblem": "problem",
    "FusionoptError": "errors",
    "Graph": "graph",
    "Huber": "losses",
    "HuberRegression": "losses",
    "InvalidArgumentError": "errors",
    "InvalidTypeError": "errors",
    "L1Norm": "penalties",
    "L2Norm": "penalties",
    "LeastSquares": "losses",
    "Logistic": "losses",
    "Mcp": "penalties",
    "MemoryLimitError": "errors",
    "MissingDependencyError": "errors",
    "NotConvergedError": "errors",
    "PathResult": "path",
    "PdmmSettings": "settings",
    "Poisson": "losses",
    "Result": "result",
    "Scad": "penalties",
    "SmoothedScad": "penalties",
    "Softmax": "losses",
    "SquaredDistance": "losses",
    "SquaredHinge": "losses",
    "SquaredL2": "penalties",
    "WorkerError": "errors",
    "lambda_max": "critical",
    "lambda_max_bounds": "critical",
    "solution_path": "path",
    "solve": "solver",
    "solve_many": "solver",
}

__all__ = [
    "AdmmSettings",
    "CallableLoss",
    "ConvexClustering",
    "DcSettings",
    "FpfcSettings",
    "FusedClassifier",
    "FusedRegression",
    "FusionProblem",
    "FusionoptError",
    "Graph",
    "Huber",
    "HuberRegression",
    "InvalidArgumentError",
    "InvalidTypeError",
    "L1Norm",
    "L2Norm",
    "LeastSquares",
    "Logistic",
    "Mcp",
    "MemoryLimitError",
    "MissingDependencyError",
    "NotConvergedError",
    "PathResult",
    "PdmmSettings",
    "Poisson",
    "Result",
    "Scad",
    "SmoothedScad",
    "Softmax",
    "SquaredDistance",
    "SquaredHinge",
    "SquaredL2",
    "WorkerError",
    "__version__",
    "datasets",
    "federated",
    "lambda_max",
    "lambda_max_bounds",
    "plotting",
    "recovery",
    "reference",
    "scaling",
    "solution_path",
    "solve",
    "solve_many",
    "verify",
]


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("fusionopt")
    except PackageNotFoundError:  # a source tree that was never installed
        return "0+unknown"


def __getattr__(name: str) -> object:
    value: object
    if name == "__version__":
        value = _version()
    elif name in _MODULES:
        value = import_module(f"fusionopt.{name}")
    elif name in _NAMES:
        value = getattr(import_module(f"fusionopt.{_NAMES[name]}"), name)
    else:
        raise AttributeError(f"module 'fusionopt' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(set(globals()) | set(__all__))
