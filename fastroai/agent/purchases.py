"""Requests to models of other kinds than PydanticAI's `Model`: each is reserved and charged like spending."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from fastroai.agent.cost_headers import StatedInHeaders
from fastroai.agent.stated_cost import Billed, stated_cost
from fastroai.runtime import billing_of, current_scope
from fastroai.steps.reserving import Spend, SpendTerms
from fastroai.steps.spend_price import SpendPrice, Units

ResultT = TypeVar("ResultT", bound=Billed)


async def buy(
    terms: SpendTerms,
    price: SpendPrice,
    reserved: Units,
    *,
    send: Callable[[], Awaitable[ResultT]],
    used: Callable[[ResultT], Units],
) -> ResultT:
    """Reserve what a request can cost, send it, and charge the stated bill, else the units that it `used`.

    A request that its provider refused without billing is released. A request whose cost is not reported
    counts at its bound, as unmeasured.
    """
    url = price.provider_url
    headers = StatedInHeaders(() if url is None else price.calculator.cost_headers(url))
    async with Spend(current_scope(), terms, price, reserved, "its result reports no usage") as spend:
        try:
            with headers:
                result = await send()
        except Exception as error:
            if billing_of(error) == "released":
                spend.release()
            raise
        stated, units = stated_cost(result), used(result)
        if stated is None:
            stated = headers.usd
        if stated is not None or units:
            spend.settle(stated, units=units)
    return result
