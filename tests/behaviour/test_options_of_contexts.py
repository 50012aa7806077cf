"""Every option of what a step asks of its context, besides calls of agents, makes a difference."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from support.interruptions import RUN, DyingStore, go_on, nth

from fastroai import Pipeline, StepContext, step
from fastroai.errors import RunStoreUnavailable, StepExecutionError
from fastroai.human import Inbox, send_message
from fastroai.runtime.facts import OnceStarted
from fastroai.store import MemoryRunStore
from fastroai.usage import CostCalculator

Body = Callable[[StepContext[Any]], Awaitable[object]]
Begin = Callable[..., Body]

DEAR = {"input_per_mtok": 3, "output_per_mtok": 0}
PRICES = CostCalculator(pricing_overrides={"acme:reader": DEAR, "openai:gpt-5-mini": DEAR})
LISTED: dict[str, Any] = {"model": "openai:gpt-5-mini"}
READ: dict[str, Any] = {"model": "acme:reader", "units": {"input_tokens": 400}}
QUERIES = {"usd": "1", "model": "acme:search", "units": {"queries": 2}}


@dataclass
class Seen:
    """All that can be seen of a step, whose process may die, and which goes on after its time limits."""

    body: Body
    dies: bool = False
    hears: bool = False
    """Whether somebody sends it a message."""
    ahead: timedelta = timedelta()
    store: Any = field(init=False)

    def __post_init__(self) -> None:
        self.store = MemoryRunStore(clock=lambda: datetime.now(UTC) + self.ahead)

    async def seen(self) -> list[object]:
        first = await self.ended(self.pipeline.execute(run_id=RUN, store=self.opened()))
        questions = [
            (one.id, one.to, one.options, one.answer_schema, one.deadline is None)
            for one in await Inbox(self.store).list()
        ]
        if self.hears:
            await send_message(RUN, "paid", 7, store=self.store)
        self.ahead = timedelta(hours=1)
        return [first, questions, await self.ended(go_on(self.pipeline, self.store))]

    def opened(self) -> Any:
        return DyingStore(self.store, nth(OnceStarted), written=True) if self.dies else self.store

    @property
    def pipeline(self) -> Pipeline[Any, Any, Any]:
        @step
        async def works(ctx: StepContext[Any]) -> object:
            return await self.body(ctx)

        return Pipeline("p", {"works": works})

    async def ended(self, run: Awaitable[Any]) -> list[object]:
        try:
            result = await run
        except RunStoreUnavailable:
            return ["died"]
        except StepExecutionError as error:
            return [type(error.original_error).__name__]
        spent = [
            (one.provider, one.model, one.tokens, one.units, one.cost_usd, one.bound_usd)
            for one in result.usage.records
        ]
        return [
            result.status,
            [(wait.id, wait.deadline is None) for wait in result.waits],
            type(result.output),
            result.output,
            spent,
        ]


def asks(**options: Any) -> Body:
    return lambda ctx: ctx.ask("Go on?", **options)


def receives(**options: Any) -> Body:
    return lambda ctx: ctx.receive("paid", **options)


def sleeps(**options: Any) -> Body:
    return lambda ctx: ctx.sleep(60, **options)


def does_once(*, returns: Any = None, **options: Any) -> Body:
    async def body(ctx: StepContext[Any]) -> str:
        return str(await ctx.once("pay", lambda: Decimal("1.50"), returns=returns, **options))

    return body


def maps(**options: Any) -> Body:
    """Whether all items begin before one of them ends, and what becomes of the failed one."""

    async def body(ctx: StepContext[Any]) -> object:
        begun: list[object] = []

        @step
        async def each(ctx: StepContext[Any]) -> int:
            begun.append(ctx.get_input("item"))
            await asyncio.sleep(0)
            at_once = len(begun)
            if ctx.get_input("item") == 9:
                raise ValueError("nine")
            return at_once

        found = await ctx.map(each, range(10), **options)
        return [str(one) for one in found]

    return body


def records(**options: Any) -> Body:
    async def body(ctx: StepContext[Any]) -> None:
        defaults: dict[str, Any] = {"model": "openai:gpt-5-mini", "input_tokens": 1_000}
        ctx.record_usage(**defaults | options)

    return body


def spends(**options: Any) -> Body:
    async def body(ctx: StepContext[Any]) -> None:
        async with ctx.spend(**options) as purchase:
            purchase.settle()

    return body


TIMED = {"timeout": 60}
LATER = TIMED | {"on_timeout": "later"}
EACH = {"on_error": "continue"}
WHOLE = {"usd": "0.02"}
UNITS = {"model": "openai:text-embedding-3-small", "units": {"input_tokens": 400}}
EMBEDDING = {"model": "text-embedding-3-small", "units": {"input_tokens": 400}}
Row = tuple[Begin, dict[str, Any], dict[str, Any]]
ROWS: dict[str, dict[str, Row]] = {
    "ask": {
        "answer_type": (asks, {}, {"answer_type": bool}),
        "options": (asks, {}, {"options": ["a", "b"]}),
        "timeout": (asks, {}, TIMED),
        "on_timeout": (asks, TIMED, LATER),
        "to": (asks, {}, {"to": "finance"}),
        "name": (asks, {}, {"name": "refund"}),
    },
    "sleep": {"name": (sleeps, {}, {"name": "night"})},
    "receive": {
        "value_type": (receives, {}, {"value_type": Decimal}),
        "timeout": (receives, {}, TIMED),
        "on_timeout": (receives, TIMED, LATER),
    },
    "once": {
        "returns": (does_once, {}, {"returns": Decimal}),
        "if_interrupted": (does_once, {"returns": Decimal}, {"returns": Decimal, "if_interrupted": "fail"}),
    },
    "map": {
        "concurrency": (maps, EACH, EACH | {"concurrency": 1}),
        "on_error": (maps, {}, EACH),
    },
    "record_usage": {
        "model": (records, {}, {"model": "openai:gpt-5"}),
        "provider": (records, {"model": "gpt-5-mini"}, {"model": "gpt-5-mini", "provider": "azure"}),
        "input_tokens": (records, {}, {"input_tokens": 2_000}),
        "output_tokens": (records, {}, {"output_tokens": 10}),
        "cache_read_tokens": (records, {}, {"cache_read_tokens": 10}),
        "cache_write_tokens": (records, {}, {"cache_write_tokens": 10}),
        "cost_usd": (records, {}, {"cost_usd": "0.01"}),
        "cost_calculator": (records, LISTED, LISTED | {"cost_calculator": PRICES}),
    },
    "spend": {
        "usd": (spends, WHOLE, {"usd": "0.03"}),
        "model": (spends, WHOLE, WHOLE | {"model": "acme:search"}),
        "provider": (spends, EMBEDDING, EMBEDDING | {"provider": "openai"}),
        "units": (spends, UNITS, UNITS | {"units": {"input_tokens": 500}}),
        "price_usd": (spends, QUERIES, QUERIES | {"price_usd": "0.02"}),
        "cost_calculator": (spends, READ, READ | {"cost_calculator": PRICES}),
    },
}
SUBJECTS = {"self", "question", "until", "effect", "agent_or_step", "items"}
NAMES = {"receive", "once"}
"""The methods whose name is a subject: what every call gives."""


def rows() -> list[Any]:
    return [
        pytest.param(method, option, row, id=f"{method}-{option}")
        for method, options in ROWS.items()
        for option, row in options.items()
    ]


@pytest.mark.parametrize(("method", "option", "row"), rows())
async def test_every_option_of_what_a_step_asks_of_its_context_makes_a_difference(
    method: str, option: str, row: Row
) -> None:
    begin, without, given = row
    again, one, other = [
        await Seen(begin(**options), dies=method == "once", hears=option == "value_type").seen()
        for options in (without, without, given)
    ]
    assert again == one
    assert other != one


@pytest.mark.parametrize("method", ROWS)
def test_each_option_of_a_context_has_a_row_and_each_row_an_option(method: str) -> None:
    subjects = SUBJECTS | ({"name"} if method in NAMES else set())
    options = inspect.signature(getattr(StepContext, method)).parameters.keys() - subjects
    assert options == ROWS[method].keys()
