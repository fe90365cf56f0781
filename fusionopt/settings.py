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
    n_threads : int
        This version runs one thread.
    dtype : "float64"
        Arithmetic of the method; this version has float64 only.
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
        if self.n_threads != 1:
            _checks.refuse(
                f"n_threads={self.n_threads} is not available: this version runs one thread; give "
                "n_threads=1.",
                argument="n_threads",
                got=self.n_threads,
                wanted="1",
            )
        if self.dtype != "float64":
            _checks.refuse(
                f"dtype={_checks.shown(self.dtype)} is not available: this version computes in float64; give "
                "dtype='float64'.",
                argument="dtype",
                got=self.dtype,
                wanted="'float64'",
            )
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
