"""Clusters 178 wines by a path over lam and says how far the answer can be from the optimum.

What `make demo` does, in Python: standardise, join nearest neighbours, solve for a range of
lam, choose the middle of the longest plateau, compare with the known cultivars.
"""

from pathlib import Path

import numpy as np
from sklearn.metrics import adjusted_rand_score

import fusionopt as fo

table = np.loadtxt(Path(__file__).parent / "data" / "wine.csv", delimiter=",", skiprows=1)
cultivar, points = table[:, 0], table[:, 1:]
points = (points - points.mean(axis=0)) / points.std(axis=0)

graph = fo.Graph.knn(points, n_neighbors=10)
path = fo.solution_path(fo.FusionProblem(fo.SquaredDistance(points), graph), n_lams=40)
chosen = path.select("plateau")

print(chosen.summary())
print("cluster sizes:", *chosen.cluster_sizes)
print(f"adjusted Rand index against the cultivars: {adjusted_rand_score(cultivar, chosen.labels):.3f}")
