"""Model settings merged from several places. A setting that nobody gave is not sent."""

from __future__ import annotations

from pydantic_ai import AgentModelSettings, ModelSettings, RunContext
from pydantic_ai.tools import AgentDepsT


def merge_settings(
    configured: ModelSettings | None,
    given: AgentModelSettings[AgentDepsT] | None,
    *,
    temperature: float | None,
    max_tokens: int | None,
) -> AgentModelSettings[AgentDepsT] | None:
    """Return one layer of settings: the config's, those given, then the short forms; `None` if empty."""
    short: ModelSettings = {}
    if temperature is not None:
        short["temperature"] = temperature
    if max_tokens is not None:
        short["max_tokens"] = max_tokens
    if callable(given):
        compute = given

        def settings(context: RunContext[AgentDepsT]) -> ModelSettings:
            return {**(configured or {}), **compute(context), **short}

        return settings
    return {**(configured or {}), **(given or {}), **short} or None
