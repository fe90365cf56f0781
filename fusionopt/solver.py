"""`solve`: one problem, one certificate."""

from __future__ import annotations

from numpy.typing import ArrayLike

from fusionopt import _checks
from fusionopt.methods import Callback, Monitor, default_settings, open_session, watch_interrupt
from fusionopt.problem import FusionProblem
from fusionopt.result import Result
from fusionopt.settings import Settings


def solve(
    problem: FusionProblem,
    settings: Settings | None = None,
    *,
    warm_start: Result | ArrayLike | None = None,
    callback: Callback | None = None,
) -> Result:
    """Solve one problem to a certified duality gap, and finish its partition.

        minimise over x:  F(x) = sum_i f_i(x_i) + lam sum_{(i,j) in E} w_ij ||x_i - x_j||

    Parameters
    ----------
    problem : FusionProblem
    settings : Settings or None
        Picks the method; None takes the best certified one for this problem, with every default.
    warm_start : Result, array-like (n_nodes, n_features) or None
        Where to start; with a convex penalty the answer does not depend on it beyond the tolerance.
    callback : callable or None
        Called with a `Progress` at each check; a true return value stops the run.

    Returns
    -------
    Result
        ``status`` "optimal" promises gap <= eps_rel max(|P|, |D|) + eps_abs, or a gap within the rounding error
        of computing it, at the x returned and with the duals returned. "user_limit" and "interrupted" come with
        the best point reached and its own valid gap. With a penalty that is not convex the status is "stationary",
        the gap NaN, ``lower_bound`` a number below F and ``starts`` the table of starting points (docs/penalties.md).

    Raises
    ------
    InvalidArgumentError, InvalidTypeError
        An argument that breaks a rule, before any work.
    MemoryLimitError
        The pairs of a complete graph would not fit the machine.
    KeyboardInterrupt
        On a second Ctrl-C.

    Notes
    -----
    Relaxed ADMM, O(n_edges n_features) a sweep; see docs/architecture.md. The library prints nothing;
    ``verbose`` logs to the logger "fusionopt".

    Examples
    --------
    >>> from fusionopt import FusionProblem, SquaredDistance, solve
    >>> result = solve(FusionProblem(SquaredDistance([0.0, 2.0]), lam=0.25))
    >>> result.status, result.x.ravel().tolist()
    ('optimal', [0.25, 1.75])
    """
    _checks.check_instance(
        "problem", problem, FusionProblem, "for instance FusionProblem(loss, graph, lam=1.0)"
    )
    chosen = default_settings(problem) if settings is None else settings
    _checks.check_instance("settings", chosen, Settings, "for instance AdmmSettings(), or None")
    _checks.check_callback(callback)
    point = None
    if warm_start is not None:
        x = warm_start.x if isinstance(warm_start, Result) else warm_start
        point = _checks.as_point("warm_start", x, (problem.n_nodes, problem.n_features))
    session = open_session(problem, chosen, point)
    with watch_interrupt() as interrupt:
        return session.run(Monitor(chosen, interrupt, callback))
