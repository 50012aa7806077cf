"""Processes whose requests are under one shared provider limit."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from typing import Any

from fastroai.agent import FastroAgent
from fastroai.runtime import CircuitBreaker, ProviderLimit
from fastroai.runtime.providers import provider_line
from support.fork_server import ForkedProcess

MODEL = "openai-chat:gpt-5-mini"


def limited_agent(limit: ProviderLimit) -> FastroAgent[Any, str]:
    return FastroAgent(MODEL, max_tokens=50, request_retries=0, provider_limits={"openai": limit})


def ask(place: str, count: int, minute: float, notes: str, options: Mapping[str, Any]) -> None:
    """Send so many requests at once, as the limit lets them, where a minute has so many seconds.

    The times at which they were let go are noted, each in a line.
    """
    provider_line.MINUTE = minute  # type: ignore[misc]
    breaker = options.get("circuit_breaker")
    shared = dict(options) | ({"circuit_breaker": CircuitBreaker(**breaker)} if breaker else {})
    agent = limited_agent(ProviderLimit(store=place, **shared))

    async def send() -> list[Any]:
        calls = (agent.run(f"{number}") for number in range(count))
        return await asyncio.gather(*calls, return_exceptions=True)

    answers = [each for each in asyncio.run(send()) if not isinstance(each, BaseException)]
    if notes:
        with open(notes, "a") as file:
            file.writelines(f"{each.records[0].started_at.timestamp()}\n" for each in answers)


def asking(
    place: str,
    environment: Mapping[str, str],
    count: int,
    *,
    minute: float = 60.0,
    notes: str = "",
    **options: Any,
) -> Any:
    """Begin a process that does so."""
    variables = {**os.environ, **environment}
    return ForkedProcess(ask, place, count, minute, notes, options, environment=variables)
