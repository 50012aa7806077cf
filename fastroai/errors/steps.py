"""Failures of steps, and of the values that they ask for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, NotRequired, TypeAlias, TypedDict

from fastroai.errors.base import FastroAIError, NoUsableOutput, attach_trace, trace_source_of
from fastroai.errors.texts import nearest_hint

Direction: TypeAlias = Literal["input", "output", "require", "ensure"]
"""The part of a contract that a `ContractViolation` is about."""


def failure_inside(error: StepExecutionError) -> BaseException:
    """Return the failure of the only step of a run, with the trace and the id of that run."""
    original = error.original_error
    if (source := trace_source_of(error)) is not None:
        attach_trace(original, source)
    if isinstance(original, FastroAIError):
        original.run_id = error.run_id
    return original


class MissingInputError(FastroAIError, KeyError):
    """A step asked for an input that the run was not given, or a graph node for a key not in memory.

    What to do: Give the run this input, or pass a default to `get_input`.
    """

    def __init__(self, step_id: str, key: str, known: tuple[str, ...], in_graph: bool = False) -> None:
        super().__init__(step_id, key, known, in_graph)
        self.step_id, self.key, self.known, self.in_graph = step_id, key, known, in_graph

    def __str__(self) -> str:
        given = ", ".join(map(repr, self.known)) or "none"
        if self.in_graph:
            return (
                f"node {self.step_id!r} asked for {self.key!r}, which is not in the memory that it reads; "
                f"it reads: {given}.{nearest_hint(self.key, self.known)} Give it as an input, let a node "
                f"before this one write it, add it to the node's reads if it has any, or pass a default: "
                f"ctx.get_input({self.key!r}, default)"
            )
        advice = f"Pass it in inputs, or a default: ctx.get_input({self.key!r}, default)"
        if "item" in self.known and self.step_id.endswith("]"):
            advice = (
                f"ctx.map gives a step each item as the input 'item': ask for that name, or map a typed "
                f"function as function.as_step({{{self.key!r}: 'item'}})"
            )
        return (
            f"step {self.step_id!r} asked for input {self.key!r}, which the run was not given; "
            f"given: {given}.{nearest_hint(self.key, self.known)} {advice}"
        )


class MissingDependencyError(FastroAIError, KeyError):
    """A step asked for the output of a step on which it does not depend, or which has no output.

    What to do: Add the step to `dependencies`, as the message shows. If it can fail or be skipped, read it
    with `ctx.get_dependency_or_none`.
    """

    def __init__(self, step_id: str, dependency: str, reason: str) -> None:
        super().__init__(step_id, dependency, reason)
        self.step_id, self.dependency, self.reason = step_id, dependency, reason

    def __str__(self) -> str:
        return f"step {self.step_id!r} asked for the output of {self.dependency!r}: {self.reason}"


class DependencyTypeError(FastroAIError, TypeError):
    """The output of a dependency is not of the type that the step asked for.

    What to do: Ask for the type that the step returns, or change the type that it returns.
    """

    def __init__(self, step_id: str, dependency: str, expected: str, actual: str) -> None:
        super().__init__(step_id, dependency, expected, actual)
        self.step_id, self.dependency, self.expected, self.actual = step_id, dependency, expected, actual

    def __str__(self) -> str:
        return (
            f"step {self.step_id!r} expected {self.expected} from {self.dependency!r}, "
            f"whose output is {self.actual}"
        )


class InputTypeError(FastroAIError, TypeError):
    """An input, or a value in the memory of a graph, is not of the type that the step asked for.

    What to do: Give the run an input of the type that the step asks for, or ask for another type.
    """

    def __init__(self, step_id: str, key: str, expected: str, actual: str) -> None:
        super().__init__(step_id, key, expected, actual)
        self.step_id, self.key, self.expected, self.actual = step_id, key, expected, actual

    def __str__(self) -> str:
        return f"step {self.step_id!r} expected {self.expected} as input {self.key!r}, which is {self.actual}"


class StepExecutionError(FastroAIError):
    """A step failed. `original_error` is the cause; `step_outputs` and `usage` have the results so far.

    What to do: Look at `original_error`. Correct the cause and resume the run: finished steps are not
    repeated.
    """

    def __init__(self, step_id: str, original_error: BaseException) -> None:
        super().__init__(step_id, original_error)
        self.step_id, self.original_error = step_id, original_error

    def __str__(self) -> str:
        error = self.original_error
        kind = type(error).__name__
        if isinstance(error, RecordedError):
            kind = error.error_type.rpartition(".")[2]
        return f"step {self.step_id!r} failed: {kind}: {error}"


class RecordedError(FastroAIError):
    """A stand-in for another exception, with its type and message.

    It stands for a recorded exception of an earlier process. In results of `wake` and `recover`, it also
    stands for one that is not an `Exception`, such as `SystemExit`, which is its `__cause__`.

    What to do: Look up the original type, whose name is in `error_type`.
    """

    def __init__(self, error_type: str, message: str) -> None:
        super().__init__(error_type, message)
        self.error_type, self.message = error_type, message

    def __str__(self) -> str:
        return self.message or self.error_type


class ViolationDetail(TypedDict):
    """One reason why a value does not fit its contract, like an item of `errors()` of pydantic.

    It is plain data, a dict. `type` is pydantic's name of the error, or for conditions `check_failed` or
    `check_error`. `loc` is the place in the value, as names and indices, and `msg` is the text for people.
    `input` is the invalid value as a short text; the key is missing if there is no value to show.
    """

    type: str
    """Pydantic's name of the error, or `check_failed`, `check_error`, `validator_error`."""
    loc: tuple[int | str, ...]
    """The place in the value: names and indices."""
    msg: str
    input: NotRequired[str]
    """The invalid value, as a short text."""


