"""Random work that outlives its scopes: requests, purchases and recorded spending, awaited or left behind.

The books of the model are compared with those of every scope: with the outermost one after the run, and with
each one inside by what was sent while it was open.
"""

from __future__ import annotations

import asyncio
from contextlib import nullcontext, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Literal, TypeAlias

from hypothesis import example, given, settings
from hypothesis import strategies as st
from pydantic_ai.messages import ModelMessage, ModelResponse
from support.examples import examples
from support.scripted import Answer, Plan, ScriptedModel
from support.spending_runs import CALCULATOR, number_of
from support.virtual_time import VirtualTimeLoop

from fastroai import BudgetExceeded, FastroAgent, StepContext, StepExecutionError, budget_scope, spend, step
from fastroai.errors import ScopeClosedError
from fastroai.pipelines import Pipeline
from fastroai.records import RequestRecord, Usage
from fastroai.runtime import Scope, current_scope, record_spending
from fastroai.usage import Budget

MICROCENT = Decimal("0.000001")
GENEROUS = Budget(usd=1)


@dataclass(frozen=True)
class Ask:
    """A request to a model, where a token of output is a microcent."""

    seconds: int
    wants: int
    most: int
    left: bool


@dataclass(frozen=True)
class Buy:
    """A purchase."""

    seconds: int
    most: int
    costs: int
    says: Literal["settle", "release", "nothing"]
    left: bool


@dataclass(frozen=True)
class Note:
    """Spending that is recorded when it has happened."""

    costs: int
    left: bool = False


@dataclass(frozen=True)
class Nest:
    """Several of these side by side, in a scope of their own, which may fail in their midst."""

    kind: Literal["budget", "step"]
    limit: int | None
    members: tuple[Work, ...]
    fails_after: int | None
    left: bool


Work: TypeAlias = Ask | Buy | Note | Nest


class Fails(Exception):
    """What a sibling fails with."""


@dataclass(eq=False)
class Open:
    """A scope, and what should be in its account."""

    scope: Scope
    sent: int = 0
    """Requests that were sent, purchases that were begun, and notes that were made while it was open."""
    recorded: bool = False
    """Whether something was recorded in it that nobody had admitted."""
    at_close: Usage | None = None


_inside: ContextVar[tuple[Open, ...]] = ContextVar("inside", default=())


class BillingModel(ScriptedModel):
    """Writes down what it has answered."""

    def __init__(self, plan: Plan, billed: list[int]) -> None:
        super().__init__(plan)
        self.billed = billed

    async def request(self, *args: Any) -> ModelResponse:
        response = await super().request(*args)
        self.billed.append(response.usage.output_tokens)
        return response


@dataclass
class Run:
    """One run of a plan, and the provider's own books."""

    left: list[asyncio.Task[None]] = field(default_factory=list)
    scopes: list[Open] = field(default_factory=list)
    billed: list[int] = field(default_factory=list)
    """Microcents of what has reached its end at the provider."""

    def __post_init__(self) -> None:
        self.agent = FastroAgent(
            BillingModel(self.answer, self.billed), cost_calculator=CALCULATOR, retries=0
        )
        self._asked: dict[str, Ask] = {}

    def answer(self, name: str, messages: list[ModelMessage], max_tokens: int | None) -> Answer:
        ask = self._asked[number_of(messages)]
        tokens = min(ask.wants, max_tokens or ask.wants)
        self.count()
        return Answer(tokens, seconds=ask.seconds)

    def count(self, *, recorded: bool = False) -> None:
        """Something is spent, in every scope around that is open."""
        for each in _inside.get():
            if not each.scope.closed:
                each.sent += 1
                each.recorded |= recorded

    async def perform(self, work: Work) -> None:
        """Do it, and fail as it fails."""
        if isinstance(work, Ask):
            prompt = str(len(self._asked))
            self._asked[prompt] = work
            await self.agent.run(prompt, model_settings={"max_tokens": work.most})
        elif isinstance(work, Buy):
            await self.buy(work)
        elif isinstance(work, Note):
            self.note(work.costs * MICROCENT)
        else:
            await self.nest(work)

    def note(self, cost_usd: Decimal) -> None:
        record = RequestRecord(model="note", provider="", outcome="settled", kind="spend", cost_usd=cost_usd)
        scope = current_scope()
        assert scope is not None
        if scope.root.closed:
            return  # the outermost scope counts it all the same, but there is no law to check it by
        self.count(recorded=True)
        if (stop := record_spending(scope, record)) is not None:
            raise stop

    async def buy(self, work: Buy) -> None:
        async with spend(work.most * MICROCENT) as purchase:
            self.count()
            await asyncio.sleep(work.seconds)
            if work.says == "settle":
                purchase.settle(min(work.costs, work.most) * MICROCENT)
            elif work.says == "release":
                purchase.release()

    async def nest(self, work: Nest) -> None:
        budget = None if work.limit is None else Budget(usd=work.limit * MICROCENT)
        if work.kind == "step":

            async def inside(ctx: StepContext) -> None:
                await self.together(work)

            pipeline = Pipeline("p", {"s": step(budget=budget)(inside)})
            try:
                await pipeline.execute()
            finally:
                self.check_frozen()
        else:
            async with nullcontext() if budget is None else budget_scope(budget):
                await self.together(work)

    async def together(self, work: Nest) -> None:
        scope = current_scope()
        assert scope is not None
        if all(each.scope is not scope for each in _inside.get()):
            self.scopes.append(Open(scope))
            _inside.set((*_inside.get(), self.scopes[-1]))

        async def fail(seconds: int) -> None:
            await asyncio.sleep(seconds)
            raise Fails

        awaited = []
        for member in work.members:
            task = asyncio.create_task(self.perform(member))
            self.left.append(task)
            if not member.left:
                awaited.append(task)
        failing = [] if work.fails_after is None else [fail(work.fails_after)]
        await asyncio.gather(*awaited, *failing)

    def check_frozen(self) -> None:
        """What has closed says the same for ever."""
        for each in self.scopes:
            if each.scope.closed:
                if each.at_close is None:
                    each.at_close = each.scope.spent()
                assert replace_calls(each.at_close) == replace_calls(each.scope.spent())


