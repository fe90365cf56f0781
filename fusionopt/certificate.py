"""Certificates that outlive the process: a solution, its duals and its claims in one file."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fusionopt import _checks, verify
from fusionopt.graph import Graph
from fusionopt.losses._glm import solve_semidefinite
from fusionopt.losses.base import EPS
from fusionopt.losses.least_squares import LeastSquares
from fusionopt.losses.logistic import Logistic
from fusionopt.losses.squared_distance import SquaredDistance
from fusionopt.penalties.l2_norm import L2Norm
from fusionopt.problem import FusionProblem

FloatArray = NDArray[np.float64]

FORMAT = "fusionopt-certificate-2"
_STEPS = 60
"""Most Newton steps that look for the multipliers of the samples; ten are usual."""


@dataclass(frozen=True, eq=False)
class Certificate:
    """What a solution claims, with everything needed to check it but the data, which stay with the user.

    Parameters
    ----------
    arrays : mapping of str to array
        As listed in docs/certificates.md; copied and read-only. `content_hash` is computed from them.

    Attributes
    ----------
    arrays : dict of str to array
    content_hash : str
        SHA-256 of names, types, shapes and bytes of all the arrays, in hexadecimal.
    """

    arrays: Mapping[str, NDArray[Any]]
    content_hash: str = field(init=False)

    def __post_init__(self) -> None:
        copies = {}
        for name, array in self.arrays.items():
            copies[name] = np.array(array, order="C")
            copies[name].flags.writeable = False
        object.__setattr__(self, "arrays", copies)
        object.__setattr__(self, "content_hash", verify.digest(copies))

    @property
    def data_hash(self) -> str:
        """SHA-256 of the data of the problem, in hexadecimal."""
        return self.arrays["data_hash"].tobytes().decode()

    def save(self, path: str | Path) -> None:
        """Write a .npz file without pickle; check it with ``python -m fusionopt.verify PATH --data FILE``.

        Parameters
        ----------
        path : str or Path
            An existing file is replaced only once the new one is complete.

        Raises
        ------
        OSError
            The file cannot be written.
        """
        target = Path(path)
        aside = target.with_name(f".{target.name}.{os.getpid()}.tmp")
        content_hash = {"content_hash": text_array(self.content_hash)}
        try:
            with aside.open("wb") as file:
                # Compression would cost more than it saves on floating-point data.
                np.savez(file, allow_pickle=False, **self.arrays, **content_hash)
            aside.replace(target)
        finally:
            aside.unlink(missing_ok=True)

    @classmethod
    def load(cls, path: str | Path) -> Certificate:
        """Read a file written by `save`.

        Raises
        ------
        InvalidArgumentError
            Not such a file, or its content does not match its hash.
        OSError
            The file cannot be read.
        """
        try:
            with np.load(path, allow_pickle=False) as file:
                arrays = dict(file)
            stored = arrays.pop("content_hash").tobytes().decode()
            known = arrays["format"].tobytes().decode() == FORMAT
        except OSError:
            raise
        except Exception as error:
            _checks.refuse(
                f"{path} is not a certificate ({type(error).__name__}: {error}); give a file written by "
                "Certificate.save.",
                argument="path",
                got=str(path),
                wanted="a certificate",
            )
        certificate = cls(arrays)
        if not known or certificate.content_hash != stored:
            _checks.refuse(
                f"{path} was changed after it was written, or is of another version: its content does not "
                "match its hash.",
                argument="path",
                got=stored,
                wanted=certificate.content_hash,
            )
        return certificate

    def __repr__(self) -> str:
        n, d = self.arrays["x"].shape
        return f"Certificate(n_nodes={n}, n_features={d}, gap={float(self.arrays['gap']):.3g})"


def text_array(value: str) -> NDArray[np.uint8]:
    """Words as UTF-8 bytes: a text array would need the reader's NumPy to agree on its width."""
    return np.frombuffer(value.encode(), dtype=np.uint8)


