"""A folder that holds the finished part of a path, so that a killed run goes on where it was."""

from __future__ import annotations

import dataclasses
import fcntl
import hashlib
import json
import os
from pathlib import Path
from types import TracebackType
from typing import IO

import numpy as np
from numpy.typing import NDArray

from fusionopt import _archive, _checks
from fusionopt.problem import FusionProblem
from fusionopt.result import Result
from fusionopt.settings import Settings

FloatArray = NDArray[np.float64]
State = dict[str, FloatArray]

_HEAD = "path.npz"
_LOCK = ".lock"


class Checkpoint:
    """Finished lams of one path, each in a file of its own that appears whole or not at all.

    ``lam-K.npz`` holds the result of the K-th smallest lam, ``state-K.npz`` what the next one starts from (only the
    latest is kept; it is on the disk before its lam), and ``point-LAM.npz`` a solve made to locate events.

    Parameters
    ----------
    folder : path
        Made where it is missing.
    problem : FusionProblem
    settings : Settings
    request : dict
        Whatever else the answers depend on, as plain values.

    Raises
    ------
    InvalidArgumentError
        The folder cannot be used, belongs to another path, or is in use.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        problem: FusionProblem,
        settings: Settings,
        request: dict[str, object],
    ) -> None:
        self.folder = Path(folder)
        self._problem = problem
        self._print = _fingerprint(problem, settings, request)
        self._lock: IO[bytes] | None = None

    def __enter__(self) -> Checkpoint:
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._lock = (self.folder / _LOCK).open("ab")
        except OSError as error:
            _checks.refuse(
                f"the checkpoint folder {str(self.folder)!r} cannot be used: {error.strerror or error}.",
                argument="checkpoint",
                got=str(self.folder),
                wanted="a folder that can be written",
            )
        try:
            # The lock goes with the process, however it ends.
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self._lock.close()
            _checks.refuse(
                f"the checkpoint folder {str(self.folder)!r} is in use by another run; wait for it or give another.",
                argument="checkpoint",
                got=str(self.folder),
                wanted="a folder of its own for each run",
            )
        try:
            self._check_owner()
        except BaseException:
            self._lock.close()
            raise
        for rubbish in self.folder.glob(f".*.npz.*{_archive.ASIDE}"):
            rubbish.unlink(missing_ok=True)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        assert self._lock is not None
        self._lock.close()

    def _check_owner(self) -> None:
        head = self.folder / _HEAD
        if head.exists():
            if _archive.read(head, "checkpoint")["fingerprint"].tobytes().decode() != self._print:
                _checks.refuse(
                    f"the checkpoint folder {str(self.folder)!r} holds another path: its problem, settings or lams "
                    "differ. Give the same arguments as before, or another folder.",
                    argument="checkpoint",
                    got=str(self.folder),
                    wanted="the folder of this path, or a new one",
                )
        elif any(not name.name.startswith(".") for name in self.folder.iterdir()):
            _checks.refuse(
                f"the folder {str(self.folder)!r} holds files but no checkpoint; give an empty or a new one.",
                argument="checkpoint",
                got=str(self.folder),
                wanted="an empty or a new folder",
            )

    def grid(self) -> tuple[FloatArray, float | None] | None:
        """(lams, lambda_max) of the run that began here; None before `keep_grid`."""
        head = self.folder / _HEAD
        if not head.exists():
            return None
        arrays = _archive.read(head, "checkpoint")
        top = float(arrays["lambda_max"])
        return arrays["lams"], None if np.isnan(top) else top

    def keep_grid(self, lams: FloatArray, lambda_max: float | None) -> None:
        """Write the lams; from here on the folder belongs to this path."""
        text = np.frombuffer(self._print.encode(), dtype=np.uint8)
        top = np.array(np.nan if lambda_max is None else lambda_max)
        _archive.write(
            self.folder / _HEAD, "checkpoint", {"fingerprint": text, "lams": lams, "lambda_max": top}
        )

    def finished(self) -> int:
        """How many of the smallest lams are on the disk."""
        count = 0
        while self._lam_file(count).exists():
            count += 1
        return count

    def load(self, place: int) -> Result:
        """The result of the lam with this place in ascending order."""
        return self._result(self._lam_file(place))

    def state(self, place: int) -> State | None:
        """What the session carried on from that lam; None where its method has no state to hand out."""
        file = self._state_file(place)
        return (
            {k: v for k, v in _archive.read(file, "state").items() if k != "format"}
            if file.exists()
            else None
        )

    def keep(self, place: int, result: Result, state: State | None) -> None:
        """Write a finished lam, after the state to go on from; then the state before it is rubbish."""
        if state is not None:
            _archive.write(self._state_file(place), "state", state)
        _archive.write(self._lam_file(place), "lam", _packed(result))
        if place > 0:
            self._state_file(place - 1).unlink(missing_ok=True)

    def point(self, lam: float) -> Result | None:
        """A solve between two lams, where it was made already."""
        file = self._point_file(lam)
        return self._result(file) if file.exists() else None

    def keep_point(self, result: Result) -> None:
        """Write such a solve."""
        _archive.write(self._point_file(result.problem.lam), "lam", _packed(result))

    def _result(self, file: Path) -> Result:
        arrays = _archive.read(file, "lam")
        result = _archive.unpack_result(arrays, "", self._problem)
        if "duals" in arrays:
            result.keep_duals(arrays["duals"].copy)
        return result

    def _lam_file(self, place: int) -> Path:
        return self.folder / f"lam-{place:05d}.npz"

    def _state_file(self, place: int) -> Path:
        return self.folder / f"state-{place:05d}.npz"

    def _point_file(self, lam: float) -> Path:
        return self.folder / f"point-{np.float64(lam).tobytes().hex()}.npz"


def _packed(result: Result) -> _archive.Arrays:
    return _archive.pack_result(result, "") | ({"duals": result.edge_duals()} if result.has_duals else {})


def _fingerprint(problem: FusionProblem, settings: Settings, request: dict[str, object]) -> str:
    """A digest of all that the answers depend on."""
    digest = hashlib.sha256()
    for name, array in sorted(_archive.pack_problem(problem.with_lam(0.0)).items()):
        digest.update(f"{name} {array.dtype} {array.shape}".encode())
        digest.update(np.ascontiguousarray(array).tobytes())
    plain = {"settings": dataclasses.asdict(settings), "method": type(settings).__name__, "request": request}
    digest.update(json.dumps(plain, sort_keys=True).encode())
    return digest.hexdigest()
