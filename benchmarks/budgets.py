"""What budgets cost each request, and how much runs at once when they come to their end.

Parallelism in the last 10 %: 50 workers send one request after the other, in virtual time, on a budget of
1,000 requests of the average price. It is the average number of requests in flight, over time, from the
moment at which 90 % of the budget is spent until the last answer is there that it pays for; and, because the
last few requests go one by one and take most of that time, until 99 % of it is spent. The bare alternative is
the same without a budget, over the same spending. Answers take the longer, the more tokens they have, and
have up to as many as their `max_tokens`; what is reserved for one is `bound ÷ spent` times the average.

Agents that set no `max_tokens`: 50 at once, in virtual time, on three times what they cost, beside the same
without a budget. Cold, nothing is known of their answers; warm, they have had 20 requests before.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field, replace
from decimal import Decimal
from functools import partial
from itertools import pairwise, product
from typing import Literal

import httpx2
from httpx2 import MockTransport, Request, Response
from openai import AsyncOpenAI
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider
from support.virtual_time import VirtualTimeLoop

from benchmarks.measure import Row, Run, medians
from fastroai.agent import FastroAgent
from fastroai.errors import CostBudgetExceeded
from fastroai.records import RequestRecord, Tokens
from fastroai.runtime import BudgetScope, Scope, admit, budget_scope
from fastroai.testing import ModelServer, Reply, Usage
from fastroai.usage import Budget, CostCalculator, RequestBound, SpendLimit
from fastroai.usage.budget import ModelFallback
from fastroai.usage.limits import limits_of
from fastroai.usage.prices.flat_prices import FlatPrices
from fastroai.usage.shared.memory_spend_store import MemorySpendStore

AIM_SECONDS = 30e-6
"""For a request under five budgets."""
AT_ONCE = 10
"""Requests in flight that the budget with a line before it has room for."""
PRICES = FlatPrices(input_per_mtok=Decimal("0.25"), output_per_mtok=Decimal(2))


@dataclass
class Terms:
    """A request that has its bound."""

    bound: RequestBound
    model: str = "gpt-5-mini"
    provider: str = "openai"
    is_local: bool = False
    streamed: bool = False
    asks_for: Literal["request"] = "request"
    waits_for_others: bool = True
    priced: bool = True
    is_flexible: bool = False
    expected_usd: None = None
    expected_tokens: None = None

    async def prepare_bound(self) -> None:
        """It is there."""

    async def prepare_expectation(self) -> None:
        """There is none."""

    def shortened(self, output_tokens: int) -> Terms:
        """The same: its length is what it is."""
        return self

    def sharing(self, *, usd: Decimal | None, tokens: int | None) -> Terms:
        """The same: it needs what it asks for."""
        return self

    def lowered(self, *, usd: Decimal | None, tokens: int | None) -> Terms | None:
        """The same with the longest answer that so much pays for."""
        bound = self.bound.lowered(usd=usd, tokens=tokens)
        return None if bound is None else replace(self, bound=bound)

    def counted_again(self) -> Terms:
        """Itself: its bound is what it is."""
        return self

    def stepped_down(self, fallback: ModelFallback) -> Terms:
        """There is no other model."""
        return self


def terms(input_tokens: int, max_tokens: int) -> Terms:
    return Terms(
        RequestBound(
            input_tokens=input_tokens,
            output_tokens=max_tokens,
            cost_usd=PRICES.cost(input_tokens, max_tokens),
            prices=PRICES,
            least_output_tokens=1,
        )
    )


def answered(input_tokens: int, output_tokens: int) -> RequestRecord:
    return RequestRecord(
        model="gpt-5-mini",
        provider="openai",
        outcome="settled",
        tokens=Tokens(input_tokens=input_tokens, output_tokens=output_tokens),
        cost_usd=PRICES.cost(input_tokens, output_tokens),
    )


TYPICAL, ANSWER = terms(1_000, 500), answered(900, 200)


# --- each request ---


def nested_scope(depth: int, budget: Budget | None) -> Scope:
    """The innermost of so many scopes, each with the budget."""
    scope = Scope("pipeline", "run", parent=None, limits=limits_of(budget))
    for level in range(1, depth):
        scope = Scope("step", f"level {level}", parent=scope, limits=limits_of(budget))
    return scope


async def spend(scope: Scope, requests: int) -> None:
    for _ in range(requests):
        reservation = await admit(scope, TYPICAL)
        reservation.settle(ANSWER)
        await reservation.conclude()


async def spend_side_by_side(scopes: list[Scope], requests: int) -> None:
    """Each is in flight while others ask for their turn."""

    async def one(scope: Scope) -> None:
        for _ in range(requests):
            reservation = await admit(scope, TYPICAL)
            await asyncio.sleep(0)
            reservation.settle(ANSWER)
            await reservation.conclude()

    await asyncio.gather(*map(one, scopes))


async def admission_and_settlement() -> AsyncIterator[Row]:
    """One after the other, after none or many finished ones."""
    requests, large = 500, Budget(usd=1_000_000)
    cases = list(product((1, 5), (0, 10_000, 100_000)))
    runs: dict[str, Run] = {}
    for (depth, finished), budget in product(cases, (None, large)):
        # What a run has done stays with it, so those with little behind them start anew each time.
        scope = nested_scope(depth, budget)
        for _ in range(finished):
            scope.charge(ANSWER)
        runs[f"{depth} {finished} {budget is large}"] = (
            partial(spend, scope, requests)
            if finished
            else lambda depth=depth, budget=budget: spend(nested_scope(depth, budget), requests)  # type: ignore[misc]
        )
    took = await medians(runs, rounds=20)
    for depth, finished in cases:
        ours, bare = (took[f"{depth} {finished} {limited}"] / requests for limited in (True, False))
        aimed = depth == 5
        yield Row(
            f"admission and settlement, depth {depth}, after {finished:,} requests; bare: without budgets",
            _microseconds(ours),
            _microseconds(bare),
            ours / bare,
            f"≤ {AIM_SECONDS * 1e6:.0f} µs" if aimed else "",
            ours <= AIM_SECONDS if aimed else None,
        )


async def admission_in_line() -> AsyncIterator[Row]:
    """With 1,000 that wait for room."""
    in_line, each = 1_000, 3
    assert TYPICAL.bound.cost_usd is not None
    assert ANSWER.cost_usd is not None
    spent = ANSWER.cost_usd * in_line * each
    narrow = Budget(usd=spent + AT_ONCE * TYPICAL.bound.cost_usd)
    free = Budget(usd=1_000_000)

    def in_one_line(budget: Budget | None, depth: int) -> Run:
        async def in_line_once() -> None:
            await spend_side_by_side([nested_scope(depth, budget)] * in_line, each)

        return in_line_once

    run = nested_scope(1, free)
    step = Scope("step", "waits", parent=run, limits=limits_of(Budget(usd=TYPICAL.bound.cost_usd)))
    other = Scope("step", "passes", parent=run, limits=limits_of(free))
    first = await admit(step, TYPICAL)
    waiting = [asyncio.create_task(admit(step, TYPICAL)) for _ in range(in_line)]
    await asyncio.sleep(0)
    alone = nested_scope(2, free)

    took = await medians(
        {
            "none": in_one_line(None, 1),
            "none 5": in_one_line(None, 5),
            "line": in_one_line(narrow, 1),
            "line 5": in_one_line(narrow, 5),
            "passes": partial(spend, other, 100),
            "alone": partial(spend, alone, 100),
        },
        rounds=7,
        warm_up=1,
    )
    for task in waiting:
        task.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)
    first.give_back()
    count = in_line * each
    for depth, key, bare in ((1, "line", "none"), (5, "line 5", "none 5")):
        yield Row(
            f"  … {in_line:,} tasks at once, of which {AT_ONCE} fit and the others wait, depth {depth}",
            _microseconds(took[key] / count),
            _microseconds(took[bare] / count),
            took[key] / took[bare],
        )
    yield Row(
        f"  … in one step, while {in_line:,} wait for the budget of another; bare: while none wait",
        _microseconds(took["passes"] / 100),
        _microseconds(took["alone"] / 100),
        took["passes"] / took["alone"],
    )


# --- whole runs ---


def priced_agent(budget: Budget | None) -> FastroAgent[object, str]:
    """An agent whose requests have a price and a bound, and no provider."""

    def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        return ModelResponse(parts=[TextPart("Paris")])

    calculator = CostCalculator(
        pricing_overrides={"function:paid": {"input_per_mtok": Decimal("0.25"), "output_per_mtok": 2}}
    )
    model = FunctionModel(answer, model_name="paid")
    return FastroAgent(model, cost_calculator=calculator, max_tokens=100, budget=budget)


async def agent_run_with_budget() -> AsyncIterator[Row]:
    budget = Budget(usd=1_000, requests=1_000_000)
    bare, ours = priced_agent(None), priced_agent(budget)
    with ModelServer() as server:
        server.rule(None, Reply("Paris", usage=Usage(20, 2)))
        model = server.model("openai:gpt-5-mini")
        bare_call, our_call = (FastroAgent(model, max_tokens=100, budget=each) for each in (None, budget))
        took = await medians(
            {
                "bare": lambda: bare.run("What is the capital of France?"),
                "ours": lambda: ours.run("What is the capital of France?"),
            },
            rounds=300,
            warm_up=20,
        ) | await medians(
            {
                "bare call": lambda: bare_call.run("What is the capital of France?"),
                "our call": lambda: our_call.run("What is the capital of France?"),
            },
            rounds=60,
            warm_up=5,
        )
    for what, key, without in (
        ("agent run with a budget, model without latency; bare: FastroAgent without one", "ours", "bare"),
        ("  … asking a server on loopback", "our call", "bare call"),
    ):
        yield Row(
            what,
            _microseconds(took[key]),
            _microseconds(took[without]),
            took[key] / took[without],
        )


# --- the last of a budget ---


@dataclass
class Spree:
    """Workers that spend until the budget refuses, in virtual time."""

    most_tokens: int
    """`max_tokens` of each request."""
    spread: float
    """How far answers are from the average length, at most."""
    limited: bool
    workers: int = 50
    requests: int = 1_000
    input_tokens: int = 400
    average_tokens: int = 400
    spent: Decimal = Decimal(0)
    in_flight: int = 0
    steps: list[tuple[float, int, Decimal]] = field(default_factory=list)
    """From when on how many were in flight, and what was spent."""
    chance: random.Random = field(default_factory=lambda: random.Random(7))

    @property
    def limit(self) -> Decimal:
        """US dollars: what so many average requests cost."""
        average = PRICES.cost(self.input_tokens, self.average_tokens)
        assert average is not None
        return average * self.requests

    async def run(self) -> None:
        """Until all workers are refused; without a budget, until as much is spent."""
        scope = nested_scope(1, Budget(usd=self.limit) if self.limited else None)
        await asyncio.gather(*(self._work(scope) for _ in range(self.workers)))

    async def _work(self, scope: Scope) -> None:
        while self.spent < self.limit:
            try:
                reservation = await admit(scope, terms(self.input_tokens, self.most_tokens))
            except CostBudgetExceeded:
                return
            wanted = round(self.average_tokens * self.chance.uniform(1 - self.spread, 1 + self.spread))
            tokens = min(wanted, reservation.terms.bound.output_tokens or 0)
            self._count(+1)
            await asyncio.sleep(0.5 + tokens / 100)
            record = answered(self.input_tokens, tokens)
            assert record.cost_usd is not None
            self.spent += record.cost_usd
            reservation.settle(record)
            self._count(-1)

    def _count(self, change: int) -> None:
        self.in_flight += change
        self.steps.append((asyncio.get_running_loop().time(), self.in_flight, self.spent))

    def average_in_flight(self, until: Decimal) -> float:
        """Over the time in which spending goes from 90 % of the limit to this share of it."""
        seconds = total = 0.0
        for (start, count, spent), (end, _, _) in pairwise(self.steps):
            if Decimal("0.9") <= spent / self.limit < until:
                seconds += end - start
                total += count * (end - start)
        return total / seconds


async def in_virtual_time(spree: Spree) -> Spree:
    def run() -> None:
        with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
            runner.run(spree.run())

    await asyncio.to_thread(run)
    return spree


async def parallelism_left() -> AsyncIterator[Row]:
    for ratio in (1.2, 1.6, 2.5, None):
        make = _spree_of(ratio)
        ours, bare = await in_virtual_time(make(True)), await in_virtual_time(make(False))
        shown = "max_tokens not set (128,000)" if ratio is None else f"bound ÷ spent = {ratio}"
        spent = ours.spent / ours.limit
        what = f"in flight from 90 % of a budget to its end, {shown}; {spent:.2%} of it spent"
        yield _in_flight(what, ours, bare, Decimal(1))
        yield _in_flight("  … from 90 % to 99 %", ours, bare, Decimal("0.99"))


def _in_flight(what: str, ours: Spree, bare: Spree, until: Decimal) -> Row:
    with_budget, without = (spree.average_in_flight(until) for spree in (ours, bare))
    return Row(what, f"{with_budget:.1f}", f"{without:.1f}", with_budget / without)


def _spree_of(ratio: float | None) -> Callable[[bool], Spree]:
    """With bounds of so many times what is spent on average; `None`: of the model's longest answer."""
    if ratio is None:
        return lambda limited: Spree(128_000, 0.9, limited)
    input_usd, average_usd = PRICES.cost(400, 0), PRICES.cost(400, 400)
    assert input_usd is not None
    assert average_usd is not None
    output_usd = average_usd * Decimal(str(ratio)) - input_usd
    most = int(output_usd * 1_000_000 / PRICES.output_per_mtok)
    return lambda limited: Spree(most, min(most / 400 - 1, 0.9), limited)


