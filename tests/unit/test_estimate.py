"""`FusionProblem.estimate`: method as `solve` takes it, memory that covers what it holds, refusal with the number."""

from __future__ import annotations

import numpy as np
import pytest

import fusionopt
from fusionopt import (
    AdmmSettings,
    FusionProblem,
    Graph,
    InvalidTypeError,
    MemoryLimitError,
    SquaredDistance,
    _checks,
)


def _points(m: int, d: int = 2) -> np.ndarray:
    return np.random.default_rng(m).normal(size=(m, d))


def test_the_method_is_the_one_that_runs() -> None:
    points = _points(30)
    knn = FusionProblem(SquaredDistance(points), Graph.knn(points, 3), lam=0.1)
    assert knn.estimate().method == "ADMM on the edges"
    assert FusionProblem(SquaredDistance(points), lam=0.1).estimate().method == "ADMM on stored pairs"
    assert "on its own" in FusionProblem(SquaredDistance(points), lam=0.0).estimate().method
    large = FusionProblem(SquaredDistance(_points(5000)), lam=0.001)
    assert large.estimate().method.startswith("storage-free")
    assert large.estimate(AdmmSettings(rho=1.0)).method == "ADMM on stored pairs"


def test_memory_and_time_grow_with_the_problem() -> None:
    settings = AdmmSettings(rho=1.0)
    small, large = (
        FusionProblem(SquaredDistance(_points(m)), lam=0.1).estimate(settings) for m in (500, 1000)
    )
    # The state and its copy, 2 m^2/2 d float64 numbers, within the padding.
    assert 2 * 8 * 1000 * 999 / 2 * 2 < large.memory_bytes < 1.1 * 2 * 8 * 1000 * 999 / 2 * 2
    assert 3.5 < large.memory_bytes / small.memory_bytes < 4
    assert 3.5 < large.seconds / small.seconds < 4.5
    narrow = FusionProblem(SquaredDistance(_points(1000)), lam=0.1).estimate(
        AdmmSettings(rho=1.0, dtype="float32")
    )
    assert narrow.memory_bytes == large.memory_bytes  # finishing works in float64
    assert large.fits


def test_what_cannot_fit_is_refused_with_the_number(monkeypatch: pytest.MonkeyPatch) -> None:
    points = _points(400)
    pairs = FusionProblem(SquaredDistance(points), lam=0.01)
    edges = FusionProblem(SquaredDistance(points), Graph.knn(points, 5), lam=0.1)
    monkeypatch.setattr(_checks, "available_bytes", lambda: 1e5)
    # Pairs that would not fit need not be stored; a given rho asks for that all the same.
    assert pairs.estimate().method.startswith("storage-free")
    told = pairs.estimate(AdmmSettings(rho=1.0))
    assert not told.fits
    assert told.limit_bytes == 0.8e5
    with pytest.raises(MemoryLimitError, match=r"pair duals of the complete graph would take 0\.00\d+ GiB"):
        fusionopt.solve(pairs, AdmmSettings(rho=1.0))
    with pytest.raises(MemoryLimitError, match=r"edge duals would take 0\.00\d+ GiB, more than the limit"):
        fusionopt.solve(edges)


def test_settings_of_another_kind_are_refused() -> None:
    with pytest.raises(InvalidTypeError, match="settings"):
        FusionProblem(SquaredDistance([0.0, 1.0]), lam=0.1).estimate("fast")  # type: ignore[arg-type]
