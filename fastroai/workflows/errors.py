"""The exceptions of workflows."""

from __future__ import annotations

from dataclasses import dataclass

from fastroai.errors.base import FastroAIError
from fastroai.errors.texts import listed


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkflowProblem:
    """One thing that is wrong with a workflow spec, with its place: `WorkflowValidationError` has a list.

    `str()` of it is the message, with the line and the column in front.
    """

    message: str
    file: str | None = None
    """The file that the spec was read from; `None` for a text."""
    line: int = 1
    """The line in the spec, from 1."""
    column: int = 1
    """The column in that line, in characters, from 1."""
    flow: str | None = None
    """The flow with the problem, or with the step that has it."""
    step: str | None = None
    """The step with the problem: its id, or its number in the flow, from 1, if it has none."""
    allowed: tuple[str, ...] = ()
    """Valid words or names for this place, if there are only a few."""
    nearest: str | None = None
    """The allowed name that is most like the one that was found."""

    def __str__(self) -> str:
        return f"line {self.line}, column {self.column}: {self.message}"


class WorkflowValidationError(FastroAIError, ValueError):
    """A workflow spec that cannot run. `problems` has the problems that were found, in order of their lines.

    After 100 problems, the spec is not read further, and one more entry in `problems` says so.

    `source` is the file that the spec was loaded from, if there is one.

    What to do: Correct every problem that the message lists, at its line.
    """

    def __init__(self, problems: tuple[WorkflowProblem, ...], source: str | None = None) -> None:
        super().__init__(problems, source)
        self.problems, self.source = problems, source

    def __str__(self) -> str:
        where = "" if self.source is None else f" {self.source}"
        return listed(f"workflow spec{where}", self.problems)


class ResultRejected(FastroAIError):
    """The result of a step of a workflow did not pass its checks.

    `check` is the first check that failed: `SchemaFailed`, `ContractFailed` or `EnsureFailed`. `violations`
    has up to 50 problems that it found in the `output`. In a very long output, a schema or contract finds
    only the first problem.

    What to do: Correct the result as `violations` says, or loosen the contract of the function.
    """

    def __init__(self, step_id: str, check: str, violations: tuple[str, ...], output: object) -> None:
        super().__init__(step_id, check, violations, output)
        self.step_id, self.check, self.violations, self.output = step_id, check, violations, output

    def __str__(self) -> str:
        return f"step {self.step_id!r}: the result did not pass its checks: {'; '.join(self.violations)}"
