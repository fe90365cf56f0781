"""Settings of every test run: no window opens, no clock fails a property test, a failure can be repeated."""

from __future__ import annotations

import os
from pathlib import Path

import matplotlib
import pytest
from hypothesis import HealthCheck, settings

matplotlib.use("Agg")

# No deadline: a shared machine must not fail a test. "ci" draws the same examples on every run.
settings.register_profile(
    "default", deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("ci", settings.get_profile("default"), derandomize=True)
settings.register_profile("thorough", settings.get_profile("default"), max_examples=2000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci" if os.environ.get("CI") else "default"))


@pytest.fixture(scope="session")
def project_root() -> Path:
    """Folder of the checkout: README.md, Makefile, examples."""
    return Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session")
def wine_csv(project_root: Path) -> Path:
    """The table that `make demo` runs on: 178 x 13 and the known cultivar."""
    return project_root / "examples" / "data" / "wine.csv"
