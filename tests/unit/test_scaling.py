"""Conversion of lam: each convention's objective is proportional to the canonical one."""

from __future__ import annotations

import numpy as np
import pytest

from fusionopt import FusionProblem, L2Norm, SquaredDistance, scaling
from fusionopt.errors import InvalidArgumentError, InvalidTypeError

LITERAL = {
    # convention: (loss sum, pair sum over i < j, lam, n) -> objective as printed, from interface.md
    "canonical": lambda f, g, lam, n: f + lam * g,
    "ordered": lambda f, g, lam, n: f + lam * 2 * g,
    "mean_ordered": lambda f, g, lam, n: f / n + lam * 2 * g,
    "mean_unordered": lambda f, g, lam, n: f / n + lam * g,
    "fpfc": lambda f, g, lam, n: f + lam / (2 * n) * 2 * g,
}


def test_the_table_is_complete():
    assert set(LITERAL) == set(scaling.CONVENTIONS)


@pytest.mark.parametrize("convention", scaling.CONVENTIONS)
def test_objectives_are_proportional(convention):
    rng = np.random.default_rng(0)
    points, lam, n = rng.normal(size=(7, 2)), 0.37, 7
    problem = FusionProblem(SquaredDistance(points), lam=scaling.to_canonical(lam, convention, n))
    ratios = []
    for _ in range(5):
        x = rng.normal(size=(7, 2))
        pairs = sum(np.linalg.norm(x[i] - x[j]) for i in range(n) for j in range(i))
        literal = LITERAL[convention](0.5 * ((x - points) ** 2).sum(), pairs, lam, n)
        ratios.append(literal / problem.objective(x))
    # Tolerance: a few roundings of sums of 21 terms.
    np.testing.assert_allclose(ratios, ratios[0], rtol=1e-13)


@pytest.mark.parametrize("convention", scaling.CONVENTIONS)
def test_there_and_back(convention):
    there = scaling.to_canonical(0.3, convention, 12, penalty=L2Norm())
    assert scaling.from_canonical(there, convention, 12) == pytest.approx(0.3, rel=1e-15)


class Knees(L2Norm):
    """A penalty whose knees move with lam."""

    @property
    def linear_in_lam(self):
        return False


@pytest.mark.parametrize("convert", [scaling.to_canonical, scaling.from_canonical])
def test_refusals(convert):
    with pytest.raises(
        InvalidArgumentError, match="convention='mean' is unknown; give one of 'canonical', 'ordered'"
    ):
        convert(1.0, "mean", 3)
    with pytest.raises(InvalidArgumentError, match=r"lam=-1\.0 is negative"):
        convert(-1.0, "canonical", 3)
    with pytest.raises(InvalidArgumentError, match="n_nodes=0 is too small"):
        convert(1.0, "canonical", 0)
    with pytest.raises(InvalidTypeError, match="penalty is a str; give a Penalty"):
        convert(1.0, "canonical", 3, penalty="l2")
    with pytest.raises(InvalidArgumentError, match=r"penalty=Knees\(\) is not linear in lam.*weight=1 / m"):
        convert(1.0, "fpfc", 3, penalty=Knees())
