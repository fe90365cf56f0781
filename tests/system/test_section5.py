"""Section V and Appendix C of the convex-clustering paper on the recorded geometries."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks import recovery_figures as figures
from fusionopt import FusionProblem, SquaredL2, scaling, solve
from fusionopt.datasets import make_ellipses

# Accuracies recorded with CVXPY: local, global, oracle, squared and proposed at the given weights.
RECORDED = {
    "P": ((0.8711, 0.5347, 0.9171), (0.1, 0.9127), (0.04, 28, 0.9167), ((0.0766, 0.908), (0.0898, 0.569))),
    "W": ((0.9227, 0.4997, 0.9573), (0.04, 0.9512), (0.02, 60, 0.9556), ((0.0435, 0.956), (0.1132, 0.509))),
}


@pytest.mark.parametrize("config", ["P", "W"])
def test_accuracies_of_section_5(config):
    clients, labels = make_ellipses(**figures.GEOMETRIES[config])
    loss = figures.hinge(clients)
    plain, (weight, squared), (lam, models, proposed), inside = RECORDED[config]
    for names, recorded in zip((np.arange(60), np.zeros(60, dtype=int), labels), plain, strict=True):
        assert figures.accuracy(clients, figures.pooled(loss, names)) == pytest.approx(recorded, abs=1e-4)
    other = solve(FusionProblem(loss, penalty=SquaredL2(), lam=weight))
    assert figures.accuracy(clients, other.x) == pytest.approx(squared, abs=5e-4)
    assert len(np.unique(other.x, axis=0)) == 60  # the squared penalty fuses nothing
    result = solve(FusionProblem(loss, lam=lam))
    assert result.n_clusters == models and result.labels_certified
    assert figures.accuracy(clients, result.x) == pytest.approx(proposed, abs=5e-4)
    for place, recorded in inside:
        fused = solve(FusionProblem(loss, lam=place))
        np.testing.assert_array_equal(fused.labels, labels)
        assert fused.labels_certified
        assert figures.accuracy(clients, fused.x) == pytest.approx(recorded, abs=5e-4)
        assert figures.accuracy(clients, figures.pooled(loss, fused.labels)) == pytest.approx(
            plain[2], abs=1e-4
        )


def test_models_on_the_grid_of_appendix_c():
    clients, labels = make_ellipses(**figures.APPENDIX_C)
    problem = FusionProblem(figures.hinge(clients))
    found = {}
    for convention in ("canonical", "ordered", "mean_ordered"):
        lams = [scaling.to_canonical(lam, convention, len(labels)) for lam in figures.APPENDIX_C_LAMS]
        found[convention] = [solve(problem.with_lam(lam)).n_clusters for lam in lams]
    assert found["canonical"] == [1, 1, 3, 3, 3, 3, 3, 3]
    assert found["ordered"] == [1, 1, 1, 3, 3, 3, 3, 3]
    assert found["mean_ordered"] == [1] * 8  # the scale that the paper prints contradicts its Figure 6
