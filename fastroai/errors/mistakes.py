"""Mistakes of a program that are found before anything runs or is sent."""

from __future__ import annotations

from typing import Literal, NamedTuple

from fastroai.errors.base import FastroAIError
from fastroai.errors.texts import listed, nearest_hint
from fastroai.version import DISTRIBUTION


class ExpressionProblem(NamedTuple):
    """One problem of an expression: what is wrong, and where in its text.

    `line` and `column` count from 1, in characters. Both are 0 if the text as a whole is the problem, or if
    the problem was found when the expression was evaluated.
    """

    message: str
    line: int = 0
    column: int = 0
    """Line and column of the problem, in characters, from 1; both are 0 if it is the text as a whole."""


class ExpressionError(FastroAIError, ValueError):
    """A text is not an expression, or it cannot be evaluated with the data that it was given.

    `problems` has every problem. `missing` is the name that an evaluation looked up and did not find.

    What to do: Correct the expression at the place that the message marks.
    """

    def __init__(
        self, text: str, problems: tuple[ExpressionProblem, ...], missing: str | None = None
    ) -> None:
        super().__init__(text, problems, missing)
        self.text, self.problems, self.missing = text, problems, missing

    def __str__(self) -> str:
        short = self.text if len(self.text) <= 120 else f"{self.text[:119]}…"
        if self.missing is not None:
            return f"expression {short!r}: {self.missing} is missing; check has({self.missing}) first"
        if len(self.problems) == 1:
            return f"expression {short!r}: {self._told(self.problems[0])}{self._carets()}"
        lines = "".join(f"\n  - {self._told(problem)}" for problem in self.problems)
        return f"expression {short!r} has {len(self.problems)} problems:{lines}{self._carets()}"

    def _told(self, problem: ExpressionProblem) -> str:
        if not problem.line:
            return problem.message
        line = f"line {problem.line}, " if "\n" in self.text else ""
        return f"{line}column {problem.column}: {problem.message}"

    def _carets(self) -> str:
        """Return the text with its problems marked below, if it is one short line; else an empty text."""
        columns = {problem.column for problem in self.problems if problem.line}
        if not columns or not self.text.isprintable() or len(self.text) > 120:
            return ""
        marks = "".join("^" if column in columns else " " for column in range(1, max(columns) + 1))
        return f"\n    {self.text}\n    {marks}"


class UnknownModelError(FastroAIError, ValueError):
    """A model reference whose provider cannot be told.

    What to do: Write the model as `provider:model`, or pass a model object.
    """

    def __init__(self, reference: str, candidates: tuple[str, ...] = ()) -> None:
        super().__init__(reference, candidates)
        self.reference, self.candidates = reference, candidates

    def __str__(self) -> str:
        if self.candidates:
            choices = ", ".join(map(repr, self.candidates))
            return f"cannot tell the provider of model {self.reference!r}; write it as one of {choices}"
        return (
            f"cannot tell the provider of model {self.reference!r}; write it as 'provider:model', "
            "for example 'openai:gpt-5-mini'"
        )


def how_to_install(extra: str) -> str:
    """Return the command that installs an extra of the distribution that is installed."""
    return f"pip install '{DISTRIBUTION}[{extra}]'"


class MissingExtraError(FastroAIError, ImportError):
    """An optional dependency is not installed.

    What to do: Install the extra that the message names.
    """

    def __init__(self, feature: str, extra: str, package: str) -> None:
        super().__init__(feature, extra, package)
        self.feature, self.extra, self.package = feature, extra, package

    def __str__(self) -> str:
        return f"{self.feature} needs {self.package}: {how_to_install(self.extra)}"


class PipelineValidationError(FastroAIError, ValueError):
    """A pipeline that cannot run. `problems` has every problem that was found, a sentence each.

    What to do: Correct every problem that the message lists.
    """

    def __init__(self, pipeline: str, problems: tuple[str, ...]) -> None:
        super().__init__(pipeline, problems)
        self.pipeline, self.problems = pipeline, problems

    def __str__(self) -> str:
        return listed(f"pipeline {self.pipeline!r}", self.problems)


class UnknownPipelineError(FastroAIError, KeyError):
    """A router was asked for a pipeline that is not registered.

    What to do: Register the pipeline, or return one of the names that the message lists.
    """

    def __init__(self, router: str, name: str, known: tuple[str, ...]) -> None:
        super().__init__(router, name, known)
        self.router, self.name, self.known = router, name, known

    def __str__(self) -> str:
        registered = ", ".join(map(repr, self.known)) or "none"
        hint = nearest_hint(str(self.name), self.known)
        return f"router {self.router!r} has no pipeline {self.name!r}; registered: {registered}.{hint}"


class RunningLoopError(FastroAIError, RuntimeError):
    """A sync entry point was called where an event loop of asyncio or trio is running.

    What to do: Under asyncio, await the method without `_sync`, or await what you gave to `run`. Under trio,
    call the sync method in a thread: `await trio.to_thread.run_sync(...)`.
    """

    def __init__(self, called: str, instead: str, loop: Literal["asyncio", "trio"] = "asyncio") -> None:
        super().__init__(called, instead, loop)
        self.called, self.instead, self.loop = called, instead, loop

    def __str__(self) -> str:
        use = f"await {self.instead}(...)"
        if self.loop == "trio":
            use = f"await trio.to_thread.run_sync(lambda: {self.called}(...))"
        return f"{self.called}() was called on a running event loop and would block it; use: {use}"


class NoRunningLoopError(FastroAIError, RuntimeError):
    """Something that needs asyncio was awaited where no event loop of asyncio is running.

    What to do: Await it in a coroutine that `asyncio.run` runs, or use the sync method, such as `run_sync`.
    Under trio, call the sync method in a thread: `await trio.to_thread.run_sync(...)`.
    """

    def __init__(self, under: Literal["trio"] | None = None) -> None:
        super().__init__(under)
        self.under = under
        """The other library whose event loop is running, if one is."""

    def __str__(self) -> str:
        if self.under is None:
            return (
                "this was awaited without an event loop of asyncio; call it in a coroutine that asyncio.run "
                "runs, or use the sync method, such as run_sync"
            )
        return (
            "this was awaited on the event loop of trio, but FastroAI needs asyncio; use the sync method "
            "in a thread: await trio.to_thread.run_sync(lambda: agent.run_sync(...))"
        )
