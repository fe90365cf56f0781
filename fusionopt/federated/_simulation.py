"""The round loop that all systems share."""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from fusionopt import _archive, _checks
from fusionopt.datasets import ClientData
from fusionopt.federated._fleet import Fleet, FloatArray, IntArray, Model
from fusionopt.federated._history import History, Round, as_file, heading, known_name, pack, unpack
from fusionopt.federated._system import System
from fusionopt.federated.models import SoftmaxModel


def simulate(
    system: System,
    clients: Sequence[ClientData],
    rounds: int,
    participation: float = 1.0,
    random_state: int | None = None,
    callback: Callable[[Round], object] | None = None,
    *,
    model: Model | None = None,
    labels: ArrayLike | None = None,
    dropout: float = 0.0,
    least_work: float = 1.0,
    evaluate_every: int = 1,
    n_threads: int = 1,
    checkpoint: str | os.PathLike[str] | None = None,
    checkpoint_every: int = 10,
) -> History:
    """Run a federated system.

    Parameters
    ----------
    system : System
        For instance ``Ifca(n_clusters=4)``.
    clients : sequence of ClientData
        Records with x_train (n, p), y_train (n,), x_test, y_test. Copied.
    rounds : int >= 1
    participation : float, 0 < participation <= 1
        Share of the clients chosen in a round: round(participation n_clients) of them, at least one, drawn without
        replacement (FedSoft draws for each centre).
    random_state : int >= 0, or None
        Seed of everything random in the run; None draws a new one.
    callback : function of one argument, or None
        Called with the `Round` just done; True stops the run.
    model : Model, or None
        What is trained; None is `SoftmaxModel()`.
    labels : sequence (n_clients,), or None
        The true cluster of each client, for `Round.ari` only.
    dropout : float, 0 <= dropout < 1
        Chance with which a chosen client does not answer: it has received, and its work is lost.
    least_work : float, 0 < least_work <= 1
        Each client manages, in each round, a share of its local steps uniform on [least_work, 1], rounded, at least
        one step.
    evaluate_every : int >= 1
        Rounds between measurements on the test rows; the last round is always measured.
    n_threads : int >= 1
        Threads of the compiled core; for models that work client by client (`LoopFleet`, such as `TorchModel`),
        processes. Same bits for any number.
    checkpoint : path, or None
        A file (as of `History.save`) written every `checkpoint_every` rounds and at the end. Where it exists the run
        goes on from it, to the same bits as if it had not been interrupted; `rounds` may be larger than it was (where
        it is smaller, the rounds that are there are given back).
    checkpoint_every : int >= 1

    Returns
    -------
    History

    Raises
    ------
    InvalidArgumentError, InvalidTypeError
        A wrong argument, clients whose arrays do not fit together, or a checkpoint of another run.

    Examples
    --------
    >>> from fusionopt.datasets import make_ellipses
    >>> from fusionopt.federated import Oracle
    >>> clients, labels = make_ellipses(n_users=2, n_samples=40, random_state=0)
    >>> history = simulate(Oracle(labels=labels), clients, rounds=3, random_state=0, labels=labels)
    >>> history.n_clusters, history.rounds[-1].ari, history.bytes_up == 3 * 6 * 6 * 8
    (3, 1.0, True)
    """
    _checks.check_instance("system", system, System, "for instance fusionopt.federated.FedAvg()")
    total = _checks.as_count("rounds", rounds)
    share = _checks.as_share("participation", participation)
    if random_state is not None:
        random_state = _checks.as_count("random_state", random_state, minimum=0)
    _checks.check_callback(callback)
    model = SoftmaxModel() if model is None else model
    _checks.check_instance("model", model, Model, "for instance fusionopt.federated.SoftmaxModel()")
    lost = _checks.as_nonnegative_scalar("dropout", dropout)
    if lost >= 1:
        _checks.refuse(
            f"dropout={dropout} leaves no client; give 0 <= dropout < 1.",
            argument="dropout",
            got=dropout,
            wanted="0 <= dropout < 1",
        )
    least = _checks.as_share("least_work", least_work)
    every = _checks.as_count("evaluate_every", evaluate_every)
    save_every = _checks.as_count("checkpoint_every", checkpoint_every)
    with closing(model.fleet(clients, _checks.as_count("n_threads", n_threads))) as fleet:
        truth = None if labels is None else _checks.as_labels("labels", labels, fleet.n_clients)
        request: dict[str, Any] = {
            "participation": share,
            "random_state": random_state,
            "dropout": lost,
            "least_work": least,
            "evaluate_every": every,
            "labels": None if truth is None else _by_first(truth).tolist(),
        }
        run = _Run(system, fleet, request, truth, random_state)
        file = None if checkpoint is None else as_file("checkpoint", checkpoint)
        if file is not None:
            known_name(system)
            request["clients"] = _fingerprint(fleet)
            if file.exists():
                run.restore(_archive.read(file, "History"), file)
        while len(run.rounds) < total:
            last = len(run.rounds) == total - 1
            record = run.round(measure=last or (len(run.rounds) + 1) % every == 0)
            stop = callback is not None and _checks.as_stop(callback(record))
            if file is not None and (stop or last or record.round % save_every == 0):
                _archive.write(file, "History", run.arrays())
            if stop:
                break
        return run.history()


