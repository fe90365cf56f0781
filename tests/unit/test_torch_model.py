"""Modules of PyTorch as clients' models. Skipped where torch is not installed."""

from __future__ import annotations

import csv
import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy.special import log_softmax, softmax

from fusionopt import datasets, federated
from fusionopt.cli import OK, main
from fusionopt.datasets import ClientData, label_swap, load_digits, split_evenly
from fusionopt.errors import InvalidArgumentError, InvalidTypeError, MissingDependencyError
from fusionopt.federated import (
    Cfl,
    FedAvg,
    FedEm,
    FedSoft,
    Fleet,
    Fpfc,
    FpfcL1,
    Ifca,
    Local,
    Objective,
    Oracle,
    Pdmm,
    PerFedAvg,
    RFedAvg,
    SoftmaxModel,
    SquaredPenalty,
    TorchModel,
    Work,
    mnist_cnn,
    simulate,
)
from fusionopt.federated.torch_model import CHUNK

torch = pytest.importorskip("torch")
nn = torch.nn


def linear():
    return nn.Linear(3, 4)


def dropping():
    return nn.Sequential(nn.Linear(3, 8), nn.Dropout(0.5), nn.Linear(8, 4))


def mlp():
    return nn.Sequential(nn.Linear(64, 16), nn.ReLU(), nn.Linear(16, 10))


@pytest.fixture(scope="module")
def clients():
    """Three clients with 3 features and the classes 0, 2, 5, 7."""
    rng = np.random.default_rng(0)
    classes = np.array([0, 2, 5, 7])

    def rows(n):
        return rng.standard_normal((n, 3)), classes[rng.integers(0, 4, n)]

    return [ClientData(*rows(n), *rows(9)) for n in (11, 25, 17)]


@pytest.fixture(scope="module")
def fleet(clients):
    return TorchModel(linear, dtype="float64").fleet(clients)


def matrix(w):
    """Weights (3, 4) and bias (4,) of `linear`."""
    return w[:12].reshape(4, 3).T, w[12:]


def test_a_linear_module_is_the_softmax_model(clients, fleet):
    rng = np.random.default_rng(1)
    models = rng.standard_normal((3, fleet.dim))
    everyone = np.arange(3)
    losses, slopes, chances = [], [], []
    for client, w in zip(clients, models, strict=True):
        weight, bias = matrix(w)
        y = np.searchsorted([0, 2, 5, 7], client.y_train)
        scores = client.x_train @ weight + bias
        losses.append(-log_softmax(scores, axis=1)[np.arange(len(y)), y])
        delta = (softmax(scores, axis=1) - np.eye(4)[y]) / len(y)
        slopes.append(np.concatenate([(delta.T @ client.x_train).ravel(), delta.sum(axis=0)]))
        chances.append(softmax(client.x_test @ weight + bias, axis=1))
    np.testing.assert_allclose(fleet.sample_losses(everyone, models), np.concatenate(losses), rtol=1e-12)
    np.testing.assert_allclose(fleet.gradients(everyone, models), slopes, atol=1e-14)
    np.testing.assert_allclose(fleet.predict(everyone, models), np.concatenate(chances), rtol=1e-12)
    np.testing.assert_array_equal(fleet.sizes, [11, 25, 17])
    hits = [
        np.mean(np.array([0, 2, 5, 7])[p.argmax(axis=1)] == client.y_test)
        for p, client in zip(chances, clients, strict=True)
    ]
    np.testing.assert_allclose(fleet.measure(fleet.predict(everyone, models))[0], hits)
    np.testing.assert_array_equal(
        fleet.class_counts, [[np.sum(c.y_train == label) for label in (0, 2, 5, 7)] for c in clients]
    )


def test_float32_is_close(clients, fleet):
    single = TorchModel(linear).fleet(clients)
    models = np.random.default_rng(1).standard_normal((3, fleet.dim))
    everyone = np.arange(3)
    np.testing.assert_allclose(
        single.gradients(everyone, models), fleet.gradients(everyone, models), atol=1e-6
    )


