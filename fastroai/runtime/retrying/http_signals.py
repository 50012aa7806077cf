"""Status and headers of a provider's HTTP answer, read from the exception that was raised for it.

They are read from attributes, whatever the type: errors of PydanticAI, of the providers' SDKs and of HTTP
clients all have the status on themselves or on their `response`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Final

from fastroai.errors import error_chain

REPEATABLE_STATUSES: Final = frozenset({408, 409, 425, 429})
"""Statuses, besides 5xx, after which the OpenAI and Anthropic SDKs repeat a request by themselves."""


def status_of(error: BaseException) -> int | None:
    """Return the HTTP error status of an exception; `None` if it has none."""
    response = _attribute(error, "response")
    for holder, name in ((error, "status_code"), (response, "status_code"), (error, "status")):
        status = _attribute(holder, name)
        if isinstance(status, int) and 400 <= status <= 599:
            return int(status)
    return None


def should_retry(error: BaseException) -> bool | None:
    """Return the value of the header `x-should-retry`, which OpenAI and Anthropic send; `None` without it."""
    return {"true": True, "false": False}.get(_headers(error).get("x-should-retry", "").strip().lower())


def retry_after(error: BaseException) -> float | None:
    """Return the seconds that a provider asked to wait: the longest wait in the chain of exceptions.

    Read from `retry-after-ms`, or `Retry-After` in seconds or as a date (RFC 9110, section 10.2.3).
    """
    asked = (seconds for link in error_chain(error) if (seconds := _asked(link)) is not None)
    return max(asked, default=None)


def _asked(error: BaseException) -> float | None:
    headers = _headers(error)
    for wait in (
        _seconds(headers.get("retry-after-ms"), per_second=1000),
        _seconds(headers.get("retry-after")),
        _until(headers.get("retry-after")),
        _seconds(_attribute(error, "retry_after")),
    ):
        if wait is not None:
            return wait
    return None


def _headers(error: BaseException) -> dict[str, str]:
    for holder in (error, _attribute(error, "response")):
        headers = _attribute(holder, "headers")
        if isinstance(headers, Mapping):
            return {str(name).lower(): str(value) for name, value in headers.items()}
    return {}


def _attribute(holder: object, name: str) -> object:
    try:
        value: object = getattr(holder, name, None)
    except Exception:  # a property can raise, such as `RunCancelled.response` before there is a response
        return None
    return value


def _seconds(value: object, *, per_second: float = 1) -> float | None:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return None
    try:
        seconds = float(value) / per_second
    except (ValueError, OverflowError):
        return None
    return seconds if math.isfinite(seconds) and seconds >= 0 else None


def _until(value: str | None) -> float | None:
    if value is None:
        return None
    try:
        moment = parsedate_to_datetime(value)
    except (ValueError, OverflowError):
        return None
    # A date without a zone is in UTC (RFC 9110, section 5.6.7).
    moment = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    return max(0.0, (moment - datetime.now(UTC)).total_seconds())
