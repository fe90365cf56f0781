"""What every method tells while it runs, and how it is asked to stop: callback, clock, Ctrl-C."""

from __future__ import annotations

import logging
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType

from fusionopt import _checks
from fusionopt.result import Trace
from fusionopt.settings import Settings

log = logging.getLogger("fusionopt")


@dataclass(frozen=True)
class Progress:
    """What a callback of `solve` sees at each check.

    Attributes
    ----------
    iteration : int
    elapsed : float
        Seconds since the start.
    objective, dual_objective, gap, rel_gap : float
        The certificate of the best point of this check (NaN where the method has no bound).
    """

    iteration: int
    elapsed: float
    objective: float
    dual_objective: float
    gap: float
    rel_gap: float


Callback = Callable[[Progress], object]


class Interrupt:
    """Set by the first Ctrl-C of the main thread; the second raises KeyboardInterrupt."""

    def __init__(self) -> None:
        self.requested = False

    def __call__(self, number: int, frame: FrameType | None) -> None:
        if self.requested:
            raise KeyboardInterrupt
        self.requested = True


@contextmanager
def watch_interrupt() -> Iterator[Interrupt]:
    """Turn the first Ctrl-C into a request; a no-op outside the main thread or under a handler of the caller's."""
    interrupt = Interrupt()
    own = (
        threading.current_thread() is threading.main_thread()
        and signal.getsignal(signal.SIGINT) is signal.default_int_handler
    )
    if not own:
        yield interrupt
        return
    signal.signal(signal.SIGINT, interrupt)
    try:
        yield interrupt
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


class Monitor:
    """Trace, clock and stop requests of one run.

    Parameters
    ----------
    settings : Settings
        Its time_limit and verbose.
    interrupt : Interrupt
    callback : callable or None
        Called with a `Progress` at each report; a true return value asks to stop.
    """

    def __init__(self, settings: Settings, interrupt: Interrupt, callback: Callback | None = None) -> None:
        self.trace = Trace()
        self.interrupt = interrupt
        self._settings = settings
        self._callback = callback
        self._start = time.perf_counter()
        self._asked = False

    @property
    def elapsed(self) -> float:
        """Seconds since the run began."""
        return time.perf_counter() - self._start

    def report(
        self, iteration: int, objective: float, dual_objective: float, gap: float, **extra: float
    ) -> str:
        """Record one check, with columns of the method's own; returns `stopped()`."""
        self.trace.add(iteration, self.elapsed, objective, dual_objective, gap, **extra)
        if self._settings.verbose:
            log.info("iteration %d: objective %.10g, gap %.3g", iteration, objective, gap)
        if self._callback is not None:
            size = max(abs(objective), abs(dual_objective))
            rel_gap = gap / size if size > 0 else 0.0
            told = Progress(iteration, self.elapsed, objective, dual_objective, gap, rel_gap)
            self._asked |= _checks.as_stop(self._callback(told))
        return self.stopped()

    def stopped(self) -> str:
        """Why the run should stop now: "" while it should not, "interrupted", or a clause for the message."""
        limit = self._settings.time_limit
        if self.interrupt.requested:
            return "interrupted"
        if self._asked:
            return "the callback asked to stop"
        if limit is not None and self.elapsed > limit:
            return f"time_limit = {limit:g} s was reached"
        return ""
