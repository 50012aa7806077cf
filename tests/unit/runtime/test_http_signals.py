from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest
from pydantic_ai.exceptions import ModelHTTPError, ModelRateLimitError, RunCancelled

from fastroai.errors import StepExecutionError
from fastroai.runtime.retrying.http_signals import retry_after, should_retry, status_of


def http(**headers: str) -> ModelHTTPError:
    return ModelHTTPError(
        429, "gpt", headers={name.replace("_", "-"): value for name, value in headers.items()}
    )


@pytest.mark.parametrize(
    ("error", "seconds"),
    [
        (http(retry_after="7"), 7),
        (http(Retry_After="0.25"), 0.25),
        (http(retry_after_ms="1500", retry_after="2"), 1.5),
        (http(retry_after_ms="soon", retry_after="2"), 2),
        (ModelRateLimitError("gpt", "slow down", retry_after=3), 3),
        (ModelHTTPError(429, "gpt", retry_after=4), 4),
        (http(), None),
        (ValueError("x"), None),
        *[(http(retry_after=wrong), None) for wrong in ("-1", "nan", "inf", "soon", "", "1e999")],
    ],
)
def test_how_long_a_provider_asked_to_wait(error: Exception, seconds: float | None) -> None:
    assert retry_after(error) == seconds


def test_a_date_is_as_long_as_it_takes_until_then() -> None:
    then = datetime.now(UTC) + timedelta(seconds=60)
    asked = retry_after(http(retry_after=format_datetime(then, usegmt=True)))
    assert asked is not None
    assert 50 < asked <= 60
    past = then - timedelta(hours=1)
    assert retry_after(http(retry_after=format_datetime(past, usegmt=True))) == 0


def test_a_date_without_a_zone_is_in_utc() -> None:
    then = datetime.now(UTC) + timedelta(seconds=60)
    asked = retry_after(http(retry_after=then.strftime("%a %b %d %H:%M:%S %Y")))
    assert asked is not None
    assert 50 < asked <= 60


def test_a_wish_anywhere_in_the_chain_counts_and_of_several_the_longest() -> None:
    outer = RuntimeError("wrapped")
    outer.__cause__ = ExceptionGroup("several", [http(retry_after="2"), http(retry_after="9")])
    assert retry_after(outer) == 9


def test_the_headers_may_be_on_the_response_as_in_the_sdks_and_http_clients() -> None:
    class SdkError(Exception):
        response = type("Response", (), {"status_code": 429, "headers": {"Retry-After": "5"}})()

    assert (retry_after(SdkError()), status_of(SdkError()), should_retry(SdkError())) == (5, 429, None)


def test_a_status_is_that_of_an_error() -> None:
    class Answered(Exception):
        status = 200

    class Refused(Exception):
        status = 503

    assert (status_of(Answered()), status_of(Refused()), status_of(ValueError())) == (None, 503, None)


def test_what_cannot_be_read_from_an_exception_is_not_there() -> None:
    error = RunCancelled("before there was a response, which it raises ValueError for")
    assert (status_of(error), should_retry(error), retry_after(error)) == (None, None, None)
    assert retry_after(StepExecutionError("s", error)) is None