def test_weights_and_rows(clients, fleet):
    rng = np.random.default_rng(2)
    models, chosen = rng.standard_normal((2, fleet.dim)), np.array([0, 2])
    weights = rng.random(11 + 17)
    rows = [np.array([3, 1]), np.array([16])]
    found = fleet.gradients(chosen, models, weights, rows)
    alone = []
    for k, w, mine, scale in ((0, models[0], rows[0], weights[:11]), (2, models[1], rows[1], weights[11:])):
        one = [fleet.client_gradient(k, w, None, np.array([s])) * scale[s] for s in mine]
        alone.append(np.mean(one, axis=0))
    np.testing.assert_allclose(found, alone, atol=1e-14)
    ones = fleet.gradients(chosen, models, np.ones(28))
    np.testing.assert_allclose(ones, fleet.gradients(chosen, models), atol=1e-14)


@pytest.mark.parametrize("work", [Work(5, 0.3), Work(1, 0.2, batch=4, epochs=2)])
@pytest.mark.parametrize("implicit", [True, False])
def test_descending_is_the_fleets_own(clients, fleet, work, implicit):
    rng = np.random.default_rng(3)
    models, towards = rng.standard_normal((2, 2, fleet.dim))
    chosen, weights = np.array([1, 2]), rng.random(25 + 17)
    terms = {
        "weights": weights,
        "ridge": 0.1,
        "pull": np.array([0.5, 2.0]),
        "towards": towards,
        "implicit": implicit,
    }

    def descend(own, **terms):
        return own(fleet, chosen, models, work, np.random.default_rng(4), Objective(**terms))

    mine, plain = (descend(own, **terms) for own in (type(fleet).descend, Fleet.descend))
    np.testing.assert_allclose(mine, plain, atol=1e-13)
    assert abs(mine - models).max() > 0.1
    # The same, with the quadratic terms on the bias only: without weight of the data nothing else moves.
    own, bias = type(fleet).descend, np.arange(12, 16)
    part = descend(own, columns=bias, **terms)
    free = descend(own, weights=weights)
    still = descend(own, columns=bias, **(terms | {"weights": np.zeros(42)}))
    np.testing.assert_array_equal(still[:, :12], models[:, :12])
    assert abs(still - models)[:, 12:].min() > 1e-3
    assert abs(part - mine).max() > 1e-3 and abs(part - free).max() > 1e-3


def test_an_optimizer_steps_on_the_whole_objective(clients):
    adam = TorchModel(linear, dtype="float64", optimizer=torch.optim.Adam).fleet(clients)
    rng = np.random.default_rng(5)
    w, towards = rng.standard_normal((2, 1, adam.dim))
    k = np.array([1])
    slope = adam.gradients(k, w) + 0.1 * w + 3.0 * (w - towards)
    objective = Objective(ridge=0.1, pull=3.0, towards=towards)
    one = adam.descend(k, w, Work(1, 0.01), rng, objective)
    # Adam's first step is rate g / (|g| + 1e-8).
    np.testing.assert_allclose(one, w - 0.01 * slope / (abs(slope) + 1e-8), atol=1e-14)
    end = adam.descend(k, w, Work(300, 0.05), rng, objective)
    stationary = adam.gradients(k, end) + 0.1 * end + 3.0 * (end - towards)
    assert abs(stationary).max() < 1e-4 * abs(slope).max()


def test_numbers(clients):
    rng = np.random.default_rng(6)
    data = ClientData(
        rng.standard_normal((8, 3)), rng.standard_normal(8), rng.standard_normal((5, 3)), rng.random(5)
    )
    fleet = TorchModel(lambda: nn.Linear(3, 1), loss="squared", dtype="float64").fleet([data])
    w = rng.standard_normal((1, 4))
    residual = data.x_train @ w[0, :3] + w[0, 3] - data.y_train
    np.testing.assert_allclose(fleet.sample_losses(np.array([0]), w), residual**2 / 2)
    np.testing.assert_allclose(
        fleet.gradients(np.array([0]), w)[0], [*(data.x_train.T @ residual / 8), residual.mean()]
    )
    accuracy, loss = fleet.measure(fleet.predict(np.array([0]), w))
    assert np.isnan(accuracy[0])
    assert loss[0] == pytest.approx(np.mean((data.x_test @ w[0, :3] + w[0, 3] - data.y_test) ** 2))


