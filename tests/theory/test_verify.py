"""Saved certificates: honest ones pass, re-hashed lies do not."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cvxpy as cp
import numpy as np
import pytest
from scipy import optimize

import fusionopt as fo
from fusionopt import verify
from fusionopt.certificate import Certificate, build_certificate, data_hash, text_array
from fusionopt.errors import InvalidArgumentError
from fusionopt.recovery import solve_restricted
from tests import catalogue, oracles
from tests.catalogue import Instance
from tests.oracles import RegressionNodes, SquaredNodes
from tests.theory import plain
from tests.theory.cases import KINDS, random_instance

N_HONEST = 12
"""Honest certificates; every one is also tampered with in every way that applies. 100 takes about half a minute."""


def honest(instance: Instance) -> Certificate:
    """From the slow solver: values in extended precision, rows of a cluster equal."""
    p = plain.quadratic(instance)
    x, duals = plain.solve_slowly(p)
    problem = instance.problem()
    restricted = solve_restricted(problem, plain.close_labels(p, x, 1e-6))
    fused = restricted.centers[restricted.labels]
    labels = oracles.exact_labels(instance, fused)
    # The slow duals touch their balls; a solver returns them a hair inside.
    duals *= 1 - 1e-12
    radius = 1e-9 * float(np.abs(duals).sum())
    f, g = oracles.objective(instance, fused), oracles.dual_value(instance, duals, radius)
    return build_certificate(problem, fused, labels, duals, f, g, f - g, "optimal", 1e-2)


def data_file(instance: Instance, folder: Path) -> str:
    """The user's own file."""
    nodes = instance.nodes
    if isinstance(nodes, SquaredNodes):
        np.save(folder / "targets.npy", nodes.targets)
        return str(folder / "targets.npy")
    assert isinstance(nodes, RegressionNodes)
    groups = np.repeat(np.arange(len(nodes.designs)), [len(z) for z in nodes.designs])
    # Interleaved nodes and other names: the order within a node is what counts.
    order = np.argsort(np.concatenate([np.arange(len(z)) for z in nodes.designs]), kind="stable")
    np.savez(
        folder / "data.npz",
        designs=np.concatenate(list(nodes.designs))[order],
        targets=np.concatenate(list(nodes.responses))[order],
        groups=np.array([f"{g:04d}" for g in groups])[order],
    )
    return str(folder / "data.npz")


def run(certificate: Certificate, folder: Path, *arguments: str) -> int:
    """Exit code for a saved certificate."""
    certificate.save(folder / "c.npz")
    return verify.main([str(folder / "c.npz"), *arguments])


def cases(seed: int, count: int) -> list[Instance]:
    """Instances whose penalty is a good part of F, so that every number matters."""
    rng, found = np.random.default_rng(seed), []
    while len(found) < count:
        kind = KINDS[len(found) % len(KINDS)]
        instance = random_instance(rng, kind, int(rng.integers(4, 16)), int(rng.integers(1, 4)))
        if isinstance(instance.nodes, RegressionNodes) and instance.nodes.ridge == 0:
            continue  # the slow duals do not stay in the ranges of singular Hessians
        p = plain.quadratic(instance)
        x = plain.solve_slowly(p)[0]
        penalty = instance.lam * float(instance.weights @ oracles.edge_lengths(instance, x))
        if penalty > 0.05 * oracles.objective(instance, x):
            found.append(instance)
    return found


Tamper = Callable[[dict[str, Any], np.random.Generator], None]


def claim(name: str, factor: float) -> Tamper:
    def change(c: dict[str, Any], _: np.random.Generator) -> None:
        c[name] = c[name] * factor

    return change


def shifted_gap(c: dict[str, Any], _: np.random.Generator) -> None:
    """Both ends moved, so that gap = F - D still."""
    c["dual_objective"] = c["dual_objective"] + 2e-6 * abs(c["objective"])
    c["gap"] = c["objective"] - c["dual_objective"]


def moved_row(c: dict[str, Any], rng: np.random.Generator) -> None:
    c["x"][rng.integers(len(c["x"]))] += 0.1 * np.ptp(c["x"]) + 0.1 * np.abs(c["x"]).max()


def merged_labels(c: dict[str, Any], _: np.random.Generator) -> None:
    c["labels"] = np.zeros_like(c["labels"]) if c["labels"].any() else np.arange(len(c["labels"]))