class _Run:
    """A run between two rounds."""

    @np.errstate(over="ignore", invalid="ignore")  # of a run that diverges the losses tell
    def __init__(
        self,
        system: System,
        fleet: Fleet,
        request: dict[str, Any],
        truth: Any,
        seed: int | None,
    ) -> None:
        self.system, self.fleet, self.request, self.truth = system, fleet, request, truth
        self.rng = np.random.default_rng(seed)
        self.count = max(1, round(request["participation"] * fleet.n_clients))
        self.begin = time.perf_counter()
        self.state = system.start(fleet, self.rng)
        self.rounds: list[Round] = []
        self.accuracies: list[FloatArray] = []
        self.losses: list[FloatArray] = []
        self.labels: list[IntArray] = []

    @np.errstate(over="ignore", invalid="ignore")
    def round(self, measure: bool) -> Round:
        """Choose, lose, work, account, measure."""
        fleet, rng, state = self.fleet, self.rng, self.state
        number = len(self.rounds) + 1
        system = self.system
        if system.decay < 1:
            rate = system.rate * system.decay ** (number - 1)
            system = replace(
                system, rate=max(rate, float(np.finfo(np.float64).tiny))
            )  # no step is of length 0
        chosen = system.sample(state, fleet, self.count, rng)
        active = chosen
        if self.request["dropout"] > 0:
            active = chosen[rng.random(len(chosen)) >= self.request["dropout"]]
        if self.request["least_work"] < 1:
            fleet.effort = rng.uniform(self.request["least_work"], 1.0, fleet.n_clients)
        if len(active):
            system.round(state, fleet, active, rng)
        traffic = system.traffic(state, fleet)
        if not len(active):
            traffic = traffic._replace(down_all=0, up_all=0)
        nothing = np.full(fleet.n_clients, np.nan)
        accuracy, losses = fleet.measure(system.predict(state, fleet)) if measure else (nothing, nothing)
        labels = _by_first(state.labels)
        self.accuracies.append(accuracy)
        self.losses.append(losses)
        self.labels.append(labels)
        self.rounds.append(
            Round(
                round=number,
                accuracy=float(accuracy.mean()),
                weighted_accuracy=float(np.average(accuracy, weights=fleet.test_sizes)),
                loss=float(losses.mean()),
                weighted_loss=float(np.average(losses, weights=fleet.test_sizes)),
                n_clusters=int(labels.max()) + 1,
                ari=_agreement(self.truth, labels),
                n_active=len(active),
                bytes_down=8 * (traffic.down * len(chosen) + traffic.down_all),
                bytes_up=8 * (traffic.up * len(active) + traffic.up_all),
                seconds=time.perf_counter() - self.begin,
            )
        )
        return self.rounds[-1]

    def history(self) -> History:
        """What was done so far."""
        return History(
            system=self.system,
            rounds=list(self.rounds),
            client_accuracies=np.stack(self.accuracies),
            client_losses=np.stack(self.losses),
            client_labels=np.stack(self.labels),
            state=self.state,
            model=self.fleet.model,
            sizes=self.fleet.sizes,
            request=self.request,
        )

    def arrays(self) -> dict[str, Any]:
        """`History.save` with the generator's state."""
        self.request["rng"] = self.rng.bit_generator.state
        arrays = pack(self.history())
        del self.request["rng"]
        return arrays

    def restore(self, arrays: dict[str, Any], file: Path) -> None:
        """Go on from `arrays`."""
        old = unpack(arrays, self.fleet.model)
        theirs = json.loads(arrays["head"].tobytes().decode())
        rng = theirs["request"].pop("rng", None)
        if theirs != heading(self.system, self.fleet.model, self.request) or rng is None:
            _checks.refuse(
                f"{str(file)!r} is of another run (other clients, system, model or arguments); give another file, or "
                "remove it.",
                argument="checkpoint",
                got=str(file),
                wanted="a file of the same run",
            )
        self.rng.bit_generator.state = rng
        self.state = old.state
        self.rounds = old.rounds
        self.accuracies, self.losses = list(old.client_accuracies), list(old.client_losses)
        self.labels = list(old.client_labels)
        self.begin = time.perf_counter() - old.rounds[-1].seconds


@np.errstate(over="ignore", invalid="ignore")
def _fingerprint(fleet: Fleet) -> str:
    """Of the clients' data, by what one model says of them."""
    everyone = np.arange(fleet.n_clients)
    models = np.repeat(fleet.first_models(np.random.default_rng(0), 1), fleet.n_clients, axis=0)
    digest = hashlib.sha256()
    for array in (
        fleet.sizes,
        fleet.sample_losses(everyone, models),
        *fleet.measure(fleet.predict(everyone, models)),
    ):
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


def _agreement(truth: Any, labels: IntArray) -> float:
    if truth is None:
        return float("nan")
    from sklearn.metrics import adjusted_rand_score

    return float(adjusted_rand_score(truth, labels))


def _by_first(labels: IntArray) -> IntArray:
    """The same partition, numbered in the order in which clusters first occur."""
    _, first, inverse = np.unique(labels, return_index=True, return_inverse=True)
    rank = np.empty(len(first), dtype=np.int64)
    rank[np.argsort(first)] = np.arange(len(first))
    result: IntArray = rank[inverse]
    return result
