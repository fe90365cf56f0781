"""Splits and weights against brute force and closed forms."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

from fusionopt.errors import InvalidArgumentError, InvalidTypeError
from fusionopt.recovery import bipartition, optimal_cluster_weights, rfedavg_weights
from fusionopt.recovery.aggregation import data_imbalance


def best_split(alpha):
    m = len(alpha)
    values = []
    for size in range(1, m):
        for chosen in combinations(range(m), size):
            inside = np.isin(np.arange(m), chosen)
            values.append(alpha[np.ix_(inside, ~inside)].max())
    return min(values)


@pytest.mark.parametrize("m", [2, 3, 5, 8])
def test_bipartition_is_the_best_of_all_splits_ties_included(m):
    rng = np.random.default_rng(m)
    for trial in range(20):
        # Every other matrix has few different values, some of them zero.
        values = rng.integers(-2, 3, size=(m, m)) / 2.0 if trial % 2 else rng.standard_normal((m, m))
        alpha = np.triu(values, 1) + np.triu(values, 1).T
        left, right = bipartition(alpha)
        assert sorted([*left, *right]) == list(range(m))
        assert left[0] == 0 and len(right) > 0
        assert alpha[np.ix_(left, right)].max() == best_split(alpha)


def test_bipartition_does_not_read_the_diagonal_or_lose_digits():
    alpha = np.array([[0.0, 1.0, 1.0 - 2**-52], [1.0, 0.0, 1.0 - 2**-52], [1.0 - 2**-52] * 2 + [0.0]])
    assert bipartition(alpha)[1].tolist() == [2]
    assert bipartition(alpha + 1e300 * np.eye(3))[1].tolist() == [2]


def test_optimal_weights_of_the_printed_shares():
    # Checked by hand: the optimality conditions of Q1 with p_1 = 0.
    p = optimal_cluster_weights([[80, 10, 10], [5, 60, 35], [40, 30, 30]])
    np.testing.assert_allclose(p, [0.0, 0.16279, 0.83721], atol=5e-6)
    shares = np.array([[0.8, 0.1, 0.1], [0.05, 0.6, 0.35], [0.4, 0.3, 0.3]])
    assert np.square(shares.T @ p - 1 / 3).sum() == pytest.approx(9.690e-4, rel=1e-4)


def test_imbalance_is_blind_to_the_classes():
    rng = np.random.default_rng(0)
    counts = np.zeros((20, 5))
    counts[np.arange(20), np.arange(20) % 5] = rng.integers(5, 15, size=20)  # fully skewed clients
    clusters = [list(range(7)), list(range(7, 12)), list(range(12, 20))]
    total = counts.sum()
    sizes = np.array([counts[c].sum() for c in clusters])
    np.testing.assert_allclose(data_imbalance(counts, clusters), total - sizes)
    weights = rfedavg_weights(counts, clusters)
    np.testing.assert_allclose(weights, (1 / (total - sizes)) / (1 / (total - sizes)).sum())


def test_weights_stay_weights_where_the_printed_formula_does_not():
    counts = [[10, 0], [90, 0], [0, 1]]
    assert rfedavg_weights(counts, [[0, 1, 2]]).tolist() == [1.0]
    assert data_imbalance(counts, [[0, 1], [2]])[0] > 0
    # One client far above D / M: max I_k minus the other's samples is negative.
    counts = [[100, 100], [100, 100], [1, 0]]
    weights = rfedavg_weights(counts, [[0, 1], [2]])
    assert weights.min() > 0 and weights.sum() == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("call", "kind", "message"),
    [
        (lambda: bipartition(np.ones((2, 3))), InvalidArgumentError, r"similarity has shape \(2, 3\)"),
        (lambda: bipartition([[1.0]]), InvalidArgumentError, "at least two rows"),
        (lambda: bipartition([[1, 0.5], [0.4, 1]]), InvalidArgumentError, "give a symmetric matrix"),
        (lambda: bipartition([["a", "b"], ["c", "d"]]), InvalidTypeError, "similarity"),
        (lambda: rfedavg_weights([[1, -1], [1, 1]], [[0]]), InvalidArgumentError, "negative entry"),
        (
            lambda: rfedavg_weights([[1, 1], [0, 0]], [[0]]),
            InvalidArgumentError,
            "row 1 of class_counts has no",
        ),
        (lambda: rfedavg_weights([[1, 1]], [[0], []]), InvalidArgumentError, "has an empty cluster"),
        (lambda: rfedavg_weights([[1, 1]], []), InvalidArgumentError, "clusters is empty"),
        (lambda: rfedavg_weights([[1, 1], [1, 2]], [[0], [0, 1]]), InvalidArgumentError, "at most once"),
        (lambda: rfedavg_weights([[1, 1], [1, 2]], [[0], [2]]), InvalidArgumentError, "from 0 to 1"),
        (lambda: optimal_cluster_weights([[0, 0], [1, 1]]), InvalidArgumentError, "row 0 of cluster_class"),
    ],
)
def test_refusals(call, kind, message):
    with pytest.raises(kind, match=message):
        call()
