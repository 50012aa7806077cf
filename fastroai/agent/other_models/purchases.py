"""Requests to models of other kinds than PydanticAI's `Model`: each is reserved and charged like spending."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import nullcontext
from typing import Final, TypeVar

from fastroai.agent.config import REQUEST_RETRY_DELAY
from fastroai.agent.requests.stated_cost import Billed, stated_cost
from fastroai.agent.requests.wire import StatedInHeaders, listening
from fastroai.runtime import NO_RETRIES_USED, RetryRules, billing_of, current_scope, is_transport_failure
from fastroai.steps.reserving import Spend, SpendTerms
from fastroai.steps.spend_price import SpendPrice, Units

ResultT = TypeVar("ResultT", bound=Billed)

_UNTOLD: Final = "its result reports no usage, or one that cannot be true"


async def buy(
    terms: SpendTerms,
    price: SpendPrice,
    reserved: Units,
    *,
    send: Callable[[], Awaitable[ResultT]],
    used: Callable[[ResultT], Units],
    retries: int,
) -> ResultT:
    """Reserve the cost of a request, send it, and charge the stated bill, else the units that it `used`.

    A request that its provider refused without billing is released. A request whose usage is not reported, or
    cannot be true, counts at its bound, as unmeasured. After a transport failure there are up to `retries`
    more attempts, each of which is reserved and charged by itself.
    """
    rules, made = RetryRules.counted(retries, REQUEST_RETRY_DELAY), NO_RETRIES_USED
    while True:
        try:
            return await _buy_once(terms, price, reserved, send, used)
        except Exception as error:
            scope = current_scope()
            retry = rules.next(error, made, scope) if is_transport_failure(error) else None
            if retry is None:
                raise
        with nullcontext() if scope is None else scope.time.at_rest():
            await asyncio.sleep(retry.delay)
        made = retry.used


async def _buy_once(
    terms: SpendTerms,
    price: SpendPrice,
    reserved: Units,
    send: Callable[[], Awaitable[ResultT]],
    used: Callable[[ResultT], Units],
) -> ResultT:
    headers = StatedInHeaders(price.calculator.cost_headers(price.provider_url))
    async with Spend(current_scope(), terms, price, reserved, _UNTOLD) as spend:
        try:
            with listening(headers):
                result = await send()
        except Exception as error:
            if billing_of(error) == "released":
                spend.release()
            raise
        stated, units = stated_cost(result), used(result)
        if price.of(units).contradiction is not None:
            units = {}
        if stated is None:
            stated = headers.usd
        if stated is not None or units:
            spend.settle(stated, units=units)
    return result
