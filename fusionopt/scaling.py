"""Conversion between the scales of lam used in the papers.

The canonical objective is sum_i f_i(x_i) + lam * sum_{i<j} w_ij ||x_i - x_j||: each unordered pair once, no
1/N.
"""

from __future__ import annotations

from fusionopt import _checks
from fusionopt.penalties.base import Penalty

CONVENTIONS = ("canonical", "ordered", "mean_ordered", "mean_unordered", "fpfc")


def _factor(convention: str, n_nodes: int) -> float:
    """Canonical lam for a lam of 1."""
    return {
        "canonical": 1.0,
        "ordered": 2.0,
        "mean_ordered": 2.0 * n_nodes,
        "mean_unordered": float(n_nodes),
        "fpfc": 1.0 / n_nodes,
    }[convention]


def _checked(lam: float, convention: str, n_nodes: int, penalty: Penalty | None) -> tuple[float, float]:
    value = _checks.check_lam(lam)
    _checks.check_choice("convention", convention, CONVENTIONS)
    count = _checks.as_count("n_nodes", n_nodes)
    if penalty is not None:
        _checks.check_instance("penalty", penalty, Penalty, "for instance L2Norm(), or None for that")
        if not penalty.linear_in_lam:
            _checks.refuse(
                f"penalty={penalty!r} is not linear in lam (its knees move with lam), so no factor of lam "
                "converts it; keep lam and put the factor into the weights, for instance Graph.complete(m, "
                "weight=1 / m).",
                argument="penalty",
                got=repr(penalty),
                wanted="a penalty that is linear in lam",
            )
    return value, _factor(convention, count)


def to_canonical(lam: float, convention: str, n_nodes: int, penalty: Penalty | None = None) -> float:
    """The canonical lam that gives the same minimisers as `lam` in another convention.

    Parameters
    ----------
    lam : float >= 0
    convention : str
        Objective that `lam` belongs to, N = n_nodes:

        - "canonical": sum_i f_i + lam sum_{i<j}
        - "ordered": sum_i f_i + lam sum_i sum_{j!=i}; canonical 2 lam
        - "mean_ordered": (1/N) sum_i f_i + lam sum_i sum_{j!=i}; canonical 2 N lam
        - "mean_unordered": (1/N) sum_i f_i + lam sum_{i<j}; canonical N lam
        - "fpfc": sum_i f_i + lam/(2 N) sum_i sum_j; canonical lam / N
    n_nodes : int >= 1
    penalty : Penalty or None
        None is a penalty that is linear in lam.

    Returns
    -------
    float

    Raises
    ------
    InvalidArgumentError
        An unknown convention, a negative lam, or a penalty that is not linear in lam.

    References
    ----------
    Armacki et al., personalised federated learning via convex clustering, eq. (3), read with ordered or
    unordered pairs, and eq. (14) ("ordered"); Yu et al., FPFC, AAAI 2023 ("fpfc").

    Examples
    --------
    >>> to_canonical(0.5, "mean_ordered", n_nodes=10)
    10.0
    """
    value, factor = _checked(lam, convention, n_nodes, penalty)
    return value * factor


def from_canonical(lam: float, convention: str, n_nodes: int, penalty: Penalty | None = None) -> float:
    """The inverse of `to_canonical`: the lam of another convention for a canonical one.

    Parameters, exceptions and references as in `to_canonical`.

    Examples
    --------
    >>> from_canonical(10.0, "mean_ordered", n_nodes=10)
    0.5
    """
    value, factor = _checked(lam, convention, n_nodes, penalty)
    return value / factor
