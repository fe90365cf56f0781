"""One Poisson regression for each node."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fusionopt.losses._families import PoissonFamily
from fusionopt.losses._glm import GlmLoss
from fusionopt.losses._labels import counts_of_events

FloatArray = NDArray[np.float64]


class Poisson(GlmLoss):
    """f_i(x) = (1/n_i) sum_s w_s (exp(z_s'x) - y_s z_s'x) + ridge/2 ||x||_2^2.

    The negative log-likelihood of counts y_s with mean exp(z_s'x), without its constant.

    Parameters
    ----------
    designs : sequence of array-likes (n_i, p), or array-like (N, p) with `groups`
        As in `LeastSquares`; SciPy sparse matrices are kept as CSR.
    counts : sequence of array-likes (n_i,), or array-like (N,)
        The y_s >= 0.
    ridge : float >= 0
    sample_weight, groups
        As in `LeastSquares`.

    Raises
    ------
    InvalidArgumentError
        A negative count; else as in `LeastSquares`.
    InvalidTypeError
        As in `LeastSquares`.

    Notes
    -----
    The curvature exp(z_s'x) has no bound, so there is no `majorant`. Without a ridge a minimiser need not exist (a node
    whose counts are all zero): see `fusionopt.existence`.

    Examples
    --------
    >>> loss = Poisson([[[1.0], [1.0]]], [[0, 2]])
    >>> loss.value([[0.0]])
    1.0
    """

    def __init__(
        self,
        designs: Sequence[ArrayLike] | ArrayLike,
        counts: Sequence[ArrayLike] | ArrayLike,
        ridge: float = 0.0,
        sample_weight: Sequence[ArrayLike] | ArrayLike | None = None,
        groups: ArrayLike | None = None,
    ) -> None:
        super().__init__(PoissonFamily(), designs, counts, ridge, sample_weight, groups, name="counts")
        self._targets = counts_of_events("counts", self._targets)
        self._seal()

    @property
    def counts(self) -> FloatArray:
        """y, (N,), in the order of `designs`; read-only."""
        return self._targets