def build_certificate(
    problem: FusionProblem,
    x: ArrayLike,
    labels: ArrayLike,
    duals: ArrayLike,
    objective: float,
    dual_objective: float,
    gap: float,
    status: str,
    eps_rel: float = float("inf"),
    eps_abs: float = 0.0,
) -> Certificate:
    """Put a solution and its claims into a `Certificate`.

    Parameters
    ----------
    problem : FusionProblem
        `SquaredDistance`, `LeastSquares` or `Logistic`, `L2Norm`.
    x : array-like (n_nodes, n_features)
    labels : int array-like (n_nodes,)
        In first-appearance order.
    duals : array-like (n_edges, n_features)
        Rows in the order of ``problem.graph.edges``, within lam times the weight.
    objective, dual_objective, gap : float
        F(x), D(duals) and their difference.
    status : str
    eps_rel, eps_abs : float
        The tolerance that status "optimal" claims to have met: gap <= eps_rel * max(|F|, |D|) + eps_abs.
        The default claims nothing.

    Returns
    -------
    Certificate
        Nothing is checked beyond shapes; that is the work of `verify`.

    Raises
    ------
    InvalidArgumentError, InvalidTypeError
        A wrong shape, another loss or penalty.

    Notes
    -----
    All arrays are float64 or int64, words are UTF-8 bytes. The data are hashed as `verify` reads them.
    """
    _checks.check_instance("problem", problem, FusionProblem, "built by FusionProblem(loss, graph, lam=...)")
    loss, graph = problem.loss, problem.graph
    if not isinstance(loss, SquaredDistance | LeastSquares | Logistic) or not isinstance(
        problem.penalty, L2Norm
    ):
        got = f"{type(loss).__name__} with {type(problem.penalty).__name__}"
        _checks.refuse(
            f"problem has {got}; certificates are for SquaredDistance, LeastSquares and Logistic with L2Norm.",
            argument="problem",
            got=got,
            wanted="SquaredDistance, LeastSquares or Logistic with L2Norm",
        )
    m, d = problem.n_nodes, problem.n_features
    names = _checks.as_labels("labels", labels, m).astype(np.int64)
    flows = np.zeros((0, d)) if graph.n_edges == 0 else _checks.as_point("duals", duals, (graph.n_edges, d))
    numbers = {
        "lam": problem.lam,
        "objective": objective,
        "dual_objective": dual_objective,
        "gap": gap,
        "ridge": 0.0 if isinstance(loss, SquaredDistance) else loss.ridge,
    }
    words = {
        "format": FORMAT,
        "loss": type(loss).__name__,
        "status": status,
        "data_hash": data_hash(loss),
    }
    point = _checks.as_point("x", x, (m, d))
    return Certificate(
        {
            "x": point,
            "labels": names,
            "duals": flows,
            "multipliers": _multipliers(loss, point, _divergence(graph, flows)),
            "sample_weight": loss.sample_weight,
            "eps": np.array([eps_rel, eps_abs], dtype=np.float64),
            **_graph_arrays(graph),
            **{name: np.array(value, dtype=np.float64) for name, value in numbers.items()},
            **{name: text_array(value) for name, value in words.items()},
        }
    )


def _graph_arrays(graph: Graph) -> dict[str, NDArray[Any]]:
    """A complete graph as its common weight and one factor for each node; any other as its edges."""
    if graph.is_complete:
        r = np.ones(graph.n_nodes) if graph.node_weights is None else graph.node_weights
        edges, weights = np.empty((0, 2), dtype=np.int64), np.concatenate([[graph.weight], r])
    else:
        edges, weights = graph.edges, graph.weights
    return {"is_complete": np.array(graph.is_complete), "edges": edges, "weights": weights}


def _divergence(graph: Graph, flows: FloatArray) -> FloatArray:
    """sum_j v_ij, (m, d)."""
    out = np.zeros((graph.n_nodes, flows.shape[1]))
    if len(flows):
        np.add.at(out, graph.edges[:, 0], flows)
        np.subtract.at(out, graph.edges[:, 1], flows)
    return out


def _multipliers(loss: SquaredDistance | LeastSquares | Logistic, x: FloatArray, u: FloatArray) -> FloatArray:
    """phi'(z_s'y_i) at the y_i that attains f_i^*(-u_i), one for each sample: they prove the value of f_i^*.

    Newton steps of sup_y <-u, y> - f(y); each step is also taken in the slopes themselves, so that
    mean(w a z) + ridge (y + dy) = -u holds whatever the step leaves over in y. One or two steps for squares.
    """
    if isinstance(loss, SquaredDistance):
        return np.empty(0)
    y, design = x, loss._design
    multipliers = np.zeros(len(design.nodes))
    for _ in range(_STEPS):
        eta = design.predict(y)
        if isinstance(loss, Logistic):
            slope = loss._family.slope(eta, loss.targets)
            curvature = loss._family.curvature(eta, loss.targets)
        else:
            slope, curvature = eta - loss.targets, np.ones_like(eta)
        dy = solve_semidefinite(loss.hessians_at(y), -u - loss.gradient(y))
        along = design.predict(dy)
        multipliers = slope + curvature * along
        step = np.ones(loss.n_nodes)
        if isinstance(loss, Logistic):  # a change of one in a margin is a natural step
            step = 1 / np.maximum(np.maximum.reduceat(np.abs(along), design.offsets[:-1]), 1.0)
        y = y + step[:, None] * dy
        if not bool((np.abs(along) > 16 * EPS * (np.abs(eta) + np.abs(slope))).any()):
            break
    return multipliers


def data_hash(loss: SquaredDistance | LeastSquares | Logistic) -> str:
    """SHA-256, in hexadecimal, of the targets, or of the designs, targets and node numbers of all samples.

    Parameters
    ----------
    loss : SquaredDistance, LeastSquares or Logistic

    Returns
    -------
    str
        The same for the same numbers, however they were passed in (order of the samples within a node
        counts).
    """
    given: dict[str, NDArray[Any]] = {"targets": loss.targets}
    if not isinstance(loss, SquaredDistance):
        given["designs"] = loss.designs if isinstance(loss.designs, np.ndarray) else loss.designs.toarray()
        given["groups"] = np.repeat(np.arange(loss.n_nodes), loss.n_samples)
    return verify.digest(verify.arrange(type(loss).__name__, given))
