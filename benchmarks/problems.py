"""Benchmark problems with fixed seeds: plain arrays, so that every tool gets the same numbers.

minimise over x:  sum_i f_i(x_i) + lam * sum_e w_e ||x_i - x_j||,    e = (i, j), i < j
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.spatial import cKDTree
from sklearn.datasets import make_moons

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class ClusteringProblem:
    """Squared distance: f_i(x) = 1/2 ||x - a_i||^2.

    Attributes
    ----------
    name : str
    points : (m, d) array
        The a_i.
    edges, weights : (E, 2) and (E,) arrays, or None
        None is the complete graph with every weight 1.
    lam : float
    seed : str
        How the data were drawn.
    optimum : float or None
        Certified optimal value, where one is published with the problem.
    n_clusters : int or None
        Distinct rows of the certified solution.
    """

    name: str
    points: FloatArray
    edges: IntArray | None
    weights: FloatArray | None
    lam: float
    seed: str
    optimum: float | None = None
    n_clusters: int | None = None

    @property
    def shape(self) -> tuple[int, int]:
        """(m, d)."""
        return int(self.points.shape[0]), int(self.points.shape[1])

    def pairs(self) -> tuple[IntArray, FloatArray]:
        """Edges and weights as arrays; for the complete graph all i < j, in lexicographic order."""
        if self.edges is not None and self.weights is not None:
            return self.edges, self.weights
        i, j = np.triu_indices(len(self.points), 1)
        return np.stack([i, j], axis=1).astype(np.int64), np.ones(len(i))


@dataclass(frozen=True, eq=False)
class RegressionProblem:
    """Least squares, complete graph, weight 1: f_i(x) = 1/(2 n_i) ||Z_i x - y_i||^2 + ridge/2 ||x||^2."""

    name: str
    designs: list[FloatArray]
    responses: list[FloatArray]
    ridge: float
    lam: float
    seed: str

    @property
    def shape(self) -> tuple[int, int]:
        """(m, p)."""
        return len(self.designs), int(self.designs[0].shape[1])

    def pairs(self) -> tuple[IntArray, FloatArray]:
        """All i < j with weight 1."""
        i, j = np.triu_indices(len(self.designs), 1)
        return np.stack([i, j], axis=1).astype(np.int64), np.ones(len(i))


def knn_edges(points: FloatArray, n_neighbors: int) -> tuple[IntArray, FloatArray]:
    """Union of the nearest neighbours each way, self excluded, and the squared edge lengths.

    Returns
    -------
    edges : (E, 2) array, i < j, lexicographic
    squared : (E,) array
    """
    n = len(points)
    neighbours = cKDTree(points).query(points, k=n_neighbors + 1)[1]
    rows = np.repeat(np.arange(n), n_neighbors + 1)
    columns = neighbours.ravel()
    keep = rows != columns
    low, high = np.minimum(rows, columns)[keep], np.maximum(rows, columns)[keep]
    keys = np.unique(low.astype(np.int64) * n + high)
    edges = np.stack([keys // n, keys % n], axis=1)
    return edges, np.square(points[edges[:, 0]] - points[edges[:, 1]]).sum(axis=1)


# lam, certified optimum, clusters; (N, "few" | "half")
_MOONS = {
    (500, "few"): (8.1072, 213.9781917, 2),
    (500, "half"): (0.036005, 7.669197703, 244),
    (1000, "few"): (16.719, 479.3542131, 2),
    # The table says 501, from a solution certified to 1e-10. Two rows are 3.01e-7 apart: with them merged the
    # best objective is 1.23e-11 higher (both restricted problems solved in extended precision).
    (1000, "half"): (0.037027, 10.87605292, 502),
    (2000, "few"): (37.483, 1010.461638, 2),
    (2000, "half"): (0.028795, 12.71566574, 992),
    (5000, "few"): (21.909, 2070.760932, 2),
    (5000, "half"): (0.023274, 17.2119494, 2510),
}
_GAUSS = {
    (100, "few"): (0.225, 13085.92824, 3),
    (100, "half"): (0.19962, 12545.57036, 35),
    (200, "few"): (0.125, 30763.21057, 3),
    (200, "half"): (0.097968, 28063.50109, 68),
    (500, "few"): (0.05, 68172.56693, 3),
    (500, "half"): (0.038775, 62992.02905, 173),
    (1000, "few"): (0.025, 143829.6155, 3),
    (1000, "half"): (0.0194345, 131621.379, 339),
}


def moons(n: int, level: str) -> ClusteringProblem:
    """Two moons, 10 nearest neighbours, w = exp(-d^2 / 2). `level` is "few" or "half" (clusters left)."""
    lam, optimum, clusters = _MOONS[n, level]
    points = make_moons(n, noise=0.1, random_state=20240 + n)[0]
    edges, squared = knn_edges(points, 10)
    seed = f"make_moons random_state={20240 + n}"
    return ClusteringProblem(
        f"moons{n} {level}", points, edges, np.exp(-0.5 * squared), lam, seed, optimum, clusters
    )


def gauss(n: int, level: str) -> ClusteringProblem:
    """Three unit Gaussians in 20 dimensions at distance 20 from the origin; complete graph, weight 1."""
    lam, optimum, clusters = _GAUSS[n, level]
    rng = np.random.default_rng(777 + n)
    centres = rng.normal(size=(3, 20))
    centres *= 20.0 / np.linalg.norm(centres, axis=1, keepdims=True)
    points = centres[np.arange(n) % 3] + rng.normal(size=(n, 20))
    return ClusteringProblem(
        f"gauss{n} {level}", points, None, None, lam, f"default_rng({777 + n})", optimum, clusters
    )


def _gmm_points(m: int, d: int, sep: float) -> FloatArray:
    """Four Gaussian clusters, centres N(0, sep^2 I), unit noise; point i belongs to centre i % 4."""
    rng = np.random.default_rng(1000 * d + m)
    centres = sep * rng.standard_normal((4, d))
    return centres[np.arange(m) % 4] + rng.standard_normal((m, d))


def lam_reference(points: FloatArray) -> float:
    """lam_ref = max_i ||a_i - mean(a)|| / (m - 1), a lower bound of lambda_max on the complete graph."""
    distances = np.linalg.norm(points - points.mean(axis=0), axis=1)
    return float(distances.max() / (len(points) - 1))


def gmm_complete(m: int, d: int, fraction: float, sep: float = 3.0) -> ClusteringProblem:
    """Gaussian clusters on the complete graph, lam = fraction * lam_ref."""
    points = _gmm_points(m, d, sep)
    lam = fraction * lam_reference(points)
    return ClusteringProblem(
        f"gmm complete {m}x{d} lam {fraction:g} lam_ref",
        points,
        None,
        None,
        lam,
        f"default_rng({1000 * d + m})",
    )


def gmm_knn(m: int, d: int, lam: float, n_neighbors: int = 10, sep: float = 3.0) -> ClusteringProblem:
    """Gaussian clusters, nearest neighbours, w = exp(-d^2 / (2 median d^2)), lam as given."""
    points = _gmm_points(m, d, sep)
    edges, squared = knn_edges(points, n_neighbors)
    weights = np.exp(-0.5 * squared / np.median(squared))
    name = f"gmm knn {m}x{d} k={n_neighbors} lam {lam:g}"
    return ClusteringProblem(name, points, edges, weights, lam, f"default_rng({1000 * d + m})")


def regression_complete(m: int, p: int, fraction: float = 0.5, ridge: float = 1e-2) -> RegressionProblem:
    """Four groups of linear models, 30 samples a node, noise 1/2; complete graph.

    lam = fraction * max_i ||grad f_i(y)|| / (m - 1), y the pooled minimiser: the same lower bound of total
    fusion as `lam_reference` for squared distances.
    """
    rng = np.random.default_rng(1000 * p + m)
    models = rng.standard_normal((4, p))
    designs = [rng.standard_normal((30, p)) for _ in range(m)]
    responses = [z @ models[i % 4] + 0.5 * rng.standard_normal(30) for i, z in enumerate(designs)]
    hessians = [z.T @ z / len(z) + ridge * np.eye(p) for z in designs]
    linear = [z.T @ y / len(y) for z, y in zip(designs, responses, strict=True)]
    pooled = np.linalg.solve(np.sum(hessians, axis=0), np.sum(linear, axis=0))
    gradients = [h @ pooled - q for h, q in zip(hessians, linear, strict=True)]
    lam = fraction * max(float(np.linalg.norm(g)) for g in gradients) / (m - 1)
    name = f"least squares complete {m}x{p} lam {fraction:g} lam_ref"
    return RegressionProblem(name, designs, responses, ridge, lam, f"default_rng({1000 * p + m})")


def with_lam(problem: ClusteringProblem, lam: float) -> ClusteringProblem:
    """The same data at another lam; the published optimum no longer applies."""
    return replace(problem, lam=lam, optimum=None, n_clusters=None)
