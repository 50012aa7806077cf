"""What is too deep or too long for a record is refused or cut, and says so."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from support.faulty_store import everything_in

from fastroai import (
    FastroAgent,
    Graph,
    Inbox,
    MemoryRunStore,
    Node,
    Pipeline,
    PipelineConfig,
    RunHistory,
    StepContext,
    compute,
    flow,
    send_message,
    step,
)
from fastroai.errors import (
    AnswerRejected,
    ConfigurationError,
    MessageRejected,
    StepExecutionError,
    ValueNotStorable,
)
from fastroai.store import EncryptingCodec, PayloadCodec


@step
async def first(ctx: StepContext) -> str:
    return "x"


def nested(depth: int) -> Pipeline[None]:
    inner = Pipeline("p0", {"first": first})
    for number in range(1, depth):
        inner = Pipeline(f"p{number}", {"step": inner.as_step()})
    return inner


@pytest.mark.parametrize("depth", [70, 150])
async def test_pipelines_that_are_nested_too_deeply_to_be_read_again_are_refused_before_they_run(
    depth: int,
) -> None:
    store = MemoryRunStore()
    with pytest.raises(ValueNotStorable, match=rf"definition of pipeline 'p{depth - 1}'.*nested too deeply"):
        await nested(depth).execute({}, store=store)
    assert not await store.list("")


async def test_pipelines_that_are_nested_less_deeply_are_on_record() -> None:
    store = MemoryRunStore()
    await nested(50).execute({}, run_id="r", store=store)
    assert (await nested(50).resume("r", store=store)).output == "x"


async def test_of_a_very_long_message_the_beginning_is_on_record() -> None:
    @step
    async def fails(ctx: StepContext) -> None:
        raise ValueError("long " * 1_000_000)

    store = MemoryRunStore()
    with pytest.raises(StepExecutionError):
        await Pipeline("p", {"fails": fails}).execute({}, run_id="r", store=store)
    history = RunHistory(store)
    error = (await history.summary("r")).error
    assert error is not None
    assert error.endswith(" characters in all)")
    assert len((await history.trace("r")).to_json()) < 50_000


# --- values that are larger than the store takes ---

LIMIT = 100_000
LARGE = "x" * LIMIT
CODECS = [None, EncryptingCodec({"k": EncryptingCodec.new_key()})]


def small_store() -> MemoryRunStore:
    return MemoryRunStore(largest_value=LIMIT)


def reports(ctx: StepContext[Any]) -> dict[str, Any]:
    return {"pages": [{"number": 1}, {"number": 2, "text": LARGE}], "title": "short"}


@pytest.mark.parametrize("codec", CODECS, ids=["plain", "encrypted"])
async def test_an_output_that_is_too_large_fails_its_step_and_names_it(codec: PayloadCodec | None) -> None:
    @step
    async def report(ctx: StepContext[Any]) -> dict[str, Any]:
        return reports(ctx)

    store = small_store()
    config = PipelineConfig(store=store, codec=codec, retries=3)
    pipeline: Pipeline[Any, Any] = Pipeline(
        "p", {"first": first, "report": report}, config=config, output_step="report"
    )
    with pytest.raises(StepExecutionError) as caught:
        await pipeline.execute({}, run_id="r")
    error = caught.value.original_error
    assert isinstance(error, ValueNotStorable)
    assert error.what == "the output of 'report'"
    assert error.field == ("pages[1].text" if codec is None else "")
    assert "bytes as it is stored, and the store takes 100,000 (largest_value)" in str(error)
    assert "OffloadingRunStore" in str(error)
    values = [one for found in await store.list("") for one in (await store.read(found.key)).values]
    assert max(map(len, values)) <= LIMIT
    store.largest_value = None  # which mends it
    assert (await pipeline.resume("r")).output == reports(StepContext)  # type: ignore[arg-type]


async def test_an_input_that_is_too_large_is_refused_before_anything() -> None:
    store = small_store()
    pipeline = Pipeline("p", {"first": first}, config=PipelineConfig(store=store))
    with pytest.raises(ValueNotStorable, match="input 'text' cannot be stored: str: it has 100,") as caught:
        await pipeline.execute({"text": LARGE, "n": 1})
    assert not await store.list("")
    assert caught.value.what == "input 'text'"
    sealed = Pipeline("p", {"first": first}, config=PipelineConfig(store=store, codec=CODECS[1]))
    with pytest.raises(ValueNotStorable, match="input 'text' cannot be stored: a value that went through"):
        await sealed.execute({"text": LARGE, "n": 1})
    assert not await store.list("")
    await pipeline.execute({"text": "short"}, run_id="r")
    before = await everything_in(store)
    with pytest.raises(ValueNotStorable, match="input 'text'"):
        await pipeline.resume("r", inputs={"text": LARGE}, force=True)
    assert await everything_in(store) == before


async def test_what_a_node_gives_or_writes_or_asks_may_not_be_too_large() -> None:
    @step
    async def gives(ctx: StepContext[Any]) -> dict[str, Any]:
        return reports(ctx)

    @step
    async def writes(ctx: StepContext[Any]) -> str:
        ctx.write("notes", LARGE)
        return ""

    @step
    async def asks(ctx: StepContext[Any]) -> str:
        return await ctx.ask(LARGE, str)

    for node, what in (
        (Node(gives), "the output of 'n'"),
        (Node(writes, writes=["notes", "n"]), "'notes', which 'n@1' wrote,"),
        (Node(asks), "the question of 'n'"),
    ):
        graph = Graph("g", nodes={"n": node}, config=PipelineConfig(store=small_store(), retries=0))
        result = await graph.run({})
        assert isinstance(result.error, StepExecutionError)
        assert isinstance(result.error.original_error, ValueNotStorable)
        assert str(result.error.original_error).startswith(f"{what} cannot be stored")


async def test_answers_and_messages_that_are_too_large_are_rejected_and_the_run_waits_on() -> None:
    @step
    async def waits(ctx: StepContext[Any]) -> str:
        answer = await ctx.ask("all right?", str)
        return answer + await ctx.receive("paid", str)

    store = small_store()
    pipeline: Pipeline[Any, Any] = Pipeline("p", {"waits": waits}, config=PipelineConfig(store=store))
    await pipeline.execute({}, run_id="r")
    (asked,) = await Inbox(store).list()
    with pytest.raises(AnswerRejected, match="the answer to 'waits' cannot be stored: str: it has"):
        await Inbox(store).answer(asked.id, LARGE)
    with pytest.raises(ValueNotStorable, match="the answer to 'waits'"):
        await pipeline.resume("r", answers={asked.id: LARGE})
    await Inbox(store).answer(asked.id, "yes")
    assert (await pipeline.resume("r")).status == "paused"
    with pytest.raises(MessageRejected, match="it has 100,"):
        await send_message("r", "paid", LARGE, store=store)
    await send_message("r", "paid", LARGE[:80_000], store=store)
    assert (await pipeline.resume("r")).output == "yes" + LARGE[:80_000]


async def test_side_effects_tools_responses_and_functions_give_no_more_than_the_store_takes() -> None:
    async def talk(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        if info.function_tools:
            return ModelResponse(parts=[ToolCallPart("look", {})])
        return ModelResponse(parts=[TextPart(LARGE)])

    def look() -> str:
        return LARGE

    looking = FastroAgent(FunctionModel(talk, model_name="m"), tools=[look])
    talking = FastroAgent(FunctionModel(talk, model_name="m"))

    @step
    async def once(ctx: StepContext[Any]) -> Any:
        return await ctx.once("fetch", lambda: LARGE)

    @step
    async def tool(ctx: StepContext[Any]) -> Any:
        return await ctx.run(looking, "look")

    @step
    async def response(ctx: StepContext[Any]) -> Any:
        return await ctx.run(talking, "talk")

    @compute
    async def large() -> str:
        return LARGE

    @flow(config=PipelineConfig(store=small_store()))
    async def body() -> int:
        return len(await large())

    for one, what in (
        (once, "the result of once('fetch') in 's'"),
        (tool, "the result of tool 'look:"),
        (response, "a response of model 'm'"),
    ):
        pipeline: Pipeline[Any, Any] = Pipeline("p", {"s": one}, config=PipelineConfig(store=small_store()))
        with pytest.raises(StepExecutionError) as caught:
            await pipeline.execute({})
        assert isinstance(caught.value.original_error, ValueNotStorable)
        assert str(caught.value.original_error).startswith(what)
    with pytest.raises(ValueNotStorable, match="the output of 'body@1/large#"):
        await body.run()


@pytest.mark.parametrize("largest", [99_999, 0, True, "1 GB", 1e9])
def test_a_limit_is_a_whole_number_of_bytes_in_which_other_facts_fit(largest: Any) -> None:
    with pytest.raises(ConfigurationError, match="largest_value"):
        MemoryRunStore(largest_value=largest)
