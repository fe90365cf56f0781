"""Losses as named arrays, and back; no pickle."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from fusionopt import _checks, losses
from fusionopt.losses import (
    Huber,
    HuberRegression,
    LeastSquares,
    Logistic,
    NodeLoss,
    Poisson,
    Softmax,
    SquaredDistance,
    SquaredHinge,
)
from fusionopt.losses._sampled import SampledLoss

Arrays = dict[str, NDArray[Any]]

_OPTIONS: dict[type[NodeLoss], tuple[str, ...]] = {
    SquaredDistance: (),
    Huber: ("delta",),
    LeastSquares: ("ridge",),
    Logistic: ("ridge", "free_bias"),
    SquaredHinge: ("ridge", "free_bias"),
    HuberRegression: ("ridge", "delta"),
    Poisson: ("ridge",),
    Softmax: ("ridge", "n_classes"),
}
"""Numbers beside the data, by the names that the classes' own arguments have."""


def pack_loss(loss: NodeLoss) -> Arrays:
    """The arrays that make a loss again.

    Raises
    ------
    InvalidTypeError
        `CallableLoss`, or a loss of another make: functions are not data.
    """
    names = _OPTIONS.get(type(loss))
    if names is None:
        _checks.refuse_type(
            f"{type(loss).__name__} cannot be saved, for functions are not data; save the result's arrays yourself.",
            argument="problem.loss",
            got=type(loss).__name__,
            wanted="a loss of fusionopt other than CallableLoss",
        )
    options = json.dumps({name: getattr(loss, name) for name in names})
    out: Arrays = {"loss.options": np.frombuffer(options.encode(), dtype=np.uint8)}
    if isinstance(loss, SquaredDistance | Huber):
        return out | {"loss.targets": loss.targets, "loss.sample_weight": loss.sample_weight}
    assert isinstance(loss, SampledLoss)
    out |= {
        "loss.targets": loss.targets,
        "loss.sample_weight": loss.sample_weight,
        "loss.offsets": loss.offsets,
    }
    designs = loss.designs
    if isinstance(designs, np.ndarray):
        out["loss.designs"] = designs
    else:
        out |= {f"loss.designs.{part}": getattr(designs, part) for part in ("data", "indices", "indptr")}
        out["loss.designs.shape"] = np.array(designs.shape)
    names_of_groups = loss.group_names
    if names_of_groups is not None and names_of_groups.dtype.kind != "O":
        out["loss.group_names"] = names_of_groups
    return out


def unpack_loss(name: str, arrays: Arrays) -> NodeLoss:
    """The loss of class `name` from its arrays."""
    kind: Any = getattr(losses, name)
    options = json.loads(arrays["loss.options"].tobytes().decode()) if "loss.options" in arrays else {}
    if "loss.ridge" in arrays:  # written by version 0.1.0
        options["ridge"] = float(arrays["loss.ridge"])
    options["sample_weight"] = arrays["loss.sample_weight"]
    targets = arrays["loss.targets"]
    if "loss.offsets" not in arrays:
        made: NodeLoss = kind(targets, **options)
        return made
    offsets = arrays["loss.offsets"]
    nodes = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
    options["groups"] = arrays["loss.group_names"][nodes] if "loss.group_names" in arrays else None
    designs: Any = arrays.get("loss.designs")
    if designs is None:
        parts = tuple(arrays[f"loss.designs.{part}"] for part in ("data", "indices", "indptr"))
        designs = sparse.csr_array(parts, shape=tuple(arrays["loss.designs.shape"]))
    if options["groups"] is None:
        designs = [designs[first:last] for first, last in pairwise(offsets)]
    made = kind(designs, targets, **options)
    return made
