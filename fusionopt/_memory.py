"""How much memory this process may use: the machine's, or less where a control group says so."""

from __future__ import annotations

import os

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
    return min([machine, *_group_limits(root.rstrip("/"))])


def _group_limits(root: str) -> list[float]:
    # Plain strings: this runs at the start of every solve.
    try:
        lines = _read(f"{root}/proc/self/cgroup").splitlines()
    except OSError:
        return []
    found = []
    for line in lines:
        # number:controllers:path; version 2 has no controllers.
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if number == "0" and not controllers:
            mount, name = f"{root}/sys/fs/cgroup", "memory.max"
        elif "memory" in controllers.split(","):
            mount, name = f"{root}/sys/fs/cgroup/memory", "memory.limit_in_bytes"
        else:
            continue
        # A limit above holds below it; inside a container the path may be the host's, and only the top is there.
        parts = [part for part in path.split("/") if part]
        for depth in range(len(parts), -1, -1):
            try:
                value = float(_read("/".join([mount, *parts[:depth], name])))
            except (OSError, ValueError):  # not there, or the word max
                continue
            if value < _UNLIMITED:
                found.append(value)
    return found


def _read(path: str) -> str:
    with open(path, encoding="utf-8") as file:
        return file.read()