# --- agents that set no max_tokens ---

MODELS = ("gpt-5-mini", "gpt-4.1-mini")

LIMITS: Mapping[str, Callable[[Decimal], Budget | SpendLimit]] = {
    "bound": lambda usd: Budget(usd=usd),
    "expected": lambda usd: Budget(usd=usd, admission="expected"),
    "spend limit": lambda usd: SpendLimit(usd=usd, window="total", store=MemorySpendStore()),
}


@dataclass
class Crowd:
    """Agents that ask at once, of a model whose answers take the longer, the more tokens they have."""

    model: str
    agents: int = 50
    lengths: list[int] = field(default_factory=list)
    """Tokens of the answers to come."""
    seconds: float = 0.0
    in_flight: int = 0
    most_in_flight: int = 0
    most_reserved: Decimal = Decimal(0)
    """US dollars."""
    limit_usd: Decimal = Decimal(0)
    scope: BudgetScope | None = None

    def __post_init__(self) -> None:
        client = AsyncOpenAI(
            api_key="none",
            max_retries=0,
            http_client=httpx2.AsyncClient(transport=MockTransport(self._answer)),
        )
        model = OpenAIChatModel(self.model, provider=OpenAIProvider(openai_client=client))
        self.agent: FastroAgent[object, str] = FastroAgent(model)

    async def _answer(self, request: Request) -> Response:
        asked = json.loads(request.content)
        most = asked.get("max_completion_tokens") or 128_000
        wants = self.lengths[int(asked["messages"][-1]["content"].split()[-2])]
        self._look()
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        await asyncio.sleep(0.5 + min(wants, most) / 100)
        self.in_flight -= 1
        reason, tokens = ("length", most) if wants > most else ("stop", wants)
        message = {"role": "assistant", "content": "word"}
        usage = {"prompt_tokens": 40, "completion_tokens": tokens, "total_tokens": 40 + tokens}
        choice = {"index": 0, "finish_reason": reason, "message": message}
        answer = {"id": "a", "object": "chat.completion", "created": 1, "model": self.model}
        return Response(200, json={**answer, "service_tier": "default", "choices": [choice], "usage": usage})

    def _look(self) -> None:
        """How much is reserved now."""
        if self.scope is not None and (left := self.scope.remaining.usd) is not None:
            reserved = self.limit_usd - self.scope.usage.committed_usd - left
            self.most_reserved = max(self.most_reserved, reserved)

    async def ask(self, count: int, limit: Budget | SpendLimit) -> Decimal:
        """So many at once, whose answers have 60 to 290 tokens. Returns what they cost."""
        self.lengths = [60 + 230 * number // (count - 1) for number in range(count)]
        random.Random(7).shuffle(self.lengths)
        started, self.limit_usd = asyncio.get_running_loop().time(), limit.usd or Decimal(0)
        async with budget_scope(limit) as self.scope:
            prompts = (f"Summarise what ticket number {number} says" for number in range(count))
            await asyncio.gather(*map(self.agent.run, prompts))
        self.seconds = asyncio.get_running_loop().time() - started
        cost_usd = self.scope.usage.cost_usd
        may_exceed = isinstance(limit, Budget) and limit.admission == "expected"
        assert limit.usd is None or may_exceed or cost_usd <= limit.usd
        return cost_usd


async def crowded(
    model: str, limit: Budget | SpendLimit | None = None, *, warm: bool = False
) -> tuple[Crowd, Decimal]:
    crowd = Crowd(model)

    async def main() -> Decimal:
        if warm:
            await crowd.ask(20, Budget(usd=1_000))
            crowd.most_reserved, crowd.most_in_flight = Decimal(0), 0
        return await crowd.ask(crowd.agents, limit or Budget(requests=10_000))

    def run() -> Decimal:
        with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
            return runner.run(main())

    return crowd, await asyncio.to_thread(run)


async def agents_at_once() -> AsyncIterator[Row]:
    for model in MODELS:
        await crowded(model)  # tokenizers are loaded
    for model, (mode, limiting) in product(MODELS, LIMITS.items()):
        bare, cost = await crowded(model)
        for warm, aim in ((False, 1.5), (True, 1.2)):
            ours, spent = await crowded(model, limiting(cost * 3), warm=warm)
            what = f"50 agents on 3 times their cost, {model}, {mode}, {'warm' if warm else 'cold'}"
            slower, reserved = ours.seconds / bare.seconds, float(ours.most_reserved / spent)
            yield Row(
                f"{what}; {ours.most_in_flight} in flight, spent {float(spent / cost):.2f} of their cost",
                f"{ours.seconds:.2f} s",
                f"{bare.seconds:.2f} s",
                slower,
                f"≤ {aim}",
                slower <= aim,
            )
            if warm and mode != "spend limit":
                aimed = mode == "expected"
                yield Row(
                    "  … reserved ÷ spent",
                    f"{reserved:.2f}",
                    aim="≤ 1.6" if aimed else "",
                    met=reserved <= 1.6 if aimed else None,
                )


def _microseconds(seconds: float) -> str:
    return f"{seconds * 1e6:,.1f} µs" if seconds < 1e-3 else f"{seconds * 1e6:,.0f} µs"


BENCHMARKS = (
    admission_and_settlement,
    admission_in_line,
    agent_run_with_budget,
    parallelism_left,
    agents_at_once,
)
