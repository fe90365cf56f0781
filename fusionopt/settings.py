"""Every default in one place."""

from __future__ import annotations

from dataclasses import dataclass

from fusionopt import _checks


@dataclass(frozen=True)
class Settings:
    """What the settings of every method share.

    A run ends when gap <= eps_rel * max(|P|, |D|) + eps_abs, or when the gap is within the rounding error of
    computing it.

    Parameters
    ----------
    eps_rel : float >= 0
        Relative duality gap.
    eps_abs : float >= 0
        Absolute duality gap, in the objective's own units.
    max_iter : int >= 1
        Most iterations.
    time_limit : float > 0, or None
        Seconds; None is no limit.
    check_every : int >= 1, or None
        Iterations between two evaluations of the gap; None lets the method choose.
    n_threads : int >= 1
        Threads; the answer has the same bits for any number of them. Small problems use one.
    dtype : "float64" | "float32"
        Type of the dual state between two checks, where a method has both forms; a sweep then moves half the memory.
        Finishing, gaps beyond the digits of float32 and whatever a certificate is made of are float64. Without settings
        float32 serves `SquaredDistance` with the l2 penalty and equal weights on a complete graph that is not small.
    random_state : int >= 0, or None
        Seed of the parts that draw random numbers; this method draws none.
    verbose : bool
        Report progress through the logger "fusionopt".

    Raises
    ------
    InvalidArgumentError, InvalidTypeError
        A value that breaks one of these rules; the message names the parameter.
    """

    eps_rel: float = 1e-6
    eps_abs: float = 0.0
    max_iter: int = 20000
    time_limit: float | None = None
    check_every: int | None = None
    n_threads: int = 1
    dtype: str = "float64"
    random_state: int | None = None
    verbose: bool = False

    def __post_init__(self) -> None:
        put = object.__setattr__
        put(self, "eps_rel", _checks.as_nonnegative_scalar("eps_rel", self.eps_rel))
        put(self, "eps_abs", _checks.as_nonnegative_scalar("eps_abs", self.eps_abs))
        put(self, "max_iter", _checks.as_count("max_iter", self.max_iter))
        if self.time_limit is not None:
            limit = _checks.as_positive_scalar(
                "time_limit", self.time_limit, hint=" of seconds, or None for no limit"
            )
            put(self, "time_limit", limit)
        if self.check_every is not None:
            put(self, "check_every", _checks.as_count("check_every", self.check_every))
        put(self, "n_threads", _checks.as_count("n_threads", self.n_threads))
        put(self, "dtype", _checks.check_choice("dtype", self.dtype, ("float64", "float32")))
        if self.random_state is not None:
            put(self, "random_state", _checks.as_count("random_state", self.random_state, minimum=0))
        put(self, "verbose", _checks.as_flag("verbose", self.verbose))


@dataclass(frozen=True)
class AdmmSettings(Settings):
    """Settings of the alternating direction method of multipliers, and of what is built on it.

    Parameters
    ----------
    rho : float > 0, or None
        Penalty parameter at the start, in the units of a Hessian; None lets the method choose and adapt it.
    relaxation : float, 0 < relaxation < 2
        Over-relaxation.

    Raises
    ------
    InvalidArgumentError, InvalidTypeError
        As `Settings`, whose parameters come first.
    """

    rho: float | None = None
    relaxation: float = 1.7

    def __post_init__(self) -> None:
        super().__post_init__()
        put = object.__setattr__
        if self.rho is not None:
            put(
                self,
                "rho",
                _checks.as_positive_scalar("rho", self.rho, hint=", or None to let the method choose"),
            )
        why = "over-relaxation converges inside this range only, 1 is none"
        put(self, "relaxation", _checks.as_scalar_between("relaxation", self.relaxation, 0.0, 2.0, why))


@dataclass(frozen=True)
class DcSettings(AdmmSettings):
    """Settings of difference-of-convex steps for `Scad` and `Mcp`; rho and relaxation are those of the l2 problems.

    ``eps_rel`` is the distance of the subdifferential relative to all forces together (the largest gradient where
    every component is fused), and the relative gap of the l2 problem of each step; ``eps_abs`` is not used.
    ``max_iter`` counts for each l2 problem on its own. ``random_state`` seeds the random starts; None is seed 0.

    Parameters
    ----------
    n_starts : int >= 1, or None
        Starts to try, of which the lowest answer is kept: what the caller gave, every node at its own minimiser,
        every component fused, the best of an l2 path, then random groupings. None: the caller's alone where one is
        given, else the next three.
    max_steps : int >= 1
        Most steps from each start.

    Raises
    ------
    InvalidArgumentError, InvalidTypeError
        As `AdmmSettings`, whose parameters come first.
    """

    n_starts: int | None = None
    max_steps: int = 500

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.n_starts is not None:
            object.__setattr__(self, "n_starts", _checks.as_count("n_starts", self.n_starts))
        object.__setattr__(self, "max_steps", _checks.as_count("max_steps", self.max_steps))


