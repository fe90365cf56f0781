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

Arrays = Mapping[str, Any]
EPS = float(np.finfo(np.float64).eps)
CLAIM = 1e-7  # relative, so that a claim that is false by 1e-6 never passes


def digest(arrays: Arrays) -> str:
    """SHA-256 of names, types, shapes and little-endian bytes, in the order of the names."""
    sha = hashlib.sha256()
    for name, array in sorted(arrays.items()):
        sha.update(f"{name}|{array.dtype.kind}{array.dtype.itemsize}|{array.shape}|".encode())
        sha.update(array.astype(array.dtype.newbyteorder("<")).tobytes())
    return sha.hexdigest()


def read(path: str) -> dict[str, Any]:
    """A .npz, .npy or .csv file (numbers, perhaps below a header row); "targets" where there are no names."""
    table: Any = {"delimiter": ",", "ndmin": 2, "encoding": "utf-8-sig"}
    try:
        loaded = np.loadtxt(path, **table) if path.endswith(".csv") else np.load(path, allow_pickle=False)
    except ValueError:
        loaded = np.loadtxt(path, skiprows=1, **table)
    return {"targets": loaded} if isinstance(loaded, np.ndarray) else dict(loaded)


def arrange(loss: str, given: Arrays) -> dict[str, Any]:
    """The user's data as float64, samples in the order of the nodes, groups as node numbers."""
    targets = given["targets"].astype(np.float64)
    targets = np.where(targets == 0, -1.0 if loss == "Logistic" else 0.0, targets)  # also -0.0 becomes 0.0
    if loss == "SquaredDistance":
        return {"targets": targets.reshape(len(targets), -1)}
    nodes = np.unique(given["groups"], return_inverse=True)[1].astype(np.int64)
    z, order = given["designs"].astype(np.float64) + 0.0, np.argsort(nodes, kind="stable")
    return {"designs": z[order], "targets": targets[order], "groups": nodes[order]}


def losses(c: Arrays, data: Arrays, u: Any, limit: Any) -> tuple[float, float, float]:
    """sum f_i(x_i), a bound of sum f_i(x_i) + f_i*(-u_i) + <u_i, x_i>, and the size of the terms that were rounded."""
    # f*(p) <= mean(w phi*(a)) + ||p - mean(w a z)||^2 / (2 h) for any a, with h the ridge (or a squared distance).
    x, a, logistic, (m, d) = c["x"], c["multipliers"], c["loss"].tobytes() == b"Logistic", c["x"].shape
    y, z, node = data["targets"], data.get("designs", np.empty((0, d))), data.get("groups", np.empty(0, int))
    h, center = np.where(np.arange(d) < z.shape[1], c["ridge"], 0.0) * np.ones((m, 1)), np.zeros((m, d))
    if "designs" not in data:
        h, center, y = c["sample_weight"][:, None] * ~np.isnan(y), np.nan_to_num(y), np.empty(0)
    z = np.hstack([z, -np.ones((len(z), d - z.shape[1]))])  # a free bias, without ridge
    share, e = c["sample_weight"][: len(z)] / np.bincount(node, minlength=m)[node], (z * x[node]).sum(axis=1)
    value, gap, t = 0.5 * (e - y) ** 2, 0.5 * (e - y - a) ** 2, np.clip(-y * a, 0, 1)  # phi, phi + phi* - a e
    if logistic:  # a divergence of t from the chance that x gives, inf outside [0, 1]
        value = np.logaddexp(0, -y * e)
        gap = value + t * y * e + t * np.log(t + (t == 0)) + (1 - t) * np.log1p(-t * (t < 1))
        gap = np.where(t == -y * a, np.maximum(gap, 0.0), np.inf)
    rest = u + h * (x - center)
    np.add.at(rest, node, (share * a)[:, None] * z)
    outside = np.where(abs(rest) > limit, np.inf, 0.0)  # f* is inf there
    missed = np.where(h > 0, rest * (rest / np.where(h > 0, h, 1.0)), outside)
    size = float(share @ (abs(z * x[node]).sum(axis=1) + abs(y)) ** (2 - logistic) + (abs(u) * abs(x)).sum())
    bound = math.fsum(share[share > 0] * gap[share > 0]) + 0.5 * math.fsum(missed.flat)
    return float(share @ value) + 0.5 * float((h * (x - center) ** 2).sum()), bound, size


def joined(n: int, pairs: Any) -> Any:
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
        np.add.at(u, pairs[part], np.stack([v, -v], axis=1))
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
    value, missed, size = losses(c, data, u, 1e-10 * carried[:, None])
    primal, gap = value + math.fsum(penalty), math.fsum(slack) + missed
    rounding = 16 * EPS * float(size + primal + noise)
    bounded = c["loss"].tobytes() == b"Logistic"  # the solver's gap is a bound there, and may be more careful
    for key, claim, found in zip(("F", "D", "gap"), claims, (primal, primal - gap, gap), strict=True):
        near, more = CLAIM * abs(found) + rounding, (claim - found) * {"F": 0, "D": -1, "gap": 1}[key]
        held = claim == found or abs(claim - found) <= near < np.inf or (bounded and more > 0)
        yield f"{key} = {found:.17g}, claimed {claim:.17g}", held
    allowed = float(c["eps"][0]) * max(abs(primal), abs(primal - gap)) + c["eps"][1] + 64 * rounding
    yield "status", c["status"].tobytes() != b"optimal" or gap <= allowed or math.inf in c["eps"]


def main(argv: Sequence[str] | None = None) -> int:
    """Print one line for each claim; return the exit code."""
    parser = argparse.ArgumentParser("python -m fusionopt.verify", description=__doc__.partition("\n")[0])
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
