from decimal import Decimal

import pytest
from opentelemetry.semconv._incubating.attributes import gen_ai_attributes, server_attributes
from opentelemetry.semconv.attributes import error_attributes, exception_attributes
from pydantic_ai.usage import RequestUsage

from fastroai.records import RequestRecord, Tokens, Usage
from fastroai.tracing import attributes as names

RECORD = RequestRecord(
    model="gpt-5-mini",
    provider="openai",
    outcome="settled",
    tokens=Tokens(
        input_tokens=100,
        output_tokens=20,
        cache_read_tokens=40,
        cache_write_tokens=5,
        reasoning_tokens=7,
    ),
    cost_usd=Decimal("0.0000125"),
    response_model="gpt-5-mini-2025-08-07",
    response_id="resp_1",
    finish_reason="stop",
)


def test_standard_names_are_those_of_the_opentelemetry_package() -> None:
    standard = {
        value
        for module in (gen_ai_attributes, error_attributes, exception_attributes, server_attributes)
        for value in vars(module).values()
        if isinstance(value, str)
    }
    ours = {value for name, value in vars(names).items() if name.isupper() and isinstance(value, str)}
    assert {value for value in ours if not value.startswith(("fastroai.", "operation."))} <= standard
    assert len([value for value in ours if value.startswith("gen_ai.")]) == 13


def test_token_names_are_those_of_pydantic_ai() -> None:
    usage = RequestUsage(input_tokens=100, output_tokens=20, cache_read_tokens=40, cache_write_tokens=5)
    theirs = {
        name: value
        for name, value in usage.opentelemetry_attributes().items()
        if not name.startswith("gen_ai.usage.details.")
    }
    ours = names.response_attributes(RECORD)
    assert {name: ours[name] for name in theirs} == theirs


def test_a_settled_request_has_its_response_tokens_and_exact_cost() -> None:
    assert names.response_attributes(RECORD) == {
        "fastroai.request.outcome": "settled",
        "gen_ai.response.model": "gpt-5-mini-2025-08-07",
        "gen_ai.response.id": "resp_1",
        "gen_ai.response.finish_reasons": ("stop",),
        "gen_ai.usage.input_tokens": 100,
        "gen_ai.usage.output_tokens": 20,
        "gen_ai.usage.cache_read.input_tokens": 40,
        "gen_ai.usage.cache_creation.input_tokens": 5,
        "gen_ai.usage.reasoning.output_tokens": 7,
        "operation.cost": 0.0000125,
        "fastroai.cost.usd": "0.0000125",
        "fastroai.cost.microcents": 12,
        "fastroai.cost.complete": True,
    }


def test_an_unpriced_request_has_no_cost_rather_than_none() -> None:
    record = RequestRecord(model="m", provider="p", outcome="settled", tokens=Tokens(input_tokens=3))
    assert names.response_attributes(record) == {
        "fastroai.request.outcome": "settled",
        "gen_ai.usage.input_tokens": 3,
        "gen_ai.usage.output_tokens": 0,
        "fastroai.cost.complete": False,
    }


def test_an_unmeasured_request_has_its_bound_and_no_zero_tokens() -> None:
    record = RequestRecord(model="m", provider="p", outcome="unmeasured", bound_usd=Decimal("0.02"))
    assert names.response_attributes(record) == {
        "fastroai.request.outcome": "unmeasured",
        "fastroai.cost.bound_usd": "0.02",
        "fastroai.cost.complete": False,
    }


def test_a_released_request_has_only_its_outcome() -> None:
    record = RequestRecord(model="m", provider="p", outcome="released")
    assert names.response_attributes(record) == {"fastroai.request.outcome": "released"}


def test_sums_stand_under_names_that_no_backend_adds_to_the_requests() -> None:
    summed = names.usage_attributes(Usage.of([RECORD, RECORD]))
    assert summed == {
        "gen_ai.aggregated_usage.input_tokens": 200,
        "gen_ai.aggregated_usage.output_tokens": 40,
        "gen_ai.aggregated_usage.cache_read.input_tokens": 80,
        "gen_ai.aggregated_usage.cache_creation.input_tokens": 10,
        "gen_ai.aggregated_usage.reasoning.output_tokens": 14,
        "fastroai.requests": 2,
        "fastroai.cost.usd": "0.0000250",
        "fastroai.cost.microcents": 25,
        "fastroai.cost.complete": True,
    }


def test_what_is_not_given_is_left_out() -> None:
    assert names.run_attributes("pipeline", name="p", run_id="r") == {
        "fastroai.pipeline.name": "p",
        "fastroai.run.id": "r",
    }
    assert names.step_attributes(step_id="s", visit=1) == {
        "fastroai.step.id": "s",
        "fastroai.node.visit": 1,
    }
    assert names.agent_attributes(name="a", attempt=1) == {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.agent.name": "a",
        "fastroai.attempt": 1,
    }


@pytest.mark.parametrize(
    ("base_url", "server"),
    [
        ("https://api.openai.com/v1/", {"server.address": "api.openai.com"}),
        ("http://127.0.0.1:8080", {"server.address": "127.0.0.1", "server.port": 8080}),
        ("http://localhost:port", {}),
        (None, {}),
    ],
)
def test_a_request_names_its_server_where_the_url_can_be_read(
    base_url: str | None, server: dict[str, object]
) -> None:
    attributes = names.request_attributes(model="m", provider="openai", base_url=base_url, streamed=True)
    assert attributes == {
        "gen_ai.operation.name": "chat",
        "gen_ai.request.model": "m",
        "gen_ai.provider.name": "openai",
        "gen_ai.request.stream": True,
        **server,
    }


def test_an_error_type_is_the_class_with_its_module_unless_built_in() -> None:
    class Mine(Exception):
        pass

    assert names.error_type(ValueError("x")) == "ValueError"
    assert names.error_type(Mine()) == f"{__name__}.{Mine.__qualname__}"
    assert names.error_summary(ValueError("x")) == "ValueError: x"
    assert names.error_summary(ValueError()) == "ValueError"
