"""Pair penalties g(u; lam) in plain NumPy: values, derivatives and proximal maps."""

from fusionopt.penalties.base import Penalty, RadialPenalty
from fusionopt.penalties.l1_norm import L1Norm
from fusionopt.penalties.l2_norm import L2Norm
from fusionopt.penalties.mcp import Mcp
from fusionopt.penalties.scad import Scad, SmoothedScad
from fusionopt.penalties.squared_l2 import SquaredL2

__all__ = ["L1Norm", "L2Norm", "Mcp", "Penalty", "RadialPenalty", "Scad", "SmoothedScad", "SquaredL2"]
