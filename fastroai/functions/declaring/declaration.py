"""The options of `@infer`: how a model implements a function."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias, get_args

from pydantic_ai.agent import AbstractAgent
from pydantic_ai.models import Model
from pydantic_ai.tools import Tool
from typing_extensions import TypedDict

from fastroai.agent import FastroAgent
from fastroai.contracts.annotations import Annotation
from fastroai.errors import ConfigurationError
from fastroai.functions.cache import CacheKind
from fastroai.functions.declaring.conditions import Conditions, OutputConditions
from fastroai.functions.declaring.static_checks import agreement_problems, count_problems, quorum_problems
from fastroai.functions.refinement import Refinement
from fastroai.functions.several.quorum import Quorum
from fastroai.usage import BudgetLike
from fastroai.usage.limits import limits_of

DEFAULT_RETRIES: Final = 3
"""Extra attempts to get an answer."""

AnyAgent: TypeAlias = "FastroAgent[Any, Any] | AbstractAgent[Any, Any]"
AnyTool: TypeAlias = "Tool[Any] | Callable[..., Any]"


class InferOptions(TypedDict, total=False):
    """The keyword arguments of `infer` besides `intent` and `stable`. `infer` explains them."""

    context: str | Sequence[str]
    ensure: OutputConditions
    given: Conditions
    model: Model | str | None
    temperature: float | None
    budget: BudgetLike | None
    retries: int
    cache: CacheKind
    quorum: int | None
    agree_on: str | None
    threshold: int | None
    agent: AnyAgent | None
    tools: Sequence[AnyTool]


@dataclass(frozen=True, kw_only=True)
class Declaration:
    """The options of `infer`, with those that `refine` adds."""

    intent: str
    stable: bool
    context: str | Sequence[str] = ""
    ensure: OutputConditions = None
    given: Conditions = None
    model: Model | str | None = None
    temperature: float | None = None
    budget: BudgetLike | None = None
    retries: int = DEFAULT_RETRIES
    cache: CacheKind = "none"
    quorum: int | None = None
    agree_on: str | None = None
    threshold: int | None = None
    agent: AnyAgent | None = None
    tools: Sequence[AnyTool] = ()
    refinement: Refinement | None = None

    def voting(self) -> Quorum | None:
        """Return the quorum, if there is one."""
        return None if self.quorum is None else Quorum.of(self.quorum, self.agree_on, self.threshold)

    def problems(self, returns: Annotation) -> Iterator[str]:
        """Yield the problems of options that no other part of a function checks."""
        yield from count_problems("retries", self.retries, least=0, required=True)
        try:
            limits_of(self.budget, None)
        except ConfigurationError as error:
            yield str(error)
        yield from self._agent_problems()
        yield from quorum_problems(self.quorum, self.agree_on, self.threshold)
        yield from agreement_problems(self.agree_on, returns)
        if self.cache not in get_args(CacheKind):
            yield f"cache={self.cache!r}: expected {', '.join(map(repr, get_args(CacheKind)))}"
        if not isinstance(self.stable, bool):  # pyright: ignore[reportUnnecessaryIsInstance]
            yield f"stable={self.stable!r}: expected True or False"

    def _agent_problems(self) -> Iterator[str]:
        heat: object = self.temperature
        is_number = isinstance(heat, int | float) and not isinstance(heat, bool) and heat >= 0
        if heat is not None and not is_number:
            yield f"temperature={heat!r}: expected a number, 0 or more"
        model: object = self.model
        if not (model is None or isinstance(model, Model) or (isinstance(model, str) and model)):
            yield f"model={model!r}: expected a model of PydanticAI, or a text such as 'openai:gpt-5-mini'"
        tools: object = self.tools
        is_list = isinstance(tools, list | tuple)
        if not is_list or not all(isinstance(one, Tool) or callable(one) for one in self.tools):
            yield f"tools={tools!r}: expected a list of functions, or of tools of PydanticAI"
        agent: object = self.agent
        if agent is None:
            return
        if not isinstance(agent, FastroAgent | AbstractAgent):
            yield f"agent={agent!r}: expected a FastroAgent, or an agent of PydanticAI"
        for option in ("model", "temperature", "tools"):
            if getattr(self, option) not in (None, (), []):
                yield f"{option}= cannot be combined with agent=, which has its own; set it on that agent"
