from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from fastroai.testing import Fault, Reply, Usage


def test_usages_add_up_part_by_part() -> None:
    first = Usage(10, 5, cache_read_tokens=4, cache_write_tokens=1, reasoning_tokens=2)
    second = Usage(1, 1, input_audio_tokens=1, output_audio_tokens=1)

    assert first + second == Usage(
        11,
        6,
        cache_read_tokens=4,
        cache_write_tokens=1,
        input_audio_tokens=1,
        reasoning_tokens=2,
        output_audio_tokens=1,
    )


@pytest.mark.parametrize("count", [-1, 1.5, True, "3", None])
def test_a_count_that_is_no_number_of_tokens_is_refused(count: object) -> None:
    with pytest.raises(ValueError, match=r"Usage\(output_tokens=.*expected a whole number of tokens"):
        Usage(1, count)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("parts", "total"),
    [
        ({"cache_read_tokens": 6, "cache_write_tokens": 5}, "input_tokens=10"),
        ({"input_audio_tokens": 11}, "input_tokens=10"),
        ({"reasoning_tokens": 8}, "output_tokens=7"),
        ({"output_audio_tokens": 8}, "output_tokens=7"),
    ],
)
def test_parts_that_exceed_their_total_are_refused(parts: dict[str, int], total: str) -> None:
    with pytest.raises(ValueError, match=f"more than {total}, which includes it"):
        Usage(10, 7, **parts)


def test_text_and_data_in_one_reply_are_refused() -> None:
    with pytest.raises(ValueError, match="not both"):
        Reply("text", data={"a": 1})


def test_a_reply_in_empty_chunks_is_refused() -> None:
    for size in (0, None, "16", 1.5):
        wrong: Any = size
        with pytest.raises(ValueError, match=rf"chunk_size={size!r}.*at least 1"):
            Reply("text", chunk_size=wrong)


@pytest.mark.parametrize("seconds", [-0.1, float("nan"), float("inf"), timedelta(-1), None, "1", True])
def test_times_that_cannot_pass_are_refused(seconds: Any) -> None:
    with pytest.raises(ValueError, match="Reply\\(latency="):
        Reply(latency=seconds)
    with pytest.raises(ValueError, match="Reply\\(chunk_delay="):
        Reply(chunk_delay=seconds)
    with pytest.raises(ValueError, match=r"Fault\.slow\(before_headers="):
        Fault.slow(before_headers=seconds)
    with pytest.raises(ValueError, match=r"Fault\.slow\(between_chunks="):
        Fault.slow(between_chunks=seconds)
    if seconds is not None:
        with pytest.raises(ValueError, match=r"Fault\.status\(retry_after="):
            Fault.status(429, retry_after=seconds)


@pytest.mark.parametrize("code", [200, 399, 600])
def test_a_status_that_is_no_error_is_refused(code: int) -> None:
    with pytest.raises(ValueError, match="expected an HTTP error status"):
        Fault.status(code)


def test_retry_after_is_seconds_or_an_http_date() -> None:
    summer = datetime(2026, 7, 1, 14, 0, tzinfo=timezone(timedelta(hours=2)))

    assert Fault.status(429).retry_after is None
    assert Fault.status(429, retry_after=2).retry_after == "2"
    assert Fault.status(429, retry_after=0.25).retry_after == "0.25"
    assert Fault.status(429, retry_after=summer).retry_after == "Wed, 01 Jul 2026 12:00:00 GMT"


def test_a_date_without_a_time_zone_is_refused() -> None:
    with pytest.raises(ValueError, match="with a time zone"):
        Fault.status(429, retry_after=datetime.now(UTC).replace(tzinfo=None))


@pytest.mark.parametrize("make", [Fault.hang, Fault.cut, Fault.malformed])
def test_a_fault_after_fewer_than_no_pieces_is_refused(make: type[Fault]) -> None:
    with pytest.raises(ValueError, match=r"after=-1.*0 or more"):
        make(after=-1)  # type: ignore[call-arg]


def test_only_a_refused_request_and_a_declared_disconnect_are_unbilled() -> None:
    billed = [
        Fault.slow(),
        Fault.hang(),
        Fault.cut(),
        Fault.disconnect(),
        Fault.malformed(),
        Fault.wrong_schema(),
        Fault.missing_usage(),
        Fault.missing_finish_reason(),
    ]

    assert all(fault.billed for fault in billed)
    assert not Fault.status(500).billed
    assert not Fault.disconnect(billed=False).billed


def test_a_fault_has_a_readable_name() -> None:
    assert [Fault.status(429).name, Fault.cut().name] == ["status 429", "cut"]
