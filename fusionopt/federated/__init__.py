"""Federated systems on one bench: the same clients, the same round loop, the same accounting."""

from fusionopt.federated._fleet import Fleet, Model, Objective, Work
from fusionopt.federated._history import History, Round
from fusionopt.federated._loop_fleet import LocalWork, LoopFleet
from fusionopt.federated._placement import Placement
from fusionopt.federated._simulation import simulate
from fusionopt.federated._system import System
from fusionopt.federated.cfl import Cfl
from fusionopt.federated.fed_avg import FedAvg
from fusionopt.federated.fed_em import FedEm
from fusionopt.federated.fed_soft import FedSoft
from fusionopt.federated.fpfc import Fpfc, FpfcL1
from fusionopt.federated.ifca import Ifca
from fusionopt.federated.k_means_aggregation import KMeansAggregation
from fusionopt.federated.local import Local
from fusionopt.federated.models import LinearModel, LogisticModel, SoftmaxModel, SquaredHingeModel
from fusionopt.federated.oracle import Oracle
from fusionopt.federated.pdmm import Pdmm
from fusionopt.federated.per_fed_avg import PerFedAvg
from fusionopt.federated.rfed_avg import RFedAvg
from fusionopt.federated.squared_penalty import SquaredPenalty
from fusionopt.federated.torch_model import TorchModel, mnist_cnn
from fusionopt.recovery import bipartition, optimal_cluster_weights, rfedavg_weights

__all__ = [
    "Cfl",
    "FedAvg",
    "FedEm",
    "FedSoft",
    "Fleet",
    "Fpfc",
    "FpfcL1",
    "History",
    "Ifca",
    "KMeansAggregation",
    "LinearModel",
    "Local",
    "LocalWork",
    "LogisticModel",
    "LoopFleet",
    "Model",
    "Objective",
    "Oracle",
    "Pdmm",
    "PerFedAvg",
    "Placement",
    "RFedAvg",
    "Round",
    "SoftmaxModel",
    "SquaredHingeModel",
    "SquaredPenalty",
    "System",
    "TorchModel",
    "Work",
    "bipartition",
    "mnist_cnn",
    "optimal_cluster_weights",
    "rfedavg_weights",
    "simulate",
]
