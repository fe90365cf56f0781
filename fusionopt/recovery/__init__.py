"""Which partition a solution has: restricted problem, flow test, certificates, theorems. Never imports the
solver.
"""

from fusionopt.recovery.aggregation import bipartition, optimal_cluster_weights, rfedavg_weights
from fusionopt.recovery.bounds import lambda_max_1d, lambda_max_socp
from fusionopt.recovery.certify import Certification, certify
from fusionopt.recovery.flow import FlowResult, min_flow
from fusionopt.recovery.fpfc_parameters import FpfcParameterReport, check_fpfc_parameters
from fusionopt.recovery.interval import (
    FlowCurve,
    PathProof,
    RecoveryInterval,
    flow_curve,
    path_proofs,
    recovery_interval,
)
from fusionopt.recovery.papers import Finding, Report, verify
from fusionopt.recovery.restricted import RestrictedSolution, solve_restricted
from fusionopt.recovery.theorems import (
    ConservativeBounds,
    conservative_bounds,
    theorem1_bound,
    theorem2_bound,
    theorem2_bound_sharp,
    theorem3_interval,
    theorem4_bounds,
)

__all__ = [
    "Certification",
    "ConservativeBounds",
    "Finding",
    "FlowCurve",
    "FlowResult",
    "FpfcParameterReport",
    "PathProof",
    "RecoveryInterval",
    "Report",
    "RestrictedSolution",
    "bipartition",
    "certify",
    "check_fpfc_parameters",
    "conservative_bounds",
    "flow_curve",
    "lambda_max_1d",
    "lambda_max_socp",
    "min_flow",
    "optimal_cluster_weights",
    "path_proofs",
    "recovery_interval",
    "rfedavg_weights",
    "solve_restricted",
    "theorem1_bound",
    "theorem2_bound",
    "theorem2_bound_sharp",
    "theorem3_interval",
    "theorem4_bounds",
    "verify",
]
