"""Exception classes: one base, each subclass also the built-in that a caller would expect."""

from __future__ import annotations

from typing import Any


class FusionoptError(Exception):
    """Base of every exception that fusionopt raises on purpose."""


class InvalidArgumentError(FusionoptError, ValueError):
    """An argument has the right type and a wrong value.

    Attributes
    ----------
    argument : str
        Name of the argument.
    got : object
        What was given, or the part of it that is wrong.
    wanted : str
        What is accepted.
    """

    def __init__(self, message: str, *, argument: str = "", got: object = None, wanted: str = "") -> None:
        super().__init__(message)
        self.argument = argument
        self.got = got
        self.wanted = wanted


class InvalidTypeError(FusionoptError, TypeError):
    """An argument has a wrong type.

    Attributes
    ----------
    argument, got, wanted
        As in `InvalidArgumentError`.
    """

    def __init__(self, message: str, *, argument: str = "", got: object = None, wanted: str = "") -> None:
        super().__init__(message)
        self.argument = argument
        self.got = got
        self.wanted = wanted


class NotConvergedError(FusionoptError, RuntimeError):
    """`require_converged` was called on a result that did not reach its tolerance.

    Attributes
    ----------
    result : Result or PathResult
        What was reached.
    """

    def __init__(self, message: str, *, result: Any = None) -> None:
        super().__init__(message)
        self.result = result


class MissingDependencyError(FusionoptError, ImportError):
    """An optional package is not installed.

    Attributes
    ----------
    package : str
        Name to install.
    """

    def __init__(self, message: str, *, package: str = "") -> None:
        super().__init__(message)
        self.package = package


class WorkerError(FusionoptError, RuntimeError):
    """A worker process ended, or raised an error that cannot be sent from one process to another.

    Attributes
    ----------
    client : int or None
        For which client it worked.
    """

    def __init__(self, message: str, *, client: int | None = None) -> None:
        super().__init__(message)
        self.client = client


class MemoryLimitError(FusionoptError, RuntimeError):
    """A request would allocate more memory than the function is willing to take."""
