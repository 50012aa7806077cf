"""An agent as what rows are given to: each row is a prompt."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

from pydantic import JsonValue
from pydantic_core import to_jsonable_python

from fastroai.agent.dispatch import Dispatcher
from fastroai.agent.other_models.batching import check_batches, current_batching
from fastroai.agent.quotes.estimate import estimate_call
from fastroai.calls.call import AgentCall
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

    dispatcher: Dispatcher[Any, T]
    returns: Annotation | None
    kind: str = "agent"
    makes_runs: bool = False
    takes_deps: bool = True

    @property
    def name(self) -> str:
        """The name of the agent."""
        return self.dispatcher.name

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
        return self.dispatcher.declaration.of(AgentCall(prompt=None))

    def check_batches(self) -> None:
        """Check that the model of the agent has a batch API."""
        check_batches(self.dispatcher.asked_model(None), self.name)

    async def call(self, inputs: Mapping[str, Any], how: RowCall) -> T:
        """Call the agent."""
        current_batching.set(how.batching)  # in the context of this row
        call = AgentCall(prompt=inputs[_PROMPT], deps=how.deps, request_retries=how.retries)
        return (await self.dispatcher.run(call)).output

    async def quote(self, inputs: Mapping[str, Any], deps: object) -> Quote:
        """Estimate a call."""
        return await estimate_call(self.dispatcher, AgentCall(prompt=inputs[_PROMPT], deps=deps))
