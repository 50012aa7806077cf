"""Every fault, as a real client sees it and as the ledger bills it."""

import asyncio
from datetime import UTC, datetime, timedelta

import pytest
from pydantic import BaseModel
from pydantic_ai import Agent, ModelSettings, NativeOutput
from pydantic_ai.exceptions import (
    ModelAPIError,
    ModelConnectionError,
    ModelHTTPError,
    ModelOverloadedError,
    ModelRateLimitError,
    ModelRequestRejectedError,
    ModelServerError,
    ModelUnavailableError,
    UnexpectedModelBehavior,
)
from pydantic_ai.models import Model
from pydantic_ai.usage import RunUsage
from support.patience import PATIENCE

from fastroai.testing import Fault, LedgerEntry, ModelServer, Reply, Usage

TEXT = "one two three four five six seven"
USAGE = Usage(100, 20)
WHOLE = ModelSettings(max_tokens=1000)

streamed_or_not = pytest.mark.parametrize("streamed", [False, True])


@pytest.fixture(autouse=True)
def _usual_reply(model_server: ModelServer) -> None:
    model_server.rule(None, Reply(TEXT, usage=USAGE, chunk_size=8))


async def ask(model: Model, streamed: bool, pieces: asyncio.Queue[str] | None = None) -> tuple[str, RunUsage]:
    """Ask, and put the pieces of a stream into `pieces` as they come."""
    agent = Agent(model)
    if not streamed:
        result = await agent.run("hi", model_settings=WHOLE)
        return result.output, result.usage
    text = ""
    async with agent.run_stream("hi") as stream:
        async for piece in stream.stream_text(delta=True, debounce_by=None):
            text += piece
            if pieces:
                pieces.put_nowait(piece)
        return text, stream.usage


async def the_only_entry(server: ModelServer) -> LedgerEntry:
    (entry,) = await server.ledger.wait_for(1, state="finished")
    return entry


@streamed_or_not
@pytest.mark.parametrize(
    ("code", "error"),
    [
        (400, ModelRequestRejectedError),
        (429, ModelRateLimitError),
        (500, ModelServerError),
        (503, ModelUnavailableError),
        (529, ModelOverloadedError),
    ],
)
async def test_an_error_status_is_the_right_exception_and_not_billed(
    model: Model, model_server: ModelServer, streamed: bool, code: int, error: type[ModelHTTPError]
) -> None:
    model_server.fail_next(1, Fault.status(code, message="because the test says so"))

    with pytest.raises(error, match="because the test says so") as caught:
        await ask(model, streamed)

    assert caught.value.status_code == code
    entry = await the_only_entry(model_server)
    assert (entry.status, entry.fault, entry.error) == (code, f"status {code}", "because the test says so")
    assert (entry.billed, entry.usage, entry.response_id) == (False, Usage(), None)
    assert entry.completed


@streamed_or_not
async def test_retry_after_comes_in_seconds_or_as_a_date(
    model: Model, model_server: ModelServer, streamed: bool
) -> None:
    in_a_minute = datetime.now(UTC) + timedelta(minutes=1)
    model_server.fail_next(1, Fault.status(429, retry_after=7))
    model_server.fail_next(1, Fault.status(429, retry_after=in_a_minute))

    with pytest.raises(ModelRateLimitError) as seconds:
        await ask(model, streamed)
    with pytest.raises(ModelRateLimitError) as date:
        await ask(model, streamed)

    assert seconds.value.retry_after == 7
    assert 50 < (date.value.retry_after or 0) <= 60


@streamed_or_not
async def test_a_slow_answer_arrives_whole_and_late(
    model: Model, model_server: ModelServer, streamed: bool
) -> None:
    model_server.fail_next(1, Fault.slow(before_headers=0.05, between_chunks=0.02))

    text, usage = await ask(model, streamed)

    assert (text, usage.input_tokens) == (TEXT, 100)
    entry = await the_only_entry(model_server)
    assert entry.ended is not None
    assert entry.ended - entry.started >= timedelta(seconds=0.05 + 3 * 0.02)
    assert (entry.billed, entry.usage, entry.completed) == (True, USAGE, True)


