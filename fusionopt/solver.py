"""`solve`: one problem, one certificate."""

from __future__ import annotations

from collections.abc import Iterable

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


def solve_many(
    problems: Iterable[FusionProblem], settings: Settings | None = None, *, callback: Callback | None = None
) -> list[Result]:
    """Solve problems one after another (seeds, folds, lams), sharing what neighbours have in common.

    Parameters
    ----------
    problems : iterable of FusionProblem
        A problem with the loss, graph and penalty (the same objects) of the one before it goes on from its state,
        whatever its lam; one of the same shape starts from its answer.
    settings : Settings or None
        For all of them.
    callback : callable or None
        As in `solve`; a true return value stops the problem at hand, and the next one begins.

    Returns
    -------
    list of Result
        In the order given; each keeps its own duals. After Ctrl-C the list ends with the interrupted one.

    Raises
    ------
    InvalidArgumentError, InvalidTypeError
        As in `solve`, before the problem it concerns is begun.

    Examples
    --------
    >>> from fusionopt import FusionProblem, SquaredDistance, solve_many
    >>> problem = FusionProblem(SquaredDistance([0.0, 2.0]))
    >>> [r.n_clusters for r in solve_many(problem.with_lam(lam) for lam in (0.5, 1.5))]
    [2, 1]
    """
    results: list[Result] = []
    session, before = None, None
    with watch_interrupt() as interrupt:
        for problem in problems:
            _checks.check_instance(
                "problems",
                problem,
                FusionProblem,
                "for instance FusionProblem(loss, graph, lam=1.0), in a list",
            )
            chosen = default_settings(problem) if settings is None else settings
            _checks.check_instance("settings", chosen, Settings, "for instance AdmmSettings(), or None")
            parts = (problem.loss, problem.graph, problem.penalty)
            if (
                session is not None
                and before is not None
                and all(a is b for a, b in zip(parts, before, strict=True))
            ):
                session.set_lam(problem.lam)
            else:
                point = results[-1].x if results else None
                shape = (problem.n_nodes, problem.n_features)
                session = open_session(
                    problem, chosen, None if point is None or point.shape != shape else point
                )
            before = parts
            result = session.run(Monitor(chosen, interrupt, callback))
            if result.has_duals:
                result.keep_duals(result.edge_duals().copy)
            results.append(result)
            if interrupt.requested:
                break
    return results
