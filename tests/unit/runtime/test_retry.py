import random

import pytest

from fastroai.runtime import backoff_delay


def test_the_delay_is_anything_up_to_a_ceiling_that_doubles(monkeypatch: pytest.MonkeyPatch) -> None:
    ranges: list[tuple[float, float]] = []

    def uniform(low: float, high: float) -> float:
        ranges.append((low, high))
        return high

    monkeypatch.setattr(random, "uniform", uniform)
    assert [backoff_delay(attempt, 0.5) for attempt in (1, 2, 3, 4)] == [0.5, 1.0, 2.0, 4.0]
    assert [low for low, _ in ranges] == [0.0] * 4


@pytest.mark.parametrize("attempt", [8, 33, 10_000])
def test_no_delay_is_longer_than_a_minute(attempt: int) -> None:
    assert all(0 <= backoff_delay(attempt, 1.0) <= 60 for _ in range(100))


def test_jitter_spreads_the_attempts() -> None:
    assert len({backoff_delay(5, 1.0) for _ in range(20)}) > 10


def test_retry_after_is_a_floor_even_above_the_ceiling() -> None:
    assert backoff_delay(1, 0.0, retry_after=90.0) == 90.0
    assert all(backoff_delay(3, 10.0, retry_after=2.0) >= 2.0 for _ in range(50))


def test_a_base_of_zero_does_not_wait() -> None:
    assert backoff_delay(5, 0.0) == 0.0
