"""A plugin for `tests/stress.py`: each test runs several times, in one collection of the tests."""

from __future__ import annotations

import os
from typing import Final

import pytest

ROUNDS: Final = "FASTROAI_STRESS_ROUNDS"
"""Variable with the number of times."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    metafunc.fixturenames.append("stress_round")
    metafunc.parametrize("stress_round", range(int(os.environ[ROUNDS])))