@streamed_or_not
async def test_a_hanging_answer_lasts_until_the_client_goes_away(
    model: Model, model_server: ModelServer, streamed: bool
) -> None:
    model_server.fail_next(1, Fault.hang())
    asking = asyncio.create_task(ask(model, streamed))
    (arrived,) = await model_server.ledger.wait_for(1)
    assert (arrived.ended, arrived.status) == (None, None)

    asking.cancel()

    with pytest.raises(asyncio.CancelledError):
        await asking
    entry = await the_only_entry(model_server)
    assert entry.client_disconnected
    assert (entry.billed, entry.usage, entry.completed) == (True, USAGE, False)


@streamed_or_not
async def test_an_answer_can_hang_in_the_middle(
    model: Model, model_server: ModelServer, streamed: bool
) -> None:
    model_server.fail_next(1, Fault.hang(after=2))
    pieces: asyncio.Queue[str] = asyncio.Queue()
    asking = asyncio.create_task(ask(model, streamed, pieces))
    await model_server.ledger.wait_for(1)
    if streamed:
        assert [await asyncio.wait_for(pieces.get(), PATIENCE) for _ in range(2)] == ["one two ", "three fo"]

    asking.cancel()

    with pytest.raises(asyncio.CancelledError):
        await asking
    entry = await the_only_entry(model_server)
    assert pieces.empty()
    assert (entry.status, entry.billed, entry.usage) == (200, True, USAGE)
    assert entry.client_disconnected


@streamed_or_not
@pytest.mark.parametrize("after", [0, 2, 99])
async def test_a_cut_answer_is_a_connection_error_and_billed(
    model: Model, model_server: ModelServer, streamed: bool, after: int
) -> None:
    model_server.fail_next(1, Fault.cut(after=after))
    pieces: asyncio.Queue[str] = asyncio.Queue()

    with pytest.raises(ModelConnectionError):
        await ask(model, streamed, pieces)

    seen = "".join(pieces.get_nowait() for _ in range(pieces.qsize()))
    assert seen == (TEXT[: after * 8] if streamed else "")
    entry = await the_only_entry(model_server)
    assert (entry.status, entry.billed, entry.usage, entry.fault) == (200, True, USAGE, "cut")
    assert (entry.completed, entry.client_disconnected) == (False, False)


@streamed_or_not
@pytest.mark.parametrize("billed", [True, False])
async def test_a_connection_that_closes_before_any_answer_is_billed_as_told(
    model: Model, model_server: ModelServer, streamed: bool, billed: bool
) -> None:
    model_server.fail_next(1, Fault.disconnect(billed=billed))

    with pytest.raises(ModelConnectionError):
        await ask(model, streamed)

    entry = await the_only_entry(model_server)
    assert (entry.status, entry.billed) == (None, billed)
    assert entry.usage == (USAGE if billed else Usage())
    assert (entry.completed, entry.client_disconnected) == (False, False)


@streamed_or_not
@pytest.mark.parametrize("after", [0, 1, 99])
async def test_malformed_json_is_a_decoding_error_and_billed(
    model: Model, model_server: ModelServer, streamed: bool, after: int
) -> None:
    model_server.fail_next(1, Fault.malformed(after=after))

    with pytest.raises(ModelAPIError, match="Failed to decode response as JSON"):
        await ask(model, streamed)

    entry = await the_only_entry(model_server)
    assert (entry.status, entry.billed, entry.usage, entry.fault) == (200, True, USAGE, "malformed")


class City(BaseModel):
    name: str
    people: int


@pytest.mark.parametrize("native", [False, True])
async def test_a_wrong_schema_is_refused_by_the_client_and_billed(
    model: Model, model_server: ModelServer, native: bool
) -> None:
    fault = Fault.wrong_schema()
    model_server.script(*[Reply(data=City(name="Rome", people=3), usage=USAGE, fault=fault)] * 2)
    agent: Agent[None, City] = Agent(model, output_type=NativeOutput(City) if native else City, retries=1)

    with pytest.raises(UnexpectedModelBehavior, match="output retries"):
        await agent.run("a city")

    entries = model_server.ledger.entries
    assert [(entry.billed, entry.usage, entry.fault) for entry in entries] == [
        (True, USAGE, "wrong_schema")
    ] * 2


