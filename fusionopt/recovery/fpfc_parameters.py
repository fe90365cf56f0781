"""Which conditions of the FPFC convergence theorem a set of parameters meets, as printed and as corrected."""

from __future__ import annotations

import math
from dataclasses import dataclass

from fusionopt import _checks


@dataclass(frozen=True)
class FpfcParameterReport:
    """Outcome of `check_fpfc_parameters`.

    Attributes
    ----------
    printed, corrected : dict of str to bool
        Each condition in words, and whether it holds.
    c, q : float
        Contraction of the squared distance in one local step, and c^(T/2); NaN where the step length is too long.
    smoothness : float
        L_g = max(lam / xi, 1 / (a - 1)), of the smoothed penalty.
    co_activation : float
        Probability that two given devices are active in one round.
    proposal : dict of str to float
        rho, alpha and local_steps that meet every corrected (and printed) condition on them.
    """

    printed: dict[str, bool]
    corrected: dict[str, bool]
    c: float
    q: float
    smoothness: float
    co_activation: float
    proposal: dict[str, float]

    @property
    def printed_hold(self) -> bool:
        """Every printed condition holds."""
        return all(self.printed.values())

    @property
    def corrected_hold(self) -> bool:
        """Every corrected condition holds: the constants of the bound are positive."""
        return all(self.corrected.values())

    def summary(self) -> str:
        """One line a condition, and the proposal."""
        lines = []
        for name, conditions in (("printed", self.printed), ("corrected", self.corrected)):
            lines += [f"{name}: {'holds' if held else 'FAILS'}: {what}" for what, held in conditions.items()]
        proposed = ", ".join(f"{name} = {value:g}" for name, value in self.proposal.items())
        return "\n".join([*lines, f"valid: {proposed}"])


def check_fpfc_parameters(
    *,
    lipschitz: float,
    lam: float,
    xi: float,
    rho: float,
    alpha: float,
    local_steps: int,
    a: float = 3.7,
    lower_curvature: float = 0.0,
    participation: float = 1.0,
    n_nodes: int = 2,
) -> FpfcParameterReport:
    """The conditions of Theorem 1 of Yu et al. on FPFC's parameters (complete graph of weight 1 / m).

        mu = rho - L_-,  c = 1 - 2 alpha mu (L_f + rho) / (L_f + rho + mu),  q = c^(T/2),  L_g = max(lam/xi, 1/(a-1))

        printed:    alpha <= 1 / (L_f + 2 rho - L_-),  T > -2 log 2 / log c (q < 1/2),
                    rho > max(L_f / (1 - 2 q), 2 lam / xi, 2 / (a - 1), L_-),  every device active with probability > 0
        corrected:  alpha as printed,  q < 1/3,  rho > max(L_f (1 + q) / (1 - 3 q), 2 L_g, L_-),
                    every two devices active together with probability > 0

    The printed conditions let the first denominator of the constant C_1, rho - L_f - 2 q / (1 - q) (L_f + rho), be
    negative, and with one active device a round no pair of the printed algorithm is ever updated.

    Parameters
    ----------
    lipschitz : float > 0
        L_f, of every grad f_i.
    lam, xi : float > 0
        Of `SmoothedScad`; xi < lam.
    rho, alpha : float > 0
        Penalty parameter per unit weight, local step length.
    local_steps : int >= 1
        T, the least of the devices.
    a : float > 2
    lower_curvature : float >= 0
        L_-, with every Hessian >= -L_- I; 0 for convex losses.
    participation : float, 0 < participation <= 1
        int(participation m) of the m devices are active in a round.
    n_nodes : int >= 1
        m.

    Returns
    -------
    FpfcParameterReport

    Raises
    ------
    InvalidArgumentError, InvalidTypeError
        A number outside its range.

    Notes
    -----
    The conditions are sufficient. The paper's own experiment (lam = 0.6, xi = 0.001, rho = 1) breaks rho > 2 lam / xi
    by a factor 1200 and converges.

    Examples
    --------
    >>> report = check_fpfc_parameters(lipschitz=1.0, lam=0.6, xi=0.05, rho=1.0, alpha=0.1, local_steps=10)
    >>> report.printed_hold, report.corrected_hold
    (False, False)
    >>> better = check_fpfc_parameters(lipschitz=1.0, lam=0.6, xi=0.05, **report.proposal)
    >>> better.printed_hold, better.corrected_hold
    (True, True)
    """
    L_f = _checks.as_positive_scalar("lipschitz", lipschitz)
    weight, half = _checks.as_positive_scalar("lam", lam), _checks.as_positive_scalar("xi", xi)
    rho, alpha = _checks.as_positive_scalar("rho", rho), _checks.as_positive_scalar("alpha", alpha)
    steps = _checks.as_count("local_steps", local_steps)
    shape = _checks.as_scalar_between("a", a, 2.0, math.inf, "SCAD needs a > 2")
    L_minus = _checks.as_nonnegative_scalar("lower_curvature", lower_curvature)
    share = _checks.as_share("participation", participation)
    m = _checks.as_count("n_nodes", n_nodes)
    if half >= weight:
        _checks.refuse(
            f"xi={half:g} is not below lam={weight:g}; the smoothed penalty needs xi < lam.",
            argument="xi",
            got=xi,
            wanted="xi < lam",
        )
    L_g = max(weight / half, 1.0 / (shape - 1.0))
    c = _contraction(rho, alpha, L_f, L_minus)
    q = c ** (steps / 2) if 0.0 <= c < 1.0 else math.nan
    active = max(int(share * m), 1)
    together = active * (active - 1) / (m * (m - 1)) if m > 1 else 1.0
    step = rho > L_minus and alpha <= (1 + 1e-12) / (L_f + 2 * rho - L_minus)
    printed = {
        "alpha <= 1 / (L_f + 2 rho - L_-)": step,
        "T > -2 log 2 / log c": q < 1 / 2,
        "rho > L_f / (1 - 2 q)": q < 1 / 2 and rho > L_f / (1 - 2 * q),
        "rho > 2 lam / xi": rho > 2 * weight / half,
        "rho > 2 / (a - 1)": rho > 2 / (shape - 1),
        "rho > L_-": rho > L_minus,
        "every device is active with probability > 0": True,
    }
    corrected = {
        "alpha <= 1 / (L_f + 2 rho - L_-)": step,
        "q < 1/3": q < 1 / 3,
        "rho > L_f (1 + q) / (1 - 3 q)": q < 1 / 3 and rho > L_f * (1 + q) / (1 - 3 * q),
        "rho > 2 max(lam / xi, 1 / (a - 1))": rho > 2 * L_g,
        "rho > L_-": rho > L_minus,
        "every two devices are active together with probability > 0": together > 0,
    }
    # At q = 1/6 the corrected bound on rho is 7/3 L_f.
    safe = 1.05 * max(2 * L_g, 7 / 3 * L_f, 2 * L_minus)
    safe_alpha = 1 / (L_f + 2 * safe - L_minus)
    safe_steps = math.ceil(2 * math.log(6) / -math.log(_contraction(safe, safe_alpha, L_f, L_minus)))
    proposal = {"rho": safe, "alpha": safe_alpha, "local_steps": max(safe_steps, 1)}
    return FpfcParameterReport(printed, corrected, c, q, L_g, together, proposal)


def _contraction(rho: float, alpha: float, L_f: float, L_minus: float) -> float:
    mu = rho - L_minus
    return 1.0 - 2.0 * alpha * mu * (L_f + rho) / (L_f + rho + mu) if mu > 0 else math.nan
