"""Check a saved certificate with NumPy alone:  python -m fusionopt.verify CERTIFICATE.npz --data FILE

Recomputes F(x), D(v) and the partition from the stored answer and the user's own data (docs/certificates.md).
Exit code: 0 the claims hold, 1 one fails, 2 misuse, 3 no data given (internal consistency only).
"""

from __future__ import annotations

import argparse
import hashlib
import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Arrays = Mapping[str, NDArray[Any]]
EPS = float(np.finfo(np.float64).eps)
CLAIM = 1e-7  # relative, so that a claim that is false by 1e-6 never passes


def digest(arrays: Arrays) -> str:
    """SHA-256 of names, types, shapes and little-endian bytes, in the order of the names."""
    sha = hashlib.sha256()
    for name, array in sorted(arrays.items()):
        sha.update(f"{name}|{array.dtype.kind}{array.dtype.itemsize}|{array.shape}|".encode())
        sha.update(array.astype(array.dtype.newbyteorder("<")).tobytes())
    return sha.hexdigest()


def read(path: str) -> dict[str, NDArray[Any]]:
    """A .npz, .npy or .csv file (numbers, perhaps below a header row); "targets" where there are no names."""
    if path.endswith(".csv"):
        table: dict[str, Any] = {"delimiter": ",", "ndmin": 2, "encoding": "utf-8-sig"}
        try:
            return {"targets": np.loadtxt(path, **table)}
        except ValueError:
            return {"targets": np.loadtxt(path, skiprows=1, **table)}
    loaded = np.load(path, allow_pickle=False)
    return {"targets": loaded} if isinstance(loaded, np.ndarray) else dict(loaded)


def arrange(loss: str, given: Arrays) -> dict[str, NDArray[Any]]:
    """The user's data as float64, samples in the order of the nodes, groups as node numbers."""
    targets = given["targets"].astype(np.float64) + 0.0  # -0.0 becomes 0.0
    if loss == "SquaredDistance":
        return {"targets": targets.reshape(len(targets), -1)}
    nodes = np.unique(given["groups"], return_inverse=True)[1].astype(np.int64)
    order = np.argsort(nodes, kind="stable")
    designs = given["designs"].astype(np.float64) + 0.0
    return {"designs": designs[order], "targets": targets[order], "groups": nodes[order]}


def losses(c: Arrays, data: Arrays) -> tuple[float, NDArray[Any], NDArray[Any], float]:
    """sum f_i(x_i), gradients (m, d), Hessians (m, d, d) and the size of the terms that were rounded."""
    x, weight, ridge, (m, d) = c["x"], c["sample_weight"], float(c["ridge"]), c["x"].shape
    if "designs" not in data:
        r, hessian = x - data["targets"], weight[:, None, None] * np.eye(d)
        return 0.5 * float(weight @ (r * r).sum(axis=1)), weight[:, None] * r, hessian, 0.0
    z, y, node = data["designs"], data["targets"], data["groups"]
    share, r = weight / np.bincount(node, minlength=m)[node], (z * x[node]).sum(axis=1) - y
    gradient, hessian = ridge * x, np.tile(ridge * np.eye(d), (m, 1, 1))
    np.add.at(gradient, node, (share * r)[:, None] * z)
    np.add.at(hessian, node, share[:, None, None] * z[:, :, None] * z[:, None, :])
    value, size = share @ r**2 + ridge * (x * x).sum(), share @ (abs(z * x[node]).sum(axis=1) + abs(y)) ** 2
    return 0.5 * float(value), gradient, hessian, float(size)


def joined(n: int, pairs: NDArray[Any]) -> NDArray[Any]:
    """Connected components in first-appearance order: hook higher roots to lower ones, shorten the chains."""
    root = np.arange(n)
    while (ends := root[pairs]).size and (ends[:, 0] != ends[:, 1]).any():
        np.minimum.at(root, ends.max(axis=1), ends.min(axis=1))
        while (root != root[root]).any():
            root = root[root]
    return np.unique(root, return_inverse=True)[1]  # roots are the lowest nodes of their components


