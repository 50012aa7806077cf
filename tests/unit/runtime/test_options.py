import math
from datetime import timedelta
from typing import Any

import pytest

from fastroai.errors import ConfigurationError
from fastroai.runtime.options import LongTimeoutWarning, check_count, check_seconds, check_timeout


@pytest.mark.parametrize("seconds", [None, 0.001, 1, 3_600])
def test_seconds_above_zero_are_a_timeout_and_none_is_no_timeout(seconds: float | None) -> None:
    check_seconds("timeout", seconds)


@pytest.mark.parametrize("seconds", [0, 0.0, -1, math.nan, math.inf, -math.inf, True, "1", [1]])
def test_anything_else_is_refused_by_the_name_of_the_option(seconds: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"^timeout=.*: expected seconds, more than zero") as caught:
        check_seconds("timeout", seconds)
    assert caught.value.value is seconds


def test_a_timedelta_is_checked_like_its_seconds() -> None:
    check_seconds("timeout", timedelta(days=1))
    check_timeout("timeout", timedelta(days=1))  # it says its unit, so nobody is warned
    check_seconds("retry_delay", timedelta(0), zero=True)
    with pytest.raises(ConfigurationError, match=r"^timeout=datetime.timedelta\(0\): expected seconds, more"):
        check_seconds("timeout", timedelta(0))


def test_a_delay_may_be_zero_but_not_less() -> None:
    check_seconds("retry_delay", 0, zero=True)
    with pytest.raises(ConfigurationError, match="zero or more"):
        check_seconds("retry_delay", -0.1, zero=True)
    with pytest.raises(ConfigurationError, match="retry_delay=None"):
        check_seconds("retry_delay", None, zero=True)


@pytest.mark.parametrize("count", [None, 0, 1, 10**9])
def test_whole_numbers_are_counts(count: int | None) -> None:
    check_count("retries", count)


@pytest.mark.parametrize("count", [-1, 1.0, math.nan, True, "3"])
def test_what_is_not_a_whole_number_is_refused(count: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"^retries=.*: expected a whole number, 0 or more$"):
        check_count("retries", count)


def test_a_count_can_have_a_least_value() -> None:
    check_count("max_concurrency", 1, least=1)
    with pytest.raises(ConfigurationError, match="1 or more"):
        check_count("max_concurrency", 0, least=1)


def test_where_a_count_is_required_none_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"^retries=None"):
        check_count("retries", None, required=True)


@pytest.mark.parametrize(
    ("option", "value", "hint"),
    [("timeout", 30_000, "timeout=30"), ("branch_timeout", 5_400.0, "branch_timeout=5.4")],
)
def test_a_time_limit_over_an_hour_is_warned_about_at_the_line_of_the_user(
    option: str, value: float, hint: str
) -> None:
    with pytest.warns(LongTimeoutWarning, match=f"{option}=.* are seconds, .* hours.*{hint}") as caught:
        check_timeout(option, value)
    assert caught[0].filename == __file__


def test_an_hour_and_the_time_of_a_whole_run_or_of_a_person_are_as_they_are_meant() -> None:
    check_timeout("timeout", 3_600)
    check_seconds("total_timeout", 604_800)
