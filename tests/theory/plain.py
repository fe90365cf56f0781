"""Independent oracles on plain arrays: cone programs written out, nothing of `fusionopt.recovery`.

minimise over x:  sum_i 1/2 x_i'H_i x_i - q_i'x_i + lam sum_e w_e ||x_i - x_j||
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import cvxpy as cp
import numpy as np
from numpy.typing import NDArray

from tests.catalogue import Instance
from tests.oracles import RegressionNodes, SquaredNodes, renumber
from tests.theory.slow_admm import admm

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Quadratic:
    """H_i as full matrices, q_i, edges, weights and lam."""

    hessians: FloatArray
    linear: FloatArray
    edges: IntArray
    weights: FloatArray
    lam: float

    @property
    def n(self) -> int:
        return len(self.linear)

    @property
    def d(self) -> int:
        return int(self.linear.shape[1])

    def gradients(self, x: FloatArray) -> FloatArray:
        return np.einsum("iab,ib->ia", self.hessians, x) - self.linear

    def with_lam(self, lam: float) -> Quadratic:
        return Quadratic(self.hessians, self.linear, self.edges, self.weights, lam)


def quadratic(instance: Instance) -> Quadratic:
    """Expand the losses of an instance."""
    nodes = instance.nodes
    if isinstance(nodes, SquaredNodes):
        hessians = nodes.sample_weight[:, None, None] * np.eye(nodes.targets.shape[1])
        linear = nodes.sample_weight[:, None] * nodes.targets
    else:
        assert isinstance(nodes, RegressionNodes)
        eye = nodes.ridge * np.eye(nodes.designs[0].shape[1])
        hessians = np.array([z.T @ z / len(z) + eye for z in nodes.designs])
        linear = np.array([z.T @ y / len(z) for z, y in zip(nodes.designs, nodes.responses, strict=True)])
    return Quadratic(hessians, linear, instance.edges, instance.weights, instance.lam)


def _solve(program: cp.Problem) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program.solve(solver="CLARABEL", tol_gap_abs=1e-12, tol_gap_rel=1e-12, tol_feas=1e-12)


def restricted_centres(p: Quadratic, labels: IntArray) -> tuple[FloatArray, float]:
    """Centres of the problem over x constant on the clusters, and its value, by CVXPY."""
    k = int(labels.max()) + 1
    w = cp.Variable((k, p.d))
    terms = []
    for c in range(k):
        h = p.hessians[labels == c].sum(axis=0)
        # A square root of H keeps the programme conic also where H is singular.
        values, vectors = np.linalg.eigh(h)
        root = (vectors * np.sqrt(np.maximum(values, 0.0))).T
        terms.append(0.5 * cp.sum_squares(root @ w[c]) - p.linear[labels == c].sum(axis=0) @ w[c])
    ends = labels[p.edges]
    across = ends[:, 0] != ends[:, 1]
    if across.any():
        pairs, place = np.unique(np.sort(ends[across], axis=1), axis=0, return_inverse=True)
        sums = np.bincount(place.ravel(), weights=p.weights[across])
        terms.append(p.lam * (sums @ cp.norm(w[pairs[:, 0]] - w[pairs[:, 1]], 2, axis=1)))
    program = cp.Problem(cp.Minimize(sum(terms)))
    _solve(program)
    return np.asarray(w.value), float(program.value)


def least_flow(p: Quadratic, labels: IntArray, centres: FloatArray) -> float:
    """min over flows on the inside edges of max ||q_e|| / w_e: one cone program for all the clusters."""
    s = p.gradients(centres[labels])
    ends = labels[p.edges]
    for (i, j), w in zip(p.edges[ends[:, 0] != ends[:, 1]], p.weights[ends[:, 0] != ends[:, 1]], strict=True):
        u = centres[labels[i]] - centres[labels[j]]
        u = u / np.linalg.norm(u)
        s[i] += p.lam * w * u
        s[j] -= p.lam * w * u
    inside = np.flatnonzero(ends[:, 0] == ends[:, 1])
    if len(inside) == 0:
        return 0.0
    q, t = cp.Variable((len(inside), p.d)), cp.Variable()
    incidence = np.zeros((len(inside), p.n))
    incidence[np.arange(len(inside)), p.edges[inside, 0]] = 1.0
    incidence[np.arange(len(inside)), p.edges[inside, 1]] = -1.0
    means = np.stack([np.bincount(labels, weights=c) / np.bincount(labels) for c in s.T], axis=1)
    size = max(float(np.abs(s).max()), 1e-300)
    unit = float(p.weights.max())
    limits = [cp.norm(q, 2, axis=1) <= t * (p.weights[inside] / unit)]
    program = cp.Problem(cp.Minimize(t), [*limits, incidence.T @ q == (means[labels] - s) / size])
    _solve(program)
    return float(t.value) * size / unit


def solve_slowly(p: Quadratic, n_iter: int = 4000) -> tuple[FloatArray, FloatArray]:
    """x and feasible duals, close to exact for small problems."""
    degree = np.bincount(p.edges.ravel(), minlength=p.n)
    rho = 2.0 * float(np.median(np.einsum("iaa->i", p.hessians))) / p.d / max(float(np.median(degree)), 1.0)
    return admm(p.hessians, p.linear, p.edges, p.lam * p.weights, n_iter, rho)


def close_labels(p: Quadratic, x: FloatArray, tolerance: float) -> IntArray:
    """Components of the edges whose ends are within `tolerance` times the spread of x."""
    spread = float(np.abs(x - x.mean(axis=0)).max()) + float(np.abs(x).max()) * 1e-9
    names = np.arange(p.n)
    for i, j in p.edges[np.linalg.norm(np.diff(x[p.edges], axis=1)[:, 0], axis=1) <= tolerance * spread]:
        names[names == names[j]] = names[i]
    return renumber(names)
