"""Forces on the edges of small solutions known by hand."""

from __future__ import annotations

import numpy as np
import pytest

from fusionopt import FusionProblem, Graph, SquaredDistance, solution_path, solve
from fusionopt.errors import InvalidArgumentError
from fusionopt.forces import edge_forces, loosest_pair, what_parts, why_together

CHAIN = FusionProblem(SquaredDistance([0.0, 1.0, 2.0, 9.0]), Graph.from_edges(4, [[0, 1], [1, 2], [2, 3]]))


def test_forces_of_a_chain_by_hand():
    # x = (a, a, a, b), a = (0 + 1 + 2 + lam) / 3: row 0 is pulled by a, rows 0 and 1 together by 2 a - 1.
    lam = 3.5
    result = solve(CHAIN.with_lam(lam))
    forces = edge_forces(result)
    assert result.labels.tolist() == [0, 0, 0, 1]
    a = (0 + 1 + 2 + lam) / 3
    np.testing.assert_allclose(forces.force, [a, 2 * a - 1, lam], rtol=1e-6)
    np.testing.assert_allclose(forces.limit, lam)
    assert forces.inside.tolist() == [True, True, False] and not forces.binding.any()
    np.testing.assert_allclose(forces.slack, forces.limit - forces.force)
    together = why_together(result, forces, 0, 2)
    assert together.direct is None and together.size == 3 and together.n_inside == 2
    assert [(tie.i, tie.j) for tie in together.chain] == [(0, 1), (1, 2)]
    assert together.chain[0].share == pytest.approx(a / lam, rel=1e-6)
    assert loosest_pair(result, forces) == ((0, 1) if a > 2 * a - 1 else (1, 2))


def test_the_chain_shown_is_the_shortest_of_the_widest():
    # A square with one loaded edge: the way round is wider than the direct edge.
    graph = Graph.from_edges(4, [[0, 1], [1, 2], [2, 3], [0, 3]], [0.05, 1.0, 1.0, 1.0])
    result = solve(FusionProblem(SquaredDistance([0.0, 1.0, 0.6, 0.4]), graph, lam=3.0))
    forces = edge_forces(result)
    assert result.n_clusters == 1
    together = why_together(result, forces, 0, 1)
    assert together.direct is not None
    worst = max(tie.share for tie in together.chain)
    assert worst <= together.direct.share
    assert together.chain[0].i == 0 and together.chain[-1].j == 1


def test_what_parts_two_rows_on_a_path():
    path = solution_path(CHAIN, lams=[8.0, 3.5, 2.0, 0.2])
    parting = what_parts(path, path.at(lam=3.5), 0, 2)
    assert parting.below == 2.0 and parting.above is None
    assert parting.parts == (2, 1)
    everything = what_parts(path, path.at(lam=8.0), 0, 3)
    assert everything.below == 3.5 and everything.parts == (3, 1)
    splits = Graph.from_edges(4, [[0, 1], [0, 3], [1, 2]], [0.5, 1.0, 1.0])
    path = solution_path(
        FusionProblem(SquaredDistance([1.0, -1.0, 10.0, -10.0]), splits), lams=[3.0, 1.0, 0.1]
    )
    assert what_parts(path, path.at(lam=1.0), 0, 1).above == 3.0


def test_nothing_loose_where_nothing_is_tied():
    result = solve(CHAIN.with_lam(0.1))
    assert loosest_pair(result, edge_forces(result)) is None


@pytest.mark.parametrize(
    ("i", "j", "message"),
    [
        (0, 0, "not two different rows"),
        (0, 4, "from 0 to 3"),
        (0, 3, "rows 0 and 3 are in different clusters"),
    ],
)
def test_refusals(i, j, message):
    result = solve(CHAIN.with_lam(3.5))
    with pytest.raises(InvalidArgumentError, match=message):
        why_together(result, edge_forces(result), i, j)
