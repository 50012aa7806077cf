"""An answer that broke off is not a success, and one whose usage never came is flagged."""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator
from typing import Any

import pytest
from pydantic_ai.capabilities import ProcessEventStream
from pydantic_ai.messages import AgentStreamEvent, ModelResponse
from pydantic_ai.models import Model
from pydantic_ai.models.function import AgentInfo, FunctionModel

from fastroai import FastroAgent, Pipeline, PipelineConfig, StepContext, step
from fastroai.errors import AnswerCutError, usage_of
from fastroai.runtime import FailureClass, RetryPolicy, classify
from fastroai.testing import Fault, ModelServer, Reply, Usage

STORY = "Once upon a time there was a token that nobody had counted. " * 4
WHOLE = Reply(STORY, usage=Usage(40, 60))
CUT = Reply(STORY, usage=Usage(40, 60), fault=Fault.missing_finish_reason())


async def watch(context: object, events: AsyncIterable[AgentStreamEvent]) -> None:
    async for _ in events:
        pass


def streaming(model: Model) -> FastroAgent[Any, str]:
    """An agent whose runs are streamed, as somebody watches their events."""
    return FastroAgent(model, max_tokens=100, request_retries=0, capabilities=[ProcessEventStream(watch)])


GIVES_A_FINISH_REASON = pytest.mark.parametrize(
    "reference", ["openai:gpt-5-mini", "anthropic:claude-haiku-4-5"]
)
"""For Chat Completions PydanticAI makes one up; what tells there is the usage, which comes last."""


@GIVES_A_FINISH_REASON
async def test_a_streamed_answer_without_its_end_is_a_failure_with_what_came_of_it(
    server: ModelServer, model: Model
) -> None:
    server.script(CUT)
    with pytest.raises(AnswerCutError) as caught:
        await streaming(model).run("Tell me")
    error = caught.value
    assert classify(error) is FailureClass.AMBIGUOUS
    assert isinstance(error.partial_response, ModelResponse)
    assert "Once upon a time" in str(error.partial_response.parts)
    spent = usage_of(error)
    assert spent is not None
    assert spent == error.usage
    assert (spent.request_count, spent.unmeasured_requests) == (1, 1)


@GIVES_A_FINISH_REASON
async def test_a_step_asks_again_for_an_answer_that_broke_off(server: ModelServer, model: Model) -> None:
    server.script(CUT, WHOLE)

    @step(retry={FailureClass.AMBIGUOUS: RetryPolicy(1, backoff=0)})
    async def ask(ctx: StepContext) -> str:
        response = await ctx.run(streaming(model), "Tell me")
        assert not response.is_cut
        return response.output

    result = await Pipeline[None, Any, str]("p", {"ask": ask}).execute()
    assert result.output == STORY
    assert [(record.cut, record.use) for record in result.usage.records] == [
        (True, "retried"),
        (False, "kept"),
    ]
    assert result.quality == "clean", "nothing of what broke off is in it"


@GIVES_A_FINISH_REASON
async def test_a_stream_that_is_read_ends_with_a_flag_as_its_text_is_out_already(
    server: ModelServer, model: Model
) -> None:
    server.script(CUT)

    @step
    async def tell(ctx: StepContext) -> str:
        stream = ctx.run_stream(streaming(model), "Tell me")
        async for _ in stream:
            pass
        assert stream.response is not None
        assert (stream.response.is_cut, stream.response.is_measured) == (True, False)
        return stream.response.output

    result = await Pipeline[None, Any, str]("p", {"tell": tell}).execute()
    assert result.output == STORY
    assert result.quality == "degraded"


async def test_a_chat_completion_that_breaks_off_before_its_usage_is_cut_too(server: ModelServer) -> None:
    server.script(CUT)
    response = await streaming(server.model("openai-chat:gpt-5-mini")).run("Tell me")
    assert not response.is_cut, "its usage came, and that comes last"


async def test_a_whole_answer_is_neither_cut_nor_unmeasured(server: ModelServer, model: Model) -> None:
    server.script(WHOLE)
    response = await streaming(model).run("Tell me")
    assert (response.is_cut, response.is_measured) == (False, True)


@pytest.mark.filterwarnings("ignore:Failed to extract usage")  # PydanticAI says so of Anthropic
@pytest.mark.parametrize(
    "fault", [Fault.missing_usage(), Fault.missing_finish_reason()], ids=lambda f: f.kind
)
async def test_an_answer_that_was_not_streamed_stays_usable_and_is_flagged(
    server: ModelServer, model: Model, reference: str, fault: Fault
) -> None:
    server.script(Reply("Paris", usage=Usage(20, 5), fault=fault))

    @step
    async def ask(ctx: StepContext) -> str:
        response = await ctx.run(FastroAgent(model, max_tokens=50), "?")
        assert not response.is_cut
        return response.output

    result = await Pipeline[None, Any, str]("p", {"ask": ask}).execute()
    assert result.output == "Paris"
    told = fault.kind == "missing_finish_reason" and reference.startswith("openai-chat")
    assert result.quality == ("clean" if told else "degraded")


async def test_a_model_of_ones_own_that_gives_no_finish_reason_is_no_provider_that_broke_off() -> None:
    async def tell(messages: object, info: AgentInfo) -> AsyncIterator[str]:
        yield "Once"

    response = await streaming(FunctionModel(stream_function=tell)).run("Tell me")
    assert (response.output, response.is_cut, response.is_measured) == ("Once", False, True)


async def test_a_handler_that_stops_reading_is_no_cut(server: ModelServer, model: Model) -> None:
    async def glance(context: object, events: AsyncIterable[AgentStreamEvent]) -> None:
        async for _ in events:
            break

    server.script(WHOLE)
    response = await FastroAgent(model).run("Tell me", event_stream_handler=glance)
    assert (response.output, response.is_cut, response.is_measured) == (STORY, False, True)


# --- the quality of a run ---


async def fails(ctx: StepContext) -> None:
    raise ValueError("broken")


async def works(ctx: StepContext) -> str:
    return "fine"


async def test_a_run_that_goes_on_without_a_step_is_degraded_and_so_is_the_one_around_it() -> None:
    inner = Pipeline[None, Any, str](
        "inner",
        {"works": step(works), "fails": step(on_error="continue")(fails)},
        output_step="works",
    )
    assert (await inner.execute()).quality == "degraded"
    outer = await Pipeline[None, Any, str]("outer", {"nest": inner.as_step()}).execute()
    assert (outer.ok, outer.quality) == (True, "degraded")
    assert (await Pipeline[None, Any, str]("p", {"works": step(works)}).execute()).quality == "clean"


async def test_an_answer_without_usage_that_was_thrown_away_degrades_nothing(
    server: ModelServer, model: Model
) -> None:
    server.script(Reply("lost", fault=Fault.disconnect()), WHOLE)

    @step
    async def ask(ctx: StepContext) -> str:
        response = await ctx.run(FastroAgent(model, max_tokens=100), "Tell me")
        assert response.is_measured
        assert response.unmeasured_requests == 1
        return response.output

    result = await Pipeline[None, Any, str]("p", {"ask": ask}, config=PipelineConfig(retries=1)).execute()
    assert result.quality == "clean"
