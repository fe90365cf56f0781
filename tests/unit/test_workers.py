"""Workers: the same bits for any number, nothing left of them, errors that reach the caller."""

from __future__ import annotations

import gc
import multiprocessing
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from fusionopt.datasets import ClientData
from fusionopt.errors import InvalidArgumentError, WorkerError
from fusionopt.federated import (
    FedAvg,
    FedEm,
    FedSoft,
    Fleet,
    Fpfc,
    Ifca,
    LoopFleet,
    Model,
    Objective,
    PerFedAvg,
    RFedAvg,
    Work,
    simulate,
)

HERE = os.getpid()

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="there are workers on Linux only")


class MedianModel(Model):
    """Least absolute deviations, in plain Python; `trouble` is called with the client in every gradient."""

    def __init__(self, trouble=lambda k: None):
        self.trouble = trouble

    def fleet(self, clients, n_threads=1):
        return MedianFleet(self, clients, n_threads)


class MedianFleet(LoopFleet):
    def __init__(self, model, clients, n_threads):
        self.data = clients
        sizes, test_sizes = ([len(getattr(c, y)) for c in clients] for y in ("y_train", "y_test"))
        super().__init__(model, clients[0].x_train.shape[1], sizes, test_sizes, None, n_threads)

    def first_models(self, rng, count):
        return rng.standard_normal((count, self.dim))

    def client_losses(self, k, w):
        return abs(self.data[k].x_train @ w - self.data[k].y_train)

    def client_gradient(self, k, w, weights, rows):
        self.model.trouble(k)
        x, y = self.data[k].x_train, self.data[k].y_train
        weights = np.ones(len(y)) if weights is None else weights
        if rows is not None:
            x, y, weights = x[rows], y[rows], weights[rows]
        return x.T @ (weights * np.sign(x @ w - y)) / len(y)

    def client_predictions(self, k, w):
        return (self.data[k].x_test @ w)[:, None]

    def measure(self, predictions):
        y = np.concatenate([c.y_test for c in self.data])
        ends = np.cumsum(self.test_sizes).astype(int)[:-1]
        return np.full(self.n_clients, np.nan), np.array(
            [part.mean() for part in np.split(abs(predictions[:, 0] - y), ends)]
        )


@pytest.fixture(scope="module")
def clients():
    rng = np.random.default_rng(0)
    out = []
    for k in range(5):
        x = rng.standard_normal((8 + 3 * k, 3))
        y = x @ [[1.0, 2.0, 0.0], [-2.0, 1.0, 1.0]][k % 2] + rng.standard_cauchy(len(x))
        out.append(ClientData(x, y, x[:4], y[:4]))
    return out


def children():
    """Of this process, whoever started them."""
    listed = Path(f"/proc/self/task/{os.getpid()}/children")  # not every kernel has it
    return set(listed.read_text().split()) if listed.exists() else set()


@pytest.fixture(autouse=True)
def _others():
    OTHERS.clear()
    OTHERS.update(children())


OTHERS = set()


def nothing_is_left():
    return not multiprocessing.active_children() and children() <= OTHERS


@pytest.mark.parametrize(
    "system",
    [
        FedAvg(batch=4, epochs=1),
        FedEm(n_components=2),
        FedSoft(n_clusters=2, ridge=0.1),
        Fpfc(),
        Ifca(n_clusters=2, n_init=2, averaging="gradients", batch=3),
        PerFedAvg(batch=5),
        RFedAvg(weights="uniform"),
    ],
    ids=lambda system: type(system).__name__,
)
def test_any_number_of_workers_gives_the_same_bits(system, clients):
    one, two, many = (
        simulate(
            system, clients, 3, 0.8, random_state=1, model=MedianModel(), least_work=0.3, n_threads=n_threads
        )
        for n_threads in (1, 2, 9)
    )
    for other in (two, many):
        np.testing.assert_array_equal(one.state.models, other.state.models)
        np.testing.assert_array_equal(one.client_losses, other.client_losses)
    assert nothing_is_left()


@pytest.mark.parametrize("implicit", [True, False])
@pytest.mark.parametrize("columns", [None, np.array([0, 2])])
def test_descending_client_by_client_is_the_fleets_own(implicit, columns, clients):
    rng = np.random.default_rng(0)
    fleet, chosen = MedianModel().fleet(clients), np.array([0, 1, 4])
    models, towards = rng.standard_normal((2, 3, 3))
    weights = rng.random(int(fleet.sizes[chosen].sum()))
    objective = Objective(weights, 0.1, np.array([0.0, 1.0, 2.0]), towards, columns, implicit)
    fleet.effort = np.linspace(0.2, 1.0, 5)
    mine, plain = (
        own.descend(fleet, chosen, models, Work(1, 0.1, 4, 3), np.random.default_rng(2), objective)
        for own in (LoopFleet, Fleet)
    )
    np.testing.assert_allclose(mine, plain, rtol=0, atol=1e-14)
    assert abs(mine - models).max() > 0.1


class Telling(MedianFleet):
    def client_losses(self, k, w):
        time.sleep(0.1)
        return np.full(len(self.data[k].y_train), float(os.getpid()))


