"""Labels of samples as the losses want them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fusionopt import _checks
from fusionopt.losses.base import read_only

FloatArray = NDArray[np.float64]


def signs(name: str, labels: FloatArray) -> FloatArray:
    """Labels in {-1, 1}, from those or from {0, 1}."""
    wrong = ~np.isin(labels, (-1.0, 0.0, 1.0))
    mixed = (labels == 0).any() and (labels == -1).any()
    if wrong.any() or mixed:
        found = np.unique(labels)
        shown = ", ".join(f"{value:g}" for value in found[:5]) + (", ..." if len(found) > 5 else "")
        _checks.refuse(
            f"{name} holds the values {shown}; give two classes as -1 and 1, or as 0 and 1.",
            argument=name,
            got=shown,
            wanted="-1 and 1, or 0 and 1",
        )
    return read_only(np.where(labels > 0, 1.0, -1.0))


def class_indices(name: str, classes: FloatArray, n_classes: int | None) -> tuple[NDArray[np.int64], int]:
    """Classes 0, ..., C - 1 and C, the largest class plus one unless given."""
    whole = (classes == np.floor(classes)) & (classes >= 0)
    if not whole.all():
        place = int(np.argmin(whole))
        _checks.refuse(
            f"{name} holds {classes[place]:g} for sample {place}; classes are whole numbers 0, 1, ..., for instance "
            "from numpy.unique(names, return_inverse=True)[1].",
            argument=name,
            got=float(classes[place]),
            wanted="whole numbers >= 0",
        )
    largest = int(classes.max())
    count = largest + 1 if n_classes is None else _checks.as_count("n_classes", n_classes, minimum=2)
    if count < 2:
        _checks.refuse(
            f"{name} holds class 0 only; give n_classes if there are others.",
            argument=name,
            got="one class",
            wanted="at least two classes, or n_classes",
        )
    if largest >= count:
        _checks.refuse(
            f"{name} holds class {largest}, and n_classes={count} leaves 0 to {count - 1}; raise n_classes.",
            argument=name,
            got=largest,
            wanted=f"classes below {count}",
        )
    indices = classes.astype(np.int64)
    indices.flags.writeable = False
    return indices, count


def counts_of_events(name: str, counts: FloatArray) -> FloatArray:
    """Counts >= 0."""
    if (counts < 0).any():
        place = int(np.argmax(counts < 0))
        _checks.refuse(
            f"{name} holds {counts[place]:g} for sample {place}; a count is >= 0.",
            argument=name,
            got=float(counts[place]),
            wanted=">= 0",
        )
    return counts
