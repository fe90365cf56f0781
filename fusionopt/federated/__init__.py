"""Federated systems on one bench: the same clients, the same round loop, the same accounting."""

from fusionopt.federated._simulation import History, Round, simulate
from fusionopt.federated._system import System
from fusionopt.federated.cfl import Cfl
from fusionopt.federated.fed_avg import FedAvg
from fusionopt.federated.ifca import Ifca
from fusionopt.federated.local import Local
from fusionopt.federated.oracle import Oracle
from fusionopt.recovery import bipartition, optimal_cluster_weights, rfedavg_weights

__all__ = [
    "Cfl",
    "FedAvg",
    "History",
    "Ifca",
    "Local",
    "Oracle",
    "Round",
    "System",
    "bipartition",
    "optimal_cluster_weights",
    "rfedavg_weights",
    "simulate",
]
