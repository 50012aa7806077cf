"""With a codec, nothing of what users gave or said can be read in a store, wherever it went."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import psycopg
import pytest
import redis
from psycopg import sql
from pydantic_ai import ModelRetry
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from support.faulty_store import everything_in
from support.run_stores import KINDS, run_stores

from fastroai import (
    AgentNode,
    Edge,
    FastroAgent,
    Graph,
    Inbox,
    Node,
    Pipeline,
    PipelineConfig,
    RunHistory,
    StepContext,
    Verdict,
    compute,
    flow,
    send_message,
    step,
)
from fastroai.errors import AnswerRejected, FlowStopped, MessageRejected, RunCorrupt, StepExecutionError
from fastroai.functions import HumanReviewContext, await_human
from fastroai.graphs import Send
from fastroai.pipelines import StepConfig
from fastroai.store import EncryptingCodec

SECRET = "Zwetschge"
CODEC = EncryptingCodec({"k": EncryptingCodec.new_key()})


@pytest.fixture(params=KINDS)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Any]:
    with run_stores(request.param, request, tmp_path) as open_store:
        opened = open_store()
        yield opened
        if request.param != "memory":
            asyncio.run(opened.aclose())


@pytest.fixture
def raw(store: Any, request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    """Reads all that a store holds, without the code of the store."""

    async def read() -> bytes:
        read_by_store = repr(await everything_in(store)).encode()
        match type(store).__name__:
            case "SQLiteRunStore":
                found = _in_files(tmp_path)
            case "RedisRunStore":
                found = _of_redis(request.getfixturevalue("redis_url"))
            case "PostgresRunStore":
                found = _of_postgres(request.getfixturevalue("postgres_dsn"))
            case _:
                found = read_by_store
        assert b"run_started" in found, "the values of the store are there"
        return found + read_by_store

    return read


def _in_files(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in folder.iterdir())


def _of_redis(url: str) -> bytes:
    found = []
    with redis.Redis.from_url(url) as client:
        reads: dict[Any, Any] = {
            b"string": client.get,
            b"hash": client.hgetall,
            b"list": lambda key: client.lrange(key, 0, -1),
            b"zset": lambda key: client.zrange(key, 0, -1),
            b"stream": client.xrange,
        }
        for key in client.scan_iter():
            if (read := reads.get(client.type(key))) is not None:
                found.append(repr((key, read(key))))
    return "".join(found).encode()


def _of_postgres(dsn: str) -> bytes:
    found = []
    with psycopg.connect(dsn, autocommit=True) as connection:
        tables = connection.execute(
            "SELECT table_schema, table_name FROM information_schema.tables WHERE table_schema LIKE 'test%'"
        ).fetchall()
        for schema, table in tables:
            try:
                query = sql.SQL("SELECT * FROM {}").format(sql.Identifier(schema, table))
                found.append(repr(connection.execute(query).fetchall()))
            except (psycopg.errors.UndefinedTable, psycopg.errors.InvalidSchemaName):
                pass  # of another test, which has ended
    return "".join(found).encode()


def config(store: Any) -> PipelineConfig:
    return PipelineConfig(store=store, codec=CODEC, retries=0)


async def calls_a_tool(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    returned = [part for part in messages[-1].parts if part.part_kind in ("tool-return", "retry-prompt")]
    if not returned:
        return ModelResponse(parts=[ToolCallPart("look", {"what": SECRET})])
    return ModelResponse(parts=[TextPart(f"{SECRET} was said")])


async def look(what: str) -> str:
    raise ModelRetry(f"no {what} here")


async def test_nothing_of_a_pipeline_can_be_read(store: Any, raw: Any) -> None:
    agent = FastroAgent(FunctionModel(calls_a_tool), tools=[look])

    @step
    async def does(ctx: StepContext[Any]) -> str:
        await ctx.once(f"tell {SECRET}", lambda: f"told {SECRET}")
        return (await ctx.run(agent, f"what of {SECRET}?", name=f"on {SECRET}")).output

    @step(retries=1, retry_delay=0)
    async def fails(ctx: StepContext[Any]) -> str:
        def refuses() -> None:
            raise ValueError(f"no once for {SECRET}")

        await ctx.once(f"refuse {SECRET}", refuses)
        return ""

    @step
    async def asks(ctx: StepContext[Any]) -> str:
        answer = await ctx.ask(
            f"is {SECRET} fine?", options=[f"{SECRET} is", f"{SECRET} is not"], to=f"{SECRET}@example.org"
        )
        typed = await ctx.ask("which?", Literal[SECRET], name="typed")  # type: ignore[valid-type]
        return f"{answer} {typed}"

    @step
    async def waits(ctx: StepContext[Any]) -> str:
        return str(await ctx.receive("paid", Literal[SECRET]))

    pipeline: Pipeline[Any, Any, Any] = Pipeline(
        "p",
        {"does": does, "fails": fails, "asks": asks, "waits": waits},
        output_step="asks",
        config=config(store),
        step_configs={"fails": StepConfig(on_error="continue")},
    )
    given = {f"account of {SECRET}": f"{SECRET} 4711"}
    paused = await pipeline.execute(given, run_id="r")
    assert paused.status == "paused"
    inbox = Inbox(store, codec=CODEC)
    for answer in (f"{SECRET} is", SECRET):
        (asked,) = await inbox.list()
        if asked.options is not None:
            assert (asked.question, asked.to) == (f"is {SECRET} fine?", f"{SECRET}@example.org")
        else:
            assert SECRET in str(asked.answer_schema)
        with pytest.raises(AnswerRejected, match="the run has a codec"):
            await Inbox(store).answer(asked.id, answer)
        await inbox.answer(asked.id, answer, reviewer=f"Ms {SECRET}", rationale=f"{SECRET} said so")
        assert (await inbox.get(asked.id)).answer is not None
        await pipeline.resume("r")
    with pytest.raises(MessageRejected, match="the run has a codec"):
        await send_message("r", "paid", SECRET, store=store)
    with pytest.raises(MessageRejected):
        await pipeline.send("r", "paid", "plums")
    assert SECRET.encode() not in await raw(), "while the run waits"
    await pipeline.send("r", "paid", SECRET)
    result = await pipeline.resume("r")
    assert result.output == f"{SECRET} is {SECRET}"
    assert SECRET.encode() not in await raw()
    trace = await RunHistory(store, codec=CODEC).trace("r")
    assert trace.inputs == given
    for told in (
        f"does 'tell {SECRET}', once in this run",
        f"Ms {SECRET} has answered, because {SECRET} said so",
        f"ValueError: no once for {SECRET}",
    ):
        assert told in trace.explain()
    assert f"no {SECRET} here" in trace.to_json()
    assert f"on {SECRET}" in trace.to_json()


async def test_nothing_of_a_run_that_fails_or_is_cancelled_can_be_read(store: Any, raw: Any) -> None:
    mended, began = list[int](), asyncio.Event()

    @step
    async def slow(ctx: StepContext[Any]) -> str:
        began.set()
        if not mended:
            await asyncio.Event().wait()
        return "slow"

    @step
    async def fails(ctx: StepContext[Any]) -> str:
        await began.wait()
        if not mended:
            raise ValueError(f"{SECRET} has no account")
        return "mended"

    pipeline: Pipeline[Any, Any, Any] = Pipeline(
        "p", {"slow": slow, "fails": fails}, output_step="fails", config=config(store)
    )
    with pytest.raises(StepExecutionError, match=SECRET):
        await pipeline.execute({SECRET: 1}, run_id="r", tags=["found"], tenant="by-this")
    assert SECRET.encode() not in await raw()
    history = RunHistory(store, codec=CODEC)
    (listed,) = await history.list(tag="found", tenant="by-this")
    assert SECRET in str(listed.error)
    assert SECRET in (await history.trace("r")).explain()
    with pytest.raises(RunCorrupt, match=r"it went through a codec, which PipelineConfig\(codec=...\)"):
        await Pipeline("p", dict(pipeline.steps), output_step="fails").resume("r", store=store)
    mended.append(1)
    forked = await pipeline.fork("r", at="slow", inputs={f"new {SECRET}": 2}, new_run_id="f")
    assert (await history.trace("f")).inputs == {SECRET: 1, f"new {SECRET}": 2}
    resumed = await pipeline.resume("r", inputs={f"late {SECRET}": 3})
    assert resumed.output == forked.output == "mended"
    assert f"late {SECRET}" in (await history.trace("r")).inputs
    assert SECRET.encode() not in await raw()


async def test_nothing_of_a_graph_can_be_read(store: Any, raw: Any) -> None:
    prompts, began = list[str](), asyncio.Event()

    async def talk(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        prompts.append(str(messages[-1]))
        if info.output_tools:
            said = {"reasoning": f"{SECRET} is a reason", "target": "split"}
            return ModelResponse(parts=[ToolCallPart(info.output_tools[0].name, said)])
        return ModelResponse(parts=[TextPart(f"{SECRET} {len(prompts)}")])

    def judge(ctx: StepContext[Any], output: str) -> Verdict:
        return Verdict.retry(f"more {SECRET}, please") if output.endswith("1") else Verdict.accept()

    @step
    async def begin(ctx: StepContext[Any]) -> dict[str, Any]:
        ctx.write(f"early {SECRET}", f"{SECRET} early")
        return {"kind": SECRET}

    @step
    async def ask(ctx: StepContext[Any]) -> str:
        return f"is {SECRET} fine?"

    @step
    async def split(ctx: StepContext[Any]) -> list[Send]:
        return [Send("work", {f"key of {SECRET}": f"{SECRET} sent"})]

    @step
    async def work(ctx: StepContext[Any]) -> str:
        return f"{SECRET} worked"

    @step
    async def fork(ctx: StepContext[Any]) -> str:
        return "fork"

    @step
    async def waits(ctx: StepContext[Any]) -> str:
        began.set()
        await asyncio.Event().wait()
        return ""

    @step
    async def fails(ctx: StepContext[Any]) -> str:
        await began.wait()
        raise ValueError(f"no account for {SECRET}")

    agent = FastroAgent(FunctionModel(talk))
    graph: Graph[Any, Any] = Graph(
        "g",
        nodes={
            "begin": Node(begin, writes=["kind", f"early {SECRET}"]),
            "write": AgentNode(agent, lambda ctx: f"write of {SECRET}", judge=judge, max_iterations=3),
            "ask": Node(ask, answer_type=Literal[f"yes, {SECRET}"]),
            "split": split,
            "work": work,
            "fork": fork,
            "waits": waits,
            "fails": fails,
            "end": fork,
        },
        edges=[
            Edge("begin", "end", "conditional", f"kind == 'no {SECRET}'"),
            Edge("begin", "write", "conditional", f"kind == '{SECRET}'"),
            Edge("write", "ask"),
            Edge("ask", "split", "llm_decide"),
            Edge("ask", "end", "llm_decide", fallback=True),
            Edge("split", "work", "send"),
            Edge("work", "fork"),
            Edge("fork", "waits", "on_success"),
            Edge("fork", "fails", "on_success"),
            Edge("waits", "end", "on_success"),
            Edge("fails", "end", "on_success"),
        ],
        decider=agent,
        pause_nodes=["ask"],
        config=config(store),
    )
    assert (await graph.run({f"given {SECRET}": SECRET}, run_id="r")).status == "paused"
    assert any("please" in one for one in prompts), "the judge was heard"
    assert SECRET.encode() not in await raw(), "while the run waits"
    failed = await graph.resume("r", input=f"yes, {SECRET}")
    assert failed.status == "failed", failed.path
    assert f"no account for {SECRET}" in str(failed.error)
    assert SECRET.encode() not in await raw()
    trace = await RunHistory(store, codec=CODEC).trace("r")
    assert trace.definition == graph.definition
    for told in (f"kind ('{SECRET}') == '{SECRET}' is true", f"decided for: {SECRET} is a reason"):
        assert told in trace.explain()
    assert f"more {SECRET}, please" in trace.to_json()
    assert f"early {SECRET}" in trace.to_json()
    without = await RunHistory(store).trace("r")
    assert without.kind == "graph"
    assert {summary.step for summary in without.steps} >= {*graph.nodes}


async def test_nothing_of_a_flow_of_typed_functions_can_be_read(store: Any, raw: Any) -> None:
    @compute
    async def charge(account: str) -> str:
        raise ValueError(f"no account {account}")

    @flow(config=config(store))
    async def pay(account: str) -> str:
        decision = await await_human(HumanReviewContext(f"is {account} fine?"), str, to=f"{SECRET}@x.org")
        assert (decision.value, decision.reviewer) == (f"{SECRET} is", f"Ms {SECRET}")
        return await charge(account)

    with pytest.raises(FlowStopped):
        await pay.run(SECRET, run_id="r")
    inbox = Inbox(store, codec=CODEC)
    (asked,) = await inbox.list()
    await inbox.answer(asked.id, f"{SECRET} is", reviewer=f"Ms {SECRET}")
    with pytest.raises(ValueError, match=f"no account {SECRET}"):
        await pay.resume("r")
    assert SECRET.encode() not in await raw()
    trace = await RunHistory(store, codec=CODEC).trace("r")
    assert [call.inputs for call in trace.calls] == [{"account": SECRET}]
    assert f"no account {SECRET}" in trace.explain()
