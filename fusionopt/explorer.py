"""One self-contained HTML page to explore a path: slider over lam, map, tree or events, table, certificate, export.

The page holds its data and asks no network for anything. Labels are exact; positions are rounded to 16 bits, for
drawing only.
"""

from __future__ import annotations

import base64
import html
import json
import math
import os
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fusionopt import _checks
from fusionopt.clusters import n_large
from fusionopt.plotting import principal_axes, reference_points

if TYPE_CHECKING:
    from fusionopt.path import PathResult
    from fusionopt.selection import Selection

FloatArray = NDArray[np.float64]

_COLUMNS = 8
"""Columns of the data that the table of clusters shows."""
_STEPS = 65535


def explorer_html(
    path: PathResult,
    *,
    title: str = "Solution path",
    selection: Selection | None = None,
    column_names: Sequence[str] | None = None,
    row_names: Sequence[str] | None = None,
    known: Sequence[object] | None = None,
) -> str:
    """The page as one string.

    Parameters
    ----------
    path : PathResult
        At least one lam.
    title : str
    selection : Selection, optional
        Where the page opens; the middle of the path without one.
    column_names : sequence of n_features str, optional
    row_names : sequence of n_nodes str, optional
        Told when the pointer is on a row, and exported.
    known : sequence of n_nodes, optional
        Known labels, told with the row.

    Returns
    -------
    str
        UTF-8 HTML. At 1,000 rows and 100 lams about 1 MB.

    Raises
    ------
    InvalidArgumentError
        The path is empty, or names do not fit its rows or columns.
    """
    if not path.results:
        _checks.refuse(
            "the path is empty: it was stopped before its first lam was finished; there is nothing to explore.",
            argument="path",
            got="0 lams",
            wanted="at least one finished lam",
        )
    n, d = path.problem.n_nodes, path.problem.n_features
    for argument, names, wanted in (
        ("column_names", column_names, d),
        ("row_names", row_names, n),
        ("known", known, n),
    ):
        if names is not None and len(names) != wanted:
            _checks.refuse(
                f"{argument} has {len(names)} entries; the path needs {wanted}.",
                argument=argument,
                got=len(names),
                wanted=f"{wanted} entries",
            )
    payload = _payload(path, selection, column_names)
    payload["names"] = None if row_names is None else [str(name) for name in row_names]
    payload["known"] = None if known is None else [str(name) for name in known]
    # "<" would let a name end the script element.
    data = json.dumps(payload, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c")
    template = (files("fusionopt") / "explorer_template.html").read_text(encoding="utf-8")
    before, after = template.split("@@DATA@@")
    name = html.escape(title)
    return before.replace("@@TITLE@@", name) + data + after.replace("@@TITLE@@", name)


def write_explorer(path: PathResult, file: str | os.PathLike[str], **options: Any) -> Path:
    """Write `explorer_html` to a file, and return its path."""
    target = _checks.as_path("file", file)
    target.write_text(explorer_html(path, **options), encoding="utf-8")
    return target


def _payload(
    path: PathResult, selection: Selection | None, column_names: Sequence[str] | None
) -> dict[str, Any]:
    order = np.argsort(path.lams, kind="stable")
    results = [path.results[int(k)] for k in order]
    lams = path.lams[order]
    n, d = path.problem.n_nodes, path.problem.n_features
    points = reference_points(path)
    known = np.where(np.isfinite(points), points, results[-1].x)
    mean, axes, share = principal_axes(known)
    flat = d == 1

    def place(x: FloatArray, rows: FloatArray) -> FloatArray:
        return np.column_stack([x[:, 0] - mean[0], rows]) if flat else (x - mean) @ axes.T

    everyone = np.arange(n, dtype=np.float64)
    home = place(known, everyone)
    spots = [place(r.centers, _middle_rows(r.labels) if flat else everyone[:0]) for r in results]
    every = np.concatenate([home, *spots])
    low, span = every.min(axis=0), np.ptp(every, axis=0)
    # One scale for both directions, so that the map keeps its shape; a line of rows has no shape to keep.
    aspect = 1.6 if flat or not span.min() > 0 else float(span[0] / span[1])
    scale = np.where(span > 0, span, 1.0)

    def rounded(values: FloatArray) -> NDArray[np.uint16]:
        return np.asarray(np.round((values - low) / scale * _STEPS), dtype=np.uint16)

    labels = np.stack([r.labels for r in results])
    wide = int(labels.max()) > _STEPS
    names = [str(c) for c in column_names] if column_names is not None else [f"x{j}" for j in range(d)]
    has_tree, note = _tree(path)
    chosen = -1
    if selection is not None:
        chosen = int(np.flatnonzero(order == selection.index)[0])
    return {
        "n": n,
        "lams": lams.tolist(),
        "labels": _packed(labels.astype(np.uint32 if wide else np.uint16)),
        "wide": wide,
        "home": _packed(rounded(home)),
        "spots": _packed(rounded(np.concatenate(spots))),
        "aspect": min(max(aspect, 0.4), 2.5),
        "means": _packed(known[:, :_COLUMNS].astype(np.float32)),
        "columns": names[:_COLUMNS],
        "hidden": max(0, d - _COLUMNS),
        "meaning": "mean of the cluster's rows",
        "maptitle": "Rows and their clusters"
        if flat
        else f"Rows and their clusters: two components, {share[:2].sum():.0%} of the variance",
        "at": [_facts(r) for r in results],
        "changed": [k == 0 or not np.array_equal(labels[k], labels[k - 1]) for k in range(len(lams))]
        + [True],
        "plateaus": _plateaus(results),
        "events": [[e.kind, e.lam, len(e.members)] for e in path.events],
        "tree": has_tree,
        "treenote": note,
        "chosen": chosen,
        "why": "" if selection is None else selection.criterion,
    }


def _middle_rows(labels: NDArray[np.int64]) -> FloatArray:
    rows = np.arange(len(labels), dtype=np.float64)
    return np.asarray(np.bincount(labels, rows) / np.bincount(labels), dtype=np.float64)


def _facts(result: Any) -> dict[str, Any]:
    numbers = {
        name: float(getattr(result, name)) for name in ("objective", "dual_objective", "gap", "rel_gap")
    }
    return {name: value if math.isfinite(value) else None for name, value in numbers.items()} | {
        "n_clusters": result.n_clusters,
        "status": result.status,
        "message": result.message,
        "n_iter": int(result.n_iter),
        "proven": bool(result.proven),
    }


def _plateaus(results: Sequence[Any]) -> list[list[int]]:
    """Runs of three lams or more with one number of clusters, two of them large: shaded."""
    counts = [r.n_clusters if n_large(r.cluster_sizes) >= 2 else -1 for r in results]
    out, first = [], 0
    for k in range(1, len(counts) + 1):
        if k == len(counts) or counts[k] != counts[first]:
            if k - first >= 3 and counts[first] > 0:
                out.append([first, k - 1])
            first = k
    return out


def _tree(path: PathResult) -> tuple[dict[str, str] | None, str]:
    try:
        linkage = path.linkage()
    except ValueError as error:
        return None, f"No tree: {error}"
    pairs = np.ascontiguousarray(linkage[:, :2].astype(np.int32))
    return {"pairs": _packed(pairs), "heights": _packed(np.ascontiguousarray(linkage[:, 2]))}, ""


def _packed(array: NDArray[Any]) -> str:
    """Little-endian bytes in base64."""
    plain = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<"))
    return base64.b64encode(plain.tobytes()).decode("ascii")
