"""How much memory this process may use: the machine's, or less where a control group says so."""

from __future__ import annotations

import os
from pathlib import Path, PurePosixPath

_UNLIMITED = 2.0**60
"""cgroup v1 writes a number near 2^63 where there is no limit."""


def available_bytes(root: str = "/") -> float:
    """The smallest of the machine's memory and the limits of the control groups (v1 and v2) above this process.

    Parameters
    ----------
    root : str
        Where /proc and /sys are found.

    Returns
    -------
    float
        Bytes; inf where the system does not tell.
    """
    try:
        machine = float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    except (ValueError, OSError, AttributeError):
        machine = float("inf")
    return min([machine, *_group_limits(Path(root))])


def _group_limits(root: Path) -> list[float]:
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        return []
    found = []
    for line in lines:
        # number:controllers:path; version 2 has no controllers.
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if number == "0" and not controllers:
            mount, name = root / "sys/fs/cgroup", "memory.max"
        elif "memory" in controllers.split(","):
            mount, name = root / "sys/fs/cgroup/memory", "memory.limit_in_bytes"
        else:
            continue
        # A limit above holds below it; inside a container the path may be the host's, and only the top is there.
        own = PurePosixPath(path.lstrip("/"))
        for folder in (own, *own.parents):
            try:
                value = float((mount / folder / name).read_text())
            except (OSError, ValueError):  # not there, or the word max
                continue
            if value < _UNLIMITED:
                found.append(value)
    return found
