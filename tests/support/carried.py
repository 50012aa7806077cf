"""An application whose runs workers carry: `python carried.py URL NAME NOTES [QUEUE]` is one of them.

Each step says in a file that it runs, so that a test sees what ran how often, whatever became of the process.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

from pydantic_ai import Agent
from typing_extensions import TypedDict

from fastroai import (
    BasePipeline,
    Edge,
    FastroAgent,
    Graph,
    Pipeline,
    PipelineConfig,
    SpendLimit,
    StepContext,
    compute,
    flow,
    infer,
    step,
)
from fastroai.distributed import CarriedRun, Distributed, QueueOptions
from fastroai.runtime import CircuitBreaker, ProviderLimit
from fastroai.store import SQLiteSpendStore
from fastroai.workflows import Workflow
from support.fork_server import ForkedProcess
from support.patience import PATIENCE


class Notes:
    """A file to which each line is added whole."""

    path = Path(os.devnull)

    @classmethod
    def write(cls, *words: object) -> None:
        file = os.open(cls.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        os.write(file, (json.dumps(words) + "\n").encode())
        os.close(file)

    @classmethod
    def read(cls) -> Sequence[Sequence[Any]]:
        text = cls.path.read_text() if cls.path.exists() else ""
        return [json.loads(line) for line in text.splitlines()]

    @classmethod
    def ran(cls, run_id: str) -> Counter[str]:
        """How often each step of a run has begun."""
        return Counter(words[2] for words in cls.read() if words[0] == "ran" and words[1] == run_id)


def noted(ctx: StepContext[Any], name: str) -> None:
    Notes.write("ran", ctx.run_id, name, ctx.idempotency_key, os.getpid())


class Inputs(TypedDict):
    number: int


@step
async def first(ctx: StepContext[str]) -> int:
    noted(ctx, "first")
    await asyncio.sleep(0.05)
    return ctx.get_input("number", int)


@step
async def second(ctx: StepContext[str]) -> int:
    noted(ctx, "second")
    await ctx.once("posted", lambda: Notes.write("posted", ctx.run_id, ctx.idempotency_key))
    await asyncio.sleep(0.05)
    return ctx.get_dependency("first", int) * 2


@step
async def third(ctx: StepContext[str]) -> str:
    noted(ctx, "third")
    await asyncio.sleep(0.05)
    return f"{ctx.deps}:{ctx.get_dependency('second', int)}"


@step
async def dies(ctx: StepContext[str]) -> None:
    noted(ctx, "dies")
    if not os.environ.get("SPARED"):
        os.kill(os.getpid(), signal.SIGKILL)


@step
async def asks(ctx: StepContext[str]) -> bool:
    noted(ctx, "asks")
    return await ctx.ask("May I?", bool)


@step
async def naps(ctx: StepContext[str]) -> str:
    noted(ctx, "naps")
    await ctx.sleep(0.3)
    return "rested"


@step
async def waits(ctx: StepContext[str]) -> str:
    noted(ctx, "waits")
    await asyncio.sleep(PATIENCE)
    return "never"


@step
async def writes(ctx: StepContext[str]) -> str:
    noted(ctx, "writes")
    agent: FastroAgent[Any, str] = FastroAgent("openai-chat:gpt-5-mini", max_tokens=100)
    return (await ctx.run(agent, f"write about {ctx.get_input('number', int)}")).output


@compute
async def doubled(number: int) -> int:
    Notes.write("ran", "", "doubled", "", os.getpid())
    await asyncio.sleep(0.05)
    return number * 2


@infer(intent="Repeat the text", model="openai-chat:gpt-5-mini", retries=0)
async def repeat(text: str) -> str:
    raise NotImplementedError


@infer(intent="Repeat the text", model="openai:gpt-5-mini", retries=0)
async def repeat_cheaply(text: str) -> str:
    raise NotImplementedError


class Routed(BasePipeline[str, Inputs, str]):
    async def route(self, inputs: Inputs, deps: str) -> str:
        return "only"


SPEC: Final = """
version: "0.2"
contracts: {Out: {number: {type: integer}}}
functions:
  triple: {mode: compute, intent: Triple it, input: {number: {type: integer}}, output: Out}
flows:
  tripled:
    input: {number: {type: integer}}
    output: Out
    steps:
      - {id: once, function: triple, inputs: {number: $.input.number}}
      - {id: twice, function: triple, inputs: {number: $.steps.once.output.number}}
