"""The exceptions of typed functions and flows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from fastroai.errors.base import ConfigurationError, FastroAIError, NoUsableOutput
from fastroai.errors.people import QuestionTimedOut
from fastroai.errors.steps import ContractViolation, Direction, ViolationDetail
from fastroai.errors.texts import listed


class CompileError(ConfigurationError):
    """A typed function, contract or flow cannot work as it is declared.

    `problems` has every problem that was found, a sentence each.

    What to do: Correct every problem that the message lists.
    """

    def __init__(self, declared: str, problems: tuple[str, ...]) -> None:
        super().__init__(declared, problems, "a declaration that can work")
        self.args = (declared, problems)
        self.declared, self.problems = declared, problems

    def __str__(self) -> str:
        return listed(self.declared, self.problems)


class _FunctionViolation(ContractViolation):
    _direction: ClassVar[Direction]

    def __init__(self, function: str, violations: tuple[str, ...], data: object) -> None:
        details = tuple(ViolationDetail(type="check_failed", loc=(), msg=text) for text in violations)
        super().__init__(function, self._direction, details, data, kind="function")


class PreconditionFailed(_FunctionViolation):
    """The inputs of a typed function do not meet its `given` conditions. Nothing was sent.

    `violations` are the conditions that do not hold, and `data` has the inputs by name.

    What to do: Call the function with inputs that meet its `given` conditions.
    """

    _direction = "require"

    def __init__(self, function: str, violations: tuple[str, ...], inputs: Mapping[str, object]) -> None:
        super().__init__(function, violations, inputs)
        self.args = (function, violations, inputs)


@dataclass(frozen=True, slots=True)
class FailedAttempt:
    """An attempt at a typed function, or an iteration of a refinement, that was not good enough.

    `output` is the output, or the text of the answer if that is not of the declared type. `violations` are
    its problems, one text each, as the model was told.
    """

    output: object
    """The output; the text of the answer if that is not of the declared type."""
    violations: tuple[str, ...]
    """The problems of the output, as the model was told before the next attempt."""


class PostconditionFailed(_FunctionViolation):
    """The output of a typed function does not meet its `ensure` conditions after the last attempt.

    `violations` are those of the last output, which is `data`; `history` has every attempt of the model. For
    a function with `@compute`, it is empty: the body runs once.

    What to do: Make the intent clearer, raise `retries`, or loosen `ensure`; `history` has the answers.
    """

    _direction = "ensure"

    def __init__(
        self,
        function: str,
        violations: tuple[str, ...],
        output: object,
        history: tuple[FailedAttempt, ...] = (),
    ) -> None:
        super().__init__(function, violations, output)
        self.args = (function, violations, output, history)
        self.history = history

    def __str__(self) -> str:
        return f"{super().__str__()}{_after(self.history)}"


class ParseFailure(_FunctionViolation):
    """A model's last answer for a typed function is not of the declared type.

    `raw_output` is its text, with opaque values left out. `violations` say what did not match, and `history`
    has all attempts.

    What to do: Make the intent clearer, raise `retries`, or take a stronger model; `history` has the answers.
    """

    _direction = "output"

    def __init__(
        self,
        function: str,
        violations: tuple[str, ...],
        raw_output: str,
        history: tuple[FailedAttempt, ...] = (),
    ) -> None:
        super().__init__(function, violations, raw_output)
        self.args = (function, violations, raw_output, history)
        self.raw_output, self.history = raw_output, history

    def __str__(self) -> str:
        return f"{super().__str__()}{_after(self.history)}"


class ConvergenceFailure(NoUsableOutput):
    """A refinement was not good enough after its last iteration.

    `history` has every iteration: the output, and the feedback on it.

    What to do: Raise the number of iterations, or make the condition easier to meet; `history` says how close
    it came.
    """

    def __init__(self, function: str, history: tuple[FailedAttempt, ...]) -> None:
        super().__init__(function, history)
        self.function, self.history = function, history

    def __str__(self) -> str:
        return (
            f"function {self.function!r}: no output of {len(self.history)} iterations fulfils until=; they "
            "are in error.history. Allow more with max_iterations=, or weaken until="
        )


class ConsensusFailure(NoUsableOutput):
    """Too few members of a quorum agree.

    `outputs` has the outputs of the members that succeeded, `errors` the errors of those that failed.

    What to do: Look at why the `outputs` differ; ask more members, or for fewer that agree.
    """

    def __init__(
        self,
        function: str,
        agreed: int,
        threshold: int,
        outputs: tuple[object, ...],
        errors: tuple[BaseException, ...] = (),
    ) -> None:
        super().__init__(function, agreed, threshold, outputs, errors)
        self.function, self.agreed, self.threshold = function, agreed, threshold
        self.outputs, self.errors = outputs, errors

    def __str__(self) -> str:
        return (
            f"function {self.function!r}: {self.agreed} of {len(self.outputs)} outputs agree, and "
            f"{self.threshold} must{_failed(self.errors)}. error.outputs has them"
        )


class StabilityAssertionError(FastroAIError, AssertionError):
    """Samples of one answer agree less than `assert_stable` asks for. `outputs` are the samples.

    What to do: Lower the temperature, make the intent clearer, or ask for less agreement.
    """

    def __init__(
        self, agreement: float, threshold: float, on: tuple[str, ...], outputs: tuple[object, ...]
    ) -> None:
        super().__init__(agreement, threshold, on, outputs)
        self.agreement, self.threshold, self.on, self.outputs = agreement, threshold, on, outputs

    def __str__(self) -> str:
        fields = f" on {', '.join(map(repr, self.on))}" if self.on else ""
        return (
            f"{self.agreement:.0%} of {len(self.outputs)} samples agree{fields}, and {self.threshold:.0%} "
            "must; error.outputs has them"
        )


class ParallelFailed(NoUsableOutput):
    """So many coroutines failed that `parallel` or `race` cannot get the results it requires.

    `errors` are their errors, in the order in which they failed.

    What to do: Look at `errors`; lower `require` if fewer results are enough.
    """

    def __init__(self, required: int, started: int, errors: tuple[BaseException, ...]) -> None:
        super().__init__(required, started, errors)
        self.required, self.started, self.errors = required, started, errors

    def __str__(self) -> str:
        return (
            f"{self.required} of {self.started} coroutines must succeed{_failed(self.errors)}. "
            "error.errors has all of them. With parallel, require= says how many must succeed"
        )


class ParallelValidationFailed(NoUsableOutput):
    """The `validate` of `parallel` refuses its results, which are `outputs`.

    What to do: Look at `outputs` and at the condition; ask again, or change `validate`.
    """

    def __init__(self, violations: tuple[str, ...], outputs: tuple[object, ...]) -> None:
        super().__init__(violations, outputs)
        self.violations, self.outputs = violations, outputs

    def __str__(self) -> str:
        return f"the results of parallel do not pass validate: {'; '.join(self.violations)}"


class FlowDiverged(FastroAIError):
    """A resumed flow makes other calls than before, so results on record cannot be given back to it.

    If an answer was asked for again, because the declaration of its call changed, later calls of functions
    that ask a model may differ. Calls of `@compute` functions may not.

    `recorded` is the call on record that was not made again, and `called` the one that was made instead. In
    both, the values of opaque inputs are left out.

    What to do: Resume with the code that began the run, or start a new run.
    """

    def __init__(self, flow: str, recorded: str, called: str) -> None:
        super().__init__(flow, recorded, called)
        self.flow, self.recorded, self.called = flow, recorded, called

    def __str__(self) -> str:
        return (
            f"flow {self.flow!r} called {self.recorded} before it was resumed, and now calls {self.called}. "
            "A resumed flow must make the same calls. Take values that change (times, random numbers, "
            "answers "
            "of services) from its inputs or from a @compute function, or start a new run"
        )


class HumanTimeoutError(QuestionTimedOut):
    """Nobody answered a question of `await_human` in time, and its `on_timeout` says to raise.

    What to do: Ask with a later deadline, or set `on_timeout` to a value for this case.
    """

    @property
    def review_id(self) -> str:
        """The id of the question in the inbox. It is the same as `question_id`."""
        return self.question_id

    def __str__(self) -> str:
        return (
            f"nobody answered review {self.review_id!r} until {self.deadline:%Y-%m-%d %H:%M:%S} UTC; "
            "await_human(..., on_timeout=...) continues without an answer"
        )


def _after(history: tuple[FailedAttempt, ...]) -> str:
    return f" (after {len(history)} attempts)" if len(history) > 1 else ""


def _failed(errors: tuple[BaseException, ...]) -> str:
    return f"; {len(errors)} failed, the first with {type(errors[0]).__name__}: {errors[0]}" if errors else ""
