"""The storage-free method, forced on problems small enough to be checked pair by pair."""

from __future__ import annotations

import numpy as np
import pytest

import fusionopt
from fusionopt import AdmmSettings
from fusionopt.methods import Interrupt, Monitor
from fusionopt.methods.implicit import ImplicitSession
from tests import catalogue, oracles
from tests.catalogue import FloatArray, Instance


def solve_implicit(
    instance: Instance, settings: AdmmSettings | None = None, monitor: Monitor | None = None
) -> fusionopt.Result:
    """What `solve` does for problems of many nodes."""
    chosen = AdmmSettings() if settings is None else settings
    watch = Monitor(chosen, Interrupt()) if monitor is None else monitor
    return ImplicitSession(instance.problem(), chosen).run(watch)


def groups(m: int, d: int, seed: int, k: int = 4, sep: float = 3.0) -> FloatArray:
    rng = np.random.default_rng([7, seed, m, d])
    centres = sep * rng.standard_normal((k, d))
    return centres[rng.integers(k, size=m)] + rng.standard_normal((m, d))


def fraction(points: FloatArray, share: float) -> float:
    """lam as a share of what total fusion needs at least."""
    return share * float(np.linalg.norm(points - points.mean(axis=0), axis=1).max()) / (len(points) - 1)


@pytest.mark.parametrize("share", [0.05, 0.3, 0.6, 0.9, 1.5, 100.0])
@pytest.mark.parametrize("d", [1, 2, 3, 4, 5, 10])
def test_certified_and_equal_to_the_stored_engine(d: int, share: float) -> None:
    points = groups(150, d, 0)
    instance = catalogue.squared(points, fraction(points, share))
    result = solve_implicit(instance)
    assert result.status == "optimal"
    oracles.assert_solved(instance, result)
    stored = fusionopt.solve(instance.problem())
    assert stored.status == "optimal"
    # Each lies between the other's bounds.
    slack = 1e-12 * abs(stored.objective)
    assert result.dual_objective <= stored.objective + slack
    assert stored.dual_objective <= result.objective + slack
