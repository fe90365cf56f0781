"""``fusionopt simulate``: what a bench writes, PDMM's convergence, the names of systems and data, the choice of lam."""

from __future__ import annotations

import csv
import json
import os
import re
import signal

import numpy as np
import pytest

from fusionopt import FusionProblem, SquaredHinge, datasets, federated, reference
from fusionopt._bench_specs import SOURCES, STEPS, DataPlan, parse_spec, sources, steps, systems
from fusionopt.cli import INTERRUPTED, MISUSE, OK, main
from fusionopt.comparison import adjusted_rand
from fusionopt.datasets import ClientData
from fusionopt.errors import InvalidArgumentError
from fusionopt.runs import Meter
from fusionopt.simulate import choose_lam

SMALL = "fpfc-synthetic:n_clients=6,n_clusters=2,max_samples=50"


def rows_of(path):
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_a_bench_writes_what_simulate_gives(tmp_path, capsys):
    out = tmp_path / "out"
    asked = ["local:participation=1", "Fed-Avg", "oracle", "--data", SMALL, "--seeds", "3,4", "--rounds", "4"]
    assert main(["simulate", *asked, "--participation", "0.5", "--out", str(out)]) == OK
    printed = capsys.readouterr().out
    rows = rows_of(out / "table.csv")
    assert [(row["system"], row["seed"]) for row in rows] == [
        (name, seed) for seed in "34" for name in ("local:participation=1", "Fed-Avg", "oracle")
    ]
    for seed in (3, 4):
        clients, labels = datasets.make_fpfc_synthetic(6, 2, seed, 50)
        for name, system, share in (
            ("local:participation=1", federated.Local(), 1.0),
            ("Fed-Avg", federated.FedAvg(), 0.5),
            ("oracle", federated.Oracle(labels=labels), 0.5),
        ):
            history = federated.simulate(system, clients, 4, share, seed)
            (row,) = [row for row in rows if row["system"] == name and row["seed"] == str(seed)]
            assert float(row["accuracy"]) == history.final_accuracy
            assert float(row["loss"]) == history.rounds[-1].loss
            assert int(row["bytes_up"]) == history.bytes_up
            assert int(row["n_clusters"]) == history.n_clusters
            assert float(row["ari"]) == adjusted_rand(history.labels, labels)
            curve = [r for r in rows_of(out / "curves.csv") if r["system"] == name and r["seed"] == str(seed)]
            assert [float(r["accuracy"]) for r in curve] == [r.accuracy for r in history.rounds]
    page = (out / "report.html").read_text()
    assert page.count("<figure") == 3 and "above Local" in page and "paper" not in page
    assert "://" not in re.sub(r"&#58;", "", page)
    told = json.loads((out / "results.json").read_text())
    assert told["facts"]["seeds"] == "3, 4" and len(told["rows"]) == 6 and told["notes"] == []
    assert "oracle: accuracy" in printed and "clusters 2, adjusted Rand 1" in printed


def test_pdmm_is_followed_towards_cvxpys_optimum(tmp_path, capsys):
    out = tmp_path / "out"
    given = [
        "--data",
        "appendix-c:n_users=2,n_samples=30",
        "--rounds",
        "600",
        "--seeds",
        "1",
        "--out",
        str(out),
    ]
    assert (
        main(
            ["simulate", "pdmm:scheme=full,rho=0.5,eta=0.5", "pdmm:scheme=literal,participation=0.4", *given]
        )
        == OK
    )
    clients, _ = datasets.make_ellipses(n_users=2, n_samples=30, delta=2.0, axes=(1.5, 2.4), random_state=1)
    loss = SquaredHinge([c.x_train for c in clients], [c.y_train for c in clients], ridge=1e-3)
    star, full, literal = rows_of(out / "table.csv")
    assert float(star["objective"]) == pytest.approx(
        reference.solve(FusionProblem(loss, lam=0.02)).objective, rel=1e-9
    )
    assert abs(float(star["gap"])) <= 1e-8
    assert -1e-8 <= float(full["gap"]) <= 1e-6 < float(literal["gap"])
    gaps = [float(r["gap"]) for r in rows_of(out / "curves.csv") if r["system"] == full["system"]]
    assert len(gaps) >= 6 and gaps[0] > 100 * gaps[-1] and gaps[-1] == float(full["gap"])
    page = (out / "report.html").read_text()
    assert "F* of CVXPY" in page and "vectors up" in page and page.count("<figure") == 1
    assert "F - F* =" in capsys.readouterr().out