"""


async def triple(number: int) -> dict[str, int]:
    await asyncio.sleep(0.05)
    return {"number": number * 3}


def changing(code: str, config: PipelineConfig) -> Pipeline[Any, Any, Any]:
    """A pipeline whose old runs no new code can carry, and the other way round."""

    @step
    async def says(ctx: StepContext[str]) -> str:
        noted(ctx, code)
        return code

    needs = {"asks": [code], "says": ["asks"]}
    return Pipeline("changing", {code: first, "asks": asks, "says": says}, dependencies=needs, config=config)


def answering(code: str) -> Any:
    """A typed function that asks something else in each code."""

    @infer(intent=f"Repeat the text in {code} words", model="openai-chat:gpt-5-mini", retries=0)
    async def reword(text: str) -> str:
        raise NotImplementedError

    return reword


def doors() -> Sequence[Any]:
    """The pipelines and so on that workers know."""
    config = PipelineConfig(lease=float(os.environ.get("LEASE", "2")))
    work = {"first": first, "second": second, "third": third}
    needs = {"second": ["first"], "third": ["second"]}
    with_questions = {"first": first, "asks": asks, "naps": naps}

    @flow(config=config)
    async def doubles(number: int) -> int:
        return await doubled(number) + await doubled(number + 1)

    routed = Routed("routed", config=config)
    routed.register_pipeline("only", Pipeline("only", work, dependencies=needs, accepts=Inputs))
    return [
        Pipeline("work", work, dependencies=needs, accepts=Inputs, config=config),
        routed,
        Workflow.load(SPEC).bind(functions={"triple": triple}, config=config),
        changing(os.environ.get("CODE", "old"), config),
        answering(os.environ.get("CODE", "old")),
        Pipeline("people", with_questions, dependencies={"asks": ["first"], "naps": ["asks"]}, config=config),
        Pipeline("deadly", {"dies": dies}, config=config),
        Pipeline("endless", {"waits": waits}, config=config),
        Pipeline(
            "writing",
            {"writes": writes, "naps": naps},
            dependencies={"naps": ["writes"]},
            config=config,
            output_step="naps",
        ),
        Graph("circle", nodes={"first": first, "naps": naps}, edges=[Edge("first", "naps")], config=config),
        doubles,
        repeat,
        repeat_cheaply,
        FastroAgent(
            agent=Agent("openai-chat:gpt-5-mini", defer_model_check=True), name="scribe", request_retries=0
        ),
    ]


def deps_of(run: CarriedRun) -> str:
    """The `deps` of a run, unless it is one for which there are none."""
    Notes.write("deps", run.run_id, os.getpid())
    if run.tenant == "without":
        raise LookupError("no deps for this tenant")
    return f"{run.tenant}/{run.inputs.get('number')}"


LIMIT_USD: Final = Decimal("0.001")
FAILURES: Final = 2
TWO_AT_ONCE: Final = QueueOptions(global_concurrency=2, polling_interval_sec=0.05)


AT_ONCE: Final = 2


def limited(spending: str, url: str) -> Sequence[Any]:
    """Pipelines under limits that all workers keep together."""
    breaker = ProviderLimit(
        circuit_breaker=CircuitBreaker(failures=FAILURES, window=PATIENCE, cooldown=PATIENCE),
        store=url,
        key="ill",
    )
    narrow = ProviderLimit(max_concurrency=AT_ONCE, store=url, key="narrow")
    agent: FastroAgent[Any, str] = FastroAgent("openai-chat:gpt-5-mini", max_tokens=100, request_retries=0)
    limit = SpendLimit(usd=LIMIT_USD, window="total", store=SQLiteSpendStore(spending))

    @step
    async def asks_a_model(ctx: StepContext[str]) -> str:
        noted(ctx, "begins")
        text = (await ctx.run(agent, ctx.get_input("text", str))).output
        noted(ctx, "ends")
        return text

    paid = PipelineConfig(lease=2.0, budget=limit)
    ill = PipelineConfig(lease=2.0, provider_limits={"openai": breaker})
    busy = PipelineConfig(lease=2.0, provider_limits={"openai": narrow})
    return [
        Pipeline("spending", {"asks": asks_a_model}, config=paid),
        Pipeline("ill", {"asks": asks_a_model}, config=ill),
        Pipeline("busy", {"asks": asks_a_model}, config=busy),
    ]


def application(url: str, name: str) -> Distributed:
    app = Distributed(url, name=name)
    app.register(*doors(), deps_factory=deps_of)
    if spending := os.environ.get("LIMITS"):
        app.register(*limited(spending, url), deps_factory=deps_of)
    app.register_queue("default", QueueOptions(polling_interval_sec=0.05))
    app.register_queue("two-at-once", TWO_AT_ONCE)
    return app


class Workers:
    """Processes that carry runs of an application."""

    def __init__(self, url: str, name: str, notes: Path) -> None:
        self.url, self.name, self.notes = url, name, notes
        self.running: list[Any] = []
        Notes.path = notes

    def begin(
        self, *queues: str, inside: Sequence[str] = (), url: str | None = None, **environment: str
    ) -> Any:
        """Begin a worker; `inside` runs a command on another machine, which knows the URL as `url`."""
        given = url or self.url, self.name, str(self.notes), *queues
        environment = {**os.environ, **environment}
        process: Any
        if inside:
            tests = str(Path(__file__).parents[1])
            environment["PYTHONPATH"] = os.pathsep.join([*filter(None, sys.path), tests])
            process = subprocess.Popen([*inside, sys.executable, __file__, *given], env=environment)
        else:
            process = ForkedProcess(work, *given, environment=environment)
        self.running.append(process)
        return process

    def kill(self, process: Any) -> None:
        process.kill()
        process.wait(PATIENCE)
        self.running.remove(process)

    def close(self) -> None:
        for process in self.running:
            process.kill()
        for process in self.running:
            process.wait(PATIENCE)


@contextmanager
def workers_of(url: str, name: str, notes: Path) -> Iterator[Workers]:
    workers = Workers(url, name, notes)
    try:
        yield workers
    finally:
        workers.close()


def work(url: str, name: str, notes: str, *queues: str) -> None:
    """Carry runs until the process is told to end."""
    Notes.path = Path(notes)
    asyncio.run(_work(url, name, queues))


async def _work(url: str, name: str, queues: Sequence[str]) -> None:
    app = application(url, name)
    if schedule := os.environ.get("SCHEDULE"):
        app.schedule("often", "work", schedule, {"number": 4}, tenant="acme", tags=["nightly"])
    limit = {"max_deaths": int(os.environ.get("MAX_DEATHS", "100"))}
    worker = app.worker(queues=queues or ["default"], every=0.2, lease=2.0, graceful_timeout=5.0, **limit)
    await worker.serve()


if __name__ == "__main__":
    work(*sys.argv[1:])
