"""Agents of all kinds at once, with faults, cancellations and time limits: no budget is passed, no bill lost.

Three seeds here; `make chaos SEEDS=60` for more. A seed decides what each agent does and how the server
answers each request; only the order in which they happen is left to the machine. The truth is the server's
ledger. Each seed prints its figures.
"""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any, Final

import pydantic_ai
import pytest
from pydantic_ai import Agent, ModelRetry, RunContext, TextOutput
from pydantic_ai.direct import model_request, model_request_stream
from pydantic_ai.exceptions import FallbackExceptionGroup, ModelAPIError, UnexpectedModelBehavior
from pydantic_ai.messages import ModelRequest
from pydantic_ai.models import Model
from pydantic_ai.models.fallback import FallbackModel
from pydantic_ai.settings import ModelSettings
from support.accounting import listed_cost
from support.leftovers import assert_no_task_is_left

from fastroai import Budget, BudgetExceeded, FastroAgent, Metered, budget_scope
from fastroai.runtime import BudgetScope
from fastroai.testing import Fault, LedgerEntry, ModelServer, Reply, ServedRequest, ToolCall
from fastroai.usage import ModelFallback

SEEDS: Final = int(os.environ.get("FASTROAI_CHAOS", "3"))
AGENTS: Final = 30
REFERENCES: Final = ("openai:gpt-5-mini", "openai-chat:gpt-5-mini", "anthropic:claude-haiku-4-5")
SHORT: Final[ModelSettings] = {"max_tokens": 100}
HURRY: Final = "soon"
"""A word in the prompts of those who wait only `PATIENCE`: only their requests may hang."""
PATIENCE: Final = 1.0
"""Seconds that some agents wait for an answer."""
EXPECTED: Final = (
    BudgetExceeded,
    FallbackExceptionGroup,
    ModelAPIError,
    TimeoutError,
    UnexpectedModelBehavior,
)
"""What an agent may raise here."""
FAULTS: Final = (
    Fault.status(500),
    Fault.status(429),
    Fault.disconnect(),
    Fault.disconnect(billed=False),
    Fault.cut(after=0),
    Fault.cut(after=2),
    Fault.malformed(),
    Fault.missing_usage(),
    Fault.missing_finish_reason(),
)


@dataclass
class Opened:
    """A budget scope, and the mark in the prompts of all requests below it."""

    budget: Budget
    mark: str
    scope: BudgetScope

    def assert_holds(self, entries: Sequence[LedgerEntry]) -> Decimal:
        """The account is the ledger, or says what is missing; the budget is not passed. Return the bill."""
        mark, usage = self.mark.encode(), self.scope.usage
        below = [entry for entry in entries if mark in entry.raw_body]
        bill = sum(map(listed_cost, (entry for entry in below if entry.billed)), Decimal(0))
        committed, where = usage.committed_usd, f"{self.mark} {self.budget} {usage}"
        assert isinstance(committed, Decimal), where
        if usage.cost_complete:
            assert usage.cost_usd == bill, where
        assert usage.cost_usd <= bill <= committed, where
        if self.budget.admission == "bound":
            assert self.budget.usd is None or committed <= self.budget.usd, where
            assert self.budget.tokens is None or _tokens(below) <= self.budget.tokens, where
            assert self.budget.requests is None or usage.request_count <= self.budget.requests, where
        return bill


def _tokens(entries: Sequence[LedgerEntry]) -> int:
    return sum(entry.usage.input_tokens + entry.usage.output_tokens for entry in entries)


