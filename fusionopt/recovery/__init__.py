"""Which partition a solution has: restricted problem, flow test, certificates. Never imports the solver."""

from fusionopt.recovery.bounds import lambda_max_1d, lambda_max_socp
from fusionopt.recovery.certify import Certification, certify
from fusionopt.recovery.flow import FlowResult, min_flow
from fusionopt.recovery.restricted import RestrictedSolution, solve_restricted

__all__ = [
    "Certification",
    "FlowResult",
    "RestrictedSolution",
    "certify",
    "lambda_max_1d",
    "lambda_max_socp",
    "min_flow",
    "solve_restricted",
]
