"""Found clusters against known labels."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import adjusted_rand_score

from fusionopt.comparison import compare_labels
from fusionopt.errors import InvalidArgumentError


def test_same_partition_under_other_names() -> None:
    comparison = compare_labels([0, 0, 1, 1], ["b", "b", "a", "a"])
    assert comparison.known == ("a", "b")
    assert comparison.ari == comparison.matched == comparison.homogeneity == comparison.completeness == 1.0
    np.testing.assert_array_equal(comparison.counts, [[0, 2], [2, 0]])


def test_singletons_are_counted() -> None:
    labels, known = [0, 0, 1, 1, 2, 3], [5, 5, 6, 6, 5, 6]
    comparison = compare_labels(labels, known)
    assert comparison.n_singletons == 2
    assert comparison.ari == pytest.approx(adjusted_rand_score(known, labels))
    assert comparison.ari < comparison.ari_without_singletons == 1.0
    assert comparison.homogeneity == pytest.approx(1.0)
    assert comparison.completeness < 1.0
    assert comparison.matched == pytest.approx(4 / 6)
    assert comparison.largest_share == pytest.approx(2 / 6)


def test_all_rows_alone() -> None:
    comparison = compare_labels([0, 1, 2], [0, 0, 1])
    assert np.isnan(comparison.ari_without_singletons)
    assert set(comparison.to_dict()) >= {"ari", "counts", "known"}


def test_lengths_must_agree() -> None:
    with pytest.raises(InvalidArgumentError, match=r"known has shape \(2,\) and labels has shape \(3,\)"):
        compare_labels([0, 1, 2], [0, 1])
