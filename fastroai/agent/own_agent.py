"""The PydanticAI agent that a `FastroAgent` builds: with merged settings, and metered also if overridden."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final

from pydantic_ai import Agent, AgentModelSettings, ModelSettings, RunContext
from pydantic_ai.agent.spec import AgentSpec
from pydantic_ai.output import OutputDataT
from pydantic_ai.tools import AgentDepsT

_overridden: Final[ContextVar[frozenset[int]]] = ContextVar("fastroai_overridden_agents", default=frozenset())
"""Ids of the agents whose capabilities are overridden in this context."""


class OwnAgent(Agent[AgentDepsT, OutputDataT]):
    """An agent that knows whether its capabilities are overridden, the meter among them.

    `override(spec=…)` with capabilities replaces all that the agent was built with; no public API shows it.
    """

    @contextmanager
    def override(self, **overridden: Any) -> Generator[None]:
        """Override parts of the agent, as `pydantic_ai.Agent.override` does."""
        spec: dict[str, Any] | AgentSpec | None = overridden.get("spec")
        capabilities = spec.get("capabilities") if isinstance(spec, dict) else spec and spec.capabilities
        with super().override(**overridden):
            if not capabilities:
                yield
                return
            token = _overridden.set(_overridden.get() | {id(self)})
            try:
                yield
            finally:
                _overridden.reset(token)

    @property
    def is_overridden(self) -> bool:
        """Return whether the capabilities of the agent are overridden in this context."""
        return id(self) in _overridden.get()


def merge_settings(
    configured: ModelSettings | None,
    given: AgentModelSettings[AgentDepsT] | None,
    *,
    temperature: float | None,
    max_tokens: int | None,
) -> AgentModelSettings[AgentDepsT] | None:
    """Return one layer of settings: the config's, those given, then the short forms; `None` if empty.

    A setting that nobody gave is not sent.
    """
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
