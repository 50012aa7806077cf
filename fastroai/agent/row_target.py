"""An agent as what rows are given to: each row is a prompt."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

from pydantic import JsonValue
from pydantic_core import to_jsonable_python

from fastroai.agent.other_models.batched import current_batching
from fastroai.calls.call import AgentCall
from fastroai.calls.response import ChatResponse
from fastroai.contracts.annotations import Annotation
from fastroai.rows.target import RowCall
from fastroai.steps import PipelineConfig
from fastroai.usage import Quote

T = TypeVar("T")

_PROMPT: Final = "user_prompt"
_NO_CONFIG: Final = PipelineConfig()


@dataclass(frozen=True)
class AgentRows(Generic[T]):
    """Calls an agent for each row, which is its prompt: a text, or a column `user_prompt`."""

    name: str
    returns: Annotation | None
    dispatch: Callable[[AgentCall], Any]
    declared_for: Callable[[AgentCall], Mapping[str, str]]
    estimate: Callable[[AgentCall], Any]
    check_batches: Callable[[], None]
    kind: str = "agent"
    makes_runs: bool = False
    takes_deps: bool = True

    @property
    def parameters(self) -> Mapping[str, bool]:
        """The prompt, as `FastroAgent.run` calls it."""
        return {_PROMPT: True}

    @property
    def config(self) -> PipelineConfig:
        """No settings of runs."""
        return _NO_CONFIG

    def bind(self, values: Mapping[str, object]) -> Mapping[str, Any]:
        """Return the prompt. Raises `TypeError` if it is none."""
        prompt = values[_PROMPT]
        if not isinstance(prompt, str) and (isinstance(prompt, bytes) or not isinstance(prompt, Sequence)):
            raise TypeError(
                f"a prompt is a text, or a list of texts, images and documents, and not {prompt!r}"
            )
        return {_PROMPT: prompt}

    def as_json(self, inputs: Mapping[str, Any]) -> dict[str, JsonValue]:
        """Return the prompt as JSON."""
        shown: JsonValue = to_jsonable_python(inputs[_PROMPT], bytes_mode="base64", fallback=repr)
        return {_PROMPT: shown}

    def declares(self) -> Mapping[str, str]:
        """Return hashes of what is declared for each call."""
        return self.declared_for(AgentCall(prompt=None))

    async def call(self, inputs: Mapping[str, Any], how: RowCall) -> T:
        """Call the agent."""
        current_batching.set(how.batching)  # in the context of this row
        call = AgentCall(prompt=inputs[_PROMPT], deps=how.deps, request_retries=how.retries)
        response: ChatResponse[T] = await self.dispatch(call)
        return response.output

    async def quote(self, inputs: Mapping[str, Any], deps: object) -> Quote:
        """Estimate a call."""
        quote: Quote = await self.estimate(AgentCall(prompt=inputs[_PROMPT], deps=deps))
        return quote
