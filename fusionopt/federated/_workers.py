"""Processes that work for several clients at once, for models whose clients cannot be worked in one call.

They are forks: a worker has the clients' data and the model, functions and all, without a copy being sent; models and
results go through pipes. Only Linux has forks that are safe beside the threads of numerical libraries.
"""

from __future__ import annotations

import os
import pickle
import signal
import sys
import traceback
import warnings
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from multiprocessing import current_process, get_context
from multiprocessing.connection import Connection, wait
from typing import Any, Protocol

from fusionopt.errors import WorkerError


class Served(Protocol):
    """Whose methods the workers call, the first argument being a client."""

    def begin_worker(self) -> None:
        """Called once in each worker."""


def can_fork() -> bool:
    """Whether this process may have workers; one that is a worker of `multiprocessing` itself may not."""
    return sys.platform == "linux" and not current_process().daemon


class Workers:
    """`count` forks of this process, as it is now, that wait for calls of methods of `served`.

    They hold nothing that needs an ending of its own, so they are killed: by `close`, at the end of this process, and
    they end by themselves where it has vanished.
    """

    def __init__(self, served: Served, count: int) -> None:
        fork = get_context("fork")
        self._owner = os.getpid()
        self._links: list[Connection] = []
        self._processes = []
        for _ in range(count):
            mine, theirs = fork.Pipe()
            self._links.append(mine)
            process = fork.Process(target=_serve, args=(served, theirs, list(self._links)), daemon=True)
            with warnings.catch_warnings():
                # Python warns of forks beside threads. A worker runs on one thread and uses none of this process.
                warnings.simplefilter("ignore", DeprecationWarning)
                process.start()
            theirs.close()
            self._processes.append(process)

    def map(self, name: str, calls: Sequence[tuple[Any, ...]]) -> list[Any]:
        """What the method `name` gives for each tuple of arguments, in their order; a free worker takes the next.

        Raises
        ------
        WorkerError
            A worker has ended, or raised what cannot be sent. Any other exception is the method's own.
        """
        results: list[Any] = [None] * len(calls)
        left = deque(range(len(calls)))
        idle = deque(range(len(self._links)))
        busy: dict[int, int] = {}
        while left or busy:
            while left and idle:
                worker, place = idle.popleft(), left.popleft()
                busy[worker] = place
                with suppress(BrokenPipeError, ConnectionResetError):  # told of below
                    self._links[worker].send((name, calls[place]))
            ready = wait([self._links[worker] for worker in busy])
            for worker in [worker for worker in busy if self._links[worker] in ready]:
                place = busy.pop(worker)
                results[place] = self._answer(worker, calls[place][0])
                idle.append(worker)
        return results

    def _answer(self, worker: int, client: int) -> Any:
        try:
            good, value = self._links[worker].recv()
        except (EOFError, ConnectionResetError):
            self._processes[worker].join()
            code = self._processes[worker].exitcode
            raise WorkerError(
                f"a worker process ended with exit code {code} while it worked for client {client}; it may have been "
                "killed for memory: give a smaller n_threads (1 works in this process).",
                client=client,
            ) from None
        if good:
            return value
        error, told = value
        if error is None:
            raise WorkerError(
                f"client {client} failed in a worker process, where the error could not be sent from; give n_threads=1 "
                f"to have it in this process:\n{told}",
                client=client,
            )
        error.add_note(
            f"It was raised for client {client} in a worker process; give n_threads=1 to have it in this one.\n{told}"
        )
        raise error

    def close(self) -> None:
        """End the workers, whatever they do; again does nothing."""
        if os.getpid() != self._owner:
            return  # this is a fork of the process whose workers they are
        for link in self._links:
            link.close()
        for process in self._processes:
            process.kill()
        for process in self._processes:
            process.join()
            process.close()
        self._links, self._processes = [], []


def _serve(served: Served, link: Connection, others: list[Connection]) -> None:
    """What a worker does."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all processes; the parent ends the workers
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    for other in others:
        other.close()  # else the pipes stay open when the parent has vanished
    served.begin_worker()
    with suppress(EOFError, BrokenPipeError, ConnectionResetError):
        while True:
            name, call = link.recv()
            link.send(_reply(served, name, call))


def _reply(served: Served, name: str, call: tuple[Any, ...]) -> tuple[bool, Any]:
    try:
        return True, getattr(served, name)(*call)
    except Exception as error:
        told = "".join(traceback.format_exception(error))
        try:
            pickle.loads(pickle.dumps(error))
        except Exception:
            return False, (None, told)
        return False, (error, told)
