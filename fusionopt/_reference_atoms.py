"""Losses and penalties in the words of CVXPY, for `reference`."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from fusionopt.losses import Huber, HuberRegression, Logistic, NodeLoss, Poisson, Softmax, SquaredHinge
from fusionopt.losses._sampled import SampledLoss
from fusionopt.penalties import L1Norm, L2Norm, Penalty, SquaredL2

FloatArray = NDArray[np.float64]

LOSSES = (Huber, HuberRegression, Logistic, Poisson, Softmax, SquaredHinge)
PENALTIES = (L2Norm, SquaredL2, L1Norm)


def penalty_expression(cvxpy: Any, penalty: Penalty, z: Any, weights: FloatArray, d: int) -> Any:
    """sum_e w_e g(z_e; 1) for the flattened differences z of all edges; lam is taken into the weights."""
    table = cvxpy.reshape(z, (len(weights), d), order="C")
    if isinstance(penalty, SquaredL2):
        return weights @ cvxpy.sum(cvxpy.square(table), axis=1)
    if isinstance(penalty, L1Norm):
        return weights @ cvxpy.sum(cvxpy.abs(table), axis=1)
    return weights @ (cvxpy.abs(z) if d == 1 else cvxpy.norm(table, 2, axis=1))


def loss_expression(cvxpy: Any, loss: NodeLoss, x: Any, unit: float) -> Any:
    """sum_i f_i(unit x_i) / unit^2 for x flattened in C order.

    `unit` is that of the targets for `Huber` and `HuberRegression`, and 1 for the others, whose predictions have none.
    """
    if isinstance(loss, Huber):
        # h(||u||) is the least ||u - s||^2 / 2 + delta ||s|| over s.
        m, d = loss.n_nodes, loss.n_features
        far = cvxpy.Variable((m, d))
        away = cvxpy.reshape(x, (m, d), order="C") - loss.targets / unit
        near = cvxpy.sum(cvxpy.square(away - far), axis=1) / 2
        return loss.sample_weight @ (near + loss.delta / unit * cvxpy.norm(far, 2, axis=1))
    assert isinstance(loss, SampledLoss)
    counts = loss.n_samples[loss.design.nodes]
    weights = loss.sample_weight / counts
    y = loss.targets
    ridges = np.tile(
        np.where(np.arange(loss.n_features) < loss.n_features - loss.free_bias, loss.ridge, 0.0), loss.n_nodes
    )
    ridge = cvxpy.sum_squares(cvxpy.multiply(np.sqrt(ridges), x)) / 2
    rows = _block_diagonal(loss)
    if isinstance(loss, Softmax):
        # x in C order is (m p, C): one row of class weights for each column of the block diagonal.
        scores = rows @ cvxpy.reshape(x, (rows.shape[1], loss.n_classes), order="C")
        right = np.eye(loss.n_classes)[loss.classes]
        own = cvxpy.sum(cvxpy.multiply(right, scores), axis=1)
        return weights @ (cvxpy.log_sum_exp(scores, axis=1) - own) + ridge
    eta = rows @ x
    if isinstance(loss, Logistic):
        return weights @ cvxpy.logistic(cvxpy.multiply(-y, eta)) + ridge
    if isinstance(loss, SquaredHinge):
        return weights @ cvxpy.square(cvxpy.pos(1 - cvxpy.multiply(y, eta))) + ridge
    if isinstance(loss, HuberRegression):
        return weights @ cvxpy.huber(eta - y / unit, loss.delta / unit) / 2 + ridge
    return weights @ (cvxpy.exp(eta) - cvxpy.multiply(y, eta)) + ridge


def natural_unit(loss: NodeLoss) -> float:
    """Size of the targets of a robust loss; 1 for the others."""
    if not isinstance(loss, Huber | HuberRegression):
        return 1.0
    return max(float(np.abs(loss.targets).max()), loss.delta)


def _block_diagonal(loss: SampledLoss) -> Any:
    rows = sparse.csr_array(loss.design.rows).tocoo()
    columns = rows.coords[1] + loss.design.nodes[rows.coords[0]] * loss.design.n_columns
    shape = (rows.shape[0], loss.n_nodes * loss.design.n_columns)
    return sparse.csr_array((rows.data, (rows.coords[0], columns)), shape=shape)
