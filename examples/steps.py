"""Finds the steps of a noisy signal: the nodes are moments, the edges join each moment to the next.

On a chain this is total-variation denoising, and a cluster is a stretch on which the signal is constant.
"""

import numpy as np

import fusionopt as fo

levels = np.repeat([0.0, 2.0, -1.0, 1.0], 30)
signal = levels + np.random.default_rng(0).normal(scale=0.3, size=levels.size)

moments = np.arange(signal.size)
chain = fo.Graph.from_edges(signal.size, np.column_stack([moments[:-1], moments[1:]]))
problem = fo.FusionProblem(fo.SquaredDistance(signal[:, None]), chain, lam=6.0)

result = fo.solve(problem)
result.require_converged()
jumps = np.flatnonzero(np.diff(result.labels)) + 1
print(
    f"{result.n_clusters} levels, steps at {jumps.tolist()}; gap {result.gap:.1e} of {result.objective:.6g}"
)