class ContractViolation(NoUsableOutput):
    """The inputs or the output of a step do not fit its contract. Trying again would not change that.

    `details` has every problem, `data` the values in question: inputs by name, or the output. `step_id` is
    `None` if the inputs of a run are not what its pipeline accepts. `kind` says what has this id: a step, a
    typed function or a flow.

    What to do: Correct the inputs or the step, or loosen the contract: `details` names each field.
    """

    def __init__(
        self,
        step_id: str | None,
        direction: Direction,
        details: tuple[ViolationDetail, ...],
        data: object,
        pipeline: str = "",
        kind: Literal["step", "function", "flow"] = "step",
    ) -> None:
        super().__init__(step_id, direction, details, data, pipeline, kind)
        self.step_id, self.details, self.data = step_id, details, data
        self.direction: Direction = direction
        self.pipeline = pipeline
        self.kind: Literal["step", "function", "flow"] = kind

    @property
    def violations(self) -> tuple[str, ...]:
        """All violations, one text each: the place in the value, the problem, and the invalid value."""
        return tuple(map(_told, self.details))

    def __str__(self) -> str:
        whose = repr(self.pipeline) if self.step_id is None else f"{self.kind} {self.step_id!r}"
        told = "; ".join(self.violations[:5])
        more = len(self.details) - 5
        return f"{whose}: {_VIOLATED[self.direction]}: {told}{f'; and {more} more' if more > 0 else ''}"


_VIOLATED: Mapping[Direction, str] = {
    "input": "its inputs do not fit its contract",
    "output": "its output does not fit its contract",
    "require": "what it requires does not hold",
    "ensure": "what it ensures does not hold",
}


class TimeLimitExceeded(FastroAIError, TimeoutError):
    """An agent call, a step, a branch of a graph, or a whole run took longer than its timeout.

    What to do: Raise the timeout that the message names, or make the work shorter.
    """

    retryable = True

    def __init__(self, what: str, seconds: float) -> None:
        super().__init__(what, seconds)
        self.what, self.seconds = what, seconds

    def __str__(self) -> str:
        return f"{self.what} took longer than {self.seconds:g} s"


class OnceInterrupted(FastroAIError):
    """A side effect of `ctx.once` was interrupted, so it is unknown whether it has happened.

    The process died, the call was cancelled, or the result could not be stored. Raised only with
    `if_interrupted="fail"`; by default, the effect is repeated.

    What to do: Find out whether it has happened. If it must be done again, resume
    with `ctx.once(..., if_interrupted="repeat")`; otherwise fork the run with the output of the step.
    """

    def __init__(self, step_id: str, name: str) -> None:
        super().__init__(step_id, name)
        self.step_id, self.name = step_id, name

    def __str__(self) -> str:
        return (
            f"step {self.step_id!r} began {self.name!r}, and it is unknown whether it happened: its process "
            "died, or the result could not be stored. Check. If it did not happen, resume with ctx.once(..., "
            "if_interrupted='repeat'); if it did, fork the run with the output of the step"
        )


class CancelledInside(FastroAIError):
    """A step failed because it awaited a task that was cancelled; the step itself was not cancelled.

    What to do: Find out which code cancelled the inner task. If that is not a failure, await it in a `try`.
    """

    retryable = True

    def __init__(self, step_id: str) -> None:
        super().__init__(step_id)
        self.step_id = step_id

    def __str__(self) -> str:
        return (
            f"step {self.step_id!r} awaited a task that was cancelled, although the step itself was not. "
            "Look for what cancelled the task, such as a client or a pool that was closed"
        )


def _told(detail: ViolationDetail) -> str:
    where = ".".join(map(str, detail["loc"]))
    got = f" (got {detail['input']})" if "input" in detail else ""
    return f"{where}: {detail['msg']}{got}" if where else f"{detail['msg']}{got}"


class LangGraphStopped(FastroAIError):
    """A LangGraph graph that is a step stopped before its end: it waits for an answer, or ran too long.

    `reason` is `"interrupt"`, with the question in `detail`, or `"recursion limit"`, with the limit.

    What to do: Give `graph_step` a function `answer=` that returns the answer, and resume the run; or raise
    the recursion limit.
    """

    def __init__(self, step_id: str, reason: Literal["interrupt", "recursion limit"], detail: str) -> None:
        super().__init__(step_id, reason, detail)
        self.step_id, self.reason, self.detail = step_id, reason, detail

    def __str__(self) -> str:
        if self.reason == "interrupt":
            return (
                f"the LangGraph graph of step {self.step_id!r} waits for an answer to {self.detail}. Pass a "
                "function that returns it as graph_step(graph, answer=...), and resume the run. This needs a "
                "store for the run, and a graph that was compiled with a checkpointer"
            )
        return (
            f"the graph of step {self.step_id!r} has reached its recursion limit ({self.detail}); make "
            "sure that it ends, or raise the limit: graph_step(graph_config={'recursion_limit': ...})"
        )
