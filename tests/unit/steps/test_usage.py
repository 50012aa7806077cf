from dataclasses import fields
from decimal import Decimal

from fastroai.records import AgentCallUsage, RequestRecord, Tokens
from fastroai.runtime import Scope
from fastroai.steps import StepUsage
from fastroai.tracing import TraceSpan

RECORDS = [
    RequestRecord(
        model="m",
        provider="p",
        outcome="settled",
        tokens=Tokens(
            input_tokens=100,
            output_tokens=20,
            cache_read_tokens=7,
            cache_write_tokens=5,
            input_audio_tokens=3,
            output_audio_tokens=2,
            reasoning_tokens=11,
        ),
        cost_usd=Decimal("0.0000015"),
    ),
    RequestRecord(model="m", provider="p", outcome="settled", tokens=Tokens(input_tokens=1)),
    RequestRecord(model="m", provider="p", outcome="unmeasured", bound_usd=Decimal("0.5")),
    RequestRecord(model="m", provider="p", outcome="released"),
]


SPAN = TraceSpan("step s", "0af7", "b7ad")


def usage() -> StepUsage:
    scope = Scope("step", "s", parent=None)
    for record in RECORDS:
        scope.charge(record)
    scope.count_agent_call()
    scope.span = SPAN
    return StepUsage.of_scope(scope, 12.5)


def test_it_has_everything_that_the_scope_has_counted() -> None:
    assert usage() == StepUsage(
        cost_usd=Decimal("0.0000015"),
        cost_complete=False,
        committed_usd=Decimal("0.5000015"),
        input_tokens=101,
        output_tokens=20,
        cache_read_tokens=7,
        cache_write_tokens=5,
        input_audio_tokens=3,
        output_audio_tokens=2,
        reasoning_tokens=11,
        request_count=3,
        failed_requests=1,
        unpriced_requests=1,
        unmeasured_requests=1,
        agent_call_count=1,
        processing_time_ms=12.5,
        records=tuple(RECORDS),
        agent_calls=(AgentCallUsage(agent="s", records=tuple(RECORDS)),),
    )


def test_no_field_was_left_at_its_default() -> None:
    default = StepUsage()
    assert [
        field.name
        for field in fields(StepUsage)
        if getattr(usage(), field.name) == getattr(default, field.name)
    ] == []


def test_tokens_are_those_of_both_directions() -> None:
    assert usage().tokens == usage().total_tokens == 121


def test_cost_is_exact_and_rounded_only_where_it_is_read() -> None:
    assert usage().cost_microcents == 2, "1.5, half to even"
    assert usage().cost_dollars == 0.0000015


def test_it_is_a_snapshot() -> None:
    scope = Scope("step", "s", parent=None)
    before = StepUsage.of_scope(scope, 0)
    scope.charge(RECORDS[0])
    assert (before.request_count, before.records) == (0, ())