def replace_calls(usage: Usage) -> Usage:
    """Without agent calls, which count where they start."""
    copy = usage.copy()
    copy.agent_call_count = 0
    return copy


EXPECTED = (BudgetExceeded, StepExecutionError, ScopeClosedError, Fails)


async def carried_out(plan: Nest) -> None:
    run = Run()
    async with budget_scope(GENEROUS) as outermost:
        scope = current_scope()
        assert scope is not None
        root = Open(scope)
        run.scopes.append(root)
        _inside.set((root,))
        with suppress(*EXPECTED):
            await run.perform(plan)
    run.check_frozen()
    at_the_end, completed = outermost.usage, sum(run.billed)
    for task in run.left:  # which start others
        [result] = await asyncio.gather(task, return_exceptions=True)
        assert not task.cancelled(), "a user's task is never cancelled"
        assert task.cancelling() == 0
        assert result is None or isinstance(result, EXPECTED), result
    run.check_frozen()
    assert replace_calls(outermost.usage) == replace_calls(at_the_end)
    asked = [
        record for record in outermost.records if record.kind == "request" and record.outcome == "settled"
    ]
    assert sum(record.tokens.output_tokens for record in asked) == completed
    for each in run.scopes:
        check_account(each)


def check_account(opened: Open) -> None:
    """Everything once, nothing lost, nothing reserved, and within the budget, but for what was recorded."""
    scope = opened.scope
    assert len(scope.spending.records) == opened.sent
    assert len({id(charge.first) for charge in scope.spending.charges}) == len(scope.spending.charges)
    assert replace_calls(scope.spent()) == Usage.of(scope.spending.records)
    for account in scope.own_accounts:
        assert (account.reserved_usd, account.reserved_tokens) == (0, 0)
        limit = account.budget.usd
        assert opened.recorded or limit is None or scope.spent().committed_usd <= limit


asks = st.builds(
    Ask,
    seconds=st.integers(0, 4),
    wants=st.integers(1, 30),
    most=st.integers(1, 40),
    left=st.booleans(),
)
buys = st.builds(
    Buy,
    seconds=st.integers(0, 4),
    most=st.integers(1, 40),
    costs=st.integers(0, 40),
    says=st.sampled_from(("settle", "settle", "release", "nothing")),
    left=st.booleans(),
)
notes = st.builds(Note, costs=st.integers(1, 20), left=st.booleans())


def nests(members: st.SearchStrategy[Work]) -> st.SearchStrategy[Nest]:
    """Scopes around these."""
    return st.builds(
        Nest,
        kind=st.sampled_from(("budget", "step")),
        limit=st.none() | st.integers(20, 120),
        members=st.lists(members, min_size=1, max_size=4).map(tuple),
        fails_after=st.none() | st.integers(0, 3),
        left=st.booleans(),
    )


work: st.SearchStrategy[Work] = st.recursive(asks | buys | notes, nests, max_leaves=10)

LEFT_UNDER_TWO = Nest(
    "budget", 100, (Nest("step", 60, (Ask(4, 5, 30, True), Ask(4, 5, 30, False)), 1, False),), 2, False
)
"""A request whose step fails first, then the budget around it, then the run ends."""


@settings(max_examples=examples(30))
@given(nests(work))
@example(LEFT_UNDER_TWO)
def test_every_account_has_everything_once_whatever_outlives_it(plan: Nest) -> None:
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        runner.run(carried_out(plan))