def test_ctrl_c_leaves_what_is_finished(tmp_path, monkeypatch, capsys):
    def rounds(self, what, done, total, elapsed):
        if what.startswith("fedavg") and done == 3:
            os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(Meter, "rounds", rounds)
    out = tmp_path / "out"
    given = ["--data", SMALL, "--rounds", "9", "--progress", "--out", str(out)]
    assert main(["simulate", "local", "fedavg", "ifca", *given]) == INTERRUPTED
    assert [(row["system"], row["rounds"]) for row in rows_of(out / "table.csv")] == [
        ("local", "9"),
        ("fedavg", "3"),
    ]
    assert "Only 1 of 3 runs were finished." in (out / "report.html").read_text()
    assert "Ctrl-C again" in capsys.readouterr().err


def test_ctrl_c_before_anything_is_finished_leaves_nothing(tmp_path, monkeypatch):
    def rounds(self, what, done, total, elapsed):
        if "warm-up" in what:
            os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(Meter, "rounds", rounds)
    out = tmp_path / "out"
    given = ["--data", SMALL, "--rounds", "5", "--lams", "0.1,1", "--progress", "--out", str(out)]
    assert main(["simulate", "squaredpenalty", *given]) == INTERRUPTED
    assert not out.exists() and list(tmp_path.iterdir()) == []


def test_numbers_are_predicted_and_a_broken_run_goes_on(tmp_path, capsys):
    given = [
        "--data",
        "fedsoft-synthetic:n_clients=6",
        "--model",
        "linear:intercept=False",
        "--evaluate-every",
        "3",
    ]
    given += ["--checkpoint", str(tmp_path / "kept")]
    runs = []
    for k, rounds in enumerate(("4", "8")):
        out = tmp_path / f"out{k}"
        assert main(["simulate", "fedavg:steps=2", *given, "--rounds", rounds, "--out", str(out)]) == OK
        runs.append(rows_of(out / "curves.csv"))
    assert "fedavg:steps=2: loss" in capsys.readouterr().out
    for row, again in zip(runs[0][:3], runs[1], strict=False):
        assert {k: v for k, v in row.items() if k != "seconds"} == {
            k: v for k, v in again.items() if k != "seconds"
        }
    clients, _, _ = datasets.make_fedsoft_synthetic(n_clients=6, random_state=0)
    model = federated.LinearModel(intercept=False)
    whole = federated.simulate(federated.FedAvg(steps=2), clients, 8, 1.0, 0, model=model)
    (row,) = rows_of(tmp_path / "out1" / "table.csv")
    assert float(row["loss"]) == whole.final_loss and row["accuracy"] == ""


def test_a_time_limit_is_told(tmp_path, capsys):
    out = tmp_path / "out"
    given = ["--data", SMALL, "--rounds", "100000", "--time-limit", "0.5", "--out", str(out)]
    assert main(["simulate", "local", "fedavg", *given]) == OK
    assert "Only 0 of 2 runs were finished." in capsys.readouterr().out


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        (["nobody"], "'nobody' is unknown; give one of cfl, fedavg"),
        (
            ["fedavg:steeps=3"],
            "'steeps' is no setting of it; its settings are participation, steps, rate, weighting",
        ),
        (["fedavg:rate"], "'rate' is no setting; give NAME:key=value"),
        (["fedavg:rate=-1"], r"rate=-1\.0 is not positive"),
        (["fedavg:participation=0"], r"participation=0\.0 breaks 0 < participation <= 1"),
        (["fedavg", "--data", "digits"], r"digits is one data set; deal it out"),
        (["fedavg", "--data", "mnist+split-evenly"], "'mnist' needs path"),
        (["fedavg", "--data", "nothing"], "'nothing' is unknown; give one of appendix-c, conflict"),
        (["fedavg", "--data", "ellipses+nothing"], "'nothing' is unknown; give one of label-swap"),
        (["fedavg", "--seeds", "1,1"], "is not a list of different whole numbers"),
        (["fedavg", "--rounds", "0"], "--rounds"),
        (
            ["fedavg", "--model", "quadratic"],
            "'quadratic' is unknown; give one of linear, logistic, mnist-cnn, softmax",
        ),
        (["squaredpenalty", "--lams", "0.1,-3"], r"lam=-3\.0 is negative"),
        (["local", "--data", "appendix-c"], "'local' is not pdmm"),
        (["pdmm:tau=3", "--data", "appendix-c"], "tau=3 breaks tau < 2 nu"),
        (["pdmm:half=1", "--data", "appendix-c"], "'half' is no setting of it"),
    ],
)
def test_misuse_is_refused_before_any_work(tmp_path, capsys, asked, message):
    assert main(["simulate", *asked, "--out", str(tmp_path / "out")]) == MISUSE
    assert re.search(message, capsys.readouterr().err)
    assert list(tmp_path.iterdir()) == []


