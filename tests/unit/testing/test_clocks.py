from datetime import UTC, datetime, timedelta

import pytest

from fastroai.testing import ManualClock


def test_a_clock_stands_still_until_it_is_set() -> None:
    clock = ManualClock(datetime(2026, 3, 1, tzinfo=UTC))
    assert clock() == clock() == datetime(2026, 3, 1, tzinfo=UTC)
    assert clock.advance(timedelta(days=1)) == datetime(2026, 3, 2, tzinfo=UTC)
    assert clock.advance(0.5) == clock() == datetime(2026, 3, 2, 0, 0, 0, 500_000, tzinfo=UTC)
    clock.set(datetime(2025, 1, 1, tzinfo=UTC))
    assert repr(clock) == "ManualClock(2025-01-01T00:00:00+00:00)"


def test_a_clock_takes_no_time_without_a_zone_and_does_not_advance_backwards() -> None:
    with pytest.raises(ValueError, match="has no time zone"):
        ManualClock(datetime(2026, 3, 1))
    with pytest.raises(ValueError, match=r"advance\(-1\): expected 0 seconds or more"):
        ManualClock().advance(-1)
