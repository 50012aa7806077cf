"""Requests to models of other kinds than PydanticAI's `Model`: each is reserved and charged like spending."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from fastroai.runtime import billing_of, current_scope
from fastroai.steps.reserving import Spend, SpendTerms
from fastroai.steps.spend_price import SpendPrice, Units


@asynccontextmanager
async def purchase(terms: SpendTerms, price: SpendPrice, units: Units) -> AsyncGenerator[Spend]:
    """Reserve what a request can cost; inside, send it and settle it.

    A request that its provider refused without billing is released. A request whose cost is not reported
    counts at its bound, as unmeasured.
    """
    async with Spend(current_scope(), terms, price, units, "the answer reported no usage") as spend:
        try:
            yield spend
        except Exception as error:
            if billing_of(error) == "released":
                spend.release()
            raise