@streamed_or_not
@pytest.mark.parametrize("reference", ["openai:gpt-5-mini", "openai-chat:gpt-5-mini"])
async def test_an_answer_without_usage_is_unmeasured_by_the_client_and_billed(
    model: Model, model_server: ModelServer, streamed: bool
) -> None:
    model_server.fail_next(1, Fault.missing_usage())

    text, usage = await ask(model, streamed)

    assert (text, usage.input_tokens, usage.unmeasured_requests) == (TEXT, 0, 1)
    assert (await the_only_entry(model_server)).usage == USAGE


@streamed_or_not
@pytest.mark.filterwarnings("ignore:Failed to extract usage")
async def test_an_anthropic_answer_without_counts_measures_nothing_and_is_billed(
    model_server: ModelServer, streamed: bool
) -> None:
    model_server.fail_next(1, Fault.missing_usage())

    text, usage = await ask(model_server.model("anthropic:claude-haiku-4-5"), streamed)

    assert (text, usage.input_tokens, usage.output_tokens) == (TEXT, 0, 0)
    assert (await the_only_entry(model_server)).usage == USAGE


@streamed_or_not
async def test_an_answer_can_miss_its_finish_reason(
    model: Model, model_server: ModelServer, reference: str, streamed: bool
) -> None:
    model_server.fail_next(1, Fault.missing_finish_reason())
    agent = Agent(model)

    if streamed:
        async with agent.run_stream("hi") as stream:
            await stream.get_output()
        response = stream.response
    else:
        response = (await agent.run("hi", model_settings=WHOLE)).response

    # PydanticAI takes a chat completion without a reason for one that stopped.
    assert response.finish_reason == ("stop" if reference.startswith("openai-chat") else None)
    assert "finish_reason" not in (response.provider_details or {})
    entry = await the_only_entry(model_server)
    assert (entry.billed, entry.usage, entry.fault) == (True, USAGE, "missing_finish_reason")


@pytest.mark.parametrize("latency", [0.05, timedelta(milliseconds=50)])
async def test_a_reply_can_be_late(
    model: Model, model_server: ModelServer, latency: float | timedelta
) -> None:
    model_server.script(Reply("late", latency=latency))

    await ask(model, streamed=False)

    entry = await the_only_entry(model_server)
    assert entry.ended is not None
    assert entry.ended - entry.started >= timedelta(seconds=0.05)


async def test_a_stream_has_its_delay_between_pieces_only(model: Model, model_server: ModelServer) -> None:
    minute = timedelta(minutes=1)
    model_server.script(
        Reply("one piece", chunk_size=100, chunk_delay=minute), Reply("two pieces", chunk_size=5)
    )

    assert (await ask(model, streamed=True))[0] == "one piece"


async def test_an_answer_without_content_can_be_cut_too(model: Model, model_server: ModelServer) -> None:
    model_server.script(Reply("", usage=USAGE, fault=Fault.cut(after=3)))

    with pytest.raises((ModelConnectionError, UnexpectedModelBehavior)):
        await ask(model, streamed=True)

    assert not (await the_only_entry(model_server)).completed


async def test_closing_one_connection_leaves_the_others_open(model: Model, model_server: ModelServer) -> None:
    model_server.fail_next(1, Fault.hang())
    hanging = asyncio.create_task(ask(model, streamed=True))
    await model_server.ledger.wait_for(1)
    model_server.fail_next(1, Fault.disconnect())

    with pytest.raises(ModelConnectionError):
        await ask(model, streamed=True)
    answered, _ = await ask(model, streamed=True)

    assert answered == TEXT
    assert model_server.ledger.entries[0].ended is None
    hanging.cancel()
    with pytest.raises(asyncio.CancelledError):
        await hanging
