"""The stated answers satisfy the optimality conditions, by oracles alone; printed numbers are met."""

from __future__ import annotations

import numpy as np
import pytest

from tests import catalogue, oracles
from tests.catalogue import Instance

FIVE = [0.0, 1.0, 3.0, 7.0, 12.0]
SIX = [1.3, 2.1, 2.9, 7.2, 8.1, 8.8]


def _closed_forms() -> dict[str, Instance]:
    forms = {f"five {lam}": catalogue.line_complete(FIVE, lam) for lam in (0.0, 0.6, 1.6, 2.0)}
    forms |= {f"six {lam}": catalogue.line_complete(SIX, lam) for lam in (0.2, 0.4, 0.41, 0.6, 0.98, 0.99)}
    forms |= {f"split {lam}": catalogue.splitting(lam) for lam in (0.3, 1.0, 3.0, 7.4, 12.0, 20.0)}
    forms |= {f"square {lam}": catalogue.square(lam) for lam in (0.1, 0.5, 0.6)}
    forms |= {f"cycle {lam}": catalogue.square(lam, cycle=True) for lam in (0.1, 0.9, 1.1)}
    forms |= {f"simplex {n}": catalogue.simplex(n, 0.7 * np.sqrt(2.0) / n) for n in (2, 3, 7)}
    forms |= {f"polygon {n}": catalogue.polygon(n, 0.1) for n in (3, 5, 8)}
    forms |= {f"ring {n}": catalogue.polygon(n, 0.2, cycle=True) for n in (3, 5, 8)}
    forms |= {f"piles {lam}": catalogue.two_piles([0, 0, 0], [2, 2, 2], (2, 1), lam) for lam in (1.0, 1.2)}
    forms |= {
        f"pair {lam}": catalogue.weighted_pair([0.0], [3.0], (2.0, 1.0), 1.0, lam) for lam in (1.0, 3.0)
    }
    forms["disconnected"] = catalogue.disconnected()
    forms["weightless"] = catalogue.weightless_end()
    rng = np.random.default_rng(5)
    edges = catalogue.sparse_pairs(rng, 12, 0.3)
    weights = catalogue.spread_weights(rng, len(edges), 1e4)
    forms["planted"] = catalogue.planted(rng, edges, weights, 12, 3, 3)
    forms["planted regression"] = catalogue.planted_regression(rng, edges, weights, 12, 3, 3, 0.1)
    return forms


FORMS = _closed_forms()


def _subgradient_gap(instance: Instance) -> float:
    """Smallest max ||v_e|| / (lam w_e) - 1 over duals with grad f + u = 0, v_e at its limit on open edges."""
    cp = pytest.importorskip("cvxpy")
    assert instance.x is not None
    x = instance.x
    gradient = np.asarray(instance.nodes.gradients(x.astype(np.longdouble)), dtype=float)
    lengths = np.asarray(oracles.edge_lengths(instance, x), dtype=float)
    rows = [instance.edges[e] for e in range(len(instance.edges))]
    open_edges = lengths > 1e-12 * max(1.0, float(np.abs(x).max()))
    radius = instance.lam * instance.weights
    right = -gradient
    for e in np.flatnonzero(open_edges):
        i, j = rows[e]
        unit = (x[i] - x[j]) / lengths[e]
        right[i] -= radius[e] * unit
        right[j] += radius[e] * unit
    closed = np.flatnonzero(~open_edges)
    scale = max(1.0, float(np.abs(gradient).max()))
    if len(closed) == 0 or instance.lam == 0.0:
        assert np.abs(right).max() <= 1e-10 * scale
        return -1.0
    incidence = np.zeros((instance.n_nodes, len(closed)))
    for column, e in enumerate(closed):
        incidence[rows[e][0], column], incidence[rows[e][1], column] = 1.0, -1.0
    z = cp.Variable((len(closed), instance.n_features))
    t = cp.Variable()
    limits = [cp.norm(z[k]) <= t * radius[e] for k, e in enumerate(closed)]
    cp.Problem(cp.Minimize(t), [incidence @ z == right, *limits]).solve(solver="CLARABEL")
    assert np.abs(incidence @ z.value - right).max() <= 1e-7 * scale
    return float(t.value) - 1.0


@pytest.mark.parametrize("name", FORMS)
def test_stated_answer_is_optimal(name: str) -> None:
    instance = FORMS[name]
    assert instance.x is not None
    assert instance.labels is not None
    assert _subgradient_gap(instance) <= 1e-7
    oracles.assert_same_partition(oracles.exact_labels(instance, instance.x), instance.labels)


@pytest.mark.parametrize(
    ("instance", "x", "objective"),
    [
        (catalogue.line_complete(FIVE, 0.6), [2.3, 2.3, 3.0, 5.8, 9.6], 28.81),
        (catalogue.line_complete(FIVE, 1.6), [4.35, 4.35, 4.35, 4.35, 5.6], 47.975),
        (catalogue.splitting(3.0), [-0.5, 0.5, 7.0, -7.0], 51.75),
        (catalogue.splitting(7.4), [-2.65, 2.65, 2.65, -2.65], 86.955),
        (catalogue.splitting(12.0), [-1.5, 1.5, 1.5, -1.5], 96.5),
        (catalogue.disconnected(), [1.0, 1.0, 12.0, 12.0, 99.0], 5.0),
        (catalogue.weightless_end(), [0.5, 1.5, 1.5], 0.75),
    ],
)
def test_printed_numbers(instance: Instance, x: list[float], objective: float) -> None:
    assert instance.x is not None
    oracles.assert_close(instance.x[:, 0], x, rtol=1e-14)
    oracles.assert_close(instance.optimum, objective, rtol=1e-14)


def test_merge_points() -> None:
    oracles.assert_close(catalogue.line_merges(FIVE), [0.5, 5 / 6, 17 / 12, 1.85], rtol=1e-15)
    got = catalogue.line_merges(SIX)
    oracles.assert_close(got, [0.35, 0.4, 0.4, 5 / 12, 0.98889], rtol=1e-5)


def test_exact_lines_have_zero_optimum() -> None:
    assert catalogue.exact_lines(0.01).optimum == 0.0


@pytest.mark.parametrize("kind", ["complete", "node_weights", "knn", "sparse", "disconnected"])
def test_random_problems_are_well_formed(kind: str) -> None:
    rng = np.random.default_rng(0)
    for instance in (
        catalogue.random_squared(rng, kind, 9, 2),
        catalogue.random_regression(rng, kind, 9, 2, 0.0),
    ):
        edges = instance.edges
        assert len(edges) == len(instance.weights)
        assert bool((edges[:, 0] < edges[:, 1]).all())
        keys = edges[:, 0] * instance.n_nodes + edges[:, 1]
        assert bool((np.diff(keys) > 0).all())
        assert instance.lam > 0


def test_permuted_keeps_the_objective() -> None:
    instance = FORMS["planted"]
    assert instance.x is not None
    order = np.random.default_rng(1).permutation(instance.n_nodes)
    other = instance.permuted(order)
    oracles.assert_close(other.optimum, instance.optimum, rtol=1e-15)
    assert other.x is not None
    oracles.assert_close(other.x, instance.x[order], rtol=0.0)
