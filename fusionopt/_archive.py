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
    """Write aside, then rename: a fault leaves the old file or none."""
    target = Path(path)
    aside = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    try:
        with aside.open("wb") as file:
            # Compression would cost more than it saves on floating-point data.
            np.savez(file, allow_pickle=False, format=_text(f"{FORMAT}:{kind}"), **arrays)
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
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
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
        "settings": dataclasses.asdict(result.settings),
        "settings_class": type(result.settings).__name__,
        "lower_bound": result.lower_bound,
        "starts": [dataclasses.asdict(start) for start in result.starts],
    }
    out: Arrays = {"x": result.x, "labels": result.labels, "head": _text(json.dumps(head))}
    out |= {f"trace.{name}": values for name, values in result.trace.items()}
    return {prefix + name: values for name, values in out.items()}


def unpack_result(arrays: Arrays, prefix: str, problem: FusionProblem) -> Result:
    from fusionopt.result import TRACE_COLUMNS, Result, Start

    head = json.loads(_from_text(arrays[prefix + "head"]))
    return Result(
        problem=problem.with_lam(head["lam"]),
        settings=getattr(settings, head.get("settings_class", "AdmmSettings"))(**head["settings"]),
        x=arrays[prefix + "x"],
        labels=arrays[prefix + "labels"],
        status=head["status"],
        message=head["message"],
        lower_bound=head.get("lower_bound"),
        starts=tuple(Start(**start) for start in head.get("starts", [])),
        trace={name: arrays[f"{prefix}trace.{name}"] for name in TRACE_COLUMNS},
        **{name: head[name] for name in _SCALARS},
    )
