"""A process that is told to begin or resume runs, and is forked for each, so that the fork can be killed.

It has imported everything and built the agents, and has no connection, and no thread but the background
loop, which does nothing. Tasks and answers are lines of JSON.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import psycopg  # noqa: F401  # before the fork
import redis  # noqa: F401
from pydantic_ai.models import Model
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.anthropic import AnthropicProvider
from pydantic_ai.providers.openai import OpenAIProvider
from pydantic_core import to_jsonable_python

from fastroai import CostBudgetExceeded, FastroAgent, Inbox, Pipeline, PipelineConfig, StepContext, step
from fastroai.errors import ConfigurationError, FlowStopped, RunNotFound
from fastroai.graphs import GraphResult
from fastroai.graphs.facts import EdgesResolved
from fastroai.human import waiting
from fastroai.runtime.facts import AnyFact, Wait, WaitEnded
from fastroai.steps.base import FunctionStep
from fastroai.store import (
    MemoryRunStore,
    PostgresRunStore,
    RedisRunStore,
    RunHistory,
    RunStore,
    SQLiteRunStore,
    StoredKey,
    StoredValues,
)
from fastroai.store.mailbox import messages_in
from fastroai.store.record import journal
from fastroai.store.record.headers import mail_key, read_header

sys.path.insert(0, str(Path(__file__).parents[1]))
from durability.flow_shapes import FLOWS, FlowShape
from durability.graph_shapes import GRAPHS, GraphShape
from durability.shapes import MESSAGES, SHAPES, Notebook, Shape
from durability.spending_hosts import SPENDING, Spender, open_spend_store
from durability.workflow_shapes import WORKFLOWS, WorkflowShape

AnyShape = Shape | GraphShape | FlowShape | WorkflowShape | None
"""`None` for spending, which is no run."""
Moment = Literal["before", "after"]


@dataclass(frozen=True, kw_only=True)
class Task:
    """One part of a run, to its end or until it is killed."""

    shape: str
    run_id: str
    store: tuple[str, str, str]
    """Kind, place, and prefix or schema."""
    durability: Literal["sync", "async"] = "sync"
    resumed: bool = False
    notes: str
    """Where it says what it does."""
    outcome: str
    """Where it says how it ended."""
    kill_at: tuple[Moment, int] | None = None
    """At which write of the store."""
    halt_at: tuple[Moment, int] | None = None
    """At which write it stops until it is told to go on."""
    kill_after: float | None = None
    """Seconds."""
    lease: float = 30.0
    timeout: float = 30.0
    """Seconds that the store has for an answer."""
    pause: float | None = None
    """Seconds between attempts at a write, if not as many as there are."""


def open_store(kind: str, place: str, name: str, timeout: float = 30.0) -> Any:
    if kind == "sqlite":
        return SQLiteRunStore(place, timeout=timeout)
    if kind == "redis":
        return RedisRunStore(place, prefix=name, timeout=timeout)
    return PostgresRunStore(place, schema=name, timeout=timeout)


class Deadly:
    """A store that kills or stops its process at a write. It counts them in any case."""

    def __init__(self, store: RunStore, task: Task) -> None:
        self._store, self._task, self.writes = store, task, 0

    def _begin(self) -> int:
        self.writes += 1
        self._come_to("before", self.writes)
        return self.writes

    def _end(self, number: int) -> None:
        self._come_to("after", number)

    def _come_to(self, moment: Moment, number: int) -> None:
        if self._task.kill_at == (moment, number):
            os.kill(os.getpid(), signal.SIGKILL)
        if self._task.halt_at == (moment, number):
            os.kill(os.getpid(), signal.SIGSTOP)

    async def append(self, key: str, values: Sequence[bytes], *, revision: int) -> None:
        number = self._begin()
        await self._store.append(key, values, revision=revision)
        self._end(number)

    async def compare_and_set(self, key: str, value: bytes, *, revision: int) -> None:
        number = self._begin()
        await self._store.compare_and_set(key, value, revision=revision)
        self._end(number)

    async def delete(self, key: str) -> None:
        number = self._begin()
        await self._store.delete(key)
        self._end(number)

    async def read(self, key: str, *, after: int = 0) -> StoredValues:
        return await self._store.read(key, after=after)

    async def list(self, prefix: str, *, after: str = "", limit: int = 100) -> Sequence[StoredKey]:
        return await self._store.list(prefix, after=after, limit=limit)


async def perform(task: Task, shape: AnyShape) -> dict[str, Any]:
    """Run it, and tell what came out."""
    if shape is None:
        spending = open_spend_store(*task.store, task.timeout)
        return await Spender(spending, task.lease, task.pause or 0.0).spend()
    store = Deadly(open_store(*task.store, task.timeout), task)
    if isinstance(shape, GraphShape):
        return await perform_graph(task, shape, store)
    if isinstance(shape, FlowShape):
        return await perform_flow(task, shape, store)
    if isinstance(shape, WorkflowShape):
        return await perform_workflow(task, shape, store)
    pipeline = shape.pipeline
    try:
        if task.resumed:
            result = await pipeline.resume(task.run_id, store=store)
        else:
            result = await pipeline.execute(shape.inputs, run_id=task.run_id, store=store)
        while result.status == "paused":
            if not result.questions:
                result = await go_on(pipeline, task.run_id, result.waits, store)
                continue
            first, *others = result.questions
            given = {one.id: shape.answer_to(one.question) for one in others}
            await Inbox(store).answer(first.id, shape.answer_to(first.question), reviewer="Mia")
            result = await pipeline.resume(task.run_id, store=store, answers=given)
        if shape.answers:
            assert result.trace.replay(pipeline) is None
    except RunNotFound:
        return {"not_found": True}
    except CostBudgetExceeded:
        return {"stopped": True, "writes": store.writes}
    usage = result.usage
    steps = sum(step.cost_usd for step in usage.steps.values())
    return {
        "output": result.output,
        "cost_usd": str(usage.cost_usd),
        "committed_usd": str(usage.total.committed_usd),
        "steps_usd": str(steps),
        "requests": usage.request_count,
        "writes": store.writes,
    }


async def go_on(door: Any, run_id: str, waits: Sequence[Wait], store: Deadly) -> Any:
    """Send the run the next message, unless it has come already, and wake it when it is time."""
    header = (await read_header(store, run_id)).header
    sent = [message.value for _, message in messages_in(await store.read(mail_key(header)), run_id)]
    ended = [fact for _, fact in await entries_until_end(door, run_id, store) if isinstance(fact, WaitEnded)]
    received = sum(1 for fact in ended if fact.wait.name == "number")
    if any(wait.name == "number" for wait in waits) and received == len(sent):
        await door.send(run_id, "number", MESSAGES[len(sent)], store=store)
    while not (woken := await door.wake(store=store)):
        await asyncio.sleep(0.002)
    if isinstance(woken[run_id], Exception):
        raise woken[run_id]
    return woken[run_id]


async def entries_until_end(door: Any, run_id: str, store: Deadly) -> Sequence[tuple[int, AnyFact]]:
    """What is on record of a run that is paused."""
    return [found async for found in door.follow(run_id, store=store)]


async def perform_graph(task: Task, shape: GraphShape, store: Deadly) -> dict[str, Any]:
    """Run it, answer what it asks, and tell how it ended."""
    graph = shape.graph
    try:
        if not task.resumed:
            result = await graph.run(shape.inputs, run_id=task.run_id, store=store)
        else:
            try:
                result = await graph.resume(task.run_id, store=store)
            except ConfigurationError as error:  # a question waits
                answer = {"input": shape.answers[_asked_by(error)]}
                result = await graph.resume(task.run_id, **answer, store=store)
        while result.status == "paused":
            if not result.questions:
                result = await go_on(graph, task.run_id, result.waits, store)
                continue
            asked = result.questions[0]
            assert asked.answer_schema is not None
            if asked.node not in shape.answers:  # of ctx.ask, and not of a pause node
                await Inbox(store).answer(asked.id, shape.answers[asked.question])
                result = await graph.resume(task.run_id, store=store)
                continue
            result = await graph.resume(task.run_id, input=shape.answers[asked.node], store=store)
    except RunNotFound:
        return {"not_found": True}
    if result.status == "budget_exceeded":
        return {"stopped": True, "writes": store.writes}
    divergence = result.trace.replay(graph)
    assert divergence is None, f"{divergence}:\n{result.explain()}"
    usage = result.usage
    return {
        "output": _everything(result),
        "status": result.status,
        "cost_usd": str(usage.cost_usd),
        "committed_usd": str(usage.total.committed_usd),
        "steps_usd": str(sum(visit.cost_usd for visit in usage.by_visit.values())),
        "requests": usage.request_count,
        "writes": store.writes,
    }


async def perform_flow(task: Task, shape: FlowShape, store: Deadly) -> dict[str, Any]:
    """Run it, answer what it asks, and tell what came out."""
    door, begins = shape.flow, not task.resumed
    while True:
        try:
            if begins:
                output = await door.run(**shape.inputs, run_id=task.run_id, store=store)
            else:
                output = await door.resume(task.run_id, store=store)
        except RunNotFound:
            return {"not_found": True}
        except FlowStopped as stopped:
            begins = False
            first: Any = stopped.questions[0]
            await Inbox(store).answer(first.id, shape.answers[first.question], reviewer="Mia")
        else:
            break
    trace = await RunHistory(store).trace(task.run_id)
    assert trace.replay(door) is None
    paid = [call.cost_usd for call in trace.calls if call.kind == "infer"]
    return {
        "output": output,
        "cost_usd": str(trace.usage.cost_usd),
        "committed_usd": str(trace.usage.committed_usd),
        "steps_usd": str(sum(paid)),
        "requests": trace.usage.request_count,
        "writes": store.writes,
    }


async def perform_workflow(task: Task, shape: WorkflowShape, store: Deadly) -> dict[str, Any]:
    """Run it, decide at its gate, and tell what came out."""
    door = shape.workflow
    try:
        if task.resumed:
            result = await door.resume(task.run_id, store=store)
        else:
            result = await door.run(shape.inputs, run_id=task.run_id, store=store)
    except RunNotFound:
        return {"not_found": True}
    while result.status == "paused":
        (asked,) = result.questions
        await Inbox(store).answer(asked.id, shape.decisions[result.round], reviewer="Mia")
        result = await door.resume(task.run_id, store=store)
    assert (result.status, door.replay(result.trace)) == ("complete", None)
    usage = result.usage
    return {
        "output": {"output": result.output, "outputs": dict(sorted(result.outputs.items()))},
        "cost_usd": str(usage.cost_usd),
        "committed_usd": str(usage.total.committed_usd),
        "steps_usd": str(sum(step.cost_usd for step in usage.by_step.values())),
        "requests": usage.request_count,
        "writes": store.writes,
    }


def _asked_by(error: ConfigurationError) -> str:
    """The node that the message names."""
    return str(error).split("the answer that node '")[1].partition("'")[0]


def _everything(result: GraphResult[Any]) -> Any:
    """All that a result says, as JSON, but for what was spent and when."""
    told = {
        "status": result.status,
        "quality": result.quality,
        "output": result.output,
        "outputs": dict(sorted(result.outputs.items())),
        "memory": dict(sorted(result.memory.items())),
        "path": result.path,
        "visits": dict(sorted(result.visits.items())),
        "errors": {node: str(error) for node, error in sorted(result.errors.items())},
        "reason": result.reason,
        "error": None if result.error is None else str(result.error),
        "resume_at": result.resume_at,
        "nodes": sorted(result.usage.by_node),
        "routes": sorted(  # each once: what failed at last is routed again
            {
                f"{entry.place}: {[edge.target for edge in entry.edges if edge.taken]}"
                for entry in result.trace.entries
                if isinstance(entry, EdgesResolved)
            }
        ),
    }
    return json.loads(json.dumps(to_jsonable_python(told)))


def run(task: Task, shape: AnyShape) -> None:
    """In the forked process."""
    Notebook.path = Path(task.notes)
    if task.pause is not None:
        journal.backoff_delay = lambda *_: task.pause
    try:
        outcome = asyncio.run(perform(task, shape))
    except BaseException as error:
        outcome = {"error": traceback.format_exc(), "raised": type(error).__name__, "says": str(error)}
    Path(task.outcome).write_text(json.dumps(outcome))


def attempt(task: Task, shape: AnyShape) -> dict[str, Any]:
    """Fork for a task, and kill that if the task says so. What it tells, and how long it took."""
    started = time.perf_counter()
    child = os.fork()
    if child == 0:
        try:
            run(task, shape)
        finally:
            os._exit(0)
    if task.kill_after is not None:
        while (ended := os.waitpid(child, os.WNOHANG)) == (0, 0):
            if time.perf_counter() - started >= task.kill_after:
                os.kill(child, signal.SIGKILL)
                ended = os.waitpid(child, 0)
                break
            time.sleep(0.0005)
    else:
        while os.WIFSTOPPED((ended := os.waitpid(child, os.WUNTRACED))[1]):
            print(json.dumps({"halted": True}), flush=True)
            sys.stdin.readline()
            os.kill(child, signal.SIGCONT)
    seconds = time.perf_counter() - started
    if os.WIFSIGNALED(ended[1]):
        return {"killed": True, "seconds": seconds}
    return {**json.loads(Path(task.outcome).read_text()), "seconds": seconds}


async def warm_up() -> None:
    """Ask once in each way, through connections that are closed after, so that no fork has to learn it."""
    key, url = os.environ["OPENAI_API_KEY"], os.environ["OPENAI_BASE_URL"]
    openai = OpenAIProvider(base_url=url, api_key=key)
    anthropic = AnthropicProvider(base_url=os.environ["ANTHROPIC_BASE_URL"], api_key=key)
    models: list[Model] = [
        OpenAIChatModel("gpt-5-mini", provider=openai),
        OpenAIResponsesModel("gpt-5-mini", provider=openai),
        AnthropicModel("claude-haiku-4-5", provider=anthropic),
    ]

    def step_of(model: Model) -> FunctionStep[Any, str]:
        agent = FastroAgent(model, max_tokens=10, tools=[no_tool])

        @step
        async def ask(ctx: StepContext) -> str:
            text = str((await ctx.run(agent, "warm")).output)
            async with ctx.run_stream(agent, "warm") as chunks:
                return text + "".join([chunk.content or "" async for chunk in chunks])

        return ask

    steps = {f"ask{number}": step_of(model) for number, model in enumerate(models)}
    pipeline = Pipeline("warm", steps, {"ask0": ["ask1"], "ask1": ["ask2"]})
    store = MemoryRunStore()
    await pipeline.execute({}, run_id="warm", store=store)
    await pipeline.resume("warm", store=store)
    await openai.client.close()
    await anthropic.client.close()


async def no_tool() -> None:
    """Called by nobody."""


def main() -> None:
    """Do one task after the other."""
    waiting.SHORT_SLEEP = 0.0  # every sleep halts
    random.seed()
    asyncio.run(warm_up())
    for thread in threading.enumerate():  # those of the loop that has ended come to their end, too
        if thread.name.startswith("AnyIO"):
            thread.join()
    names = {thread.name for thread in threading.enumerate()}
    assert names == {"MainThread", "fastroai-sync"}, names
    print("ready", flush=True)
    shapes: dict[tuple[str, str, float], AnyShape] = {}
    builds: dict[str, Callable[[PipelineConfig], AnyShape]]
    builds = {**SHAPES, **GRAPHS, **FLOWS, **WORKFLOWS, SPENDING: lambda _: None}
    for line in sys.stdin:
        told = json.loads(line)
        moments = {name: told[name] and tuple(told[name]) for name in ("kill_at", "halt_at")}
        task = Task(**(told | moments))
        key = task.shape, task.durability, task.lease
        if key not in shapes:
            config = PipelineConfig(durability=task.durability, lease=task.lease)
            shapes[key] = builds[task.shape](config)
        print(json.dumps(attempt(task, shapes[key])), flush=True)


if __name__ == "__main__":
    main()
