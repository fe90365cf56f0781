"""Histories: saved, resumed to the same bits; dropout and unequal work; models that are not softmax."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from functools import partial

import numpy as np
import pytest

from fusionopt import federated
from fusionopt.datasets import ClientData, make_ellipses, make_fpfc_synthetic
from fusionopt.errors import InvalidArgumentError, InvalidTypeError
from fusionopt.federated import (
    Cfl,
    FedAvg,
    FedEm,
    FedSoft,
    Fpfc,
    History,
    Ifca,
    LinearModel,
    Local,
    LogisticModel,
    Pdmm,
    PerFedAvg,
    RFedAvg,
    SoftmaxModel,
    SquaredHingeModel,
    simulate,
)

LABELS = [0, 0, 1, 1, 2, 2, 3, 3]


@pytest.fixture(scope="module")
def clients():
    return make_fpfc_synthetic(8, 4, random_state=1, max_samples=60)[0]


STARTS = partial(Ifca, n_init=3, init_rounds=4)


@pytest.mark.parametrize("system", [Cfl, FedEm, FedSoft, Fpfc, Ifca, STARTS, Local, Pdmm, PerFedAvg, RFedAvg])
def test_resumed_runs_have_the_bits_of_whole_ones(system, clients, tmp_path):
    options = {"participation": 0.5, "random_state": 3, "dropout": 0.2, "least_work": 0.5, "labels": LABELS}
    whole = simulate(system(), clients, 6, **options)
    file = tmp_path / "run.npz"
    simulate(system(), clients, 3, checkpoint=file, **options)
    parts = simulate(system(), clients, 6, checkpoint=file, **options)
    np.testing.assert_array_equal(whole.state.models, parts.state.models)
    np.testing.assert_array_equal(whole.client_losses, parts.client_losses)
    assert [r[:-1] for r in whole.rounds] == [r[:-1] for r in parts.rounds]
    again = simulate(system(), clients, 6, checkpoint=file, **options)  # nothing is left to do
    np.testing.assert_array_equal(again.client_accuracies, whole.client_accuracies)


_KILLED = """
import sys
from fusionopt.datasets import make_fpfc_synthetic
from fusionopt.federated import Fpfc, simulate
clients, _ = make_fpfc_synthetic(8, 4, random_state=1, max_samples=60)
simulate(Fpfc(), clients, 100000, 0.5, random_state=3, checkpoint=sys.argv[1], checkpoint_every=1)
"""


def test_a_killed_run_goes_on_to_the_same_bits(clients, tmp_path):
    file = tmp_path / "run.npz"
    run = subprocess.Popen([sys.executable, "-c", _KILLED, str(file)], env=os.environ)
    deadline = time.monotonic() + 60
    while not file.exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    time.sleep(0.2)
    run.send_signal(signal.SIGKILL)
    run.wait()
    done = len(History.load(file).rounds)
    assert done >= 1
    total = done + 3
    resumed = simulate(Fpfc(), clients, total, 0.5, random_state=3, checkpoint=file)
    whole = simulate(Fpfc(), clients, total, 0.5, random_state=3)
    np.testing.assert_array_equal(resumed.state.models, whole.state.models)


def test_a_checkpoint_of_another_run_is_refused(clients, tmp_path):
    file = tmp_path / "run.npz"
    simulate(FedAvg(), clients, 1, random_state=0, checkpoint=file)
    for system, data, options in (
        (FedAvg(rate=0.2), clients, {}),
        (FedAvg(), clients[::-1], {}),
        (FedAvg(), clients, {"participation": 0.5}),
        (FedAvg(), clients, {"model": SoftmaxModel(ridge=1.0)}),
    ):
        with pytest.raises(InvalidArgumentError, match="of another run"):
            simulate(system, data, 2, random_state=0, checkpoint=file, **options)


def test_saved_histories_come_back(clients, tmp_path):
    history = simulate(Ifca(n_clusters=3), clients, 2, random_state=0, labels=LABELS)
    history.save(tmp_path / "h.npz")
    again = History.load(tmp_path / "h.npz")
    assert again.system == history.system
    assert again.rounds == history.rounds
    assert again.model == history.model
    np.testing.assert_array_equal(again.state.centres, history.state.centres)
    np.testing.assert_array_equal(again.cluster_models, history.cluster_models)
    (tmp_path / "bad.npz").write_bytes(b"no zip")
    with pytest.raises(InvalidArgumentError, match=r"not a file written by History\.save"):
        History.load(tmp_path / "bad.npz")

    whole = dict(np.load(tmp_path / "h.npz"))
    head = whole["head"].tobytes()
    for change in (
        {"state.starts": None},
        {"head": head[:-1]},
        {"head": head.replace(b'["Ifca", {', b'["simulate", {')},
        {"head": head.replace(b'"n_init"', b'"starts"')},
    ):
        parts = {key: value for key, value in (whole | change).items() if value is not None}
        if "head" in change:
            assert change["head"] != head
            parts["head"] = np.frombuffer(change["head"], dtype=np.uint8)
        np.savez(tmp_path / "old.npz", **parts)
        with pytest.raises(InvalidArgumentError, match="by another version of fusionopt"):
            History.load(tmp_path / "old.npz")
        with pytest.raises(InvalidArgumentError, match="by another version of fusionopt"):
            simulate(Ifca(n_clusters=3), clients, 2, random_state=0, checkpoint=tmp_path / "old.npz")
    for call in (lambda: History.load(3), lambda: History.load(tmp_path / "h.npz", model=3)):
        with pytest.raises(InvalidTypeError, match="give a"):
            call()

    class Mine(FedAvg):
        pass

    with pytest.raises(InvalidTypeError, match="Mine is not a system of fusionopt"):
        simulate(Mine(), clients, 1).save(tmp_path / "mine.npz")


def test_dropped_clients_receive_and_send_nothing(clients):
    dim = SoftmaxModel().fleet(clients).dim
    history = simulate(FedAvg(), clients, 40, random_state=0, dropout=0.5)
    answered = [record.n_active for record in history.rounds]
    assert 0.35 < np.mean(answered) / 8 < 0.65
    assert all(record.bytes_down == 8 * 8 * dim for record in history.rounds)
    assert [record.bytes_up for record in history.rounds] == [8 * n * dim for n in answered]


@pytest.mark.parametrize("system", [Cfl, FedAvg, FedEm, FedSoft, Fpfc, Ifca, Local, Pdmm, PerFedAvg, RFedAvg])
def test_a_round_in_which_nobody_answers_changes_nothing(system, clients):
    history = simulate(system(), clients, 2, 0.25, random_state=0, dropout=1 - 1e-12)
    assert [record.n_active for record in history.rounds] == [0, 0]
    assert history.bytes_up == 0
    np.testing.assert_array_equal(history.client_losses[0], history.client_losses[1])


def test_effort_shortens_local_work(clients):
    whole = simulate(Local(steps=10), clients, 1, random_state=0)
    less = simulate(Local(steps=10), clients, 1, random_state=0, least_work=0.1)
    first = SoftmaxModel().fleet(clients).first_models(np.random.default_rng(0), 1)
    far, near = (np.linalg.norm(h.state.models - first, axis=1) for h in (whole, less))
    assert (near <= far).all()
    assert (near < 0.9 * far).any()
    fleet = SoftmaxModel().fleet(clients)
    fleet.effort = np.full(8, 0.31)
    assert fleet.steps(np.arange(8), FedAvg(steps=10).work).tolist() == [3] * 8
    assert fleet.steps(np.arange(8), FedAvg(steps=1).work).tolist() == [1] * 8


def test_one_batch_of_all_rows_is_full_batch(clients):
    options = {"random_state": 0}  # batches draw too, so the next choice of clients would differ
    full = simulate(FedAvg(steps=3), clients, 2, **options)
    batched = simulate(FedAvg(epochs=3, batch=1000), clients, 2, **options)
    np.testing.assert_allclose(batched.state.models, full.state.models, rtol=0, atol=1e-12)
    assert simulate(FedAvg(epochs=1, batch=7), clients, 1, **options).final_accuracy > 0


def test_batches_go_through_all_rows(clients):
    fleet = SoftmaxModel().fleet(clients)
    work = FedAvg(epochs=2, batch=7).work
    steps = fleet.steps(np.arange(8), work)
    assert (steps == 2 * np.ceil(fleet.sizes / 7)).all()
    for k, mine in enumerate(fleet.batches(np.arange(8), 7, steps, np.random.default_rng(0))):
        n, half = int(fleet.sizes[k]), len(mine) // 2
        for one_pass in (mine[:half], mine[half:]):
            assert sorted(np.concatenate(one_pass).tolist()) == list(range(n))


def test_gradients_over_rows_and_weights_are_those_of_the_definition(clients):
    rng = np.random.default_rng(0)
    ellipses, _ = make_ellipses(n_users=1, n_samples=30, random_state=0)
    numbers = [ClientData(c.x_train, c.x_train[:, 0] - 1, c.x_test, c.x_test[:, 0]) for c in ellipses]
    for model, data in (
        (SoftmaxModel(ridge=0.1), clients),
        (LogisticModel(), ellipses),
        (SquaredHingeModel(intercept=False), ellipses),
        (LinearModel(ridge=0.1), numbers),
    ):
        fleet = model.fleet(data)
        some = np.array([0, 2])
        w = rng.standard_normal((2, fleet.dim))
        weights = rng.random(int(fleet.sizes[some].sum()))
        rows = fleet.draw(some, 5, rng)
        parts = fleet.split(some, weights)
        g = fleet.gradients(some, w, weights, rows)
        for h in (1e-4,):
            d = rng.standard_normal(w.shape)
            ends = []
            for sign in (1, -1):
                losses = fleet.split(some, fleet.sample_losses(some, w + sign * h * d))
                ridge = 0.5 * model.ridge * ((w + sign * h * d) ** 2).sum(axis=1)
                ends.append(
                    [np.mean((q * p)[r]) for q, p, r in zip(parts, losses, rows, strict=True)] + ridge
                )
            slope = (np.array(ends[0]) - ends[1]) / (2 * h)
            np.testing.assert_allclose(slope, (g * d).sum(axis=1), rtol=1e-5, atol=1e-7)


def test_threads_change_no_bit(clients):
    one, two = (simulate(Ifca(), clients, 3, random_state=0, n_threads=n) for n in (1, 2))
    np.testing.assert_array_equal(one.state.models, two.state.models)


def test_regression_measures_squared_errors():
    rng = np.random.default_rng(1)
    w = np.array([2.0, -1.0])
    data = []
    for _ in range(3):
        x = rng.standard_normal((50, 2))
        data.append(ClientData(x, x @ w + 1, x, x @ w + 1.5))
    history = simulate(FedAvg(steps=50), data, 20, random_state=0, model=LinearModel())
    assert np.isnan(history.final_accuracy)
    assert history.final_loss == pytest.approx(0.25, rel=1e-3)
    np.testing.assert_allclose(history.cluster_models[0], [2, -1, 1], atol=1e-3)
    assert history.plot().get_ylabel() == "mean loss"
    with pytest.raises(InvalidArgumentError, match="give weights='uniform'"):
        simulate(RFedAvg(), data, 1, model=LinearModel())


def test_evaluation_now_and_then(clients):
    every = simulate(FedAvg(), clients, 5, random_state=0)
    some = simulate(FedAvg(), clients, 5, random_state=0, evaluate_every=2)
    assert [np.isnan(r.accuracy) for r in some.rounds] == [True, False, True, False, False]
    assert some.final_accuracy == every.final_accuracy
    np.testing.assert_array_equal(some.client_accuracies[3], every.client_accuracies[3])


def test_rates_decay(clients):
    slow = simulate(FedAvg(decay=0.5), clients, 2, random_state=0).state.models
    first = simulate(FedAvg(), clients, 1, random_state=0).state.models
    second = simulate(FedAvg(rate=0.05), clients, 1, random_state=0)
    assert np.linalg.norm(slow - first) < 0.8 * np.linalg.norm(
        simulate(FedAvg(), clients, 2, random_state=0).state.models - first
    )
    assert second.system.rate == 0.05


def test_rates_that_have_decayed_to_nothing_end_no_run(clients):
    models = [simulate(Local(decay=1e-200), clients, n, random_state=0).state.models for n in (2, 4)]
    np.testing.assert_array_equal(*models)


def test_ari_against_true_labels(clients):
    assert simulate(federated.Oracle(labels=LABELS), clients, 1, labels=LABELS).rounds[0].ari == 1.0
    assert simulate(FedAvg(), clients, 1, labels=LABELS).rounds[0].ari == 0.0
    with pytest.raises(InvalidArgumentError, match="labels has 2 entries"):
        simulate(FedAvg(), clients, 1, labels=[0, 1])


def test_misuse(clients):
    for options, message in (
        ({"dropout": 1.0}, "leaves no client"),
        ({"dropout": -0.1}, "dropout"),
        ({"least_work": 0.0}, "least_work"),
        ({"evaluate_every": 0}, "evaluate_every"),
        ({"n_threads": 0}, "n_threads"),
        ({"checkpoint_every": 0}, "checkpoint_every"),
    ):
        with pytest.raises(InvalidArgumentError, match=message):
            simulate(FedAvg(), clients, 1, **options)
    with pytest.raises(InvalidTypeError, match="clients is a NoneType; give a list of records"):
        simulate(FedAvg(), None, 1)
    with pytest.raises(InvalidTypeError, match="give a Model"):
        simulate(FedAvg(), clients, 1, model="softmax")
    for wrong in ({"batch": 0}, {"epochs": 0}, {"decay": 0.0}):
        with pytest.raises(InvalidArgumentError, match=next(iter(wrong))):
            FedAvg(**wrong)
    with pytest.raises(InvalidArgumentError, match="none of the 2 classes"):
        SoftmaxModel(classes=(0, 1)).fleet(clients)


def test_new_clients_are_placed_without_training():
    clients, labels = make_fpfc_synthetic(16, 4, random_state=2, max_samples=300)
    old, new = np.arange(0, 16, 2), np.arange(1, 16, 2)
    history = simulate(
        federated.Oracle(labels=labels[old]),
        [clients[k] for k in old],
        60,
        random_state=0,
        labels=labels[old],
    )
    placed = history.place([clients[k] for k in new])
    np.testing.assert_array_equal(placed.labels, labels[new])
    assert placed.scores.shape == (8, 4)
    np.testing.assert_array_equal(placed.scores.argmin(axis=1), placed.labels)
    assert (placed.firmness > 2).all()
    # Rows of two clusters, half and half, do not tell.
    both = [
        ClientData(*(np.concatenate(pair) for pair in zip(clients[0], clients[15], strict=True))),
        clients[0],
    ]
    mixed = history.place(both)
    assert abs(mixed.firmness[0]) < mixed.firmness[1] / 3
    # The definition, for one client.
    fleet = history.model.fleet([clients[1]])
    losses = [fleet.sample_losses(np.array([0]), w[None]) for w in history.cluster_models]
    order = np.argsort([part.mean() for part in losses])
    excess = losses[order[1]] - losses[order[0]]
    assert placed.firmness[0] == pytest.approx(excess.mean() / (excess.std(ddof=1) / np.sqrt(len(excess))))


def test_placement_by_parameters():
    history = simulate(
        federated.Oracle(labels=LABELS), make_fpfc_synthetic(8, 4, 1, 60)[0], 2, random_state=0
    )
    centres = history.cluster_models
    middle = (centres[0] + centres[1]) / 2
    placed = history.place_models([centres[2], 0.9 * centres[0] + 0.1 * centres[1], middle])
    assert placed.labels[:2].tolist() == [2, 0]
    assert placed.firmness[0] == 1.0
    assert 0 < placed.firmness[1] < 1
    assert placed.firmness[2] == pytest.approx(0.0, abs=1e-12)
    with pytest.raises(InvalidArgumentError, match="models"):
        history.place_models(np.zeros((1, 3)))
    lonely = simulate(FedAvg(), make_fpfc_synthetic(8, 4, 1, 60)[0], 1, random_state=0)
    assert lonely.place_models(centres[:1]).firmness[0] == np.inf


@pytest.mark.parametrize("system", [Cfl, FedAvg, Fpfc, Ifca, Pdmm, RFedAvg, federated.KMeansAggregation])
def test_runs_that_diverge_end_without_a_traceback(system, clients):
    history = simulate(system(rate=1e200), clients, 4, random_state=0)
    assert len(history.rounds) == 4
    assert not history.final_loss < 10


@pytest.mark.parametrize("system", [Cfl, FedAvg, FedEm, Fpfc, Ifca, Local, Pdmm, PerFedAvg])
@pytest.mark.parametrize("batch", [None, 5])
def test_regressions_that_diverge_say_nothing(system, batch):
    """Warnings are errors here."""
    rng = np.random.default_rng(0)
    x = 1e3 * rng.standard_normal((9, 3))
    data = [ClientData(x, x[:, k], x, x[:, k]) for k in range(3)]
    history = simulate(system(rate=1e20, batch=batch), data, 4, random_state=0, model=LinearModel())
    assert len(history.rounds) == 4
    assert not history.final_loss < 1


@pytest.mark.parametrize("model", [SoftmaxModel(), LinearModel()])
@pytest.mark.parametrize("length", [1e-300, 1e100, 1e200])
def test_rows_of_any_length(model, length, clients, tmp_path):
    data = [c._replace(x_train=length * c.x_train, x_test=length * c.x_test) for c in clients]
    history = simulate(Local(), data, 2, random_state=0, model=model, checkpoint=tmp_path / "run.npz")
    assert len(history.rounds) == 2
    assert history.place(data).scores.shape == (8, 8)
    models = np.full((3, history.state.models.shape[1]), 1e200)
    assert history.place_models(models).scores.shape == (3, 8)


def test_predictions_that_are_no_numbers_are_wrong(clients):
    fleet = SoftmaxModel().fleet(clients)
    everyone = np.arange(8)
    accuracy, loss = fleet.measure(fleet.predict(everyone, np.full((8, fleet.dim), np.nan)))
    assert (accuracy == 0).all()
    assert np.isnan(loss).all()


@pytest.mark.parametrize("system", [Cfl, FedAvg, FedEm, FedSoft, Fpfc, Ifca, Pdmm, PerFedAvg, RFedAvg])
def test_lone_clients_and_lone_rows(system, clients):
    assert simulate(system(), clients[:1], 2, random_state=0).n_clusters == 1
    rows = [ClientData(*(part[:1] for part in client)) for client in clients]
    assert np.isfinite(simulate(system(), rows, 2, 0.5, random_state=0).final_loss)


def test_files_and_new_clients_that_do_not_fit(clients, tmp_path):
    history = simulate(FedAvg(), clients, 1, random_state=0)
    for call in (
        lambda: history.save(tmp_path / "none" / "h.npz"),
        lambda: simulate(FedAvg(), clients, 1, checkpoint=tmp_path),
    ):
        with pytest.raises(InvalidArgumentError, match="give a file in a folder that exists"):
            call()
    narrow = ClientData(np.ones((2, 3)), clients[0].y_train[:2], np.ones((1, 3)), clients[0].y_test[:1])
    with pytest.raises(InvalidArgumentError, match="as many columns as in the run"):
        history.place([narrow])
    file = tmp_path / "run.npz"
    simulate(FedAvg(), clients, 3, random_state=0, checkpoint=file)
    assert len(simulate(FedAvg(), clients, 2, random_state=0, checkpoint=file).rounds) == 3
    with pytest.raises(InvalidArgumentError, match="of another run"):
        simulate(FedAvg(), clients, 4, random_state=0, checkpoint=file, labels=LABELS)
