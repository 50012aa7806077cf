"""Does what a plan of `spending_plans` says, and watches every request from its admission to its end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import aclosing, nullcontext, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from decimal import Decimal
from itertools import count
from typing import Any

import pytest
from pydantic_ai import ModelRetry, RunContext
from pydantic_ai.exceptions import (
    ModelAPIError,
    ModelConnectionError,
    ModelHTTPError,
    UnexpectedModelBehavior,
)
from pydantic_ai.messages import ModelMessage, ModelRequest, ToolCallPart, ToolReturnPart, UserPromptPart
from pydantic_ai.models.fallback import FallbackModel

from fastroai import BudgetExceeded, FastroAgent, Pipeline, PipelineConfig, StepContext, budget_scope, step
from fastroai.agent.requests.request_terms import Terms
from fastroai.errors import CostBudgetExceeded, SpendLimitExceeded, StepExecutionError, TimeLimitExceeded
from fastroai.records import RequestRecord, Usage
from fastroai.runtime import Charge, Reservation, Scope, current_scope
from fastroai.runtime.budgets import admission
from fastroai.runtime.budgets.ledger import Account, Amounts, Claim, Ledger
from fastroai.usage import Budget, BudgetLike, CostCalculator, ModelFallback, SpendLimit
from fastroai.usage.shared.memory_spend_store import MemorySpendStore
from support.scripted import Answer, ScriptedModel
from support.spending_plans import Call, Fate, Group, Limits, Work
from support.virtual_time import now

MICROCENTS_PER_TOKEN = {"paid": Decimal(1), "spare": Decimal(1), "cheap": Decimal("0.3")}
"""What the models cost, for a token of output; input is free."""

CALCULATOR = CostCalculator(
    pricing_overrides={
        f"scripted:{name}": {"input_per_mtok": 0, "output_per_mtok": price}
        for name, price in MICROCENTS_PER_TOKEN.items()
    }
)

LONGEST_ANSWER = 80
"""Tokens that an answer can have, if the request does not say less."""

GIVES_BACK = "a request in flight could have given something back"
EXPECTED = (
    BudgetExceeded,
    TimeLimitExceeded,
    StepExecutionError,
    ModelAPIError,
    UnexpectedModelBehavior,
    TimeoutError,
    ExceptionGroup,
)
"""What work may fail with; anything else fails the test."""


def failure(fate: Fate, name: str) -> ModelAPIError:
    if fate == "refused":
        return ModelHTTPError(429, name)
    if fate == "no connection":
        return ModelConnectionError(name, "refused", phase="connect")
    return ModelAPIError(name, "the connection broke")


@dataclass(eq=False)
class Conversation:
    """A call of an agent under way."""

    call: Call
    fates: list[Fate]
    inside_of: tuple[Conversation, ...]
    reading: bool = True
    """Whether somebody waits for what it streams."""
    rejected: bool = False
    helper: asyncio.Task[None] | None = None
    wanted: asyncio.Event = field(default_factory=asyncio.Event)
    """What is to be done inside is to be done now."""


@dataclass(eq=False)
class Sent:
    """A request that reached the model, and what it costs there."""

    accounts: tuple[Account, ...]
    tokens: int
    cost_usd: Decimal
    billed: bool


@dataclass(eq=False)
class Asked:
    """A request between being made and being sent."""

    conversation: Conversation
    scope: Scope


_current: ContextVar[tuple[Conversation, ...]] = ContextVar("inside_of", default=())


@dataclass
class SpendingRun:
    """One run of a plan."""

    ceiling_microcents: int = 1_000_000
    looks_on: bool = False
    """Whether it only looks on: while several threads run, nothing holds still to be looked at."""
    accounts: list[Account] = field(default_factory=list)
    scopes: list[Scope] = field(default_factory=list)
    sent: list[Sent] = field(default_factory=list)
    asked: list[Asked] = field(default_factory=list)
    admitted: list[tuple[Conversation, Reservation[Any]]] = field(default_factory=list)
    ended: dict[Reservation[Any], Charge] = field(default_factory=dict)
    beyond: dict[Account, Amounts] = field(default_factory=dict)
    """What requests in flight together could use at most beyond what was reserved for them."""
    shares: list[Terms] = field(default_factory=list)
    """Requests as they were when they did with less than they ask for, so that others find something."""
    refused: int = 0
    lowered: int = 0
    waited: int = 0

    def __post_init__(self) -> None:
        self.ceiling = SpendLimit(
            microcents=self.ceiling_microcents, window="total", store=MemorySpendStore()
        )
        self._numbers = count()
        self._conversations: dict[str, Conversation] = {}
        self._left: list[object] = []
        self._admit = admission.admit
        self.agent: FastroAgent[Any, str] = FastroAgent(
            ScriptedModel(self.answer, longest_answer=LONGEST_ANSWER),
            name="agent",
            tools=[self.act],
            retries=1,
            cost_calculator=CALCULATOR,
        )
        self.agent.agent.output_validator(self.validate)  # type: ignore[attr-defined]
        self.cheap = ScriptedModel(self.answer, "cheap", longest_answer=LONGEST_ANSWER)
        self.spare = FallbackModel(
            ScriptedModel(self.answer, longest_answer=LONGEST_ANSWER),
            ScriptedModel(self.answer, "spare", longest_answer=LONGEST_ANSWER),
        )

    def watch(self, patch: pytest.MonkeyPatch) -> None:
        """See every scope, account and admission from now on."""
        accounts, scopes, init = self.accounts, self.scopes, Scope.__init__

        class WatchedAccount(Account):
            def __init__(self, *args: Any) -> None:
                super().__init__(*args)
                accounts.append(self)

        def watched_init(scope: Scope, *args: Any, **options: Any) -> None:
            init(scope, *args, **options)
            scopes.append(scope)

        patch.setattr("fastroai.runtime.scope.Account", WatchedAccount)
        patch.setattr(Scope, "__init__", watched_init)
        patch.setattr("fastroai.agent.requests.request_attempt.admit", self.admit)
        patch.setattr("fastroai.agent.requests.request_terms.SHORTEST_SHARE", 3)
        patch.setattr(Terms, "sharing", self.watched_sharing(Terms.sharing))
        grant = Ledger._grant

        def watched_grant(ledger: Ledger, claim: Claim) -> None:
            grant(ledger, claim)
            self.note_risk(ledger, claim)

        patch.setattr(Ledger, "_grant", watched_grant)

    def watched_sharing(self, share: Callable[..., Terms]) -> Callable[..., Terms]:
        def watched(terms: Terms, *, usd: Decimal | None, tokens: int | None) -> Terms:
            enough, shared = terms.enough, share(terms, usd=usd, tokens=tokens)
            if shared is not terms:
                assert enough is not None
                assert shared.bound.output_tokens is not None
                assert shared.bound.output_tokens >= enough
                self.shares.append(shared)
            return shared

        return watched

    # --- doing it ---

    async def perform(self, work: Work) -> None:
        """Do something, and fail as it fails."""
        if isinstance(work, Call):
            await self.call(work)
        else:
            async with asyncio.timeout(work.cancelled_after):
                await self.perform_all(work)

    async def attempt(self, work: Work) -> None:
        """Do something; others go on if it fails."""
        with suppress(*EXPECTED):
            await self.perform(work)

    def budget(self, limits: Limits | None) -> BudgetLike | None:
        if limits is None:
            return None
        budget = self.own_budget(limits)
        return [budget, self.ceiling] if limits.shared else budget

    def own_budget(self, limits: Limits) -> Budget:
        at = limits.fallback_at
        return Budget(
            microcents=limits.microcents,
            tokens=limits.tokens,
            requests=limits.requests,
            ms=limits.ms,
            fallback=None if at is None else ModelFallback(at=at, use=self.cheap),
            admission=limits.admission,
            max_tokens_per_request=limits.by_hand,
        )

    async def perform_all(self, group: Group) -> None:
        if group.mode in ("pipeline", "map"):
            await self.pipeline(group)
            return
        budget = self.budget(group.budget)
        async with nullcontext() if budget is None else budget_scope(budget):
            if group.mode == "one by one":
                for member in group.members:
                    await self.attempt(member)
            else:
                async with asyncio.TaskGroup() as tasks:
                    for member in group.members:
                        tasks.create_task(self.attempt(member))

    async def pipeline(self, group: Group) -> None:
        run = self

        @step
        async def one(ctx: StepContext[Any]) -> str:
            await run.perform(group.members[ctx.get_input("item")])
            return "done"

        @step
        async def all_of_them(ctx: StepContext[Any]) -> str:
            await ctx.map(one, range(len(group.members)), concurrency=group.limit or 10)
            return "done"

        def alone(member: Work) -> Any:
            @step
            async def perform(ctx: StepContext[Any]) -> str:
                await run.perform(member)
                return "done"

            return perform

        steps = {f"s{number}": alone(member) for number, member in enumerate(group.members)}
        pipeline: Pipeline[Any, Any] = Pipeline(
            "p",
            {"map": all_of_them} if group.mode == "map" else steps,
            output_step="map" if group.mode == "map" else "s0",
            config=PipelineConfig(budget=self.budget(group.budget), max_concurrency=group.limit),
        )
        has_quote = group.budget is not None and group.budget.microcents is not None
        await pipeline.execute(reserve="quote" if group.reserves and has_quote else None)

    async def call(self, call: Call) -> None:
        number = str(next(self._numbers))
        conversation = Conversation(call, list(call.fates), _current.get())
        self._conversations[number] = conversation
        options: dict[str, Any] = {
            "model": self.spare if call.spare else None,
            "model_settings": {} if call.max_tokens is None else {"max_tokens": call.max_tokens},
            "timeout": call.timeout,
            "request_retries": call.extra_attempts,
            "budget": self.budget(call.budget),
        }
        if call.helped and call.inside:
            conversation.helper = asyncio.create_task(self.help(conversation))
        try:
            await self.ask(conversation, number, options)
        finally:
            if conversation.helper is not None:
                conversation.helper.cancel()
                await asyncio.wait([conversation.helper])

    async def ask(self, conversation: Conversation, prompt: str, options: dict[str, Any]) -> None:
        match conversation.call.way:
            case "run":
                await self.agent.run(prompt, **options)
            case "handler":
                handler = self.handler(conversation)
                await self.agent.run(prompt, event_stream_handler=handler, **options)
            case "events":
                await self.read(conversation, self.agent.run_stream_events(prompt, **options))
            case _:
                await self.read(conversation, self.agent.run_stream(prompt, **options))

    def handler(self, conversation: Conversation) -> Callable[..., Any]:
        async def handle(context: RunContext[Any], events: Any) -> None:
            async for _ in events:
                conversation.reading = False
                token = _current.set((*_current.get(), conversation))
                try:
                    await self.do_inside(conversation)
                finally:
                    _current.reset(token)
                    conversation.reading = True

        return handle

    async def read(self, conversation: Conversation, stream: Any) -> None:
        chunks = aiter(stream)
        if conversation.call.way == "abandoned stream":
            await self.next_of(chunks, conversation)
            self._left.append(chunks)  # somebody keeps it, and never looks at it again
            return
        async with aclosing(chunks):
            while await self.next_of(chunks, conversation):
                if conversation.call.way == "left stream":
                    return
                if conversation.call.way == "slow stream":
                    await asyncio.sleep(3)
                await self.do_inside(conversation)

    async def do_inside(self, conversation: Conversation) -> None:
        """After the first chunk; what somebody else does is waited for."""
        if conversation.helper is not None:
            conversation.wanted.set()
            await asyncio.wait([conversation.helper])
        elif not conversation.wanted.is_set():
            conversation.wanted.set()
            await self.help(conversation)

    async def help(self, conversation: Conversation) -> None:
        await conversation.wanted.wait()
        for work in conversation.call.inside:
            await self.attempt(work)

    async def next_of(self, chunks: Any, conversation: Conversation) -> bool:
        conversation.reading = True
        try:
            await anext(chunks)
        except StopAsyncIteration:
            return False
        finally:
            conversation.reading = False
        return True

    async def act(self, context: RunContext[Any], number: str) -> str:
        """Do what is to be done in the tool."""
        for work in self._conversations[number].call.in_tool:
            await self.attempt(work)
        return "done"

    async def validate(self, context: RunContext[Any], output: str) -> str:
        conversation = self._conversations[str(context.prompt)]
        if conversation.call.rejected and not conversation.rejected and not context.partial_output:
            conversation.rejected = True
            raise ModelRetry("not good enough")
        return output

    # --- what the model does ---

    def answer(self, name: str, messages: list[ModelMessage], max_tokens: int | None) -> Answer:
        number = number_of(messages)
        conversation = self._conversations[number]
        call = conversation.call
        answer = Answer(call.wants, seconds=call.seconds)
        if max_tokens is not None and max_tokens < call.wants:
            answer = replace(answer, output_tokens=max_tokens, cut=True)
        if call.in_tool and not _has_returned(messages) and not answer.cut:
            answer = replace(answer, tool_call=ToolCallPart("act", {"number": number}))
        if conversation.fates:
            fate = conversation.fates.pop(0)
            answer = replace(answer, failure=failure(fate, name), breaks=fate == "breaks")
        scope = current_scope()
        assert scope is not None
        accounts = tuple(scope.bounds.accounts)
        tokens = answer.input_tokens + answer.output_tokens
        billed = answer.failure is None or answer.breaks
        self.sent.append(Sent(accounts, tokens, _cost_usd(name, answer.output_tokens), billed))
        return answer

    # --- watching it ---

    async def admit(self, scope: Scope, terms: Any) -> Reservation[Any]:
        """In place of `admit`: the same, and a look at what it decides."""
        asked = Asked(self._conversations[number_of(terms.messages)], scope)
        self.asked.append(asked)
        self.check_stepped_down(asked, terms)
        asked_at = now()
        try:
            reservation = await self._admit(scope, terms)
        except BudgetExceeded as stop:
            self.refused += 1
            self.check_promise(asked, stop)
            self.check_refused(asked, terms, stop)
            raise
        finally:
            self.asked.remove(asked)
            self.waited += now() > asked_at
            self.check_rooms()
        if reservation.short is not None:
            self.lowered += 1
            self.check_lowered(asked, terms, reservation)
        self.admitted.append((asked.conversation, reservation))
        for ending in ("settle", "release", "charge_unmeasured"):
            setattr(reservation, ending, self.noted(reservation, getattr(reservation, ending)))
        return reservation

    def noted(
        self, reservation: Reservation[Any], end: Callable[[RequestRecord], Charge]
    ) -> Callable[[RequestRecord], Charge]:
        def ended(record: RequestRecord) -> Charge:
            self.ended[reservation] = charge = end(record)
            return charge

        return ended

    def check_rooms(self) -> None:
        if self.looks_on:
            return
        for account in self.accounts:
            room = account.room
            if account.goes_by_expectations:
                continue
            assert room.usd is None or room.usd >= 0
            assert room.tokens is None or room.tokens >= 0
            assert room.requests is None or room.requests >= 0

    def note_risk(self, ledger: Ledger, claim: Claim) -> None:
        for account in claim.accounts:
            holds = [hold.asked_of(account) for hold in ledger._open if account in hold.accounts]
            usd = sum((hold.usd for hold in holds), Decimal(0)) - account.reserved_usd
            tokens = sum(hold.tokens for hold in holds) - account.reserved_tokens
            known = self.beyond.get(account, Amounts())
            self.beyond[account] = Amounts(max(known.usd, usd), max(known.tokens, tokens))

    def check_stepped_down(self, asked: Asked, terms: Any) -> None:
        """Where the share of a fallback is spent, the request is to the cheaper model."""
        if self.looks_on:
            return
        for account in _open_accounts(asked.scope):
            fallback = account.budget.fallback
            if fallback is not None and account.share >= Decimal(str(fallback.at)):
                assert terms.model == "cheap"

    def check_promise(self, asked: Asked, stop: BudgetExceeded) -> None:
        """A run that has reserved its quote is stopped by no budget of money around it.

        Unless it has spent more than its quote: its own budget goes by expectations.
        """
        within = [account.budget for account in asked.scope.bounds.accounts]
        if any(budget.admission == "expected" for budget in within):
            return
        for each in asked.scope.bounds.reserves:
            around = () if each.hold is None else each.hold.accounts
            if isinstance(stop, SpendLimitExceeded):
                assert each.payer_at(asked.scope.bounds.ceilings[0]) is None
            elif isinstance(stop, CostBudgetExceeded):
                assert stop.scope_path not in [account.path for account in around]

    def check_refused(self, asked: Asked, terms: Any, stop: BudgetExceeded) -> None:
        """What is left pays for no answer at all, and nobody is in flight who could give something back."""
        if self.looks_on:
            return
        if isinstance(stop, SpendLimitExceeded):
            self.check_nobody_shares(asked)
            return
        accounts = _open_accounts(asked.scope)
        terms = _cheapest(terms, accounts)
        floor = max(terms.bound.least_output_tokens, 1 + (terms.cut_at or 0))
        least = Amounts(_cost_usd(terms.model, floor), terms.bound.input_tokens + floor)
        assert any(account.lacks(least) for account in accounts), "the budgets could have paid for an answer"
        self.check_nobody_was_to_be_waited_for(asked, terms, accounts)

    def check_lowered(self, asked: Asked, terms: Any, reservation: Reservation[Any]) -> None:
        """The same, before it got its place; it got as much as there was. Unless it shares with others."""
        if self.looks_on or any(shared is reservation.terms for shared in self.shares):
            return
        if isinstance(reservation.short, SpendLimitExceeded):
            self.check_nobody_shares(asked)
            return
        hold = reservation.hold
        assert hold is not None
        terms = _cheapest(terms, hold.accounts)
        assert reservation.terms.model == terms.model
        assert reservation.terms.bound.output_tokens < terms.bound.output_tokens
        for account in hold.accounts:
            account.free(hold.amounts)
        self.check_nobody_was_to_be_waited_for(asked, terms, hold.accounts)
        more = Amounts(hold.amounts.usd + _cost_usd(terms.model, 1), hold.amounts.tokens + 1)
        assert any(account.lacks(more) for account in hold.accounts), "there was more to be had"
        for account in hold.accounts:
            account.reserve(hold.amounts)

    def check_nobody_was_to_be_waited_for(
        self, asked: Asked, terms: Any, accounts: Sequence[Account]
    ) -> None:
        """Neither for all that it asks for, nor for enough of it, which it asks for where it shares."""
        for account in accounts:
            if (longest := account.budget.max_tokens_per_request) is not None:
                terms = terms.shortened(longest)
        wanted = [terms] if terms.enough is None else [terms, terms.shortened(terms.enough)]
        short = [{account for account in accounts if account.lacks(_asked_of(one))} for one in wanted]
        assert any(short), "it would have fitted"
        in_the_way = [
            [
                (conversation, reservation)
                for conversation, reservation in self.admitted
                if reservation.hold is not None and not those.isdisjoint(reservation.hold.accounts)
            ]
            for those in short
            if those
        ]
        assert any(self.are_held_up(asked, others) for others in in_the_way), GIVES_BACK

    def check_nobody_shares(self, asked: Asked) -> None:
        """Of the requests that have reserved something with the `SpendLimit`, none will end by itself."""
        others = [
            (conversation, reservation)
            for conversation, reservation in self.admitted
            if reservation.hold is not None and reservation.shared
        ]
        assert self.are_held_up(asked, others), GIVES_BACK

    def are_held_up(self, asked: Asked, others: Sequence[tuple[Conversation, Reservation[Any]]]) -> bool:
        """Whether they are streams that nobody reads, or end after one that is being asked for."""
        held_up = {outer for each in (*self.asked, asked) for outer in each.conversation.inside_of}
        return all(conversation in held_up or not conversation.reading for conversation, _ in others)

    # --- afterwards ---

    def check_books(self) -> None:
        """Nothing is crossed, nothing is left reserved, nothing is counted twice or not at all."""
        assert not self.asked
        assert all(reservation.hold is None for _, reservation in self.admitted)
        for account in self.accounts:
            assert account.ledger.is_idle
            assert (account.reserved_usd, account.reserved_tokens, account.reserved_requests) == (0, 0, 0)
            limit, beyond = account.budget, self.beyond.get(account, Amounts())
            assert account.goes_by_expectations or (beyond.usd, beyond.tokens) == (0, 0)
            self.check_spent(limit, account.usage, beyond)
            billed = [sent for sent in self.sent if sent.billed and account in sent.accounts]
            assert limit.usd is None or sum(sent.cost_usd for sent in billed) <= limit.usd + beyond.usd
            assert limit.tokens is None or sum(sent.tokens for sent in billed) <= limit.tokens + beyond.tokens
            assert limit.requests is None or len(billed) <= limit.requests
        for scope in self.scopes:
            self.check_sums(scope)

    async def check_ceiling(self) -> None:
        """The store has every request that the `SpendLimit` held for, and nothing is left reserved."""
        status = await self.ceiling.status()
        shared = [reservation for _, reservation in self.admitted if reservation.shared]
        assert status.reserved_usd == 0
        assert status.spent_usd <= status.limit_usd
        assert status.spent_usd == Usage.of([self.ended[one].record for one in shared]).committed_usd

    def check_spent(self, budget: Budget, usage: Usage, beyond: Amounts) -> None:
        assert budget.usd is None or usage.committed_usd <= budget.usd + beyond.usd
        assert budget.tokens is None or usage.committed_tokens <= budget.tokens + beyond.tokens
        assert budget.requests is None or usage.request_count <= budget.requests

    def check_sums(self, scope: Scope) -> None:
        """What a scope has spent is what its children have, and its own requests."""
        children = [child for child in self.scopes if child.parent is scope]
        below = [charge for child in children for charge in child.spending.charges]
        assert len(set(map(id, below))) == len(below)
        assert set(map(id, below)) <= set(map(id, scope.spending.charges))
        own = [reservation for _, reservation in self.admitted if reservation.scope is scope]
        assert len(scope.spending.charges) == len(below) + len(own)
        usage = replace(scope.spent(), agent_call_count=0)
        assert usage == Usage.of(scope.spending.records)
        calls = sum(child.spending.usage.agent_call_count for child in children) + (scope.kind == "agent")
        assert scope.spending.usage.agent_call_count == calls


def number_of(messages: Sequence[ModelMessage]) -> str:
    """Of the conversation, which is its first prompt."""
    parts = (part for message in messages for part in message.parts)
    return next(str(part.content) for part in parts if isinstance(part, UserPromptPart))


def _has_returned(messages: Sequence[ModelMessage]) -> bool:
    return any(
        isinstance(part, ToolReturnPart)
        for message in messages
        if isinstance(message, ModelRequest)
        for part in message.parts
    )


def _asked_of(terms: Terms) -> Amounts:
    assert terms.bound.cost_usd is not None
    assert terms.bound.tokens is not None
    return Amounts(
        terms.bound.cost_usd,
        terms.bound.tokens,
        expected_usd=terms.expected_usd,
        expected_tokens=terms.expected_tokens,
    )


def _cost_usd(model: str, output_tokens: int) -> Decimal:
    return MICROCENTS_PER_TOKEN[model] * output_tokens / 1_000_000


def _cheapest(terms: Any, accounts: Sequence[Account]) -> Any:
    """The request to the cheaper model of the innermost budget that names one."""
    fallbacks = [account.budget.fallback for account in accounts if account.budget.fallback is not None]
    return terms.stepped_down(fallbacks[0]) if fallbacks else terms


def _open_accounts(scope: Scope) -> tuple[Account, ...]:
    return tuple(account for account in scope.bounds.accounts if not account.closed)