def test_clients_are_worked_in_as_many_processes_as_were_asked_for(clients):
    fleet = Telling(MedianModel(), clients, 2)
    everyone, models = np.arange(5), np.zeros((5, 3))
    found = {*fleet.sample_losses(everyone, models).tolist(), *fleet.sample_losses(everyone, models).tolist()}
    assert len(found) == 2 and os.getpid() not in found
    assert {float(process.pid) for process in multiprocessing.active_children()} == found
    fleet.close()
    assert nothing_is_left()
    fleet.sample_losses(everyone, models)  # new ones
    assert not nothing_is_left()
    del fleet
    gc.collect()
    assert nothing_is_left()


def test_a_worker_of_another_pool_works_alone(clients):
    with multiprocessing.get_context("fork").Pool(1) as pool:
        inside = pool.apply(_simulated, (clients,))
    np.testing.assert_array_equal(inside, _simulated(clients))


def _simulated(clients):
    return simulate(FedAvg(), clients, 2, random_state=0, model=MedianModel(), n_threads=2).state.models


class UnsendableError(Exception):
    def __init__(self, first, second):
        super().__init__(first)


def fail(error):
    def trouble(k):
        if k == 3 and os.getpid() != HERE:
            raise error

    return trouble


def vanish(k):
    if k == 3 and os.getpid() != HERE:
        os.kill(os.getpid(), signal.SIGKILL)


def leave(k):
    if k == 3 and os.getpid() != HERE:
        raise SystemExit(5)


def test_errors_of_clients_reach_the_caller(clients):
    def run(trouble):
        simulate(FedAvg(), clients, 2, random_state=0, model=MedianModel(trouble), n_threads=2)

    with pytest.raises(KeyError, match="no such row") as caught:
        run(fail(KeyError("no such row")))
    assert "client 3 in a worker process; give n_threads=1" in caught.value.__notes__[0]
    assert "in trouble" in caught.value.__notes__[0]  # where it was raised
    with pytest.raises(
        WorkerError, match=r"(?s)client 3 failed .* n_threads=1 .*UnsendableError: one"
    ) as lost:
        run(fail(UnsendableError("one", "two")))
    assert lost.value.client == 3
    for trouble, code in ((vanish, "-9"), (leave, "5")):
        with pytest.raises(
            WorkerError, match=f"exit code {code} while it worked for client 3.* smaller n_threads"
        ):
            run(trouble)
    assert nothing_is_left()


@pytest.mark.parametrize(
    ("name", "wrong", "shape"),
    [
        ("client_losses", lambda self, k, w: 0.5, "(8,)"),
        ("client_losses", lambda self, k, w: np.zeros(7), "(8,)"),
        ("client_gradient", lambda self, k, w, weights, rows: np.zeros((3, 1)), "(3,)"),
        ("client_descent", lambda self, k, w, work: w[:2], "(3,)"),
        ("client_predictions", lambda self, k, w: np.zeros(4), "(4, 'n_outputs')"),
    ],
)
def test_what_a_client_gives_has_its_shape(name, wrong, shape, clients):
    fleet = type("Mine", (MedianFleet,), {name: wrong})(MedianModel(), clients, 2)
    first, models = np.array([0]), np.zeros((1, 3))
    calls = {
        "client_losses": fleet.sample_losses,
        "client_gradient": fleet.gradients,
        "client_predictions": fleet.predict,
        "client_descent": lambda k, w: fleet.descend(k, w, Work(1, 0.1), np.random.default_rng(0)),
    }
    with pytest.raises(InvalidArgumentError, match=rf"Mine\.{name} .* client 0; .* be {re.escape(shape)}"):
        calls[name](first, models)


@pytest.mark.parametrize("error", [KeyboardInterrupt, ZeroDivisionError])
def test_no_worker_outlives_a_run_that_is_broken_off(error, clients):
    def callback(record):
        assert not nothing_is_left()
        raise error

    with pytest.raises(error):
        simulate(FedAvg(), clients, 2, random_state=0, model=MedianModel(), n_threads=2, callback=callback)
    assert nothing_is_left()


# Not under `if __name__ == "__main__"`, as people write it.
SCRIPT = """
import multiprocessing
import time
from tests.unit.test_workers import MedianModel, make_clients
from fusionopt.federated import FedAvg, simulate

def callback(record):
    if record.round == 1:
        print(*(process.pid for process in multiprocessing.active_children()), flush=True)

simulate(FedAvg(steps=20), make_clients(), 10**6, random_state=0, model=MedianModel(lambda k: time.sleep(0.01)),
         n_threads=2, callback=callback)
"""


def make_clients():
    rng = np.random.default_rng(0)
    x = rng.standard_normal((8, 3))
    return [ClientData(x, x[:, k], x, x[:, k]) for k in range(3)]


def alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGKILL])
def test_workers_end_with_the_program(sent):
    root = Path(__file__).resolve().parents[2]
    run = subprocess.Popen(
        [sys.executable, "-c", SCRIPT],
        cwd=root,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    pids = run.stdout.readline().split()
    assert len(pids) == 2 and all(map(alive, pids))
    if sent == signal.SIGINT:
        os.killpg(run.pid, sent)  # as a terminal does: to the workers too
    else:
        run.send_signal(sent)
    _, said = run.communicate(timeout=30)
    deadline = time.monotonic() + 10
    while any(map(alive, pids)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(map(alive, pids))
    assert said.count("Traceback") == said.count("KeyboardInterrupt") == (sent == signal.SIGINT)
    assert run.returncode != 0