def test_one_seed_one_history_and_torchs_own_stream_is_left_alone(clients):
    torch.manual_seed(0)
    expected = torch.rand(3)
    torch.manual_seed(0)
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    runs = [
        simulate(FedAvg(batch=4, epochs=1), clients, 3, random_state=seed, model=TorchModel(dropping))
        for seed in (1, 1, 2)
    ]
    np.testing.assert_array_equal(runs[0].state.models, runs[1].state.models)
    assert (runs[0].state.models != runs[2].state.models).any()
    assert torch.equal(torch.rand(3), expected)
    left = torch.get_num_threads()
    torch.set_num_threads(threads)
    assert left == 2


@pytest.mark.parametrize("optimizer", [None, torch.optim.Adam])
def test_any_number_of_workers_gives_the_same_bits(optimizer, clients):
    system = FedSoft(n_clusters=2, batch=4, epochs=1, interval=1)
    one, two, many = (
        simulate(
            system,
            clients,
            3,
            random_state=1,
            model=TorchModel(dropping, optimizer=optimizer),
            n_threads=n_threads,
        )
        for n_threads in (1, 2, 5)
    )
    for other in (two, many):
        np.testing.assert_array_equal(one.state.models, other.state.models)
        np.testing.assert_array_equal(one.client_losses, other.client_losses)


AFTER_THREADS = """
import numpy as np
import torch
from fusionopt.datasets import ClientData
from fusionopt.federated import FedAvg, TorchModel, mnist_cnn, simulate

torch.set_num_threads(4)
before = torch.nn.Conv2d(1, 16, 3)
for _ in range(3):  # many rows: torch starts its threads
    before(torch.rand(200, 1, 28, 28)).square().mean().backward()
    (torch.rand(600, 600) @ torch.rand(600, 600)).exp().sum()

rng = np.random.default_rng(0)
y = np.arange(20) % 10
clients = [ClientData(rng.random((20, 784)), y, rng.random((20, 784)), y) for _ in range(3)]
wide = lambda: torch.nn.Linear(784, 400)  # 314000 parameters: more than torch copies on one thread
for build, shape in ((mnist_cnn, (1, 28, 28)), (wide, None)):
    model = TorchModel(build, shape=shape, classes=tuple(range(400)) if shape is None else None)
    ends = [simulate(FedAvg(steps=2, batch=8), clients, 2, random_state=0, model=model, n_threads=n).state.models
            for n in (1, 2)]
    assert np.array_equal(*ends) and np.isfinite(ends[0]).all()
assert torch.get_num_threads() == 4
print("done")
"""