class Answers:
    """The server's side: the answer to a request, and its fault, by the seed, the prompt and the attempt."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.visits = Counter[str]()

    def __call__(self, request: ServedRequest) -> Reply:
        self.visits[request.prompt] += 1
        chance = Random(f"{self.seed} {request.prompt} {self.visits[request.prompt]}")
        calls: list[ToolCall] = []
        if request.tools and len(request.tool_results) < 3 and chance.random() < 0.6:
            calls = [
                ToolCall(chance.choice(request.tools).name, {"question": f"{request.prompt} {number}"})
                for number in range(chance.randint(1, 3))
            ]
        return Reply(
            "word " * chance.randint(1, 150),
            tool_calls=calls,
            fault=self._fault(request, chance),
            latency=chance.choice((0, 0, 0.01)),
            chunk_size=chance.choice((8, 64)),
        )

    def _fault(self, request: ServedRequest, chance: Random) -> Fault | None:
        if HURRY in request.prompt and chance.random() < 0.2:
            return Fault.hang(after=chance.choice((None, 1)))
        return chance.choice(FAULTS) if chance.random() < 0.25 else None


# --- tools, which ask the model of the run ---


async def delegate(ctx: RunContext[Any], question: str) -> str:
    """Ask another agent."""
    tools = TOOLS if len(question) < 50 else ()
    return (await Agent(ctx.model, tools=tools, model_settings=SHORT).run(question, usage=ctx.usage)).output


async def delegate_in_a_stream(ctx: RunContext[Any], question: str) -> str:
    """Ask another agent, and read the beginning of its answer."""
    async with Agent(ctx.model, model_settings=SHORT).run_stream(question, usage=ctx.usage) as stream:
        async for text in stream.stream_text(delta=True, debounce_by=None):
            return text
    return "nothing"


async def ask(ctx: RunContext[Any], question: str) -> str:
    """Ask the model directly."""
    response = await model_request(ctx.model, [ModelRequest.user_text_prompt(question)], model_settings=SHORT)
    return response.text or "nothing"


async def ask_in_a_stream(ctx: RunContext[Any], question: str) -> str:
    """Ask the model directly, and leave before the end."""
    async with model_request_stream(
        ctx.model, [ModelRequest.user_text_prompt(question)], model_settings=SHORT
    ) as stream:
        async for _ in stream:
            break
    return "left"


async def refuse(question: str) -> str:
    """Refuse the arguments."""
    raise ModelRetry("Ask something else")


TOOLS: Final = (delegate, delegate_in_a_stream, ask, ask_in_a_stream, refuse)


def reject_short_answers(text: str) -> str:
    """Have the model answer again."""
    if len(text) < 100:
        raise ModelRetry("Say more")
    return text


# --- the ways to run an agent ---


@dataclass
class Asked:
    """One agent's model and options, and what it is asked."""

    model: Model
    max_tokens: int | None
    request_retries: int | None
    prompt: str
    options: dict[str, Any]

    @property
    def ours(self) -> FastroAgent[Any, Any]:
        return FastroAgent(
            self.model, max_tokens=self.max_tokens, request_retries=self.request_retries, **self.options
        )

    @property
    def plain(self) -> Agent[Any, Any]:
        settings: Any = {} if self.max_tokens is None else {"max_tokens": self.max_tokens}
        metered = Metered(request_retries=self.request_retries)
        return Agent(self.model, model_settings=settings, capabilities=[metered], **self.options)


async def run(asked: Asked) -> None:
    await asked.ours.run(asked.prompt)


async def run_with_a_time_limit(asked: Asked) -> None:
    await asked.ours.run(f"{HURRY} {asked.prompt}", timeout=PATIENCE)


async def stream(asked: Asked) -> None:
    async with asked.ours.run_stream(asked.prompt) as stream:
        async for _ in stream:
            pass


async def leave_a_stream(asked: Asked) -> None:
    async with asked.ours.run_stream(asked.prompt) as stream:
        async for _ in stream:
            break


async def leave_events(asked: Asked) -> None:
    async with asked.ours.run_stream_events(asked.prompt) as events:
        async for _ in events:
            break


async def run_around_a_plain_agent(asked: Asked) -> None:
    await FastroAgent(agent=Agent(asked.model, model_settings=SHORT, **asked.options)).run(asked.prompt)


async def run_plain(asked: Asked) -> None:
    await asked.plain.run(asked.prompt)


async def stream_plain(asked: Asked) -> None:
    async with asked.plain.run_stream(asked.prompt) as stream:
        await stream.get_output()


async def leave_a_plain_stream(asked: Asked) -> None:
    async with asked.plain.run_stream(asked.prompt) as stream:
        async for _ in stream.stream_response(debounce_by=None):
            break


async def iterate(asked: Asked) -> None:
    async with asked.plain.iter(asked.prompt) as run:
        async for _ in run:
            pass


async def leave_an_iteration(asked: Asked) -> None:
    async with asked.plain.iter(asked.prompt) as run:
        async for node in run:
            if Agent.is_call_tools_node(node):
                break


WAYS: Final[Sequence[Callable[[Asked], Awaitable[None]]]] = (
    run,
    run_with_a_time_limit,
    stream,
    leave_a_stream,
    leave_events,
    run_around_a_plain_agent,
    run_plain,
    stream_plain,
    leave_a_plain_stream,
    iterate,
    leave_an_iteration,
)


# --- many of them ---


