"""Radial penalties in the compiled core."""

from __future__ import annotations

from fusionopt import _checks, _core
from fusionopt.penalties import L2Norm, Mcp, Penalty, Scad, SmoothedScad, SquaredL2

_KINDS: dict[type[Penalty], _core.PenaltyKind] = {
    L2Norm: _core.PenaltyKind.L2Norm,
    SquaredL2: _core.PenaltyKind.SquaredL2,
    Scad: _core.PenaltyKind.Scad,
    SmoothedScad: _core.PenaltyKind.SmoothedScad,
    Mcp: _core.PenaltyKind.Mcp,
}


def native_penalty(penalty: Penalty) -> _core.RadialPenalty:
    """The compiled twin of a penalty: value, derivative and prox of arrays, without checks.

    Parameters
    ----------
    penalty : L2Norm, SquaredL2, Scad, SmoothedScad or Mcp

    Returns
    -------
    _core.RadialPenalty

    Raises
    ------
    InvalidTypeError
        Another penalty.
    """
    kind = _KINDS.get(type(penalty))
    if kind is None:
        _checks.refuse_type(
            f"penalty is {penalty!r}, which has no compiled twin; give one of "
            f"{', '.join(known.__name__ for known in _KINDS)}.",
            argument="penalty",
            got=type(penalty).__name__,
            wanted="a penalty of fusionopt that depends on the length of a difference only",
        )
    shape = penalty.a if isinstance(penalty, Scad | SmoothedScad) else 0.0
    if isinstance(penalty, Mcp):
        shape = penalty.gamma
    return _core.RadialPenalty(kind, shape, penalty.xi if isinstance(penalty, SmoothedScad) else 0.0)