def test_workers_beside_torchs_threads_in_a_plain_script(tmp_path):
    """A fork that waits for threads of its parent would wait for ever."""
    script = tmp_path / "script.py"
    script.write_text(AFTER_THREADS)
    root = Path(__file__).resolve().parents[2]
    environment = os.environ | {"PYTHONPATH": str(root), "OMP_NUM_THREADS": "4", "PYTHONWARNINGS": "error"}
    run = subprocess.run(
        [sys.executable, str(script)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert (run.stdout, run.returncode) == ("done\n", 0), run.stderr


def test_a_saved_run_goes_on_to_the_same_bits(clients, tmp_path):
    file, model = tmp_path / "run.npz", TorchModel(dropping)
    system = FedAvg(batch=4, epochs=1)
    whole = simulate(system, clients, 4, random_state=1, model=model)
    simulate(system, clients, 2, random_state=1, model=model, checkpoint=file)
    gone_on = simulate(system, clients, 4, random_state=1, model=model, checkpoint=file)
    np.testing.assert_array_equal(whole.state.models, gone_on.state.models)
    assert federated.History.load(file).model is None  # a function is not in the file
    assert federated.History.load(file, model).model is model


def test_dropout_is_at_work_in_training_only(clients):
    fleet = TorchModel(dropping, dtype="float64").fleet(clients)
    w = fleet.first_models(np.random.default_rng(0), 1)
    k = np.array([0])
    np.testing.assert_array_equal(fleet.gradients(k, w), fleet.gradients(k, w))
    quiet = w - 0.1 * fleet.gradients(k, w)
    first, second = (fleet.descend(k, w, Work(1, 0.1), np.random.default_rng(s)) for s in (0, 1))
    assert abs(first - second).max() > 1e-3
    assert abs(first - quiet).max() > 1e-3
    twins = TorchModel(dropping, dtype="float64").fleet([clients[0], clients[0]])
    one, other = twins.descend(np.arange(2), np.repeat(w, 2, axis=0), Work(1, 0.1), np.random.default_rng(0))
    assert abs(one - other).max() > 1e-3  # each client draws for itself


def test_random_starts_differ_and_follow_the_modules_own_law(clients):
    fleet = TorchModel(lambda: nn.Linear(3, 4, bias=False)).fleet(clients)
    starts = fleet.first_models(np.random.default_rng(0), 200)
    assert len(np.unique(starts[:, 0])) == 200
    assert abs(starts).max() <= 3**-0.5  # PyTorch's uniform law for three inputs
    assert starts.var() == pytest.approx(1 / 9, rel=0.1)


def test_columns_of_named_layers(clients):
    def build():
        return nn.Sequential(nn.Linear(3, 2), nn.Linear(2, 4))

    fleet = TorchModel(build).fleet(clients)
    assert fleet.dim == 8 + 12
    assert fleet.columns(["1"]).tolist() == list(range(8, 20))
    assert fleet.columns(["1.bias", "0.weight"]).tolist() == [*range(6), *range(16, 20)]
    assert fleet.columns(["0", "0.bias"]).tolist() == list(range(8))
    with pytest.raises(InvalidArgumentError, match=r"no layer; the parameters are 0\.weight, 0\.bias"):
        fleet.columns(["2"])


def test_parameters_that_need_no_gradient_stay(clients):
    def build():
        module = nn.Sequential(nn.Linear(3, 2), nn.Linear(2, 4))
        module[0].requires_grad_(False)
        return module

    fleet = TorchModel(build).fleet(clients)
    assert fleet.dim == 12
    models = np.zeros((1, 12))
    before = fleet._module[0].weight.clone()
    fleet.descend(np.array([0]), models, Work(3, 0.1), np.random.default_rng(0))
    assert torch.equal(fleet._module[0].weight, before)


def test_clients_that_share_an_array_share_a_tensor(clients):
    same = [client._replace(x_test=clients[0].x_test) for client in clients]
    fleet = TorchModel(linear).fleet(same)
    assert fleet._x_test[0] is fleet._x_test[2]
    assert fleet._x[0] is not fleet._x[1]


def test_more_rows_than_pass_at_once():
    rng = np.random.default_rng(0)
    n = CHUNK + 7
    data = ClientData(
        rng.standard_normal((n, 3)), np.arange(n) % 4, rng.standard_normal((n, 3)), np.arange(n) % 4
    )
    fleet = TorchModel(linear, dtype="float64").fleet([data])
    w = rng.standard_normal((1, 16))
    weight, bias = matrix(w[0])
    expected = softmax(data.x_test @ weight + bias, axis=1)
    np.testing.assert_allclose(fleet.predict(np.array([0]), w), expected, rtol=1e-12)
    assert len(fleet.sample_losses(np.array([0]), w)) == n


def test_the_small_network():
    module = mnist_cnn()
    assert sum(p.numel() for p in module.parameters()) == 20522
    names = {name.split(".")[0] for name, _ in module.named_parameters()}
    assert names == {"conv1", "conv2", "fc1", "fc2"}
    rng = np.random.default_rng(0)
    data = ClientData(rng.random((12, 784)), np.arange(12) % 10, rng.random((10, 784)), np.arange(10))
    history = simulate(
        FedAvg(rate=0.1, steps=2),
        [data, data],
        2,
        random_state=0,
        model=TorchModel(mnist_cnn, shape=(1, 28, 28)),
    )
    assert history.state.models.shape == (2, 20522)


def test_the_block_of_the_page_runs(monkeypatch):
    """On random images and two rounds; the page is run without torch, so the block is not among those run there."""
    page = Path(__file__).resolve().parents[2] / "docs" / "federated.md"
    block = re.search(r"^```py\n(from fusionopt.*?)^```", page.read_text(encoding="utf-8"), flags=re.M | re.S)
    rng = np.random.default_rng(0)
    y = np.arange(60) % 10
    images = ClientData(rng.random((60, 784)), y, rng.random((60, 784)), y)
    monkeypatch.setattr(datasets, "load_mnist", lambda path: images)
    source = block.group(1)
    assert source.count("rounds=100") == 1
    exec(source.replace("rounds=100", "rounds=2"), {})


SYSTEMS = [
    Cfl(rate=0.3),
    FedAvg(rate=0.3),
    FedEm(rate=0.3, n_components=2),
    FedSoft(rate=0.3),
    Fpfc(rate=0.3),
    Ifca(rate=0.3),
    Local(rate=0.3),
    Pdmm(rate=0.3),
    PerFedAvg(rate=0.3, alpha=0.3, variant="first_order"),
    RFedAvg(rate=0.3),
    SquaredPenalty(rate=0.3),
]


@pytest.fixture(scope="module")
def digits():
    return label_swap(split_evenly(load_digits(), 8, random_state=0))


@pytest.mark.parametrize("system", SYSTEMS, ids=lambda system: type(system).__name__)
def test_every_system_trains_a_network(system, digits):
    clients, _ = digits
    history = simulate(system, clients, 8, random_state=0, model=TorchModel(mlp))
    assert history.rounds[-1].loss < 0.9 * history.rounds[0].loss
    assert history.final_accuracy > 0.3  # ten classes


@pytest.mark.parametrize("kind", [Fpfc, FpfcL1, Pdmm])
def test_the_named_layer_is_fused_and_the_others_are_averaged(kind, digits):
    clients, _ = digits
    system = kind(rate=0.3, rho=1.0, lam=0.1, layers=("2",), batch=60, epochs=1)
    history = simulate(system, clients, 6, 0.5, random_state=0, model=TorchModel(mlp))
    alone = simulate(replace(system, layers="2"), clients, 6, 0.5, random_state=0, model=TorchModel(mlp))
    np.testing.assert_array_equal(alone.state.models, history.state.models)
    head = np.arange(64 * 16 + 16, 64 * 16 + 16 + 170)
    models = history.state.models
    rest = np.delete(models, head, axis=1)
    assert (rest == rest[0]).all()
    assert len(np.unique(models[:, head[0]])) == len(clients)
    assert history.final_accuracy > 0.3  # ten classes


@pytest.mark.parametrize("kind", [Fpfc, Pdmm])
def test_naming_every_layer_is_naming_none(kind, digits):
    clients, _ = digits
    runs = [
        simulate(kind(rate=0.3, layers=layers), clients, 3, 0.5, random_state=0, model=TorchModel(mlp))
        for layers in (None, ("0", "2"))
    ]
    np.testing.assert_array_equal(runs[0].state.models, runs[1].state.models)


def test_clusters_pay_where_labels_are_swapped(digits):
    clients, labels = digits
    model = TorchModel(mlp)
    one = simulate(FedAvg(rate=0.5), clients, 30, random_state=0, model=model)
    four = simulate(Oracle(rate=0.5, labels=labels), clients, 30, random_state=0, model=model)
    assert one.final_accuracy < 0.85  # four swaps: the majority is wrong for two classes of each client
    assert four.final_accuracy > 0.9


def test_the_command_line_trains_the_small_network(tmp_path):
    rng = np.random.default_rng(0)
    y = np.arange(40) % 10
    arrays = {"x_train": rng.integers(0, 256, (40, 28, 28), dtype=np.uint8), "y_train": y}
    np.savez(tmp_path / "mnist.npz", **arrays, x_test=arrays["x_train"], y_test=y)
    asked = [
        "fpfc:layers=fc2,steps=1,rho=1.0",
        "--data",
        f"mnist:path={tmp_path}/mnist.npz+split-evenly:n_clients=4+label-swap",
    ]
    options = ["--model", "mnist-cnn", "--rounds", "2", "--n-threads", "2", "--out", str(tmp_path / "out")]
    assert main(["simulate", *asked, *options]) == OK
    clients, _ = label_swap(split_evenly(datasets.load_mnist(tmp_path / "mnist.npz"), 4, random_state=0))
    model = TorchModel(mnist_cnn, shape=(1, 28, 28))
    system = Fpfc(layers=("fc2",), steps=1, rho=1.0)
    history = simulate(system, clients, 2, random_state=0, model=model)
    (row,) = csv.DictReader((tmp_path / "out" / "table.csv").read_text().splitlines())
    assert float(row["loss"]) == history.rounds[-1].loss


class Keeping(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear, self.norm = nn.Linear(3, 4), nn.BatchNorm1d(4)

    def forward(self, x):
        return self.norm(self.linear(x))


@pytest.mark.parametrize(
    ("make", "kind", "message"),
    [
        (lambda c: TorchModel(linear()), InvalidTypeError, "build is a module; give a function"),
        (lambda c: TorchModel(3), InvalidTypeError, "build"),
        (lambda c: TorchModel(linear, loss="hinge"), InvalidArgumentError, "loss='hinge' is unknown"),
        (lambda c: TorchModel(linear, dtype="half"), InvalidArgumentError, "dtype='half' is unknown"),
        (lambda c: TorchModel(linear, shape=(0, 3)), InvalidArgumentError, "shape=0 is too small"),
        (lambda c: TorchModel(linear, optimizer=3), InvalidTypeError, "optimizer"),
        (lambda c: TorchModel(lambda: 3).fleet(c), InvalidTypeError, "build returned a int"),
        (lambda c: TorchModel(nn.Identity).fleet(c), InvalidArgumentError, "without parameters to train"),
        (lambda c: TorchModel(Keeping).fleet(c), InvalidArgumentError, "running averages"),
        (
            lambda c: TorchModel(lambda: nn.Linear(3, 5)).fleet(c),
            InvalidArgumentError,
            r"shape \(2, 5\); .* \(2, 4\)",
        ),
        (lambda c: TorchModel(linear, loss="squared").fleet(c), InvalidArgumentError, r"needs \(2,\)"),
        (
            lambda c: TorchModel(lambda: nn.Linear(7, 4)).fleet(c),
            InvalidArgumentError,
            r"rows of shape \(3,\)",
        ),
        (lambda c: TorchModel(linear, shape=(1, 2)).fleet(c), InvalidArgumentError, "2 entries; the rows of"),
        (
            lambda c: TorchModel(linear, classes=(0, 2, 5, 6)).fleet(c),
            InvalidArgumentError,
            "none of the 4 classes",
        ),
        (lambda c: TorchModel(linear).fleet([]), InvalidArgumentError, "clients is empty"),
        (
            lambda c: TorchModel(linear).fleet([c[0]._replace(y_train=c[0].y_train[:5])]),
            InvalidArgumentError,
            r"clients\[0\]\.y_train has 5 entries",
        ),
        (
            lambda c: TorchModel(linear).fleet([c[0], c[1]._replace(x_test=np.zeros((9, 2)))]),
            InvalidArgumentError,
            "columns",
        ),
        (
            lambda c: TorchModel(linear).fleet([c[0]._replace(x_train=np.full((11, 3), np.nan))]),
            InvalidArgumentError,
            "holds NaN",
        ),
        (
            lambda c: TorchModel(linear).fleet(
                [ClientData(*(a[:1] for a in c[0]))._replace(y_test=c[0].y_train[:1])]
            ),
            InvalidArgumentError,
            "one class only",
        ),
    ],
)
def test_refusals(make, kind, message, clients):
    with pytest.raises(kind, match=message):
        make(clients)


def test_settled_classes_carry_over_to_other_clients(clients, fleet):
    few = ClientData(np.zeros((2, 3)), np.array([5, 7]), np.zeros((1, 3)), np.array([7]))
    other = fleet.model.fleet([few])
    assert other.dim == fleet.dim
    np.testing.assert_array_equal(other.class_counts, [[0, 0, 1, 1]])


def test_without_torch(monkeypatch, clients):
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(MissingDependencyError, match=r'pip install "fusionopt\[torch\]"'):
        TorchModel(linear).fleet(clients)
    assert federated.SoftmaxModel is SoftmaxModel  # the room itself needs no torch