def pdmm_tau_limit(nu: float, ratio: float, coupling: float = 1.0) -> float:
    """Least tau at which the linear modes of PDMM with full participation no longer die out.

        2 nu + 2 (1 + 2 e - a (1 + e)) / (1 + a (1 + e)),   which is 2 nu + 2 e / (2 + e) at a = 1

    Parameters
    ----------
    nu : float, 0 <= nu < 1
    ratio : float >= 0
        e = eta / rho, eta of the pairs.
    coupling : float > 0
        a, the largest eigenvalue of the graph's Laplacian over deg_i + eta_i / rho (the users' eta_i): 1 on a
        large complete graph.

    Returns
    -------
    float

    Notes
    -----
    For an eigenvector of the Laplacian, with losses and lam left out, (x, z, mu) follows a 3 x 3 recursion
    whose eigenvalue reaches -1 at this tau.
    """
    pull = coupling * (1.0 + ratio)
    return 2.0 * nu + 2.0 * (1.0 + 2.0 * ratio - pull) / (1.0 + pull)


@dataclass(frozen=True)
class PdmmSettings(Settings):
    """Settings of PDMM, Algorithm 1 of Armacki et al. (personalised federated learning via convex clustering).

    Parameters
    ----------
    scheme : "full" | "users" | "pairs" | "literal"
        Which blocks an iteration refreshes. "full": all. "users": int(participation n_nodes) users, and each
        pair i < j with an active end, as a unit. "pairs": int(participation (n_nodes + n_edges)) blocks drawn
        among users and pairs i < j. "literal": ordered pairs and their duals drawn apart, as printed; the duals
        lose their antisymmetry and the run can stop at a point that is not optimal, of which a warning says so.
    participation : float, 0 < participation <= 1
        Share refreshed; 1 with scheme "full".
    rho : float > 0, or None
        Penalty parameter, in the units of a Hessian. None: equal to eta, or 2 h / (mean degree + 1) with h the
        least eigenvalue of the mean Hessian at the start.
    eta : float > 0, or None
        Weight of the Bregman terms; None: equal to rho. On graphs that are not complete the users' weight is
        raised by rho times the degree: without that Jacobi steps diverge on bipartite graphs.
    tau : float > 0
        Step of the duals.
    nu : float, 0 <= nu < 1
        Backward step of the auxiliary duals.
    bregman : "half_squared" | "squared"
        B(u, v) = ||u - v||^2 / 2, or ||u - v||^2, which doubles eta.
    skip_fused : int >= 1, or None
        A pair whose z_ij was zero at so many touches in a row is touched and sent only at every tenth
        iteration, until it is not zero any more (end of Appendix C); the optimum stays the same. None: never.

    Raises
    ------
    InvalidArgumentError, InvalidTypeError
        As `Settings`, whose parameters come first; tau beyond the stability rule tau < 2 nu + 2 e / (2 + e),
        e = eta / rho (2 eta / rho with "squared").
    """

    scheme: str = "full"
    participation: float = 1.0
    rho: float | None = None
    eta: float | None = None
    tau: float = 0.8
    nu: float = 0.2
    bregman: str = "half_squared"
    skip_fused: int | None = None

    @property
    def ratio(self) -> float:
        """e = eta / rho with the curvature of the Bregman function."""
        plain = 1.0 if self.rho is None or self.eta is None else self.eta / self.rho
        return plain * (2.0 if self.bregman == "squared" else 1.0)

    def __post_init__(self) -> None:
        super().__post_init__()
        put = object.__setattr__
        _checks.check_choice("scheme", self.scheme, ("full", "users", "pairs", "literal"))
        put(self, "participation", _checks.as_share("participation", self.participation))
        if self.scheme == "full" and self.participation != 1.0:
            _checks.refuse(
                f"participation={self.participation} needs a scheme that draws; give scheme='users', 'pairs' or "
                "'literal', or participation=1.",
                argument="participation",
                got=self.participation,
                wanted="1 with scheme 'full'",
            )
        for name in ("rho", "eta"):
            value = getattr(self, name)
            if value is not None:
                put(self, name, _checks.as_positive_scalar(name, value, hint=", or None for the default"))
        put(self, "tau", _checks.as_positive_scalar("tau", self.tau))
        put(self, "nu", _checks.as_nonnegative_scalar("nu", self.nu))
        if self.nu >= 1:
            _checks.refuse(
                f"nu={self.nu} breaks 0 <= nu < 1; the backward step must be shorter than the step itself.",
                argument="nu",
                got=self.nu,
                wanted="0 <= nu < 1",
            )
        _checks.check_choice("bregman", self.bregman, ("half_squared", "squared"))
        if self.skip_fused is not None:
            put(self, "skip_fused", _checks.as_count("skip_fused", self.skip_fused))
            if self.scheme == "literal":
                _checks.refuse(
                    "skip_fused is not available with scheme='literal', which has no pairs as units; give "
                    "skip_fused=None.",
                    argument="skip_fused",
                    got=self.skip_fused,
                    wanted="None with scheme 'literal'",
                )
        check_pdmm_stability(self.tau, self.nu, self.ratio)


