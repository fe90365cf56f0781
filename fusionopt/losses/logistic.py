"""One logistic regression for each node."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fusionopt import _checks
from fusionopt.losses._families import LogisticFamily
from fusionopt.losses._glm import GlmLoss
from fusionopt.losses._labels import signs

FloatArray = NDArray[np.float64]


class Logistic(GlmLoss):
    """f_i(x) = (1/n_i) sum_s w_s log(1 + exp(-y_s margin_s)) + ridge/2 ||w||_2^2, y_s in {-1, 1}.

    margin_s = z_s'x, and x = w; with a free bias x = [w, b], margin_s = z_s'w - b, and b has no ridge.

    Parameters
    ----------
    designs : sequence of array-likes (n_i, p), or array-like (N, p) with `groups`
        As in `LeastSquares`; SciPy sparse matrices are kept as CSR.
    labels : sequence of array-likes (n_i,), or array-like (N,)
        The y_s, all in {-1, 1}, or all in {0, 1} (0 stands for -1).
    ridge : float >= 0
    free_bias : bool
    sample_weight, groups
        As in `LeastSquares`.

    Raises
    ------
    InvalidArgumentError
        Another label; else as in `LeastSquares`.
    InvalidTypeError
        As in `LeastSquares`.

    Notes
    -----
    Without a ridge a minimiser need not exist (labels that a plane separates): see `fusionopt.existence`.

    Examples
    --------
    >>> loss = Logistic([[[1.0], [2.0]]], [[-1, 1]])
    >>> round(loss.value([[0.0]]), 6)
    0.693147
    """

    def __init__(
        self,
        designs: Sequence[ArrayLike] | ArrayLike,
        labels: Sequence[ArrayLike] | ArrayLike,
        ridge: float = 0.0,
        free_bias: bool = False,
        sample_weight: Sequence[ArrayLike] | ArrayLike | None = None,
        groups: ArrayLike | None = None,
    ) -> None:
        super().__init__(
            LogisticFamily(),
            designs,
            labels,
            ridge,
            sample_weight,
            groups,
            name="labels",
            free_bias=_checks.as_flag("free_bias", free_bias),
        )
        self._targets = signs("labels", self._targets)
        self._seal()

    @property
    def labels(self) -> FloatArray:
        """y, (N,), -1 or 1, in the order of `designs`; read-only."""
        return self._targets
