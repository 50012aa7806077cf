from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from fastroai.cli.text import local, took
from fastroai.durations import duration

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("value", "shown"),
    [(0, "0 ms"), (0.0123, "12.3 ms"), (1.5, "1.5 s"), (75, "1:15"), (3725.4, "1:02:05")],
)
def test_durations_are_short(value: float, shown: str) -> None:
    assert duration(value) == shown


def test_a_time_that_is_not_known_is_empty() -> None:
    assert local(None) == took(None, NOON) == took(NOON, None) == ""
    assert took(NOON, NOON + timedelta(seconds=2)) == "2 s"
