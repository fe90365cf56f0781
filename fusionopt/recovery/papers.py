"""Statements of four papers on clustered federated learning, checked on given numbers.

Nothing here runs an algorithm: recorded runs and matrices come in, a report goes out, with the correction beside
what was printed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fusionopt import _checks
from fusionopt.recovery.aggregation import (
    as_counts,
    as_similarity,
    bipartition,
    data_imbalance,
    optimal_cluster_weights,
    rfedavg_weights,
    spanning_tree,
)

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

_ROUNDING = 1e-9
"""Relative: what counts as equal where a statement says that two numbers are."""
_BRUTE_FORCE = 12
"""Up to this many clients all splits are tried."""


@dataclass(frozen=True)
class Finding:
    """One statement on one set of numbers.

    Attributes
    ----------
    statement, printed, correction, assumption : str
        Its name; what the paper prints; what is true instead ("" where the print is right); what was assumed, and
        what of it was checked.
    holds, holds_corrected : bool
        Whether the numbers agree with the printed and with the corrected statement.
    margin, margin_corrected : float
        By how much, relative to the larger side; negative where it fails, -inf where it is not even defined.
    figures : dict of str to float
        The numbers that were compared.
    """

    statement: str
    printed: str
    correction: str
    assumption: str
    holds: bool
    holds_corrected: bool
    margin: float
    margin_corrected: float
    figures: dict[str, float] = field(default_factory=dict)

    def __str__(self) -> str:
        def word(held: bool, margin: float) -> str:
            return f"{'holds' if held else 'FAILS'} (margin {margin:.3g})"

        lines = [
            f"{self.statement}: as printed {word(self.holds, self.margin)}, corrected "
            f"{word(self.holds_corrected, self.margin_corrected)}",
            f"  printed:    {self.printed}",
        ]
        if self.correction:
            lines.append(f"  correction: {self.correction}")
        lines.append(f"  assumption: {self.assumption}")
        lines.append("  " + ", ".join(f"{name} = {value:.6g}" for name, value in self.figures.items()))
        return "\n".join(lines)


@dataclass(frozen=True)
class Report(Sequence[Finding]):
    """Findings in the order they were made."""

    findings: tuple[Finding, ...]

    @property
    def holds(self) -> bool:
        """Whether every corrected statement holds."""
        return all(finding.holds_corrected for finding in self.findings)

    def __len__(self) -> int:
        return len(self.findings)

    def __getitem__(self, index: Any) -> Any:
        return self.findings[index]

    def __iter__(self) -> Iterator[Finding]:
        return iter(self.findings)

    def __str__(self) -> str:
        return "\n".join(map(str, self.findings))


def verify(statement: str | None = None, **given: Any) -> Report:
    """Check statements of the papers on numbers.

    Parameters
    ----------
    statement : str, or None
        "fpfc-1" (FPFC, Theorem 1), "cfl-4", "cfl-6" (CFL, equations (4), (6)), "fedsoft-5" (FedSoft, Theorem 5),
        "rfedavg-15" (RFedAvg, bound (15)), "rfedavg-q1" (RFedAvg, problem Q1 and its weights). None: all but
        "fpfc-1", each on generated numbers.
    **given
        What the statement is about, see `fpfc_theorem1`, `cfl_cosines`, `cfl_split`, `fedsoft_limit`,
        `rfedavg_bound`, `rfedavg_problem` in this module. Without any, numbers are generated from ``random_state``
        (0).

    Returns
    -------
    Report
        One finding or several; ``str(report)`` states the correction beside the printed text.

    Raises
    ------
    InvalidArgumentError, InvalidTypeError
        An unknown statement, missing or wrong numbers.

    Examples
    --------
    >>> verify("cfl-6", similarity=[[1.0, 0.9, -0.8], [0.9, 1.0, -0.7], [-0.8, -0.7, 1.0]]).holds
    True
    """
    if statement is None:
        names = [name for name in _STATEMENTS if name in _GENERATED]
        if set(given) - {"random_state"}:
            _checks.refuse(
                f"numbers were given ({', '.join(given)}) without a statement; name one of {', '.join(_STATEMENTS)}.",
                argument="statement",
                got=None,
                wanted="the name of a statement",
            )
        return Report(tuple(f for name in names for f in verify(name, **given)))
    _checks.check_choice("statement", statement, tuple(_STATEMENTS))
    if not set(given) - {"random_state"}:
        if statement not in _GENERATED:
            _checks.refuse(
                f"{statement} is about a recorded run and cannot be generated; give its numbers, see "
                "recovery.papers.fpfc_theorem1.",
                argument="statement",
                got=statement,
                wanted="the numbers of a run",
            )
        seed = _checks.as_count("random_state", given.get("random_state", 0), minimum=0)
        given = _GENERATED[statement](np.random.default_rng(seed))
    try:
        return Report((_STATEMENTS[statement](**given),))
    except TypeError as error:
        if "argument" not in str(error):
            raise
        _checks.refuse(
            f"{statement}: {error}.", argument="given", got=sorted(given), wanted="the parameters it names"
        )


def _margin(larger: float, smaller: float) -> float:
    """(larger - smaller) over the larger of the two sizes; NaN becomes -inf."""
    scale = max(abs(larger), abs(smaller))
    if scale == 0:
        return 0.0
    value = (larger - smaller) / scale
    return value if math.isfinite(value) else -math.inf


# FPFC ---------------------------------------------------------------------------------------------------------------


def fpfc_constants(
    *,
    lipschitz: float,
    curvature_below: float,
    lam: float,
    xi: float,
    a: float,
    rho: float,
    alpha: float,
    n_local_steps: int,
    n_nodes: int,
    participation: float,
    pair_participation: float,
) -> dict[str, float]:
    """Constants of FPFC's Theorem 1 as printed and corrected; NaN where one is meaningless.

    With c = 1 - 2 alpha mu (L_f + rho) / (L_f + rho + mu), mu = rho - L_minus, q = c^(T/2), L_h = L_f + rho and
    L_g = max(lam / xi, 1 / (a - 1)):

        C_1 = (1/p) [ 6 ((1/q - 1)^-2 L_h^2 + rho^2) / (rho - L_f - 2 L_h q / (1 - q)) + 12 rho^3 / D ]
        C_2 = L_g^2 / (m rho D),   D = rho^2 - L_g rho - 2 L_g^2

    Parameters
    ----------
    lipschitz, curvature_below : float
        L_f, and L_minus > 0 with Hessians >= -L_minus.
    lam, xi, a, rho, alpha : float
    n_local_steps, n_nodes : int
        T and m.
    participation, pair_participation : float
        p, the least probability of a device, and p_2, the least probability that two devices are active together.

    Returns
    -------
    dict
        "c", "q", "L_g", "first_denominator", "D", "C_1", "C_2" as printed, "C_1_corrected", "C_2_corrected" (C_2 over
        p_2), "printed_conditions", "corrected_conditions" (1.0 or 0.0).
    """
    for name, value in (("lipschitz", lipschitz), ("lam", lam), ("xi", xi), ("rho", rho), ("alpha", alpha)):
        _checks.as_positive_scalar(name, value)
    _checks.as_nonnegative_scalar("curvature_below", curvature_below)
    _checks.as_scalar_between("a", a, 2.0, math.inf, "SCAD needs a > 2")
    for name, count in (("n_local_steps", n_local_steps), ("n_nodes", n_nodes)):
        _checks.as_count(name, count)
    _checks.as_share("participation", participation)
    if _checks.as_nonnegative_scalar("pair_participation", pair_participation) > participation:
        _checks.refuse(
            f"pair_participation={pair_participation:g} is above participation={participation:g}; two devices are "
            "never active together more often than one of them.",
            argument="pair_participation",
            got=pair_participation,
            wanted="at most participation",
        )
    mu, lip_h = rho - curvature_below, lipschitz + rho
    c = 1.0 - 2.0 * alpha * mu * lip_h / (lip_h + mu) if mu > 0 else math.nan
    q = c ** (n_local_steps / 2.0) if 0 < c < 1 else math.nan
    lip_g = max(lam / xi, 1.0 / (a - 1.0))
    first = rho - lipschitz - 2.0 * q / (1.0 - q) * lip_h
    second = rho**2 - lip_g * rho - 2.0 * lip_g**2
    step = 0 < alpha <= 1.0 / (lipschitz + 2.0 * rho - curvature_below) and mu > 0
    floor = max(2.0 * lam / xi, 2.0 / (a - 1.0), curvature_below)
    printed = step and q < 0.5 and rho > max(lipschitz / (1.0 - 2.0 * q), floor)
    corrected = step and q < 1.0 / 3.0 and rho > max(lipschitz * (1.0 + q) / (1.0 - 3.0 * q), floor)
    c1 = math.nan
    if first > 0 and second > 0:
        slow = (1.0 / q - 1.0) ** -2
        c1 = (6.0 * (slow * lip_h**2 + rho**2) / first + 12.0 * rho**3 / second) / participation
    c2 = lip_g**2 / (n_nodes * rho * second) if second > 0 else math.nan
    pairs = pair_participation > 0
    return {
        "c": c,
        "q": q,
        "L_g": lip_g,
        "first_denominator": first,
        "D": second,
        "C_1": c1,
        "C_2": c2,
        "C_1_corrected": c1 if pairs else math.nan,
        "C_2_corrected": c2 / pair_participation if pairs else math.nan,
        "printed_conditions": float(printed),
        "corrected_conditions": float(corrected and pairs),
    }


def fpfc_theorem1(
    *,
    trace: Mapping[str, ArrayLike],
    objective_start: float,
    objective_least: float = 0.0,
    lam: float,
    xi: float,
    n_nodes: int,
    **constants: Any,
) -> Finding:
    """FPFC, Theorem 1, on the squared norms recorded in a run (or their means over several runs).

    Parameters
    ----------
    trace : mapping of str to array-like (K,)
        What was recorded after each round, such as ``Result.trace``: "gradient_squares" is ||grad_w L_0||^2,
        "prox_squares" ||G||^2 and "residual_squares" ||grad_v L_0||^2; other columns are not read.
    objective_start, objective_least : float
        F(w^0), and a lower bound of F.
    lam, xi, n_nodes, **constants
        As in `fpfc_constants`.
    """
    columns = ("gradient_squares", "prox_squares", "residual_squares")
    _checks.check_instance("trace", trace, Mapping, "for instance Result.trace")
    start, least = (
        _checks.as_real(name, value)
        for name, value in (("objective_start", objective_start), ("objective_least", objective_least))
    )
    missing = [name for name in columns if name not in trace]
    if missing:
        _checks.refuse(
            f"trace has no column {missing[0]!r}; it needs {', '.join(columns)}.",
            argument="trace",
            got=sorted(trace),
            wanted="the squared norms of each round",
        )
    rows = [_checks.as_nonnegative_array(name, trace[name]).ravel() for name in columns]
    if len({len(row) for row in rows}) > 1 or len(rows[0]) == 0:
        told = ", ".join(str(len(row)) for row in rows)
        _checks.refuse(
            f"the columns of trace have {told} rows; give one entry a round in each.",
            argument="trace",
            got=[len(row) for row in rows],
            wanted="columns of one length",
        )
    known = fpfc_constants(lam=lam, xi=xi, n_nodes=n_nodes, **constants)
    room = start - least + n_nodes * xi * lam / 4.0
    rounds = len(rows[0])
    left = [float(rows[0].mean()), float(rows[1].max()), float(rows[2].mean())]
    ball = (n_nodes * lam * xi / (lam + xi)) ** 2

    def worst(c1: float, c2: float) -> float:
        right = (c1 * room / rounds, ball, c2 * room / rounds)
        return min(_margin(r, value) for value, r in zip(left, right, strict=True))

    printed = worst(known["C_1"], known["C_2"])
    corrected = worst(known["C_1_corrected"], known["C_2_corrected"])
    within = bool(known["corrected_conditions"])
    return Finding(
        statement="FPFC, Theorem 1",
        printed="for T > -2 log 2 / log c and rho > max{L_f / (1 - 2q), 2 lam / xi, 2 / (a - 1), L_-}, the means of "
        "||grad_w L_0||^2 and ||grad_v L_0||^2 are at most C_1 R / K and C_2 R / K, and ||G||^2 <= (m lam xi / (lam + "
        "xi))^2, under P(i active) > 0",
        correction="the first denominator of C_1 is positive only for q < 1/3 and rho > L_f (1 + q) / (1 - 3q); two "
        "devices must be active together with probability p_2 > 0; C_2 lacks the factor 1 / p_2",
        assumption="constants as given; conditions on T, alpha and rho "
        + ("hold in the corrected form" if within else "FAIL in the corrected form"),
        holds=bool(known["printed_conditions"]) and printed >= 0,
        holds_corrected=within and corrected >= 0,
        margin=printed,
        margin_corrected=corrected,
        figures={
            "mean_gradient": left[0],
            "largest_prox": left[1],
            "mean_residual": left[2],
            "R": room,
            **known,
        },
    )


# CFL ----------------------------------------------------------------------------------------------------------------


def cfl_cosines(*, gradients: ArrayLike, labels: ArrayLike, weights: ArrayLike | None = None) -> Finding:
    """CFL, equation (4): at a stationary point of the weighted sum, cosines of gradients are 1 and -1.

    Parameters
    ----------
    gradients : array-like (m, d)
        Of the clients' risks at the common model.
    labels : array-like (m,)
        Their true groups.
    weights : array-like (m,), or None
        |D_i|; ones if None.
    """
    g = _checks.as_matrix("gradients", gradients)
    names = _checks.as_labels("labels", labels, len(g))
    share = (
        np.ones(len(g))
        if weights is None
        else _checks.as_node_weights("weights", weights, len(g), of="client")
    )
    sizes = np.abs(g).max(axis=1)
    g = (
        g / np.ldexp(1.0, np.frexp(sizes)[1])[:, None]
    )  # cosines do not know units, which may over- or underflow
    share = share * np.ldexp(1.0, np.frexp(sizes)[1] - np.frexp(sizes.max())[1])
    norms = np.sqrt(np.square(g).sum(axis=1))
    if float(norms.min()) == 0:
        _checks.refuse(
            f"gradient {int(norms.argmin())} is zero, so its cosines are not defined.",
            argument="gradients",
            got=0.0,
            wanted="non-zero gradients",
        )
    alpha = g @ g.T / np.outer(norms, norms)
    same = names[:, None] == names[None, :]
    groups = len(np.unique(names))
    inside = float(alpha[same].min())
    across = float(alpha[~same].max()) if groups > 1 else -1.0
    balance = float(np.linalg.norm(share @ g) / (share @ norms))
    deviation = max(1.0 - inside, 1.0 + across)
    exact = deviation <= _ROUNDING
    return Finding(
        statement="CFL, equation (4)",
        printed="at a stationary point the cosine of two clients' gradients is 1 in one group and -1 across groups",
        correction="only for two groups whose clients have the same risk inside a group; three symmetric groups give "
        "-1/2, and what CFL needs is only that every cosine inside is larger than every cosine across",
        assumption=f"{groups} groups; |weighted sum of gradients| / sum of norms = {balance:.2g} (0 when stationary)",
        holds=exact,
        holds_corrected=inside > across,
        margin=-deviation if not exact else _ROUNDING - deviation,
        margin_corrected=inside - across,
        figures={
            "least_inside": inside,
            "largest_across": across,
            "balance": balance,
            "groups": float(groups),
        },
    )


def cfl_split(*, similarity: ArrayLike) -> Finding:
    """CFL, equation (6): is the split of `bipartition` the best one?

    Parameters
    ----------
    similarity : array-like (m, m)
    """
    alpha = as_similarity("similarity", similarity)
    left, right = bipartition(alpha)
    found = float(alpha[np.ix_(left, right)].max())
    tree = spanning_tree(alpha)
    least = float(alpha[tree[:, 0], tree[:, 1]].min())
    m = len(alpha)
    tried = m <= _BRUTE_FORCE
    best = least
    if tried:
        rest = range(1, m)
        for size in range(1, m):
            for others in combinations(rest, size):
                inside = np.ones(m, dtype=np.bool_)
                inside[list(others)] = False
                best = min(best, float(alpha[np.ix_(inside, ~inside)].max()))
    held = found <= best
    return Finding(
        statement="CFL, equation (6)",
        printed="split into two so that the largest similarity across is smallest",
        correction="solved exactly by removing the smallest edge of a maximum spanning tree (single linkage); the "
        "published code's complete linkage solves another problem",
        assumption="compared with every split"
        if tried
        else "compared with the tree's smallest edge, a lower bound",
        holds=held,
        holds_corrected=held,
        margin=_margin(best, found),
        margin_corrected=_margin(best, found),
        figures={
            "largest_across": found,
            "least_possible": best,
            "left": float(len(left)),
            "right": float(len(right)),
        },
    )


# FedSoft ------------------------------------------------------------------------------------------------------------


def fedsoft_limit(
    *,
    hessians: ArrayLike,
    minimisers: ArrayLike,
    importance: ArrayLike,
    sizes: ArrayLike,
    lam: float,
    centers: ArrayLike | None = None,
) -> Finding:
    """FedSoft, Theorem 5, for quadratic client risks, fixed importance weights and full participation.

    f_k(w) = 1/2 (w - a_k)' A_k (w - a_k); h_k(w; c) = f_k(w) + lam/2 sum_s u_ks ||w - c_s||^2; each round
    w_k = argmin h_k and c_s = sum_k v_sk w_k with v_sk = u_ks n_k / sum_k' u_k's n_k'.

    Parameters
    ----------
    hessians : array-like (N, d, d)
        A_k, positive definite.
    minimisers : array-like (N, d)
        a_k.
    importance : array-like (N, S) > 0
        u_ks.
    sizes : array-like (N,) > 0
        n_k.
    lam : float > 0
    centers : array-like (T, S, d), or None
        Centres recorded over the rounds of a run; None: the fixed point of the round is computed.
    """
    blocks, a = _checks.as_array("hessians", hessians), _checks.as_matrix("minimisers", minimisers)
    u = _checks.as_matrix("importance", importance)
    n = _checks.as_vector("sizes", sizes, length=len(a), of="client")
    strength = _checks.as_positive_scalar("lam", lam)
    clients, d = a.shape
    groups = u.shape[1]
    if blocks.shape != (clients, d, d) or len(u) != clients or float(u.min()) <= 0 or float(n.min()) <= 0:
        _checks.refuse(
            f"hessians {blocks.shape}, minimisers {a.shape} and importance {u.shape} must be (N, d, d), (N, d) and "
            "(N, S), importance and sizes positive.",
            argument="hessians",
            got=(blocks.shape, a.shape, u.shape),
            wanted="(N, d, d), (N, d), (N, S)",
        )
    weakest = np.linalg.eigvalsh(blocks)[:, 0]
    lopsided = np.abs(blocks - blocks.transpose(0, 2, 1)).max(axis=(1, 2)) > 1e-9 * np.abs(blocks).max(
        axis=(1, 2)
    )
    if bool(lopsided.any()) or float(weakest.min()) <= 0:
        k = int(np.flatnonzero(lopsided | (weakest <= 0))[0])
        _checks.refuse(
            f"hessians[{k}] is not symmetric and positive definite, which the theorem assumes of every client.",
            argument="hessians",
            got=float(weakest[k]),
            wanted="positive definite matrices",
        )
    total = u.sum(axis=1)
    solver = np.linalg.inv(blocks + strength * total[:, None, None] * np.eye(d))
    v = u * n[:, None] / (u * n[:, None]).sum(axis=0)
    # One round: c_s <- sum_k v_sk solver_k (A_k a_k + lam sum_t u_kt c_t).
    lead = np.einsum("ks,kt,kab->satb", v, strength * u, solver).reshape(groups * d, groups * d)
    shift = np.einsum("ks,kab,kbc,kc->sa", v, solver, blocks, a).ravel()
    fixed = np.linalg.solve(np.eye(groups * d) - lead, shift)
    factor = float(np.abs(np.linalg.eigvals(lead)).max())
    weak = float(weakest.min())
    bound = float((strength * total / (strength * total + weak)).max())

    def joint(weights: FloatArray) -> FloatArray:
        """Centres of argmin sum_k weights_k h_k: stationary in c when sum_k weights_k u_ks (c_s - w_k) = 0."""
        share = weights[:, None] * u / (weights[:, None] * u).sum(axis=0)
        part = np.einsum("ks,kt,kab->satb", share, strength * u, solver).reshape(groups * d, groups * d)
        known = np.einsum("ks,kab,kbc,kc->sa", share, solver, blocks, a).ravel()
        return np.linalg.solve(np.eye(groups * d) - part, known)

    size = float(np.abs(fixed).max()) or 1.0  # centres of exactly zero are as close as can be
    reached, observed = fixed, factor
    if centers is not None:
        run = _checks.as_array("centers", centers).reshape(-1, groups * d)
        reached = run[-1]
        steps = np.sqrt(np.square(run - fixed).sum(axis=1))
        usable = steps > 1e-9 * max(float(steps.max()), size)
        kept = steps[usable]
        observed = (
            float((kept[-1] / kept[len(kept) // 2]) ** (1.0 / (len(kept) - 1 - len(kept) // 2)))
            if (len(kept) > 3)
            else factor
        )
    plain = float(np.abs(reached - joint(np.ones(clients))).max()) / size
    weighted = float(np.abs(reached - joint(n)).max()) / size
    linear = observed <= bound * (1.0 + 1e-6) and bound < 1
    return Finding(
        statement="FedSoft, Theorem 5",
        printed="for fixed importance weights w and c converge linearly to argmin sum_k h_k",
        correction="the limit is argmin sum_k n_k h_k: the aggregation weights (6) contain n_k; full participation and "
        "exact local solves contract the centres by lam U / (lam U + mu_F) at least, U = max_k sum_s u_ks; sampled "
        "clients do not converge linearly, and (6) must sum over all clients",
        assumption="quadratic risks, exact local solves, all clients in every round"
        + ("" if centers is None else "; limit and rate read off the recorded centres"),
        holds=linear and plain <= 1e-6,
        holds_corrected=linear and weighted <= 1e-6,
        margin=1e-6 - plain,
        margin_corrected=min(1e-6 - weighted, _margin(bound, observed) + 1e-6),
        figures={
            "distance_to_argmin_sum_h": plain,
            "distance_to_argmin_sum_n_h": weighted,
            "factor": observed,
            "spectral_radius": factor,
            "factor_bound": bound,
        },
    )


# RFedAvg ------------------------------------------------------------------------------------------------------------


def rfedavg_bound(
    *,
    lipschitz: float,
    gradient_bound: float,
    step: float,
    distance: float,
    next_distance: float,
    next_gap: float,
    reference: float,
    smoothness: float,
    shift: float,
) -> Finding:
    """RFedAvg, bound (15), on one round.

    Parameters
    ----------
    lipschitz, gradient_bound, step : float
        L_1; G with ||grad F_k|| <= G; eta.
    distance, next_distance : float
        ||w^t - w*|| and ||w^{t+1} - w*||.
    next_gap : float
        F(w^{t+1}) - F(w*).
    reference, smoothness, shift : float
        Gamma_t = R(b*); L_2; ||b~ - b*||.
    """
    for name, value in (
        ("lipschitz", lipschitz),
        ("gradient_bound", gradient_bound),
        ("step", step),
        ("distance", distance),
        ("next_distance", next_distance),
        ("next_gap", next_gap),
        ("reference", reference),
        ("smoothness", smoothness),
        ("shift", shift),
    ):
        _checks.as_nonnegative_scalar(name, value)
    top = reference + 0.5 * smoothness * shift**2
    near = 0.5 * lipschitz * distance**2
    printed = near - 0.5 * lipschitz * (step * gradient_bound) ** 2 + lipschitz * step * gradient_bound * top
    corrected = near + lipschitz * step * gradient_bound * top
    assumed = next_distance <= top * (1.0 + _ROUNDING)
    margins = _margin(printed, next_gap), _margin(corrected, next_gap)
    return Finding(
        statement="RFedAvg, bound (15)",
        printed="F(w^{t+1}) - F* <= L_1/2 ||w^t - w*||^2 - L_1/2 eta^2 G^2 + L_1 eta G (Gamma_t + L_2/2 ||b~ - b*||^2)",
        correction="G is an upper bound of gradients, so -L_1/2 eta^2 G^2 is not one: drop it (the right side would "
        "fall without end as G grows). Gamma_t must be R at the minimiser of R, which the uniform b* need not be",
        assumption="R(b~) = ||w^{t+1} - w*|| <= Gamma_t + L_2/2 ||b~ - b*||^2 "
        + ("holds" if assumed else "FAILS: Assumption 5 with grad R(b*) = 0 is violated"),
        holds=margins[0] >= -_ROUNDING,
        holds_corrected=margins[1] >= -_ROUNDING or not assumed,
        margin=margins[0],
        margin_corrected=margins[1],
        figures={
            "left": next_gap,
            "right_printed": printed,
            "right_corrected": corrected,
            "assumption_5": float(assumed),
        },
    )


def rfedavg_problem(*, class_counts: ArrayLike, clusters: Sequence[Sequence[int]]) -> Finding:
    """RFedAvg, problem Q1 and the weights that stand for its solution.

    Parameters
    ----------
    class_counts : array-like (n_clients, n_classes)
    clusters : list of lists of int
    """
    counts = as_counts("class_counts", class_counts)
    weights = rfedavg_weights(counts, clusters)
    cluster_counts = np.array([counts[list(members)].sum(axis=0) for members in clusters])
    shares = cluster_counts / cluster_counts.sum(axis=1, keepdims=True)
    optimal = optimal_cluster_weights(cluster_counts)
    target = 1.0 / counts.shape[1]

    def value(p: FloatArray) -> float:
        return float(np.square(shares.T @ p - target).sum())

    slope = 2.0 * shares @ (shares.T @ optimal - target)
    # Frank-Wolfe: no point of the simplex is more than this below.
    gap = float(optimal @ slope - slope.min())
    imbalance = data_imbalance(counts, clusters)
    total = float(counts.sum())
    small = bool((counts <= total / counts.shape[1]).all())
    sizes = cluster_counts.sum(axis=1)
    blind = bool(np.allclose(imbalance, total - sizes, rtol=_ROUNDING, atol=0.0))
    uniform = np.full(len(sizes), 1.0 / len(sizes))
    positive = len(imbalance) > 1 and float(imbalance.min()) > 0
    best = value(optimal)
    near = math.sqrt(value(weights)), math.sqrt(best), math.sqrt(value(uniform))
    gain = 0.0 if near[2] <= near[1] else (near[2] - near[0]) / (near[2] - near[1])
    return Finding(
        statement="RFedAvg, problem Q1",
        printed="p_n = (1 / I_n) / sum (1 / I_n) balances the classes and is close to the solution of Q1",
        correction="where no client has more than D / M samples of a class, I_n = D - D_n whatever its classes are, so "
        "the weights do not see the balance and are nearly uniform; one cluster gives 0/0, and I_n <= 0 needs a floor. "
        "With class counts at hand solve Q1 itself",
        assumption=f"{len(sizes)} clusters; "
        + ("no class count above D / M" if small else "some class count above D / M")
        + ("; I_n = D - D_n in all clusters" if blind else ""),
        holds=positive and gain >= 0.5,
        holds_corrected=gap <= 1e-6 * max(best, target) and (blind or not small),
        margin=gain - 0.5 if positive else -math.inf,
        margin_corrected=1e-6 * max(best, target) - gap,
        figures={
            "distance_weights": near[0],
            "distance_optimal": near[1],
            "distance_uniform": near[2],
            "share_of_gain": gain,
            "optimality_gap": gap,
        },
    )


# Generated numbers --------------------------------------------------------------------------------------------------


def _two_groups(rng: np.random.Generator) -> dict[str, Any]:
    """Gradients at the common minimiser of two groups of equal quadratic risks, with unequal sizes."""
    labels = np.array([0, 0, 0, 1, 1])
    weights = rng.uniform(1.0, 5.0, size=5)
    blocks = np.array([_definite(rng, 3) for _ in range(2)])
    ends = rng.standard_normal((2, 3))
    lead = np.array([weights[labels == g].sum() for g in range(2)])
    hessian = np.einsum("g,gab->ab", lead, blocks)
    common = np.linalg.solve(hessian, np.einsum("g,gab,gb->a", lead, blocks, ends))
    gradients = np.einsum("gab,gb->ga", blocks, common - ends)
    return {"gradients": gradients[labels], "labels": labels, "weights": weights}


def _definite(rng: np.random.Generator, d: int) -> FloatArray:
    root = rng.standard_normal((d, d))
    matrix: FloatArray = root @ root.T / d + 0.3 * np.eye(d)
    return matrix


def _similarity(rng: np.random.Generator) -> dict[str, Any]:
    rows = rng.standard_normal((9, 4))
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    return {"similarity": rows @ rows.T}


def _soft(rng: np.random.Generator) -> dict[str, Any]:
    u = rng.uniform(0.05, 1.0, size=(12, 2))
    return {
        "hessians": np.array([_definite(rng, 3) for _ in range(12)]),
        "minimisers": rng.standard_normal((12, 3)),
        "importance": u / u.sum(axis=1, keepdims=True),
        "sizes": rng.integers(100, 200, size=12),
        "lam": 1.0,
    }


def _round(rng: np.random.Generator) -> dict[str, Any]:
    """One round on class risks 1/2 ||w - z_j||^2 whose weights the aggregation moves away from uniform."""
    ends = rng.standard_normal((4, 3))
    start, step = 2.0 * rng.standard_normal(3), 0.5
    even = np.full(4, 0.25)
    least = even @ ends
    mixed = rng.dirichlet(np.full(4, 5.0))
    gradients = start - ends
    reached = start - step * mixed @ gradients
    reference = float(np.linalg.norm(start - step * even @ gradients - least))
    shift = float(np.linalg.norm(mixed - even))
    after = float(np.linalg.norm(reached - least))
    return {
        "lipschitz": 1.0,
        # An upper bound of all gradients, as Assumption 3 allows: twice the largest.
        "gradient_bound": 2.0 * float(np.linalg.norm(gradients, axis=1).max()),
        "step": step,
        "distance": float(np.linalg.norm(start - least)),
        "next_distance": after,
        "next_gap": 0.5 * after**2,
        "reference": reference,
        "smoothness": 2.0 * max(after - reference, 0.0) / shift**2,
        "shift": shift,
    }


def _imbalanced(rng: np.random.Generator) -> dict[str, Any]:
    counts = rng.integers(1, 20, size=(12, 4))
    counts[:8, 0] += 60
    return {"class_counts": counts, "clusters": [list(range(8)), list(range(8, 12))]}


_STATEMENTS: dict[str, Callable[..., Finding]] = {
    "fpfc-1": fpfc_theorem1,
    "cfl-4": cfl_cosines,
    "cfl-6": cfl_split,
    "fedsoft-5": fedsoft_limit,
    "rfedavg-15": rfedavg_bound,
    "rfedavg-q1": rfedavg_problem,
}

_GENERATED: dict[str, Callable[[np.random.Generator], dict[str, Any]]] = {
    "cfl-4": _two_groups,
    "cfl-6": _similarity,
    "fedsoft-5": _soft,
    "rfedavg-15": _round,
    "rfedavg-q1": _imbalanced,
}