def renamed_label(c: dict[str, Any], rng: np.random.Generator) -> None:
    c["labels"][rng.integers(len(c["labels"]))] = c["labels"].max() + 1


def long_dual(c: dict[str, Any], rng: np.random.Generator) -> None:
    longest = int(np.argmax(np.linalg.norm(c["duals"], axis=1)))
    c["duals"][longest] *= 1.5


def lost_dual(c: dict[str, Any], _: np.random.Generator) -> None:
    c["duals"][int(np.argmax(np.linalg.norm(c["duals"], axis=1)))] = 0.0


def missing_dual(c: dict[str, Any], _: np.random.Generator) -> None:
    c["duals"] = c["duals"][:-1]


def other_weight(c: dict[str, Any], _: np.random.Generator) -> None:
    lengths = np.linalg.norm(c["x"][c["edges"][:, 0]] - c["x"][c["edges"][:, 1]], axis=1)
    c["weights"][int(np.argmax(c["weights"] * lengths)) if len(lengths) else 0] *= 1.001


def lost_edge(c: dict[str, Any], _: np.random.Generator) -> None:
    if c["is_complete"]:
        c["weights"] = c["weights"] * 0.0
    else:
        lengths = np.linalg.norm(c["x"][c["edges"][:, 0]] - c["x"][c["edges"][:, 1]], axis=1)
        longest = int(np.argmax(c["weights"] * lengths))
        for name in ("edges", "weights", "duals"):
            c[name] = np.delete(c[name], longest, axis=0)


def other_sample_weight(c: dict[str, Any], _: np.random.Generator) -> None:
    c["sample_weight"] = c["sample_weight"] * 1.01


def other_ridge(c: dict[str, Any], _: np.random.Generator) -> None:
    c["ridge"] = c["ridge"] + (0.05 if c["loss"].tobytes() == b"LeastSquares" else np.nan)
    if np.isnan(c["ridge"]):
        c["ridge"], c["lam"] = np.array(0.0), c["lam"] * 2


def other_data(c: dict[str, Any], _: np.random.Generator) -> None:
    c["data_hash"] = text_array("0" * 64)


def not_a_number(c: dict[str, Any], _: np.random.Generator) -> None:
    c["objective"] = np.array(np.nan)


TAMPERINGS: dict[str, Tamper] = {
    "objective up": claim("objective", 1 + 2e-6),
    "objective down": claim("objective", 1 - 2e-6),
    "dual objective up": claim("dual_objective", 1 + 2e-6),
    "dual objective far down": claim("dual_objective", 0.5),
    "gap": shifted_gap,
    "lam up": claim("lam", 1 + 1e-3),
    "lam down": claim("lam", 1 - 1e-3),
    "a row of x": moved_row,
    "all x": claim("x", 1.001),
    "labels": merged_labels,
    "one label": renamed_label,
    "a long dual": long_dual,
    "a lost dual": lost_dual,
    "a missing dual": missing_dual,
    "a weight": other_weight,
    "an edge": lost_edge,
    "sample weights": other_sample_weight,
    "ridge": other_ridge,
    "data hash": other_data,
    "not a number": not_a_number,
}