def check_pdmm_stability(tau: float, nu: float, ratio: float, coupling: float = 1.0) -> None:
    """Refuse a tau that breaks the stability rule, with the rule in the message."""
    limit = pdmm_tau_limit(nu, ratio, coupling)
    if tau >= limit:
        rule = "2 nu + 2 e / (2 + e)" if coupling == 1.0 else f"the rule at coupling {coupling:.4g}"
        _checks.refuse(
            f"tau={tau:g} breaks tau < {rule} = {limit:.6g} with nu = {nu:g} and e = eta / rho = {ratio:g}, so "
            "the iteration diverges; give a smaller tau, a larger nu (below 1) or a larger eta.",
            argument="tau",
            got=tau,
            wanted=f"tau < {limit:.6g}",
        )


@dataclass(frozen=True)
class FpfcSettings(Settings):
    """Settings of FPFC, Algorithm 1 of Yu et al. (fusion penalised federated clustering).

    A round: int(participation n_nodes) nodes make `local_steps` steps
    x <- x - alpha (grad f_i(x) + rho kappa_i (x - zeta_i)) from their own last model, then the server refreshes the
    pairs that they touch. Penalties `SmoothedScad`, `L2Norm` (FPFC-l1), `Scad`, `Mcp`, `SquaredL2`. ``n_threads`` may
    be any number, with the same bits for each; ``dtype="float32"`` keeps the pairs (not the models) in float32.

    Parameters
    ----------
    participation : float, 0 < participation <= 1
    local_steps : int >= 1, or None
        T; None takes the minimiser of the local problem instead.
    batch_size : int >= 1, or None
        Samples drawn for each local step (SGD); None takes all.
    alpha : float > 0, or None
        Local step length; None: 1 / (L_i + rho kappa_i) with L_i the largest eigenvalue of the loss's majorant.
    rho : float > 0, or None
        Per unit weight, above the penalty's weak convexity (1 / (a - 1) for SCAD). None: the mean curvature of the
        losses at the start over the mean kappa_i, at least twice the weak convexity.
    nu : float >= 0
        Nodes joined by touched pairs with ||theta|| <= nu are one cluster; in the units of x.
    pairs : "any" | "both"
        Which pairs a round touches: those with an active end, or with two.
    max_iter : int >= 1
        Rounds.

    Raises
    ------
    InvalidArgumentError, InvalidTypeError
        As `Settings`, whose parameters come first.
    """

    max_iter: int = 2000
    participation: float = 1.0
    local_steps: int | None = 10
    batch_size: int | None = None
    alpha: float | None = None
    rho: float | None = None
    nu: float = 0.1
    pairs: str = "any"

    def __post_init__(self) -> None:
        super().__post_init__()
        put = object.__setattr__
        put(self, "participation", _checks.as_share("participation", self.participation))
        for name in ("local_steps", "batch_size"):
            if getattr(self, name) is not None:
                put(self, name, _checks.as_count(name, getattr(self, name)))
        if self.batch_size is not None and self.local_steps is None:
            _checks.refuse(
                f"batch_size={self.batch_size} needs local steps; give local_steps, or batch_size=None.",
                argument="batch_size",
                got=self.batch_size,
                wanted="None with local_steps None",
            )
        for name in ("alpha", "rho"):
            value = getattr(self, name)
            if value is not None:
                put(self, name, _checks.as_positive_scalar(name, value, hint=", or None for the default"))
        put(self, "nu", _checks.as_nonnegative_scalar("nu", self.nu))
        _checks.check_choice("pairs", self.pairs, ("any", "both"))