@dataclass
class Crowd:
    """The agents of one seed, and the budgets that they work under."""

    seed: int
    server: ModelServer
    opened: list[Opened] = field(default_factory=list)
    ended: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        single = [self.server.model(reference) for reference in REFERENCES]
        self.models = [*single, FallbackModel(single[0], single[2]), FallbackModel(single[2], single[1])]
        self.server.rule(None, Answers(self.seed))

    async def work(self) -> None:
        """Do everything, in a budget that holds; half of the seeds have one by expectations inside of it."""
        chance = Random(f"{self.seed} crowd")
        limit = Decimal(chance.choice(("0.01", "0.02", "0.05", "0.1")))

        async def all_agents(marks: str) -> None:
            await asyncio.gather(*(self._agent(marks, number) for number in range(AGENTS)))

        async def by_expectations(marks: str) -> None:
            await self._within(marks, Budget(usd=limit, admission="expected"), all_agents)

        inside = by_expectations if chance.random() < 0.5 else all_agents
        await self._within("", Budget(usd=limit), inside)

    async def _within(self, marks: str, budget: Budget, work: Callable[[str], Awaitable[None]]) -> None:
        async with budget_scope(budget) as scope:
            mark = f"<{len(self.opened)}>"
            self.opened.append(Opened(budget, mark, scope))
            await work(marks + mark)

    async def _agent(self, marks: str, number: int) -> None:
        """Work as one agent or a few, calmly or disturbed, perhaps in a budget of their own."""
        chance = Random(f"{self.seed} agent {number}")

        async def some(marks: str) -> None:
            prompts = [f"{marks} {number} {each}" for each in range(chance.choice((1, 1, 3)))]
            ends = await asyncio.gather(*map(self._ask, prompts), return_exceptions=True)
            for error in filter(None, ends):
                raise error

        async def disturbed(marks: str) -> None:
            match chance.choice(("calm", "calm", "timeout", "cancelled")):
                case "timeout":
                    async with asyncio.timeout(PATIENCE):
                        await some(f"{HURRY} {marks}")
                case "cancelled":
                    await self._cancelled(some(marks), after=chance.randint(0, 5))
                case _:
                    await some(marks)

        try:
            if chance.random() < 0.4:
                await self._within(marks, self._nested_budget(chance), disturbed)
            else:
                await disturbed(marks)
        except EXPECTED as error:
            self.ended[type(error).__name__] += 1
        else:
            self.ended["finished"] += 1

    def _nested_budget(self, chance: Random) -> Budget:
        limits = ({"usd": "0.001"}, {"usd": "0.003"}, {"tokens": 2_000}, {"requests": 2})
        cheaper = ModelFallback(at=0.5, use=self.models[1]) if chance.random() < 0.3 else None
        return Budget(
            **chance.choice(limits),  # type: ignore[arg-type]
            admission=chance.choice(("bound", "expected")),
            fallback=cheaper,
        )

    async def _ask(self, prompt: str) -> None:
        chance = Random(f"{self.seed} {prompt}")
        way = chance.choice(WAYS)
        options: dict[str, Any] = {}
        if chance.random() < 0.6:
            options["tools"] = chance.sample(TOOLS, 3)
        if chance.random() < 0.2:
            options["output_type"] = TextOutput(reject_short_answers)
        model, max_tokens = chance.choice(self.models), chance.choice((None, *[50, 200] * 15))
        await way(Asked(model, max_tokens, chance.choice((0, 1, 2)), prompt, options))

    async def _cancelled(self, work: Awaitable[None], *, after: int) -> None:
        """Cancel work once `after` more requests of anybody have arrived."""
        task = asyncio.ensure_future(work)
        arrival = asyncio.ensure_future(self.server.ledger.wait_for(len(self.server.ledger.entries) + after))
        await asyncio.wait([task, arrival], return_when=asyncio.FIRST_COMPLETED)
        for each in (task, arrival):
            each.cancel()
        [error, _] = await asyncio.gather(task, arrival, return_exceptions=True)
        if isinstance(error, Exception):
            raise error


async def end_abandoned_runs() -> None:
    """End the tasks that PydanticAI leaves behind.

    A run of a plain agent leaves one if it is cancelled in one of the first turns of the event loop: the task
    around its hooks waits for the end of a run that has not begun.
    """
    package = str(Path(pydantic_ai.__file__).parent)
    running = {task: getattr(task.get_coro(), "cr_code", None) for task in asyncio.all_tasks()}
    abandoned = [task for task, code in running.items() if code and code.co_filename.startswith(package)]
    for task in abandoned:
        task.cancel()
    await asyncio.gather(*abandoned, return_exceptions=True)


@pytest.mark.filterwarnings("ignore:Failed to extract usage")
@pytest.mark.parametrize("seed", range(SEEDS))
async def test_no_chaos_passes_a_budget_or_loses_a_bill(seed: int) -> None:
    async with ModelServer() as server:
        crowd = Crowd(seed, server)
        await crowd.work()
    entries = server.ledger.entries  # all of them: nothing arrives at a server that has stopped
    whole, *_ = [opened.assert_holds(entries) for opened in crowd.opened]
    usage = crowd.opened[0].scope.usage
    print(
        f"seed {seed}: {len(entries)} requests, bill ${whole} of ${crowd.opened[0].budget.usd}, "
        f"account ${usage.cost_usd}, committed ${usage.committed_usd}, "
        f"{usage.unmeasured_requests} unmeasured, "
        f"{len(crowd.opened)} budgets; {dict(crowd.ended)}"
    )
    assert whole == sum((listed_cost(entry) for entry in entries if entry.billed), Decimal(0))
    assert entries
    await end_abandoned_runs()
    assert_no_task_is_left()