def test_honest_certificates_pass_and_lies_do_not(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    rejected = 0
    for instance in cases(1, N_HONEST):
        certificate, data = honest(instance), data_file(instance, tmp_path)
        assert run(certificate, tmp_path, "--data", data) == 0
        assert run(certificate, tmp_path) == 3
        for name, change in TAMPERINGS.items():
            arrays = {key: np.array(value) for key, value in certificate.arrays.items()}
            change(arrays, rng)
            assert run(Certificate(arrays), tmp_path, "--data", data) == 1, name
            rejected += 1
    assert rejected == N_HONEST * len(TAMPERINGS)


@pytest.mark.parametrize("kind", ["complete", "node_weights", "knn", "sparse", "disconnected"])
def test_certificates_of_the_solver(kind: str, tmp_path: Path) -> None:
    rng = np.random.default_rng(2)
    for make, extra in ((catalogue.random_squared, ()), (catalogue.random_regression, (0.1,))):
        instance = make(rng, kind, 20, 2, *extra)  # type: ignore[operator]
        result = fo.solve(instance.problem())
        assert run(result.certificate(), tmp_path, "--data", data_file(instance, tmp_path)) == 0


@pytest.mark.parametrize("scale", [1e-8, 1e8])
@pytest.mark.parametrize("offset", [0.0, 1e6])
def test_scale_and_offset(scale: float, offset: float, tmp_path: Path) -> None:
    instance = catalogue.random_squared(np.random.default_rng(3), "complete", 12, 2)
    instance = instance.with_lam(0.3 * instance.lam).shifted([offset, 0.0]).scaled(scale)
    certificate, data = honest(instance), data_file(instance, tmp_path)
    assert run(certificate, tmp_path, "--data", data) == 0
    arrays = {**certificate.arrays, "objective": certificate.arrays["objective"] * (1 + 3e-6)}
    assert run(Certificate(arrays), tmp_path, "--data", data) == 1


def test_an_optimum_of_zero(tmp_path: Path) -> None:
    instance = catalogue.exact_lines(1.0)
    problem = instance.problem()
    x = np.tile([1.0, 2.0], (4, 1))
    certificate = build_certificate(problem, x, np.zeros(4), np.zeros((6, 2)), 0.0, 0.0, 0.0, "optimal", 1e-6)
    assert run(certificate, tmp_path, "--data", data_file(instance, tmp_path)) == 0
    claimed = build_certificate(problem, x, np.zeros(4), np.zeros((6, 2)), 0.0, 0.0, 0.0, "optimal")
    assert run(claimed, tmp_path, "--data", data_file(instance, tmp_path)) == 0


def test_status_is_held_to_its_tolerance(tmp_path: Path) -> None:
    instance = catalogue.line_complete([0.0, 1.0, 3.0, 7.0, 12.0], 0.6)
    problem, x = instance.problem(), np.array([[2.3], [2.3], [3.0], [5.8], [9.6]])
    duals = np.zeros((10, 1))
    primal, dual = oracles.objective(instance, x), oracles.dual_value(instance, duals)
    for status, code in (("optimal", 1), ("user_limit", 0)):
        certificate = build_certificate(
            problem, x, [0, 0, 1, 2, 3], duals, primal, dual, primal - dual, status, 1e-6
        )
        assert run(certificate, tmp_path, "--data", data_file(instance, tmp_path)) == code


def test_a_dual_outside_the_range_claims_nothing(tmp_path: Path) -> None:
    loss = fo.LeastSquares([[[1.0, 0.0]], [[0.0, 1.0]]], [[1.0], [1.0]])
    problem, duals = fo.FusionProblem(loss, lam=1.0), np.array([[0.3, 0.3]])
    np.savez(tmp_path / "d.npz", designs=[[1.0, 0], [0, 1.0]], targets=[1.0, 1.0], groups=[0, 1])
    x, data = np.ones((2, 2)), str(tmp_path / "d.npz")
    true = build_certificate(problem, x, [0, 0], duals, 0.0, -np.inf, np.inf, "user_limit")
    assert run(true, tmp_path, "--data", data) == 0
    for dual, gap in ((-1.0, 1.0), (-1.0, np.inf), (0.0, 0.0)):
        false = build_certificate(problem, x, [0, 0], duals, 0.0, dual, gap, "user_limit")
        assert run(false, tmp_path, "--data", data) == 1


def test_any_change_of_the_content_is_noticed(tmp_path: Path) -> None:
    instance = cases(4, 1)[0]
    certificate = honest(instance)
    certificate.save(tmp_path / "c.npz")
    data = data_file(instance, tmp_path)
    with np.load(tmp_path / "c.npz") as file:
        stored = dict(file)
    for name in stored:
        changed = {key: np.array(value) for key, value in stored.items()}
        flat = changed[name].reshape(-1)
        if flat.size == 0:
            changed[name] = np.zeros((1, *changed[name].shape[1:]), dtype=changed[name].dtype)
        elif flat.dtype == np.bool_:
            flat[0] = ~flat[0]
        elif flat.dtype.kind == "f":
            flat[0] = np.nextafter(flat[0], np.inf) if np.isfinite(flat[0]) else 1.0
        else:
            flat[0] ^= 1
        np.savez(tmp_path / "bad.npz", **changed)
        assert verify.main([str(tmp_path / "bad.npz"), "--data", data]) in (1, 2), name
        assert verify.main([str(tmp_path / "bad.npz")]) in (1, 2), name
        with pytest.raises(InvalidArgumentError, match="hash"):
            Certificate.load(tmp_path / "bad.npz")
    np.savez(tmp_path / "more.npz", **stored, extra=np.zeros(1))
    assert verify.main([str(tmp_path / "more.npz"), "--data", data]) == 1


def test_files_of_the_user(tmp_path: Path) -> None:
    a = np.array([[0.1, -0.0], [2.5, 1e-3], [7.25, 3.0]])
    instance = catalogue.squared(a, 0.2)
    certificate = honest(instance)
    (tmp_path / "bare.csv").write_text("".join(f"{u!r},{v!r}\n" for u, v in a.tolist()))
    (tmp_path / "head.csv").write_text("u,v\n" + "".join(f"{u!r},{v!r}\n" for u, v in a.tolist()))
    np.savez(tmp_path / "named.npz", targets=a)
    np.save(tmp_path / "single.npy", a)
    np.save(tmp_path / "big_endian.npy", a.astype(">f8"))
    for name in ("bare.csv", "head.csv", "named.npz", "single.npy", "big_endian.npy"):
        assert run(certificate, tmp_path, "--data", str(tmp_path / name)) == 0, name
    np.save(tmp_path / "other.npy", a + 1e-9)
    assert run(certificate, tmp_path, "--data", str(tmp_path / "other.npy")) == 1
    column = catalogue.squared(a[:, 0], 0.2)
    (tmp_path / "one.csv").write_text("u\n0.1\n2.5\n7.25\n")
    assert run(honest(column), tmp_path, "--data", str(tmp_path / "one.csv")) == 0
    np.save(tmp_path / "flat.npy", a[:, 0])
    assert run(honest(column), tmp_path, "--data", str(tmp_path / "flat.npy")) == 0


def test_misuse(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    instance = catalogue.squared([0.0, 1.0, 5.0], 0.2)
    honest(instance).save(tmp_path / "c.npz")
    good = str(tmp_path / "c.npz")
    (tmp_path / "text.csv").write_text("a,b\nx,y\n")
    (tmp_path / "ragged.csv").write_text("1,2\n3\n4,5\n")
    (tmp_path / "empty.npz").write_bytes(b"")
    np.save(tmp_path / "object.npy", np.array([{}]), allow_pickle=True)
    np.savez(tmp_path / "nothing.npz", a=np.zeros(2))
    for name in ("text.csv", "ragged.csv", "empty.npz", "object.npy", "nothing.npz", "absent.npy"):
        assert verify.main([good, "--data", str(tmp_path / name)]) == 2, name
        assert "cannot read" in capsys.readouterr().err
    for name in ("empty.npz", "nothing.npz", "absent.npz", "text.csv"):
        assert verify.main([str(tmp_path / name)]) == 2, name
    for arguments in ([], ["--data"], ["a", "b"]):
        with pytest.raises(SystemExit) as caught:
            verify.main(arguments)
        assert caught.value.code == 2
    short = tmp_path / "short.npy"
    np.save(short, np.zeros((2, 1)))
    assert verify.main([good, "--data", str(short)]) == 1


def test_runs_alone_with_numpy_only(tmp_path: Path, project_root: Path) -> None:
    instance = catalogue.squared([0.0, 1.0, 5.0], 0.2)
    honest(instance).save(tmp_path / "c.npz")
    data = data_file(instance, tmp_path)
    command = [sys.executable, "-m", "fusionopt.verify", str(tmp_path / "c.npz"), "--data", data]
    done = subprocess.run(command, cwd=project_root, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("ok") and "FAIL" not in done.stdout
    source = (project_root / "fusionopt" / "verify.py").read_text()
    assert (
        len(source.splitlines()) < 150 and "import fusionopt" not in source and "from fusionopt" not in source
    )
    loaded = "import sys, fusionopt.verify; print(sorted(m for m in sys.modules if m.split('.')[0] in "
    loaded += "('scipy', 'sklearn', 'cvxpy', 'matplotlib') or m.startswith('fusionopt.')))"
    done = subprocess.run(
        [sys.executable, "-c", loaded], cwd=project_root, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "['fusionopt.verify']"


def test_save_and_load(tmp_path: Path) -> None:
    instance = catalogue.squared([0.0, 1.0, 5.0], 0.2)
    certificate = honest(instance)
    certificate.save(tmp_path / "c.npz")
    loaded = Certificate.load(tmp_path / "c.npz")
    assert loaded.content_hash == certificate.content_hash
    assert loaded.data_hash == data_hash(instance.problem().loss)  # type: ignore[arg-type]
    assert list(tmp_path.iterdir()) == [tmp_path / "c.npz"]
    assert repr(loaded).startswith("Certificate(n_nodes=3, n_features=1, gap=")
    with pytest.raises(ValueError, match="read-only"):
        loaded.arrays["x"][0] = 1.0
    np.savez(tmp_path / "other.npz", a=np.zeros(2))
    with pytest.raises(InvalidArgumentError, match="is not a certificate"):
        Certificate.load(tmp_path / "other.npz")
    with pytest.raises(OSError, match="absent"):
        Certificate.load(tmp_path / "absent.npz")


def test_equal_data_have_equal_hashes() -> None:
    rng = np.random.default_rng(5)
    z, y, g = rng.standard_normal((7, 2)), rng.standard_normal(7), np.array([2, 0, 1, 0, 2, 2, 1])
    stacked = fo.LeastSquares(z, y, groups=g)
    listed = fo.LeastSquares([z[g == k] for k in range(3)], [y[g == k] for k in range(3)], ridge=0.5)
    assert data_hash(stacked) == data_hash(listed)
    assert data_hash(stacked) != data_hash(fo.LeastSquares(z, y + 1e-12, groups=g))
    assert data_hash(fo.SquaredDistance([0.0, 1.0])) == data_hash(fo.SquaredDistance([[-0.0], [1.0]]))


def test_arguments_are_checked() -> None:
    problem = fo.FusionProblem(fo.SquaredDistance([0.0, 2.0]), lam=1.0)
    numbers: tuple[float, float, float, str] = (1.0, 1.0, 0.0, "optimal")
    with pytest.raises(InvalidArgumentError, match="x has"):
        build_certificate(problem, [[1.0]], [0, 0], [[1.0]], *numbers)
    with pytest.raises(InvalidArgumentError, match="labels"):
        build_certificate(problem, [[1.0], [1.0]], [0], [[1.0]], *numbers)
    with pytest.raises(InvalidArgumentError, match="duals"):
        build_certificate(problem, [[1.0], [1.0]], [0, 0], [[1.0], [2.0]], *numbers)
    with pytest.raises(InvalidArgumentError, match="Huber with L2Norm; certificates are"):
        build_certificate(
            fo.FusionProblem(fo.Huber([0.0, 1.0], delta=1.0)), [[1.0], [1.0]], [0, 0], [[1.0]], *numbers
        )
    single = fo.FusionProblem(fo.SquaredDistance([[1.0, 2.0]]))
    assert build_certificate(single, [[1.0, 2.0]], [0], [], 0.0, 0.0, 0.0, "optimal").arrays[
        "duals"
    ].shape == (0, 2)


def logistic_answer(
    rng: np.random.Generator, ridge: float, free_bias: bool
) -> tuple[fo.FusionProblem, dict[str, Any], dict[str, Any]]:
    """A solution by the reference solver, its value by hand, and the file that the user has."""
    designs = [rng.standard_normal((int(n), 2)) for n in rng.integers(12, 20, size=6)]
    truth = np.repeat([[2.0, -1.0], [-1.0, 2.0]], 3, axis=0)
    signs = [
        np.where(z @ w + 1.5 * rng.logistic(size=len(z)) > 0, 1.0, -1.0)
        for z, w in zip(designs, truth, strict=True)
    ]
    for y in signs:
        y[:2] = 1.0, -1.0
    loss = fo.Logistic(designs, signs, ridge=ridge, free_bias=free_bias)
    problem = fo.FusionProblem(loss, lam=0.02)
    lifted = [np.hstack([z, -np.ones((len(z), 1))]) if free_bias else z for z in designs]
    w, edges = cp.Variable((6, lifted[0].shape[1])), problem.graph.edges
    apart = cp.Variable((len(edges), w.shape[1]))
    fits = [
        cp.sum(cp.logistic(cp.multiply(-y, z @ w[i]))) / len(y)
        for i, (z, y) in enumerate(zip(lifted, signs, strict=True))
    ]
    linked = apart == w[edges[:, 0]] - w[edges[:, 1]]
    penalty = problem.lam * cp.sum(cp.norm(apart, 2, axis=1)) + 0.5 * ridge * cp.sum_squares(w[:, :2])
    cp.Problem(cp.Minimize(sum(fits) + penalty), [linked]).solve(solver="CLARABEL")
    names = np.arange(6)
    for i, j in edges:
        if np.linalg.norm(w.value[i] - w.value[j]) < 1e-4:
            names[names == names[j]] = names[i]
    restricted = solve_restricted(problem, names)
    x = restricted.centers[restricted.labels]
    duals = (
        -np.asarray(linked.dual_value)
        if np.vdot(linked.dual_value, apart.value) < 0
        else np.asarray(linked.dual_value)
    )
    duals *= min(1.0, problem.lam * (1 - 1e-9) / np.linalg.norm(duals, axis=1).max())
    # F - D, D = sum -f_i^*(-u_i) by SciPy on each node, in the plain formula.
    u = np.zeros_like(x)
    np.add.at(u, problem.graph.edges[:, 0], duals)
    np.subtract.at(u, problem.graph.edges[:, 1], duals)
    low = 0.0
    for z, y, force in zip(designs, signs, u, strict=True):
        lifted = np.hstack([z, -np.ones((len(z), 1))]) if free_bias else z

        def tilted(
            w: Any, lifted: Any = lifted, y: Any = y, force: Any = force, p: int = z.shape[1]
        ) -> float:
            return float(np.logaddexp(0, -y * (lifted @ w)).mean() + 0.5 * ridge * w[:p] @ w[:p] + force @ w)

        found = optimize.minimize(tilted, np.zeros(lifted.shape[1]), method="BFGS", options={"gtol": 1e-9})
        low += float(found.fun)
    objective = problem.objective(x)
    claims = {"objective": objective, "dual_objective": low, "gap": objective - low}
    data = {
        "designs": np.concatenate(designs),
        "targets": (np.concatenate(signs) + 1) / 2,
        "groups": np.repeat(np.arange(6), [len(z) for z in designs]),
    }
    return problem, {"x": x, "labels": restricted.labels, "duals": duals, **claims}, data


@pytest.mark.parametrize(("ridge", "free_bias"), [(0.1, False), (0.05, True), (0.0, True), (0.0, False)])
def test_logistic_claims_are_checked(tmp_path: Path, ridge: float, free_bias: bool) -> None:
    problem, answer, data = logistic_answer(np.random.default_rng(3), ridge, free_bias)
    np.savez(tmp_path / "d.npz", **data)
    file = str(tmp_path / "d.npz")
    assert answer["gap"] < 1e-3 * answer["objective"]
    # The gap is known to about the square of the last slope that SciPy reached: a little more careful is true.
    slack = 1e-7 * answer["objective"]
    careful = answer | {"dual_objective": answer["dual_objective"] - slack, "gap": answer["gap"] + slack}
    assert (
        run(build_certificate(problem, **careful, status="optimal", eps_rel=1e-2), tmp_path, "--data", file)
        == 0
    )
    assert run(build_certificate(problem, **careful, status="optimal"), tmp_path) == 3
    size = 1e-5 * answer["objective"]
    for name, change in (
        ("objective", {"objective": answer["objective"] - size, "gap": answer["gap"] - size}),
        ("objective", {"objective": answer["objective"] + size, "gap": answer["gap"] + size}),
        ("dual", {"dual_objective": answer["dual_objective"] + size, "gap": answer["gap"] - size}),
        ("duals", {"duals": 1.01 * np.abs(answer["duals"]).max() + 0 * answer["duals"]}),
        ("labels", {"labels": np.zeros(6, dtype=int)}),
    ):
        false = build_certificate(problem, **(careful | change), status="user_limit")
        assert run(false, tmp_path, "--data", file) == 1, name
    # Multipliers are a witness, not an article of faith: others prove less, or nothing outside their range.
    honest_one = build_certificate(problem, **careful, status="optimal")
    for wrong in (0.5 * honest_one.arrays["multipliers"], 3.0 * honest_one.arrays["multipliers"]):
        forged = Certificate({**honest_one.arrays, "multipliers": wrong})
        assert run(forged, tmp_path, "--data", file) == 1
    np.savez(tmp_path / "other.npz", **(data | {"targets": 1 - data["targets"]}))
    assert run(honest_one, tmp_path, "--data", str(tmp_path / "other.npz")) == 1
