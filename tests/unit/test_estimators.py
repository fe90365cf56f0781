"""ConvexClustering by the conventions of scikit-learn."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import make_blobs
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.metrics import adjusted_rand_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import estimator_checks_generator

from fusionopt import ConvexClustering, PathResult
from fusionopt.errors import InvalidArgumentError


@pytest.mark.parametrize(
    ("estimator", "check"),
    [
        pytest.param(estimator, check, id=f"{estimator.graph}-{check.func.__name__}")
        for start in (ConvexClustering(n_lams=20), ConvexClustering(lam=0.03, graph="complete"))
        for estimator, check in estimator_checks_generator(start)
        if "array_api" not in check.func.__name__  # skips itself unless SciPy is set up for it
    ],
)
# One check adds noise rows so far off that weights span 14 decades; its path need not be finished to conform.
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_scikit_learn_conventions(estimator: ConvexClustering, check: Any) -> None:
    assert check(estimator) is None  # it raises where a convention is broken


def _blobs() -> tuple[np.ndarray, np.ndarray]:
    x, y = make_blobs(n_samples=90, centers=[[0, 0], [12, 0], [0, 12]], cluster_std=0.7, random_state=0)
    return x, y


@pytest.mark.parametrize("graph", ["knn", "complete"])
def test_auto_finds_well_separated_groups(graph: str) -> None:
    x, y = _blobs()
    model = ConvexClustering(graph=graph).fit(x)  # type: ignore[arg-type]
    assert adjusted_rand_score(y, model.labels_) > 0.9
    assert isinstance(model.path_, PathResult)
    assert model.lam_ in model.path_.lams
    assert model.lambda_max_ >= max(model.path_.lams) * (1 - 1e-9)
    assert model.n_clusters_ == len(model.cluster_centers_) == len(set(model.labels_))
    assert "chosen by plateau" in model.selection_
    assert model.dual_gap_ >= 0.0
    assert model.n_iter_ >= len(model.path_.results) // 2
    np.testing.assert_array_equal(model.fit_predict(x), model.labels_)


def test_number_for_lam() -> None:
    model = ConvexClustering(lam=0.5, graph="complete").fit([[0.0], [2.0]])
    assert model.path_ is None
    assert model.n_clusters_ == 2
    assert model.lam_ == 0.5
    assert model.lambda_max_ >= 1.0
    np.testing.assert_allclose(model.cluster_centers_, [[0.5], [1.5]], atol=1e-5)
    np.testing.assert_array_equal(model.predict([[-9.0], [9.0], [0.4]]), [0, 1, 0])
    assert ConvexClustering(lam=1.0, graph="complete").fit([[0.0], [2.0]]).n_clusters_ == 1


def test_path_without_groups_falls_back_on_the_coarsest_and_says_so() -> None:
    model = ConvexClustering().fit([[1.0, 2.0]] * 6)
    assert model.n_clusters_ == 1
    assert "shows no groups" in model.selection_


@pytest.mark.parametrize(
    ("parameters", "sentence"),
    [
        ({"lam": "best"}, r"lam='best' is neither 'auto' nor a finite number >= 0"),
        ({"lam": -1.0}, r"lam=-1\.0 is neither"),
        ({"lam": float("nan")}, r"lam=nan is neither"),
        ({"lam": True}, r"lam=True is neither"),
        ({"graph": "mst"}, r"graph='mst' is unknown; give one of 'knn', 'complete'"),
        ({"n_neighbors": 0}, "n_neighbors"),
        ({"eps_rel": -1.0}, "eps_rel"),
        ({"max_iter": 0}, "max_iter"),
        ({"n_lams": 0}, "n_lams"),
        ({"lam_min_ratio": 2.0}, "lam_min_ratio"),
    ],
)
def test_parameters_out_of_range_are_refused_by_name(parameters: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InvalidArgumentError, match=sentence):
        ConvexClustering(**parameters).fit(_blobs()[0])


def test_not_converged_warns() -> None:
    with pytest.warns(ConvergenceWarning, match=r"not met for \d+ of \d+ values of lam \(user_limit"):
        ConvexClustering(lam=0.5, max_iter=1, eps_rel=1e-12).fit(_blobs()[0])


def test_not_fitted_and_cloned() -> None:
    with pytest.raises(NotFittedError):
        ConvexClustering().predict([[0.0]])
    model = clone(ConvexClustering(lam=2.0, n_neighbors=3))
    assert model.get_params()["n_neighbors"] == 3
    assert "n_clusters" not in model.get_params()


def test_in_a_pipeline() -> None:
    x, y = _blobs()
    found = make_pipeline(StandardScaler(), ConvexClustering()).fit_predict(x * [1.0, 1e6])
    assert adjusted_rand_score(y, found) > 0.9


def test_interrupt_is_raised_again() -> None:
    x = np.random.default_rng(0).standard_normal((200, 4))
    model = ConvexClustering(n_lams=100_000)
    timer = threading.Timer(0.7, os.kill, (os.getpid(), signal.SIGINT))
    previous = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        timer.start()
        with pytest.raises(KeyboardInterrupt):
            model.fit(x)
    finally:
        timer.join()
        signal.signal(signal.SIGINT, previous)
    assert not hasattr(model, "labels_")


def test_import_without_scikit_learn_says_what_to_install() -> None:
    code = (
        "import sys\nsys.modules['sklearn'] = None\n"
        "try:\n    from fusionopt import ConvexClustering\n"
        "except ImportError as error:\n    assert 'pip install scikit-learn' in str(error), error\n"
        "else:\n    raise SystemExit('no error')"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
