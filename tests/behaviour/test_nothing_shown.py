"""With `set_redaction`, no secret is in spans, log records or traces, wherever it came from."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, Literal

import logfire
import pytest
from logfire.testing import TestExporter
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from pydantic import BaseModel
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

from fastroai import (
    AgentNode,
    Edge,
    FastroAgent,
    FastroAIError,
    Graph,
    MemoryRunStore,
    Node,
    Pipeline,
    PipelineConfig,
    RunHistory,
    SimpleTracer,
    StepConfig,
    StepContext,
    Verdict,
    compute,
    flow,
    safe_tool,
    step,
)
from fastroai.pipelines import BasePipeline
from fastroai.store import RunTrace, trace_of
from fastroai.tracing import LogfireTracer, OpenTelemetryTracer, set_redaction

SECRET = "Zwetschge"
PATTERNS = [SECRET]


@pytest.fixture(autouse=True)
def unredacted_again() -> Iterator[None]:
    yield
    set_redaction(None)


@pytest.fixture(params=["simple", "opentelemetry", "logfire"])
def tracing(request: pytest.FixtureRequest) -> Iterator[tuple[Any, Callable[[], str]]]:
    """A tracer, and a function that returns all that its backend was given."""
    if request.param == "simple":
        lines = list[str]()
        handler = logging.Handler()
        handler.emit = lambda record: lines.append(logging.Formatter().format(record))  # type: ignore[method-assign]
        logger = logging.Logger("of the application")
        logger.addHandler(handler)
        yield SimpleTracer(logger), lambda: "\n".join(lines)
    elif request.param == "opentelemetry":
        exporter = InMemorySpanExporter()
        provider = TracerProvider()
        provider.add_span_processor(SimpleSpanProcessor(exporter))
        yield (
            OpenTelemetryTracer(provider),
            lambda: "\n".join(span.to_json() for span in exporter.get_finished_spans()),
        )
        provider.shutdown()
    else:
        kept = TestExporter()
        instance = logfire.configure(
            local=True,
            send_to_logfire=False,
            console=False,
            metrics=False,
            scrubbing=False,
            additional_span_processors=[SimpleSpanProcessor(kept)],
        )
        yield LogfireTracer(instance), lambda: "\n".join(span.to_json() for span in kept.exported_spans)
        instance.shutdown(flush=False)


class Account(BaseModel):
    owner: Literal["Ms Pflaume"]


async def answers(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    returned = [part for part in messages[-1].parts if part.part_kind in ("tool-return", "retry-prompt")]
    if not returned and info.function_tools:
        return ModelResponse(parts=[ToolCallPart("look", {"what": SECRET})])
    return ModelResponse(parts=[TextPart(f"{SECRET} was said")], finish_reason=None)


@safe_tool(max_retries=0)
async def look(what: str) -> str:
    """Look something up."""
    raise ConnectionError(f"no {what} here")


async def of_an_agent(tracer: Any) -> RunTrace | None:
    async def after(*_: Any) -> None:
        raise RuntimeError(f"the hook fails on {SECRET}")

    agent = FastroAgent(FunctionModel(answers), name=f"asks-{SECRET}", tools=[look], on_after_dispatch=after)
    await agent.run(f"what of {SECRET}?", tracer=tracer, tags=[SECRET], tenant=SECRET)

    async def refuses(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        raise RuntimeError(f"not with {SECRET}")

    with pytest.raises(Exception, match=SECRET):
        await FastroAgent(FunctionModel(refuses)).run(SECRET, tracer=tracer)
    return None


async def of_a_pipeline(tracer: Any) -> RunTrace | None:
    agent = FastroAgent(FunctionModel(answers), tools=[look])

    @step(retries=1, retry_delay=0)
    async def says(ctx: StepContext[Any]) -> str:
        ctx.logger.info("about %s", SECRET, extra={"given": ctx.inputs, "who": Exception(SECRET), "n": 1})
        async with ctx.tracer.span(f"looks for {SECRET}", who=SECRET, names=[SECRET, "b"]) as trace_id:
            ctx.tracer.log_metric(trace_id, "found", SECRET)
            ctx.tracer.log_error(trace_id, ValueError(f"no {SECRET}"), {"of": SECRET})
        await ctx.once(f"tell {SECRET}", lambda: f"told {SECRET}")
        if ctx.attempt == 1:
            raise ConnectionError(f"{SECRET} is down")
        return (await ctx.run(agent, SECRET, name=f"on {SECRET}")).output

    @step
    async def fails(ctx: StepContext[Any]) -> str:
        try:
            raise KeyError(f"{SECRET} in the cause")
        except KeyError:
            Account.model_validate({"owner": SECRET})
        return ""

    def hook(*_: Any) -> None:
        raise RuntimeError(f"the hook fails on {SECRET}")

    pipeline: Pipeline[Any, Any, Any] = Pipeline(
        "p",
        {"says": says, "fails": fails},
        {"fails": ["says"]},
        config=PipelineConfig(on_step_start=hook),
    )
    with pytest.raises(FastroAIError) as caught:
        await pipeline.execute({f"name of {SECRET}": {SECRET: [SECRET]}}, tracer=tracer, tags=[SECRET])
    return trace_of(caught.value)


async def of_a_graph(tracer: Any) -> RunTrace | None:
    judged = list[str]()

    def judge(ctx: StepContext[Any], output: str) -> Verdict:
        judged.append(output)
        return Verdict.accept() if judged[1:] else Verdict.retry(f"more {SECRET}")

    @step
    async def begin(ctx: StepContext[Any]) -> dict[str, str]:
        return {"kind": SECRET}

    @step
    async def fails(ctx: StepContext[Any]) -> str:
        raise ValueError(f"no account for {SECRET}")

    agent = FastroAgent(FunctionModel(answers))
    graph: Graph[Any, Any] = Graph(
        "g",
        nodes={
            "begin": Node(begin, writes=["kind"]),
            "write": AgentNode(agent, lambda ctx: f"write of {SECRET}", judge=judge, max_iterations=2),
            "decide": begin,
            "fails": fails,
            "end": begin,
        },
        edges=[
            Edge("begin", "end", "conditional", f"kind == 'no {SECRET}'"),
            Edge("begin", "write", "conditional", f"kind == '{SECRET}'"),
            Edge("write", "decide"),
            Edge("decide", "end", "llm_decide"),
            Edge("decide", "fails", "llm_decide", fallback=True),
        ],
        decider=FastroAgent(FunctionModel(answers)),
        config=PipelineConfig(retries=0),
    )
    result = await graph.run({f"given {SECRET}": SECRET}, tracer=tracer)
    assert result.status == "failed"
    return result.trace


async def of_a_router(tracer: Any) -> RunTrace | None:
    @step
    async def fails(ctx: StepContext[Any]) -> str:
        raise ConnectionError(f"{SECRET} is down")

    @step
    async def works(ctx: StepContext[Any]) -> str:
        return f"{SECRET} works"

    class Router(BasePipeline[Any, Any, Any]):
        async def route(self, inputs: Any, deps: Any) -> str:
            return "first"

    router = Router("r")
    router.register_pipeline("first", Pipeline("first", {"fails": fails}), fallback="second")
    router.register_pipeline("second", Pipeline("second", {"works": works}))
    return (await router.execute({"name": SECRET}, tracer=tracer)).trace


async def of_typed_functions(tracer: Any) -> RunTrace | None:
    @compute
    async def charge(account: str) -> str:
        raise ValueError(f"no account {account}")

    @flow
    async def pay(account: str) -> str:
        return await charge(account)

    store = MemoryRunStore()
    with pytest.raises(ValueError, match=SECRET):
        await pay.run(SECRET, run_id="r", store=store, tracer=tracer)
    return await RunHistory(store).trace("r")


RUNS = [of_an_agent, of_a_pipeline, of_a_graph, of_a_router, of_typed_functions]


class Everything(logging.Handler):
    """Keeps all that a handler can see of a record: formatted, and each of its attributes."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.seen = list[str]()

    def emit(self, record: logging.LogRecord) -> None:
        exception = record.exc_info and record.exc_info[1]
        self.seen.append(f"{logging.Formatter().format(record)} {record.__dict__} {exception!r}")

    @property
    def text(self) -> str:
        return "\n".join(self.seen)


