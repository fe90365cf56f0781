"""Problems and results as named arrays in one .npz file; no pickle."""

from __future__ import annotations

import dataclasses
import json
import os
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fusionopt import _checks, penalties, settings
from fusionopt._archive_losses import pack_loss, unpack_loss
from fusionopt.graph import Graph
from fusionopt.penalties import Penalty
from fusionopt.problem import FusionProblem

if TYPE_CHECKING:
    from fusionopt.result import Result

Arrays = dict[str, NDArray[Any]]

FORMAT = "fusionopt-1"
ASIDE = ".tmp"
"""Ending of a file that is being written; after a kill it is rubbish."""

_SCALARS = (
    "objective",
    "dual_objective",
    "gap",
    "rel_gap",
    "n_iter",
    "primal_residual",
    "dual_residual",
    "setup_time",
    "solve_time",
)


def _text(value: str) -> NDArray[np.uint8]:
    return np.frombuffer(value.encode(), dtype=np.uint8)


def _from_text(array: NDArray[Any]) -> str:
    return array.tobytes().decode()


def write(path: str | Path, kind: str, arrays: Arrays) -> None:
    """Write aside, bring it to the disk, then rename: a fault or a kill at any moment leaves the old file or none."""
    target = Path(path)
    aside = target.with_name(f".{target.name}.{os.getpid()}{ASIDE}")
    try:
        with aside.open("wb") as file:
            # Compression would cost more than it saves on floating-point data.
            np.savez(file, allow_pickle=False, format=_text(f"{FORMAT}:{kind}"), **arrays)
            file.flush()
            os.fsync(file.fileno())
        aside.replace(target)
    finally:
        aside.unlink(missing_ok=True)


def read(path: str | Path, kind: str) -> Arrays:
    """All arrays of a file that `write` made.

    Raises
    ------
    InvalidArgumentError
        Not such a file, or one of another kind.
    """
    wanted = f"a file written by {kind}.save"
    try:
        # Opened here: of a damaged file np.load would leave the handle to chance.
        with Path(path).open("rb") as stream, np.load(stream, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
    except OSError as error:
        _checks.refuse(
            f"{str(path)!r} cannot be read: {error.strerror or error}; {wanted} is needed.",
            argument="path",
            got=str(path),
            wanted=wanted,
        )
    except (ValueError, zipfile.BadZipFile, EOFError, AttributeError):
        arrays = {}
    told = _from_text(arrays["format"]) if "format" in arrays else ""
    if told != f"{FORMAT}:{kind}":
        _checks.refuse(
            f"{path} is not {wanted} (format {told or 'unknown'!r}).",
            argument="path",
            got=told,
            wanted=wanted,
        )
    return arrays


def pack_problem(problem: FusionProblem) -> Arrays:
    """Loss, graph, penalty and lam."""
    loss, graph = problem.loss, problem.graph
    out: Arrays = {"problem.lam": np.array(problem.lam), "problem.loss": _text(type(loss).__name__)}
    out["problem.penalty"] = _text(json.dumps(_pack_penalty(problem.penalty)))
    out |= pack_loss(loss)
    if graph.is_complete:
        out["graph.weight"] = np.array(graph.weight)
        if graph.node_weights is not None:
            out["graph.node_weights"] = graph.node_weights
    else:
        out |= {"graph.edges": graph.edges, "graph.weights": graph.weights}
    return out


def _pack_penalty(penalty: Penalty) -> dict[str, Any]:
    kind = type(penalty)
    if getattr(penalties, kind.__name__, None) is not kind:
        _checks.refuse_type(
            f"{kind.__name__} is not a penalty of fusionopt and cannot be saved; save the result's arrays yourself.",
            argument="problem.penalty",
            got=kind.__name__,
            wanted="a penalty of fusionopt",
        )
    shape = {name: getattr(penalty, name) for name in getattr(kind, "__dataclass_fields__", {})}
    return {"name": kind.__name__, **shape}


def _unpack_penalty(arrays: Arrays) -> Penalty:
    if "problem.penalty" not in arrays:  # written by version 0.1.0, which had the l2 norm alone
        return penalties.L2Norm()
    told = json.loads(_from_text(arrays["problem.penalty"]))
    made: Penalty = getattr(penalties, told.pop("name"))(**told)
    return made


def unpack_problem(arrays: Arrays) -> FusionProblem:
    loss = unpack_loss(_from_text(arrays["problem.loss"]), arrays)
    if "graph.edges" in arrays:
        graph = Graph.from_edges(loss.n_nodes, arrays["graph.edges"], arrays["graph.weights"])
    else:
        graph = Graph.complete(loss.n_nodes, float(arrays["graph.weight"]), arrays.get("graph.node_weights"))
    return FusionProblem(loss, graph, _unpack_penalty(arrays), lam=float(arrays["problem.lam"]))


def pack_result(result: Result, prefix: str) -> Arrays:
    """A result without its problem and duals."""
    head = {name: getattr(result, name) for name in _SCALARS} | {
        "lam": result.problem.lam,
        "status": result.status,
        "message": result.message,
        "proven": result.proven,
        "settings": dataclasses.asdict(result.settings),
        "settings_class": type(result.settings).__name__,
        "lower_bound": result.lower_bound,
        "starts": [dataclasses.asdict(start) for start in result.starts],
    }
    out: Arrays = {"labels": result.labels.astype(np.int32), "head": _text(json.dumps(head))}
    # One row a cluster says it all, but where rows of a cluster differ.
    out |= {"centers": result.centers} if result.is_compact else {"x": result.x}
    out |= {f"trace.{name}": values for name, values in result.trace.items()}
    return {prefix + name: values for name, values in out.items()}


def unpack_result(arrays: Arrays, prefix: str, problem: FusionProblem) -> Result:
    from fusionopt.result import Result, Start

    head = json.loads(_from_text(arrays[prefix + "head"]))
    labels = arrays[prefix + "labels"].astype(np.int64)
    compact = prefix + "x" not in arrays
    result = Result(
        problem=problem.with_lam(head["lam"]),
        settings=getattr(settings, head.get("settings_class", "AdmmSettings"))(**head["settings"]),
        x=arrays[prefix + "centers"][labels] if compact else arrays[prefix + "x"],
        labels=labels,
        proven=bool(head.get("proven", False)),
        status=head["status"],
        message=head["message"],
        lower_bound=head.get("lower_bound"),
        starts=tuple(Start(**start) for start in head.get("starts", [])),
        trace={
            name.removeprefix(f"{prefix}trace."): values
            for name, values in arrays.items()
            if name.startswith(f"{prefix}trace.")
        },
        **{name: head[name] for name in _SCALARS},
    )
    return result.compact() if compact else result
