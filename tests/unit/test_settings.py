"""AdmmSettings: defaults, and a named refusal for every broken rule."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from fusionopt import AdmmSettings
from fusionopt.errors import InvalidArgumentError, InvalidTypeError


def test_defaults():
    assert dataclasses.asdict(AdmmSettings()) == {
        "eps_rel": 1e-6,
        "eps_abs": 0.0,
        "max_iter": 20000,
        "time_limit": None,
        "check_every": None,
        "n_threads": 1,
        "dtype": "float64",
        "random_state": None,
        "verbose": False,
        "rho": None,
        "relaxation": 1.7,
    }


def test_values_become_plain_python():
    settings = AdmmSettings(
        eps_rel=np.float32(0.5),
        max_iter=np.int64(3),
        time_limit=2,
        check_every=np.int32(4),
        rho=np.float64(1),
        relaxation=1,
    )
    kinds = {name: type(value) for name, value in dataclasses.asdict(settings).items()}
    assert kinds["eps_rel"] is kinds["time_limit"] is kinds["rho"] is kinds["relaxation"] is float
    assert kinds["max_iter"] is kinds["check_every"] is int


def test_frozen_comparable_and_replaceable():
    settings = AdmmSettings(max_iter=5)
    with pytest.raises(dataclasses.FrozenInstanceError):
        settings.max_iter = 6
    assert dataclasses.replace(settings, max_iter=7).max_iter == 7
    assert settings == AdmmSettings(max_iter=5)
    with pytest.raises(InvalidArgumentError, match="eps_rel"):
        dataclasses.replace(settings, eps_rel=-1)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("eps_rel", -1e-9, r"eps_rel=-1e-09 is negative; give a number >= 0"),
        ("eps_rel", float("nan"), "eps_rel=nan is not finite"),
        ("eps_rel", "small", "eps_rel='small' is not a number"),
        ("eps_abs", -1, r"eps_abs=-1\.0 is negative"),
        ("max_iter", 0, "max_iter=0 is too small; give an int >= 1"),
        ("max_iter", 10.0, r"max_iter=10\.0 is not a whole number"),
        ("time_limit", 0, r"time_limit=0\.0 is not positive; give a number > 0 of seconds, or None"),
        ("time_limit", float("inf"), "time_limit=inf is not finite"),
        ("check_every", 0, "check_every=0 is too small"),
        ("n_threads", 1.5, "n_threads=1.5 is not a whole number"),
        ("n_threads", 0, "n_threads=0 is too small"),
        ("dtype", "float16", "dtype='float16' is unknown; give one of 'float64', 'float32'"),
        ("dtype", float, "dtype=<class 'float'> is unknown"),
        ("random_state", -1, "random_state=-1 is too small; give an int >= 0"),
        ("verbose", 1, "verbose=1 is not True or False"),
        ("rho", 0.0, r"rho=0\.0 is not positive; give a number > 0, or None"),
        ("relaxation", 2.0, r"relaxation=2\.0 breaks 0 < relaxation < 2; over-relaxation converges"),
        ("relaxation", 0.0, r"relaxation=0\.0 breaks 0 < relaxation < 2"),
    ],
)
def test_each_rule_is_refused_by_name(name, value, message):
    with pytest.raises((InvalidArgumentError, InvalidTypeError), match=message) as caught:
        AdmmSettings(**{name: value})
    assert caught.value.argument == name
