"""Refinements: a function asks for answers again, with feedback, until one is good enough."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol, TypeVar

from pydantic import JsonValue

from fastroai.errors import ConfigurationError
from fastroai.functions.declaring.conditions import Postcondition
from fastroai.functions.errors import ConvergenceFailure, FailedAttempt
from fastroai.functions.inference import Inference
from fastroai.functions.prompt import CompiledPrompt
from fastroai.functions.quotes import values_in, without_quotes

T = TypeVar("T")

DEFAULT_ITERATIONS: Final = 5
_PREVIOUS: Final = "previous answer"
"""The name of the last answer in the data part. No parameter can have it."""


class Compile(Protocol):
    """Compiles the prompt of an iteration."""

    def __call__(self, *, violations: Sequence[str], attached: Mapping[str, JsonValue]) -> CompiledPrompt:
        """Compile the prompt with the problems of the last answer, and with that answer as data."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Refinement:
    """The options of `@refine`."""

    until: Postcondition
    feedback: Callable[[Any], str] | None
    """Makes the feedback on an output. Without it, the feedback says why `until` does not hold."""
    max_iterations: int

    async def refined(self, inference: Inference[T], first: CompiledPrompt, compile_next: Compile) -> T:
        """Return the first output for which `until` holds.

        Raises:
            ConvergenceFailure: `until` holds for no output, up to the last iteration.
        """
        history: list[FailedAttempt] = []
        prompt, opaque_inputs = first, values_in(first.data)
        for iteration in range(1, self.max_iterations + 1):
            answer = await inference.answer(prompt, f"iteration {iteration}, ")
            answers, draft = inference.asker.answers, inference.draft
            hidden = [*opaque_inputs, *answers.opaque_parts(answer.output)]
            said = without_quotes(self._feedback(answer.output), hidden)
            draft.iterations.append(
                {"number": iteration, "output": answers.returns.elided(answer.output), "feedback": said}
            )
            if not said:
                return answer.output
            history.append(FailedAttempt(answer.output, tuple(said)))
            previous = answers.returns.json_of(answer.output)
            prompt = compile_next(violations=said, attached={_PREVIOUS: previous})
        raise ConvergenceFailure(inference.asker.function, tuple(history))

    def _feedback(self, output: object) -> list[str]:
        """Return the feedback for the model on an output; nothing if the output is good enough."""
        unmet = self.until.violations(output)
        if not unmet or self.feedback is None:
            return unmet
        said: object = self.feedback(output)
        if not isinstance(said, str):
            raise ConfigurationError("feedback", said, "a function of the output that returns a text")
        return [said]
