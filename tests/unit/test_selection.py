"""The lam that is taken from a path, and the sentence about it."""

from __future__ import annotations

import numpy as np

from fusionopt import FusionProblem, SquaredDistance, solution_path
from fusionopt.selection import select_plateau


def test_middle_of_the_longest_plateau() -> None:
    """Equal weights in one dimension: 0|1 and 10|11 are pairs from lam = 0.5 until all meet at lam = 2.5."""
    problem = FusionProblem(SquaredDistance([0.0, 1.0, 10.0, 11.0]))
    path = solution_path(problem, lams=np.geomspace(0.1, 10.0, 21))
    selection = select_plateau(path)
    assert selection.criterion == "plateau"
    assert selection.result.n_clusters == 2
    np.testing.assert_array_equal(selection.result.labels, [0, 0, 1, 1])
    assert "0.5012 to 1.995" in selection.sentence


def test_coarsest_when_no_clustering_has_two_large_clusters() -> None:
    path = solution_path(FusionProblem(SquaredDistance(np.ones((5, 2)))), lams=[0.5, 2.0, 1.0])
    selection = select_plateau(path)
    assert selection.criterion == "coarsest"
    assert selection.result is path.results[1]
    assert "shows no groups" in selection.sentence
