"""One robust linear regression for each node."""

from __future__ import annotations

from collections.abc import Sequence

from numpy.typing import ArrayLike

from fusionopt import _checks
from fusionopt.losses._families import HuberFamily
from fusionopt.losses._glm import GlmLoss


class HuberRegression(GlmLoss):
    """f_i(x) = (1/n_i) sum_s w_s h(z_s'x - y_s) + ridge/2 ||x||_2^2.

    h(r) = r^2/2 for |r| <= delta, delta |r| - delta^2/2 beyond.

    Parameters
    ----------
    designs, targets
        As in `LeastSquares`; SciPy sparse matrices are kept as CSR.
    delta : float > 0
        Where a residual starts to count linearly, in the units of the targets.
    ridge : float >= 0
    sample_weight, groups
        As in `LeastSquares`.

    Raises
    ------
    InvalidArgumentError
        delta <= 0; else as in `LeastSquares`.
    InvalidTypeError
        As in `LeastSquares`.

    Examples
    --------
    >>> loss = HuberRegression([[[1.0], [1.0]]], [[0.0, 10.0]], delta=1.0)
    >>> loss.value([[0.0]])
    4.75
    """

    def __init__(
        self,
        designs: Sequence[ArrayLike] | ArrayLike,
        targets: Sequence[ArrayLike] | ArrayLike,
        delta: float,
        ridge: float = 0.0,
        sample_weight: Sequence[ArrayLike] | ArrayLike | None = None,
        groups: ArrayLike | None = None,
    ) -> None:
        self._delta = _checks.as_positive_scalar("delta", delta)
        super().__init__(
            HuberFamily(self._delta), designs, targets, ridge, sample_weight, groups, name="targets"
        )
        self._seal()

    @property
    def delta(self) -> float:
        """Where a residual starts to count linearly."""
        return self._delta