def test_every_system_and_every_maker_of_clients_has_a_name():
    assert {item.__name__ for item in systems().values()} == {
        name
        for name in federated.__all__
        if isinstance(getattr(federated, name), type)
        and issubclass(getattr(federated, name), federated.System)
        and name != "System"
    }
    # A mixture is drawn from several data sets, which one line does not name.
    left_out = {
        "split_mixture",
        "mixture_shares",
        "make_gaussian_groups",
        "make_mixture_regression",
        "ClientData",
    }
    assert {*SOURCES, *STEPS} == set(datasets.__all__) - left_out
    assert "fpfc-synthetic" in sources() and "label-swap" in steps()


def test_steps_follow_their_source():
    plan = DataPlan("digits+split-dirichlet:n_clients=8,alpha=2+label-swap")
    clients, labels = plan.make(5)
    dealt = datasets.split_dirichlet(datasets.load_digits(), 8, alpha=2, random_state=5)
    wanted, clusters = datasets.label_swap(dealt)
    np.testing.assert_array_equal(labels, clusters)
    for client, other in zip(clients, wanted, strict=True):
        np.testing.assert_array_equal(client.y_train, other.y_train)
    assert not plan.is_plain and plan.source == "digits" and DataPlan("fpfc-synthetic").is_plain
    assert parse_spec("Per-Fed_Avg:variant=fine_tune,rate=1e-2") == (
        "Per-Fed_Avg:variant=fine_tune,rate=1e-2", "perfedavg", {"variant": "fine_tune", "rate": 0.01}
    )  # fmt: skip


def test_lam_is_chosen_by_training_rows_alone():
    clients, _ = datasets.make_fpfc_synthetic(8, 2, 0, 100)
    lams = [10.0, 1e-4, 1e-2]

    def choose(given):
        return choose_lam(
            lambda lam: federated.SquaredPenalty(lam=lam), given, lams, rounds=15, random_state=2
        )

    choice = choose(clients)
    assert choice.lams.tolist() == sorted(lams) and (choice.error >= 0).all()
    alike = choice.behind <= choice.error
    assert choice.chosen == choice.lams[alike].max() and choice.behind.min() == 0
    # Strong pulls predict worse here, so the rule has something to refuse.
    assert not alike.all()
    blind = [ClientData(c.x_train, c.y_train, c.x_test[::-1], c.y_test) for c in clients]
    again = choose(blind)
    np.testing.assert_array_equal(again.score, choice.score)
    assert np.isnan(choice.refit).all()  # this system never forms clusters
    with pytest.raises(KeyboardInterrupt):
        choose_lam(
            lambda lam: federated.SquaredPenalty(lam=lam), clients, lams, callback=lambda lam, record: True
        )
    with pytest.raises(InvalidArgumentError, match="negative"):
        choose_lam(lambda lam: federated.SquaredPenalty(lam=lam), clients, [-1.0])


def test_lam_is_chosen_by_the_clusters_it_finds():
    clients, _ = datasets.make_fpfc_synthetic(8, 2, 0, 100)
    told = []
    choice = choose_lam(
        lambda lam: federated.Fpfc(lam=lam),
        clients,
        [3.0, 0.2, 1.5, 0.6, 0.8],
        rounds=40,
        random_state=2,
        model=federated.SoftmaxModel(spread=1.0),
        callback=lambda lam, record: bool(told.append((lam, record.round))),
    )
    # Many clusters at 0.2; the right two from 0.6 on, but above 0.8 the models are held together.
    assert choice.n_clusters[0] > 2 and choice.n_clusters[1:].tolist() == [2, 2, 2, 2]
    assert choice.chosen == 0.8
    assert choice.score[2] - choice.score[3] > 0.5 * (choice.refit[2] - choice.score[2])
    # The refit is FedAvg in the clusters, once for each partition.
    assert len(set(choice.refit[1:].tolist())) == 1 and len(told) == 40 * (5 + 2)
    assert choice.refit[1] == pytest.approx(choice.refit.max() - choice.behind[1], abs=1e-15)


@pytest.mark.filterwarnings("ignore:overflow", "ignore:invalid value")
def test_a_warm_up_that_diverges_chooses_among_the_rest():
    clients, _, _ = datasets.make_fedsoft_synthetic(n_clients=4, random_state=0)
    model = federated.LinearModel(intercept=False)

    def choose(*rates):
        rate_of = dict(zip((0.1, 0.5), rates, strict=True))
        return choose_lam(
            lambda lam: federated.FpfcL1(lam=lam, rate=rate_of[lam], rho=1.0),
            clients,
            [0.1, 0.5],
            rounds=60,
            model=model,
        )

    assert choose(0.01, 1e8).chosen == 0.1 and np.isnan(choose(0.01, 1e8).behind[1])
    assert choose(1e8, 0.01).chosen == 0.5
    assert choose(1e8, 1e8).chosen == 0.1
    with pytest.raises(InvalidArgumentError, match="lams is empty"):
        choose_lam(lambda lam: federated.SquaredPenalty(lam=lam), clients, [])
