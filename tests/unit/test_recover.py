"""``fusionopt recover`` on small tables."""

from __future__ import annotations

import csv
import json
import re

import numpy as np
import pytest

from fusionopt.cli import MISUSE, OK, main


def points_file(folder, spread=0.3):
    rng = np.random.default_rng(0)
    rows = [(*(9.0 * k + spread * rng.standard_normal(2)), "ab"[k]) for k in (0, 0, 0, 1, 1, 1, 1)]
    file = folder / "points.csv"
    file.write_text(
        "u,v,kind\n"
        + "".join(f"{u!r},{v!r},{k}\n" for u, v, k in ((float(u), float(v), k) for u, v, k in rows))
    )
    return file


def groups_file(folder, loss):
    rng = np.random.default_rng(1)
    lines = ["node,z1,z2,y,kind\n"]
    for node in range(6):
        truth = np.array([[2.0, -2.0], [-2.0, 2.0]])[node // 3]
        for _ in range(25):
            z = rng.standard_normal(2)
            y = z @ truth + 0.1 * rng.standard_normal()
            told = repr(float(y)) if loss == "least-squares" else str(1 if y + rng.logistic() > 0 else -1)
            lines.append(f"{10 + node},{float(z[0])!r},{float(z[1])!r},{told},{'pq'[node // 3]}\n")
    file = folder / "groups.csv"
    file.write_text("".join(lines))
    return file


def rows_of(path):
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_rows_that_are_recovered(tmp_path, capsys):
    out, given = tmp_path / "out", ["--graph", "complete"]
    code = main(
        [
            "recover",
            str(points_file(tmp_path)),
            "--labels",
            "kind",
            "--out",
            str(out),
            "--n-lams",
            "9",
            *given,
        ]
    )
    printed = capsys.readouterr().out
    assert code == OK
    assert "The 2 known groups are exactly the clusters of the optimum for lam in [" in printed
    told = json.loads((out / "results.json").read_text())
    ((low, high),) = told["exact"]
    curve = rows_of(out / "curve.csv")
    for row in curve:
        inside = low <= float(row["lam"]) <= high
        assert (row["n_clusters"] == "2" and float(row["ari"]) == 1.0) == inside
        if inside:
            assert row["proved"] in ("True", "true") and float(row["refit_score"]) == 1.0
    assert low <= told["chosen_lam"] <= high and told["n_clusters"] == 2
    page = (out / "report.html").read_text()
    assert (
        "the known groups are recovered exactly" in page
        and "Why are" in page
        and "What would part them?" in page
    )
    assert "://" not in re.sub(r"&#58;", "", page)
    assert page.count("<figure") == 4
    forces = rows_of(out / "forces.csv")
    assert all(float(row["share"]) <= 1 for row in forces)
    assert [row["known"] for row in rows_of(out / "labels.csv")] == list("aaabbbb")
    assert told["guaranteed"] is not None and low <= told["guaranteed"][0] < told["guaranteed"][1] <= high


def test_rows_that_are_not_recovered(tmp_path, capsys):
    file = points_file(tmp_path, spread=9.0)
    given = ["--n-neighbors", "4", "--n-lams", "5", "--pair", "0", "6"]
    assert main(["recover", str(file), "--labels", "kind", "--out", str(tmp_path / "out"), *given]) == OK
    printed = capsys.readouterr().out
    assert "The printed theorems are about complete graphs" in printed
    assert "At no lam that was looked at" in printed and "The nearest miss is at lam" in printed
    assert "the known groups are not recovered exactly" in (tmp_path / "out" / "report.html").read_text()


@pytest.mark.parametrize("loss", ["least-squares", "squared-hinge"])
def test_groups_are_nodes(tmp_path, capsys, loss):
    file = groups_file(tmp_path, loss)
    given = [
        "--loss",
        loss,
        "--groups",
        "node",
        "--target",
        "y",
        "--n-lams",
        "5",
        "--ridge",
        "0.01",
        "--quiet",
    ]
    assert main(["recover", str(file), "--labels", "kind", "--out", str(tmp_path / "out"), *given]) == OK
    told = json.loads((tmp_path / "out" / "results.json").read_text())
    assert len(told["exact"]) >= 1
    page = (tmp_path / "out" / "report.html").read_text()
    assert "(3 nodes)" in page and "(3 rows)" not in page
    best = max(float(row["refit_score"]) for row in rows_of(tmp_path / "out" / "curve.csv"))
    assert best > (0.95 if loss == "least-squares" else 0.75)
    assert [row["node"] for row in rows_of(tmp_path / "out" / "labels.csv")] == [
        "10",
        "11",
        "12",
        "13",
        "14",
        "15",
    ]


@pytest.mark.parametrize(
    ("extra", "message"),
    [
        (["--labels", "none"], "none"),
        (["--labels", "kind", "--loss", "logistic"], "need --groups and --target"),
        (["--labels", "kind", "--groups", "u"], "squared-distance needs neither"),
        (
            ["--labels", "kind", "--loss", "logistic", "--groups", "w", "--target", "v"],
            "--groups 'w' is not a column",
        ),
        (["--labels", "kind", "--loss", "logistic", "--groups", "u", "--target", "v"], "no column left"),
        (
            ["--labels", "kind", "--loss", "logistic", "--groups", "u", "--target", "u"],
            "give three different ones",
        ),
        (["--labels", "kind", "--n-lams", "0"], "n_lams=0"),
        (["--labels", "kind", "--time-limit", "-1"], "time_limit=-1"),
        (["--labels", "kind", "--ridge", "-1"], "ridge=-1"),
        (["--labels", "kind", "--graph", "complete", "--n-neighbors", "3"], "is for --graph knn"),
        (["--labels", "kind", "--pair", "0", "0"], "not two different nodes"),
        (["--labels", "kind", "--pair", "0", "99"], "from 0 to 6"),
    ],
)
def test_misuse_is_refused_before_work(tmp_path, capsys, extra, message):
    out = tmp_path / "out"
    assert main(["recover", str(points_file(tmp_path)), "--out", str(out), *extra]) == MISUSE
    assert message in capsys.readouterr().err and not out.exists()


def test_a_group_of_two_labels_and_neighbours_of_groups_are_refused(tmp_path, capsys):
    file = tmp_path / "mixed.csv"
    file.write_text("node,z,y,kind\n" + "".join(f"{i // 3},{i},1,{'ab'[i % 2]}\n" for i in range(9)))
    given = ["--loss", "least-squares", "--groups", "node", "--target", "y", "--out", str(tmp_path / "out")]
    assert main(["recover", str(file), "--labels", "kind", *given]) == MISUSE
    assert "group 0 has rows of several labels" in capsys.readouterr().err
    whole = groups_file(tmp_path, "logistic")
    given = [
        "--loss",
        "logistic",
        "--groups",
        "node",
        "--target",
        "y",
        "--graph",
        "knn",
        "--out",
        str(tmp_path / "o"),
    ]
    assert main(["recover", str(whole), "--labels", "kind", *given]) == MISUSE
    assert "--graph knn needs one point for each node" in capsys.readouterr().err


def test_groups_may_be_words_and_columns_count_as_in_the_file(tmp_path, capsys):
    rows = [line.split(",") for line in groups_file(tmp_path, "least-squares").read_text().splitlines()]
    file = tmp_path / "words.csv"  # kind, node, z1, z2, y
    file.write_text(
        "".join(
            ",".join([row[4], row[0].replace("1", "user-", 1), *row[1:4]]) + "\n"
            for row in [rows[0], *rows[-1:0:-1]]
        )
    )
    given = ["--loss", "least-squares", "--groups", "1", "--target", "4", "--n-lams", "5", "--quiet"]
    assert main(["recover", str(file), "--labels", "kind", "--out", str(tmp_path / "out"), *given]) == OK
    told = rows_of(tmp_path / "out" / "labels.csv")
    assert [(row["node"], row["known"]) for row in told] == [(f"user-{k}", "pq"[k // 3]) for k in range(6)]


def test_a_target_of_words_is_refused(tmp_path, capsys):
    file = tmp_path / "words.csv"
    file.write_text("node,z,y,kind\n" + "".join(f"{i // 2},{i},yes,a\n" for i in range(4)))
    given = ["--loss", "logistic", "--groups", "node", "--target", "y", "--out", str(tmp_path / "out")]
    assert main(["recover", str(file), "--labels", "kind", *given]) == MISUSE
    assert "--target 'y' has 'yes' in row 0" in capsys.readouterr().err


def test_one_known_group_is_one_cluster(tmp_path, capsys):
    file = tmp_path / "one.csv"
    file.write_text("a,kind\n" + "".join(f"{a},x\n" for a in (1, 2, 5)))
    assert (
        main(["recover", str(file), "--labels", "kind", "--out", str(tmp_path / "out"), "--n-lams", "3"])
        == OK
    )
    assert "The one known group is exactly the only cluster of the optimum" in capsys.readouterr().out
