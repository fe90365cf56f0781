"""A user's own loss: a value and a gradient, and constants that are checked by sampling."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fusionopt import _checks
from fusionopt.losses.base import EPS, FenchelGap, NodeLoss, read_only

FloatArray = NDArray[np.float64]

_SAMPLES = 8
_SCALES = (1e-2, 1.0, 1e2)


class CallableLoss(NodeLoss):
    """f_i(x_i) from two functions of your own; convex and differentiable.

    Parameters
    ----------
    value : callable
        ``value(x) -> (n_nodes,)``, the f_i(x_i) of all nodes from x (n_nodes, n_features); or, with two parameters,
        ``value(i, x_i) -> float`` for one node.
    gradient : callable
        ``gradient(x) -> (n_nodes, n_features)``; or ``gradient(i, x_i) -> (n_features,)``.
    n_nodes, n_features : int >= 1
    lipschitz : float > 0, array-like (n_nodes,), or None
        L_i with ||grad f_i(x) - grad f_i(y)|| <= L_i ||x - y|| everywhere; None where you know none.
    strong_convexity : float >= 0, array-like (n_nodes,), or None
        mu_i with <grad f_i(x) - grad f_i(y), x - y> >= mu_i ||x - y||^2 everywhere; None stands for 0. Without it no
        duality gap can be given, and answers end "stationary".

    Raises
    ------
    InvalidArgumentError
        A function that returns another shape or no finite numbers; a gradient that is not the derivative of the value,
        a function that is not convex, or a constant that does not hold, at a pair of sampled points.
    InvalidTypeError
        Something that cannot be called.

    Notes
    -----
    Sampling (normal points of size 0.01, 1 and 100, fixed seed) can refute a constant, not prove it: a certificate is
    as good as the constants you declare. The functions are called with a read-only array; what they close over must
    not change. Hessians come from differences of the gradient. Such a loss cannot be saved.

    Examples
    --------
    >>> import numpy as np
    >>> a = np.array([[0.0], [2.0]])
    >>> loss = CallableLoss(
    ...     lambda x: np.cosh(x - a).sum(axis=1) - 1, lambda x: np.sinh(x - a), 2, 1, strong_convexity=1.0
    ... )
    >>> loss.value(a)
    0.0
    """

    def __init__(
        self,
        value: Callable[..., Any],
        gradient: Callable[..., Any],
        n_nodes: int,
        n_features: int,
        lipschitz: ArrayLike | None = None,
        strong_convexity: ArrayLike | None = None,
    ) -> None:
        self._m = _checks.as_count("n_nodes", n_nodes)
        self._d = _checks.as_count("n_features", n_features)
        self._value_of = self._vectorised("value", value)
        self._gradient_of = self._vectorised("gradient", gradient)
        self._lipschitz = None if lipschitz is None else self._constants("lipschitz", lipschitz)
        self._strong = (
            read_only(np.zeros(self._m))
            if strong_convexity is None
            else self._constants("strong_convexity", strong_convexity)
        )
        self._check_by_sampling()
        self._seal()

    def _vectorised(self, name: str, function: Any) -> Callable[[FloatArray], Any]:
        _checks.check_callable(name, function)
        try:
            parameters = inspect.signature(function).parameters.values()
            needed = sum(
                p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD) and p.default is p.empty
                for p in parameters
            )
        except (TypeError, ValueError):
            needed = 1
        if needed != 2:
            return lambda x: function(x)
        return lambda x: np.stack([np.asarray(function(i, row), dtype=np.float64) for i, row in enumerate(x)])

    def _constants(self, name: str, value: Any) -> FloatArray:
        if np.ndim(value) == 0:
            return read_only(np.full(self._m, _checks.as_nonnegative_scalar(name, value)))
        return _checks.as_node_weights(name, value, self._m, of="node", all_zero_refused=False)

    def _call(self, name: str, x: FloatArray, shape: tuple[int, ...]) -> FloatArray:
        x = read_only(np.array(x))
        out = np.asarray((self._value_of if name == "value" else self._gradient_of)(x), dtype=np.float64)
        if out.shape != shape:
            _checks.refuse(
                f"{name}(x) returned shape {out.shape}; it needs {shape} for x of shape {x.shape}.",
                argument=name,
                got=out.shape,
                wanted=f"shape {shape}",
            )
        return out

    def _values(self, x: FloatArray) -> FloatArray:
        return self._call("value", x, (self._m,))

    def _gradient(self, x: FloatArray) -> FloatArray:
        return self._call("gradient", x, (self._m, self._d))

    def _check_by_sampling(self) -> None:
        rng = np.random.default_rng(0)
        for scale in _SCALES:
            for _ in range(_SAMPLES):
                x, y = scale * rng.standard_normal((2, self._m, self._d))
                with np.errstate(all="ignore"):
                    values = self._values(x), self._values(y)
                    slopes = self._gradient(x), self._gradient(y)
                if scale == 1.0 and not all(np.isfinite(a).all() for a in (*values, *slopes)):
                    _checks.refuse(
                        "value or gradient returned NaN or Inf at a point of size 1; give functions that are finite "
                        "everywhere.",
                        argument="value",
                        got="NaN or Inf",
                        wanted="finite numbers",
                    )
                if all(np.isfinite(a).all() for a in (*values, *slopes)):
                    self._check_pair(x, y, values, slopes)

    def _check_pair(
        self,
        x: FloatArray,
        y: FloatArray,
        values: tuple[FloatArray, FloatArray],
        slopes: tuple[FloatArray, FloatArray],
    ) -> None:
        apart = x - y
        square = (apart**2).sum(axis=1)
        change = slopes[0] - slopes[1]
        along = (change * apart).sum(axis=1)
        noise = (
            1e-9 * np.sqrt(square) * (np.linalg.norm(slopes[0], axis=1) + np.linalg.norm(slopes[1], axis=1))
        )
        # Convexity with this gradient: f(x) >= f(y) + <grad f(y), x - y>, both ways.
        heights = 1e-9 * (np.abs(values[0]) + np.abs(values[1])) + noise
        forward = values[0] - values[1] - (slopes[1] * apart).sum(axis=1)
        backward = values[1] - values[0] + (slopes[0] * apart).sum(axis=1)
        self._judge(
            (forward < -heights) | (backward < -heights),
            "gradient",
            "the tangent lies above the function, so gradient is not the derivative of value, or value is not convex",
        )
        self._judge(
            along < self._strong * square - noise,
            "strong_convexity",
            "<grad f(x) - grad f(y), x - y> is below strong_convexity ||x - y||^2; declare a smaller constant",
        )
        if self._lipschitz is not None:
            size = np.linalg.norm(change, axis=1)
            self._judge(
                size > self._lipschitz * np.sqrt(square) + noise / np.sqrt(square),
                "lipschitz",
                "||grad f(x) - grad f(y)|| is above lipschitz ||x - y||; declare a larger constant",
            )

    def _judge(self, wrong: NDArray[np.bool_], argument: str, why: str) -> None:
        if wrong.any():
            _checks.refuse(
                f"{argument} does not hold at a pair of sampled points of node {int(np.argmax(wrong))}: {why}.",
                argument=argument,
                got="a counterexample",
                wanted="a value, a gradient and constants that agree",
            )

    @property
    def n_nodes(self) -> int:
        """Number of nodes."""
        return self._m

    @property
    def n_features(self) -> int:
        """Number of columns of x."""
        return self._d

    @property
    def lipschitz(self) -> FloatArray | None:
        """L_i, (n_nodes,), or None; read-only."""
        return self._lipschitz

    @property
    def has_bound(self) -> bool:
        """A duality gap needs every mu_i > 0."""
        return bool((self._strong > 0).all())

    def _gradient_error(self, x: FloatArray) -> FloatArray:
        # What a user's function rounds is not known: eight roundings of its result, and of x through the curvature.
        gradient = np.abs(self._gradient(x))
        bound = 8 * EPS * gradient
        if self._lipschitz is not None:
            bound = bound + EPS * self._lipschitz[:, None] * np.linalg.norm(x, axis=1)[:, None]
        return np.asarray(bound)

    def _hessians_at(self, x: FloatArray) -> FloatArray:
        m, d = self._m, self._d
        hessians = np.empty((m, d, d))
        step = np.cbrt(EPS) * np.maximum(np.abs(x).max(axis=1), _natural_step(x))
        for k in range(d):
            shift = np.zeros((m, d))
            shift[:, k] = step
            forward, backward = x + shift, x - shift
            width = forward[:, k] - backward[:, k]
            hessians[:, :, k] = (self._gradient(forward) - self._gradient(backward)) / width[:, None]
        values, vectors = np.linalg.eigh(0.5 * (hessians + hessians.swapaxes(1, 2)))
        values = np.maximum(values, self._strong[:, None])
        return np.asarray(np.einsum("iac,ic,ibc->iab", vectors, values, vectors))

    def majorant(self) -> FloatArray | None:
        """L_i, (n_nodes,), as declared, or None."""
        return self._lipschitz

    def strong_convexity(self) -> FloatArray:
        """mu_i, (n_nodes,), as declared."""
        return self._strong

    def _fenchel(self, x: FloatArray, g: FloatArray, g_error: FloatArray) -> FenchelGap:
        told = super()._fenchel(x, g, g_error)
        # A node of which no modulus is known has no bound, whatever its gradient.
        return FenchelGap(np.where(self._strong > 0, told.gap, np.inf), told.error)


def _natural_step(x: FloatArray) -> FloatArray:
    """Size of a typical row, 1 where x is zero."""
    size = float(np.abs(x).max(initial=0.0))
    return np.full(len(x), size if size > 0 else 1.0)
