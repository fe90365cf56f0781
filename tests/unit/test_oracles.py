"""Every assert_* helper passes on an honest answer and fails on each kind of wrong one."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests import catalogue, oracles


def _instance() -> catalogue.Instance:
    """A1 at lam = 1/2 with a duplicate of the first point: x = (1, 1, 1.5) in one feature."""
    return catalogue.squared([0.0, 0.0, 2.0], 0.25, x=[0.25, 0.25, 1.5], labels=[0, 0, 1])


def _honest(**changes: Any) -> SimpleNamespace:
    v = changes.pop("v", np.array([[0.0], [-0.25], [-0.25]]))
    answer: dict[str, Any] = {
        "x": np.array([[0.25], [0.25], [1.5]]),
        "labels": np.array([0, 0, 1]),
        "n_clusters": 2,
        "centers": np.array([[0.25], [1.5]]),
        "cluster_sizes": np.array([2, 1]),
        "objective": 0.8125,
        "dual_objective": 0.8125,
        "gap": 0.0,
        "rel_gap": 0.0,
        "dual_residual": 0.0,
        "status": "optimal",
        "message": "",
        "edge_duals": lambda: v,
    }
    return SimpleNamespace(**(answer | changes))


def test_honest_answer_passes() -> None:
    instance = _instance()
    assert instance.optimum == 0.8125
    oracles.assert_solved(instance, _honest())
    oracles.assert_brackets(instance, _honest(), 0.8125)


def test_assert_close_fails() -> None:
    oracles.assert_close([1.0], [1.0 + 1e-9], rtol=1e-8)
    with pytest.raises(AssertionError, match="off by"):
        oracles.assert_close([1.0], [1.0 + 1e-7], rtol=1e-8)
    with pytest.raises(AssertionError, match="shape"):
        oracles.assert_close([1.0], [1.0, 1.0], rtol=1e-8)
    with pytest.raises(AssertionError, match="not finite"):
        oracles.assert_close([np.nan], [1.0], rtol=1e-8)


def test_assert_same_partition_fails() -> None:
    oracles.assert_same_partition([5, 5, 2], [0, 0, 1])
    with pytest.raises(AssertionError, match="partition"):
        oracles.assert_same_partition([0, 1, 1], [0, 0, 1])
    with pytest.raises(AssertionError, match="partition"):
        oracles.assert_same_partition([0, 0], [0, 0, 1])


@pytest.mark.parametrize(
    ("v", "match"),
    [
        (np.array([[0.0], [-0.25], [np.nextafter(0.25, 1)]]), "edge 2"),
        (np.array([[0.0], [-0.25]]), "shape"),
        (np.array([[0.0], [-0.25], [np.nan]]), "not finite"),
    ],
)
def test_assert_dual_feasible_fails(v: np.ndarray, match: str) -> None:
    with pytest.raises(AssertionError, match=match):
        oracles.assert_dual_feasible(_instance(), v)


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"labels": np.array([0, 1, 2])}, "labels"),
        ({"labels": np.array([1, 1, 0])}, "labels"),
        ({"n_clusters": 3}, "n_clusters"),
        ({"cluster_sizes": np.array([1, 2])}, "sizes"),
        ({"centers": np.array([[0.25], [1.6]])}, "off by"),
        ({"x": np.array([[0.25], [np.nextafter(0.25, 1)], [1.5]])}, "labels"),
    ],
)
def test_assert_partition_fails(changes: dict[str, Any], match: str) -> None:
    oracles.assert_partition(_instance(), _honest())
    with pytest.raises(AssertionError, match=match):
        oracles.assert_partition(_instance(), _honest(**changes))


def test_assert_partition_sees_bits() -> None:
    instance = catalogue.squared([-1.0, 1.0], 2.0)
    answer = _honest(
        x=np.array([[0.0], [-0.0]]),
        labels=np.array([0, 0]),
        n_clusters=1,
        cluster_sizes=np.array([2]),
        centers=np.array([[0.0]]),
    )
    with pytest.raises(AssertionError, match="bit patterns"):
        oracles.assert_partition(instance, answer)


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"objective": 0.8125 * (1 + 1e-10)}, "objective"),
        ({"dual_objective": 0.8125 * (1 - 1e-10)}, "dual objective"),
        ({"gap": 1e-10}, "gap"),
        ({"gap": -1e-10}, "negative"),
        ({"rel_gap": 1e-9}, "rel_gap"),
        ({"dual_residual": 1e-9}, "dual_residual"),
        ({"x": np.array([[0.25], [np.nan], [1.5]])}, "not finite"),
        ({"x": np.array([[0.25], [1.5]])}, "shape"),
        ({"v": np.array([[0.0], [-0.25], [-0.2500001]])}, "edge 2"),
    ],
)
def test_assert_certificate_fails(changes: dict[str, Any], match: str) -> None:
    oracles.assert_certificate(_instance(), _honest())
    with pytest.raises(AssertionError, match=match):
        oracles.assert_certificate(_instance(), _honest(**changes))


def _half_way() -> dict[str, Any]:
    """An honest certificate that is not good enough: duals at half their size."""
    v = np.array([[0.0], [-0.125], [-0.125]])
    dual = oracles.dual_value(_instance(), v)
    gap = 0.8125 - dual
    residual = oracles.kkt_residual(_instance(), np.array([[0.25], [0.25], [1.5]]), v)
    return {"v": v, "dual_objective": dual, "gap": gap, "rel_gap": gap / 0.8125, "dual_residual": residual}


def test_assert_solved_fails() -> None:
    with pytest.raises(AssertionError, match="status"):
        oracles.assert_solved(_instance(), _honest(status="user_limit"))
    oracles.assert_certificate(_instance(), _honest(**_half_way()))
    with pytest.raises(AssertionError, match="status optimal, but the gap"):
        oracles.assert_solved(_instance(), _honest(**_half_way()))


def test_assert_brackets_fails() -> None:
    oracles.assert_brackets(_instance(), _honest(**_half_way()), 0.8125)
    with pytest.raises(AssertionError, match="below the optimum"):
        oracles.assert_brackets(_instance(), _honest(), 0.9)
    with pytest.raises(AssertionError, match="> gap"):
        oracles.assert_brackets(_instance(), _honest(), 0.8)
    with pytest.raises(AssertionError, match="above the optimum"):
        oracles.assert_brackets(_instance(), _honest(gap=1.0), 0.8)


def test_dual_value_agrees_with_a_grid() -> None:
    """min_x f(x) + <u, x> of one regression node and one squared node, against brute force."""
    nodes = oracles.RegressionNodes([np.array([[1.0], [2.0]])], [np.array([1.0, 3.0])], 0.5)
    grid = np.linspace(-5, 5, 200001)[:, None]
    u = 0.7
    brute = min(0.25 * ((grid - 1) ** 2 + (2 * grid - 3) ** 2) + 0.25 * grid**2 + u * grid)
    value, outside = nodes.minima(np.array([[u]], dtype=np.longdouble))
    oracles.assert_close(float(value[0]), float(brute[0]), rtol=1e-9)
    assert outside[0] == 0.0


def test_dual_value_of_a_flat_direction() -> None:
    """One observation, two features: only the part of u along the design counts, the rest is reported."""
    nodes = oracles.RegressionNodes([np.array([[1.0, 1.0]])], [np.array([2.0])], 0.0)
    value, outside = nodes.minima(np.array([[0.3, 0.3]], dtype=np.longdouble))
    # min_t 1/2 (t - 2)^2 + 0.3 t at t = 1.7
    oracles.assert_close(float(value[0]), 0.5 * 0.09 + 0.51, rtol=1e-15)
    assert outside[0] <= 1e-16
    outside = nodes.minima(np.array([[0.3, -0.3]], dtype=np.longdouble))[1]
    oracles.assert_close(float(outside[0]), 0.3 * np.sqrt(2.0), rtol=1e-14)


def test_weightless_nodes_cost_what_they_leak() -> None:
    instance = catalogue.weightless_end()
    v = np.array([[-0.5], [1e-3]])
    leaky = oracles.dual_value(instance, v, radius=10.0)
    oracles.assert_close(oracles.dual_value(instance, v) - leaky, 1e-2, rtol=1e-12)


def test_components() -> None:
    assert oracles.n_components(catalogue.disconnected()) == 3
