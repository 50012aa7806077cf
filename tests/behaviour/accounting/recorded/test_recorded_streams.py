"""Recorded answers as streams: the account is that of the plain answer, or of a request without its usage."""

from __future__ import annotations

from typing import Any

import pytest
from support.recorded_account import account_in, account_of, billed, cases, frozen_at
from support.recorded_models import Wire, build_model, settings_of, tools_of
from support.recorded_oracle import AT, Json
from support.recorded_streams import Streamed, streamed

from fastroai import FastroAgent
from fastroai.errors import records_of
from fastroai.records import RequestRecord

pytestmark = [
    pytest.mark.filterwarnings("ignore::fastroai.usage.UnpricedModelWarning"),
    pytest.mark.filterwarnings("ignore:The model .* is deprecated:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:MODEL_ARMOR is not a valid FinishReason"),  # in older SDKs of Google
]

_seen: set[Any] = set()


def is_first_of_its_form(answer: Json, expected: Json) -> bool:
    """One answer for each host, format, and set of counts in the usage."""
    if expected["kind"] != "request" or streamed(answer) is None:
        return False
    usage = answer["response"].get("usage") or answer["response"].get("usageMetadata") or {}
    form = (answer["host"], answer["path"].rpartition("/")[2].rpartition(":")[2], frozenset(usage))
    key = (form, tuple(sorted(expected["tokens"])), expected["cost_source"], expected["complete"])
    if key in _seen:
        return False
    _seen.add(key)
    return True


def has_its_bill_in_the_body_alone(answer: Json) -> bool:
    """Whether PydanticAI drops the bill, which FastroAI reads in whole bodies, and not in streams."""
    return answer["host"] == "openrouter.ai" and bool(answer["path"].endswith("/responses"))


STREAMS = cases(is_first_of_its_form)
HOSTS = {case.values[0]["host"]: case for case in reversed(STREAMS)}.values()


@pytest.mark.parametrize(("answer", "expected"), STREAMS)
async def test_a_stream_is_accounted_as_the_plain_answer(
    answer: Json, expected: Json, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = await the_record_of(answer, stream_of(answer).whole(), monkeypatch)

    if has_its_bill_in_the_body_alone(answer):
        assert (record.cost_complete, record.unpriced_units) == (False, ("bill of OpenRouter",))
    else:
        assert account_of(record) == account_in(expected)


@pytest.mark.parametrize("broken", [True, False], ids=["broken", "closed"])
@pytest.mark.parametrize(("answer", "expected"), HOSTS)
async def test_a_stream_that_ends_before_its_usage_is_unmeasured(
    answer: Json, expected: Json, broken: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = await the_record_of(answer, stream_of(answer).without_usage(broken=broken), monkeypatch)

    assert record.outcome == "unmeasured"
    assert record.cost_usd is None
    assert not record.cost_complete


def stream_of(answer: Json) -> Streamed:
    stream = streamed(answer)
    assert stream is not None
    return stream


async def the_record_of(answer: Json, wire: Wire, monkeypatch: pytest.MonkeyPatch) -> RequestRecord:
    """The one request that a stream is accounted as, read to its end."""
    frozen_at(monkeypatch, AT)
    agent = FastroAgent(build_model(answer, wire, monkeypatch), request_retries=0)

    stream = agent.run_stream("x", model_settings=settings_of(answer), capabilities=tools_of(answer))
    try:
        async for _ in stream:
            pass
    except Exception as error:  # texts are masked, so that many runs fail after the answer
        records = records_of(error)
    else:
        assert stream.response is not None
        records = stream.response.records

    (record,) = billed(records)
    assert record.streamed
    return record
