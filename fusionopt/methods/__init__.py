"""One file a method; each turns a problem and a start into a `Result` while a `Monitor` watches."""

from fusionopt.methods._choice import ResumableSession, Session, default_settings, open_session
from fusionopt.methods._monitor import Callback, Interrupt, Monitor, Progress, watch_interrupt

__all__ = [
    "Callback",
    "Interrupt",
    "Monitor",
    "Progress",
    "ResumableSession",
    "Session",
    "default_settings",
    "open_session",
    "watch_interrupt",
]
