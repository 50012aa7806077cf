"""Comparing the account of recorded answers with what is expected of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import fields
from datetime import datetime, tzinfo
from decimal import Decimal
from typing import Any

import pytest

from fastroai.records import RequestRecord, Tokens
from support.recorded_oracle import Json, answers, expectations

ANSWERS = answers()
EXPECTED = expectations()


def cases(chosen: Callable[[Json, Json], bool]) -> list[Any]:
    """The answers and expectations that are chosen, as parameters of a test."""
    return [
        pytest.param(answer, expected, id=f"{number}-{answer['host']}")
        for number, (answer, expected) in enumerate(zip(ANSWERS, EXPECTED, strict=True))
        if chosen(answer, expected)
    ]


def frozen_at(monkeypatch: pytest.MonkeyPatch, moment: datetime) -> None:
    """Let answers arrive at a moment: some prices depend on the date, some on the hour."""

    class Frozen(datetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> datetime:  # type: ignore[override]
            return moment

    monkeypatch.setattr("pydantic_ai._utils.datetime", Frozen)


def billed(records: Iterable[RequestRecord]) -> list[RequestRecord]:
    """The requests that were not refused. A run that goes on, for a tool that was called, is refused."""
    return [record for record in records if record.outcome != "released"]


def account_of(record: RequestRecord) -> dict[str, Any]:
    """What the account says of a request."""
    tokens = {each.name: getattr(record.tokens, each.name) for each in fields(Tokens)}
    return {
        "outcome": record.outcome,
        "cost_usd": record.cost_usd,
        "cost_source": record.cost_source,
        "complete": record.cost_complete,
        "unpriced_units": set(record.unpriced_units),
        "tokens": {name: count for name, count in tokens.items() if count},
    }


def account_in(expected: Json) -> dict[str, Any]:
    """What it has to say."""
    cost = expected["cost_usd"]
    return {
        "outcome": expected["outcome"],
        "cost_usd": None if cost is None else Decimal(cost),
        "cost_source": expected["cost_source"],
        "complete": expected["complete"],
        "unpriced_units": set(expected["unpriced_units"]),
        "tokens": expected["tokens"],
    }