def check(c: Arrays, data: Arrays | None) -> Iterator[tuple[str, bool]]:
    """Each claim in words, and whether it holds."""
    x, lam, pairs, weights, (m, d) = c["x"], float(c["lam"]), c["edges"], c["weights"], c["x"].shape
    if c["is_complete"]:  # weights hold the common weight and one factor for each node
        linked = np.flatnonzero(weights[1:] * weights[0] > 0)
        pairs = linked[np.stack(np.triu_indices(len(linked), 1), axis=1)]
        weights = weights[0] * weights[1:][pairs[:, 0]] * weights[1:][pairs[:, 1]]
    u, carried, inside, noise = np.zeros((m, d)), np.zeros(m), len(c["duals"]) == len(pairs), 0.0
    penalty, slack, same = [0.0], [0.0], [pairs[:0]]
    for part in (slice(at, at + 2**16) for at in range(0, len(pairs), 2**16)):
        (i, j), radius, v = pairs[part].T, lam * weights[part], c["duals"][part]
        length, diff = np.sqrt((v * v).sum(axis=1)), x[i] - x[j]
        inside = inside and bool((length <= radius * (1 + (d + 4) * EPS)).all())
        reach = radius * np.sqrt((diff * diff).sum(axis=1))
        penalty.append(math.fsum(reach))
        slack.append(math.fsum(reach - (v * diff).sum(axis=1)))
        noise += float(radius @ (abs(x[i]) + abs(x[j])).sum(axis=1))
        np.add.at(u, i, v)
        np.subtract.at(u, j, v)
        np.add.at(carried, pairs[part], length[:, None])
        same.append(pairs[part][(diff == 0).all(axis=1)])
    yield "one dual for each edge, within lam times its weight", inside
    yield "labels: joined equal rows", np.array_equal(joined(m, np.concatenate(same)), c["labels"])
    primal, dual, gap = claims = [float(c[key]) for key in ("objective", "dual_objective", "gap")]
    near = CLAIM * abs(gap) + 8 * EPS * (abs(primal) + abs(dual))  # D may be -inf and the gap inf
    yield "gap is F - D", primal - dual == gap or abs(primal - dual - gap) <= near < np.inf
    if data is None:
        return
    yield "data hash", digest(data) == c["data_hash"].tobytes().decode()
    value, gradient, hessian, size = losses(c, data)
    eigenvalues, vectors = np.linalg.eigh(hessian)
    rest = np.einsum("iab,ia->ib", vectors, gradient + u)
    flat = eigenvalues <= 64 * d * EPS * abs(hessian).sum(axis=(1, 2))[:, None]
    limit = 1e-10 * (np.sqrt((gradient**2).sum(axis=1)) + carried)[:, None]
    outside = np.where(abs(rest) > limit, np.inf, 0.0)  # D(v) is -inf where v leaves the range of a Hessian
    missed = np.where(flat, outside, rest**2 / np.where(flat, 1.0, eigenvalues))
    primal, gap = value + math.fsum(penalty), math.fsum(slack) + 0.5 * math.fsum(missed.flat)
    rounding = 16 * EPS * float(size + primal + noise + abs(gradient * x).sum())
    for key, claim, found in zip(("F", "D", "gap"), claims, (primal, primal - gap, gap), strict=True):
        near = CLAIM * abs(found) + rounding
        held = claim == found or abs(claim - found) <= near < np.inf
        yield f"{key} = {found:.17g}, claimed {claim:.17g}", held
    allowed = float(c["eps"][0]) * max(abs(primal), abs(primal - gap)) + c["eps"][1] + 64 * rounding
    yield "status", c["status"].tobytes() != b"optimal" or not gap > allowed


def main(argv: Sequence[str] | None = None) -> int:
    """Print one line for each claim; return the exit code."""
    parser = argparse.ArgumentParser("python -m fusionopt.verify", description="Check a saved certificate.")
    parser.add_argument("certificate", help=".npz file written by Certificate.save")
    parser.add_argument("--data", help=".npy, .npz or .csv of targets; .npz of designs, targets, groups")
    given = parser.parse_args(argv)
    try:
        c = read(given.certificate)
        claims = [("content hash", c.pop("content_hash").tobytes().decode() == digest(c))]
        data = given.data and arrange(c["loss"].tobytes().decode(), read(given.data))
    except Exception as error:
        sys.stderr.write(f"cannot read {given.certificate} or its data ({type(error).__name__}: {error})\n")
        return 2
    try:
        claims += check(c, data)
    except Exception as error:
        claims.append((f"arrays that fit together ({error})", False))
    sys.stdout.write("".join(f"{'ok  ' if held else 'FAIL'} {claim}\n" for claim, held in claims))
    return 1 if not all(held for _, held in claims) else 3 if data is None else 0


if __name__ == "__main__":
    raise SystemExit(main())
