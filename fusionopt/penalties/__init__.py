"""Pair penalties g(u; lam) in plain NumPy: values, derivatives and proximal maps."""

from fusionopt.penalties.base import Penalty
from fusionopt.penalties.l2_norm import L2Norm

__all__ = ["L2Norm", "Penalty"]
