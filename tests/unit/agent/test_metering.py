"""The meter at its edges: what it wraps, and what it takes for measured."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from decimal import Decimal
from typing import Any, Self

import pytest
from pydantic_ai import BinaryContent, RunContext
from pydantic_ai.capabilities import AbstractCapability, CapabilityOrdering, FileUnderstanding
from pydantic_ai.direct import model_request
from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse, TextPart
from pydantic_ai.models import Model, ModelRequestContext, ModelRequestParameters, StreamedResponse
from pydantic_ai.models.concurrency import ConcurrencyLimitedModel
from pydantic_ai.models.fallback import FallbackModel
from pydantic_ai.models.function import FunctionModel
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.models.test import TestModel
from pydantic_ai.models.wrapper import WrapperModel
from pydantic_ai.profiles import ModelProfile
from pydantic_ai.providers.openai import OpenAIProvider
from pydantic_ai.settings import ModelSettings
from pydantic_ai.usage import RequestUsage

from fastroai import FastroAgent
from fastroai.agent import Metered
from fastroai.agent.answer_checks import is_cut
from fastroai.agent.requests.metering import MeteredModel
from fastroai.errors import ConfigurationError
from fastroai.records import Tokens
from fastroai.runtime import Scope
from fastroai.steps import spend
from fastroai.usage import CostCalculator

PRICES = CostCalculator(
    pricing_overrides={"remote:model": {"input_per_mtok": 1, "output_per_mtok": 2, "per_request": 0}}
)


class RemoteModel(Model):
    """A model of some provider, which answers what it is told to."""

    def __init__(self, response: ModelResponse, *, opens: asyncio.Event | None = None) -> None:
        super().__init__()
        self.response = response
        self.opens = opens
        self.entered = 0

    @property
    def model_name(self) -> str:
        return "model"

    @property
    def system(self) -> str:
        return "remote"

    async def __aenter__(self) -> Self:
        self.entered += 1
        return self

    async def request(
        self,
        messages: list[ModelMessage],
        model_settings: ModelSettings | None,
        model_request_parameters: ModelRequestParameters,
    ) -> ModelResponse:
        return self.response

    @asynccontextmanager
    async def request_stream(
        self,
        messages: list[ModelMessage],
        model_settings: ModelSettings | None,
        model_request_parameters: ModelRequestParameters,
        run_context: RunContext[Any] | None = None,
    ) -> AsyncIterator[StreamedResponse]:
        assert self.opens is not None
        self.opens.set()
        await asyncio.Event().wait()
        yield  # type: ignore[misc]


def response(**given: Any) -> ModelResponse:
    """A whole response, unless it is told otherwise."""
    options: dict[str, Any] = {
        "usage": RequestUsage(input_tokens=10, output_tokens=5),
        "provider_name": "remote",
        "model_name": "model",
        "finish_reason": "stop",
        **given,
    }
    return ModelResponse(parts=[TextPart("hello")], **options)


async def outcome(model: Model) -> tuple[str, Decimal | None]:
    """How a request to the model ends in the account."""
    metered = Metered(PRICES).get_wrapper_model(model)
    assert metered is not None
    async with Scope("step", "s", parent=None) as scope:
        await metered.request([], None, ModelRequestParameters())
    [record] = scope.spending.records
    return record.outcome, record.cost_usd


# --- what is measured ---


async def test_a_whole_response_is_settled() -> None:
    assert await outcome(RemoteModel(response())) == ("settled", Decimal("0.00002"))


@pytest.mark.parametrize(
    "cut",
    [
        {"finish_reason": None},
        {"usage": RequestUsage()},
        {"usage": RequestUsage(input_tokens=10, unmeasured_requests=1)},
        {"state": "incomplete"},
        {"state": "interrupted"},
        {"state": "suspended", "finish_reason": None},
        {"state": "suspended", "finish_reason": None, "usage": RequestUsage()},
    ],
    ids=repr,
)
async def test_a_response_that_is_not_whole_is_unmeasured(cut: dict[str, Any]) -> None:
    assert await outcome(RemoteModel(response(**cut))) == ("unmeasured", None)


@pytest.mark.parametrize(
    "ended",
    [
        {"state": "suspended", "finish_reason": None, "provider_details": {"finish_reason": "pause_turn"}},
        {"finish_reason": None, "provider_details": {"finish_reason": "OTHER"}},
    ],
    ids=repr,
)
async def test_a_reason_to_end_that_has_no_name_in_pydantic_ai_is_one(ended: dict[str, Any]) -> None:
    assert await outcome(RemoteModel(response(**ended))) == ("settled", Decimal("0.00002"))


async def test_usage_that_contradicts_itself_is_unmeasured_and_said_so() -> None:
    impossible = response(usage=RequestUsage(input_tokens=1, cache_read_tokens=5))
    calculator = CostCalculator()
    calculator.add_pricing_override(
        "remote:model", input_per_mtok=1, output_per_mtok=1, cache_read_per_mtok=1
    )
    metered = Metered(calculator).get_wrapper_model(RemoteModel(impossible))
    assert metered is not None
    async with Scope("step", "s", parent=None) as scope:
        with pytest.warns(UserWarning, match="contradicts itself"):
            await metered.request([], None, ModelRequestParameters())
    [record] = scope.spending.records
    assert (record.outcome, record.cost_usd, record.tokens) == ("unmeasured", None, Tokens())
    assert (record.use, str(record.error)[:22]) == ("kept", "the usage that it repo")


async def test_a_bill_of_openrouter_without_the_part_of_ones_own_key_is_unmeasured_and_said_so() -> None:
    half = response(
        provider_name="openrouter",
        provider_details={"cost": 0.0001, "is_byok": True, "finish_reason": "stop"},
    )
    with pytest.warns(UserWarning, match="upstream_inference_cost"):
        assert await outcome(RemoteModel(half)) == ("unmeasured", None)


async def test_an_answer_without_usage_says_why_it_is_unmeasured() -> None:
    metered = Metered(PRICES).get_wrapper_model(RemoteModel(response(usage=RequestUsage())))
    assert metered is not None
    async with Scope("step", "s", parent=None) as scope:
        await metered.request([], None, ModelRequestParameters())
    [record] = scope.spending.records
    assert (record.outcome, record.use) == ("unmeasured", "kept")
    assert record.error == "the answer did not report its usage"


async def test_a_warning_that_is_raised_leaves_the_request_charged() -> None:
    metered = Metered().get_wrapper_model(RemoteModel(response()))
    assert metered is not None
    async with Scope("step", "s", parent=None) as scope:
        with pytest.raises(UserWarning):  # warnings are errors here
            await metered.request([], None, ModelRequestParameters())
    assert [record.outcome for record in scope.spending.records] == ["settled"]


async def test_a_stream_cancelled_while_it_opens_is_unmeasured() -> None:
    opens = asyncio.Event()
    metered = Metered(PRICES).get_wrapper_model(RemoteModel(response(), opens=opens))
    assert metered is not None

    async def open_stream() -> None:
        async with metered.request_stream([], None, ModelRequestParameters()):
            raise AssertionError

    async with Scope("step", "s", parent=None) as scope:
        task = asyncio.create_task(open_stream())
        await opens.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    [record] = scope.spending.records
    assert (record.outcome, record.streamed) == ("unmeasured", True)
    assert record.error == "CancelledError"


# --- what is wrapped ---


def leaves(model: Model) -> list[Model]:
    if isinstance(model, FallbackModel):
        return [leaf for candidate in model.models for leaf in leaves(candidate)]
    if isinstance(model, MeteredModel) or not isinstance(model, WrapperModel):
        return [model]
    return leaves(model.wrapped)


def test_every_leaf_is_metered_and_the_models_of_the_user_stay_as_they_were() -> None:
    first, second, third = TestModel(), TestModel(), TestModel()
    limited = ConcurrencyLimitedModel(second, limiter=1)
    inside = FallbackModel(limited, third)
    model = FallbackModel(first, WrapperModel(inside))
    metered = Metered().get_wrapper_model(model)
    assert metered is not None
    assert [type(leaf) for leaf in leaves(metered)] == [MeteredModel] * 3
    assert [leaf.wrapped for leaf in leaves(metered)] == [first, second, third]  # type: ignore[attr-defined]
    assert leaves(model) == [first, second, third]
    assert limited.wrapped is second
    assert inside.models == [limited, third]


def test_a_model_that_is_metered_already_is_left_alone() -> None:
    once = Metered().get_wrapper_model(TestModel())
    assert once is not None
    assert Metered().get_wrapper_model(once) is None
    assert Metered().get_wrapper_model(WrapperModel(FallbackModel(once, once))) is None


def test_a_model_is_wrapped_once_and_many_models_are_forgotten_again() -> None:
    meter = Metered()
    model = TestModel()
    assert meter.get_wrapper_model(model) is meter.get_wrapper_model(model)
    for _ in range(100):
        other = TestModel()
        wrapper = meter.get_wrapper_model(other)
        assert isinstance(wrapper, MeteredModel)
        assert wrapper.wrapped is other
    again = meter.get_wrapper_model(model)
    assert isinstance(again, MeteredModel)
    assert again.wrapped is model


async def test_entering_the_meter_does_not_open_the_model_of_the_agent() -> None:
    model = RemoteModel(response())
    metered = Metered().get_wrapper_model(model)
    assert metered is not None
    async with metered:
        pass
    assert model.entered == 0


def test_the_meter_shows_the_model_that_it_wraps() -> None:
    metered = Metered().get_wrapper_model(RemoteModel(response()))
    assert metered is not None
    assert (metered.model_name, metered.system) == ("model", "remote")


async def test_a_meter_keeps_the_accounts_of_two_runs_apart() -> None:
    agent = FastroAgent(TestModel())
    async with Scope("step", "one", parent=None) as one:
        await agent.run("?")
    async with Scope("step", "two", parent=None) as two:
        await agent.run("?")
        await agent.run("?")
    assert (len(one.spending.records), len(two.spending.records)) == (1, 2)
    assert {record.step_id for record in two.spending.records} == {"two"}


# --- answers that broke off ---


def streamed(model: Model, **options: Any) -> bool:
    """Whether a response of a stream of this model is taken for cut."""
    response = ModelResponse(parts=[TextPart("Once")], **options)
    return is_cut(response, streamed=True, model=model)


def chat(provider: str = "openai") -> Model:
    """Chat Completions of OpenAI, or of another provider that speaks the protocol."""

    class NamedProvider(OpenAIProvider):
        @property
        def name(self) -> str:
            return provider

    return OpenAIChatModel("m", provider=NamedProvider(api_key="k"))


USED = RequestUsage(input_tokens=5, output_tokens=5)


@pytest.mark.parametrize(
    ("options", "cut"),
    [
        ({"finish_reason": "stop", "usage": USED, "provider_details": {"finish_reason": "stop"}}, False),
        ({"finish_reason": "stop", "provider_details": {"finish_reason": "stop"}}, False),
        ({"usage": USED, "provider_details": {"finish_reason": "a new one"}}, False),
        ({"finish_reason": "stop", "usage": USED}, False),  # made up, and the usage came, which is last
        ({"finish_reason": "stop"}, True),  # made up, and no usage came
        ({"usage": USED}, True),
        ({"finish_reason": "stop", "usage": USED, "state": "incomplete"}, True),
        ({"state": "interrupted"}, True),
        ({"state": "suspended"}, False),
    ],
)
def test_a_stream_is_cut_whose_provider_has_not_said_why_it_ended(options: dict[str, Any], cut: bool) -> None:
    assert streamed(chat(), **options) == cut


def test_a_compatible_provider_may_send_neither_finish_reason_nor_usage() -> None:
    """PydanticAI makes a finish reason up for it."""
    assert not streamed(chat("someone-else"), finish_reason="stop")


def test_a_model_that_is_not_pydantic_ais_may_have_no_finish_reasons() -> None:
    assert not streamed(RemoteModel(ModelResponse(parts=[])), usage=USED)
    assert not streamed(TestModel(), usage=USED)


def test_what_was_not_streamed_is_whole_unless_it_says_otherwise() -> None:
    response = ModelResponse(parts=[TextPart("Once")])
    assert not is_cut(response, streamed=False, model=chat())
    response.state = "incomplete"
    assert is_cut(response, streamed=False, model=chat())


# --- models without an agent ---


async def test_a_model_with_a_meter_is_charged_where_it_is_asked_directly() -> None:
    model = Metered(PRICES).model(RemoteModel(response()))
    async with Scope("step", "s", parent=None) as scope:
        await model_request(model, [ModelRequest.user_text_prompt("?")])
    assert scope.spending.usage.cost_usd == Decimal("0.00002")


async def test_a_model_with_a_meter_is_charged_where_a_capability_asks_it() -> None:
    describer = Metered(PRICES).model(RemoteModel(response()))
    blind = ModelProfile(supports_document_input=False)
    agent = FastroAgent(
        FunctionModel(lambda messages, info: ModelResponse(parts=[TextPart("ok")]), profile=blind),
        capabilities=[FileUnderstanding(fallback_subagent_model=describer)],
    )
    answer = await agent.run(["?", BinaryContent(b"x", media_type="application/pdf")])
    assert [record.provider for record in answer.records] == ["remote", "function"]
    assert answer.cost_usd == Decimal("0.00002")


async def test_a_model_that_a_hook_puts_there_is_metered_too() -> None:
    class Swap(AbstractCapability[Any]):
        async def before_model_request(
            self, ctx: RunContext[Any], request_context: ModelRequestContext
        ) -> ModelRequestContext:
            request_context.model = FallbackModel(RemoteModel(response()))
            return request_context

    agent = FastroAgent(TestModel(), capabilities=[Swap()], cost_calculator=PRICES)
    answer = await agent.run("?")
    assert [record.provider for record in answer.records] == ["remote"]


async def test_hooks_of_others_come_after_the_meter_wherever_the_meter_is_given() -> None:
    seen: list[type[Model]] = []

    class Look(AbstractCapability[Any]):
        def get_ordering(self) -> CapabilityOrdering:
            return CapabilityOrdering(position="outermost")

        async def before_model_request(
            self, ctx: RunContext[Any], request_context: ModelRequestContext
        ) -> ModelRequestContext:
            seen.append(type(request_context.model))
            return request_context

    await FastroAgent(TestModel(), capabilities=[Look()]).run("?")
    await FastroAgent(TestModel()).run("?", capabilities=[Look()])
    assert seen == [MeteredModel, MeteredModel]


async def test_the_meter_of_the_run_counts_where_a_model_has_another_one() -> None:
    """As in a tool that gives `ctx.model` to an agent of its own."""
    dear = CostCalculator(pricing_overrides={"remote:model": {"input_per_mtok": 100, "output_per_mtok": 0}})
    agent = FastroAgent(Metered(dear).model(RemoteModel(response())), cost_calculator=PRICES)
    answer = await agent.run("?")
    assert (answer.usage.request_count, answer.cost_usd) == (1, Decimal("0.00002"))


@pytest.mark.parametrize("given", [{}, {"gpt-4o": {"discount": "0.1"}}], ids=["empty", "prices"])
def test_prices_that_are_given_for_a_calculator_are_refused_at_once(given: Any) -> None:
    message = r"cost_calculator=\{.*: expected a CostCalculator; .*CostCalculator\(pricing_overrides=\.\.\.\)"
    with pytest.raises(ConfigurationError, match=message):
        Metered(given)
    with pytest.raises(ConfigurationError, match=message):
        FastroAgent(TestModel(), cost_calculator=given)
    with pytest.raises(ConfigurationError, match=message):
        spend("0.01", cost_calculator=given)


def test_only_a_name_or_a_model_can_be_metered() -> None:
    with pytest.raises(ConfigurationError, match="model=None: expected 'provider:model', or a PydanticAI"):
        Metered().model(None)  # type: ignore[arg-type]