@pytest.fixture
def logged() -> Iterator[Everything]:
    handler = Everything()
    logger = logging.getLogger("fastroai")
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG)
    yield handler
    logger.removeHandler(handler)
    logger.setLevel(level)


@pytest.mark.parametrize("run", RUNS)
async def test_no_secret_is_shown(
    run: Callable[[Any], Awaitable[RunTrace | None]],
    tracing: tuple[Any, Callable[[], str]],
    logged: Everything,
) -> None:
    tracer, exported = tracing
    set_redaction(PATTERNS)
    trace = await run(tracer)
    assert "[redacted]" in exported()
    assert SECRET not in exported()
    assert SECRET not in logged.text
    if trace is not None:
        assert "[redacted]" in trace.to_json()
        assert "[redacted]" in trace.explain()
        assert SECRET not in trace.to_json() + trace.explain()
        assert RunTrace.from_json(trace.to_json()).status == trace.status

    set_redaction(None)
    await run(tracer)
    assert SECRET in exported()
    if run is not of_typed_functions:
        assert SECRET in logged.text
    if trace is not None:
        assert SECRET in trace.to_json(), "the trace itself is not changed"
        assert SECRET in trace.explain()


@pytest.mark.parametrize("run", RUNS)
@pytest.mark.parametrize("fault", ["raises", "returns None"])
async def test_a_redactor_that_fails_shows_nothing_and_fails_no_run(
    run: Callable[[Any], Awaitable[RunTrace | None]],
    fault: str,
    tracing: tuple[Any, Callable[[], str]],
    logged: Everything,
) -> None:
    tracer, exported = tracing

    def redact(text: str) -> str:
        if fault == "raises":
            raise ValueError(f"cannot redact {text}")
        return None  # type: ignore[return-value]

    set_redaction(redact)
    trace = await run(tracer)
    how = "raised ValueError" if fault == "raises" else "returned NoneType, not str"
    warning = f"the function given as redact= {how}; texts are shown as [redacted]"
    assert logged.text.count(warning) == 2, "one record: formatted, and as an attribute"
    assert SECRET not in exported() + logged.text
    if trace is not None:
        assert SECRET not in trace.to_json() + trace.explain()


async def test_the_run_itself_has_its_texts_as_they_are() -> None:
    set_redaction(PATTERNS)
    store = MemoryRunStore()

    @step
    async def says(ctx: StepContext[Any]) -> str:
        return f"{ctx.get_input('name')} says"

    pipeline: Pipeline[Any, Any, str] = Pipeline("p", {"says": says})
    result = await pipeline.execute({"name": SECRET}, run_id="r", store=store, tracer=SimpleTracer())
    assert result.output == f"{SECRET} says"
    assert result.trace.inputs == {"name": SECRET}
    forked = await pipeline.fork("r", at="says", store=store)
    assert forked.output == f"{SECRET} says", "what is on record is not redacted"


def test_amounts_of_money_stay_exact_whatever_is_redacted() -> None:
    set_redaction([r"\d+"])
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    agent = FastroAgent(FunctionModel(answers))
    Pipeline("p", {"a": agent.as_step("1")}, step_configs={"a": StepConfig()}).execute_sync(
        tracer=OpenTelemetryTracer(provider)
    )
    (costs,) = {(span.attributes or {})["fastroai.cost.usd"] for span in exporter.get_finished_spans()}
    assert costs == "0"
