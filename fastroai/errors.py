"""The one tree of exceptions.

    FastroAIError
    ├── ConfigurationError (ValueError)      an option has an invalid value
    │   └── CompileError                     ... or a typed function, contract or flow cannot work as declared
    ├── ExpressionError (ValueError)         a text that is no condition, or cannot be evaluated
    ├── UnknownModelError (ValueError)       a model reference whose provider cannot be told
    ├── MissingExtraError (ImportError)      an optional dependency is not installed
    ├── PipelineValidationError (ValueError) a pipeline that cannot run, with every problem at once
    ├── GraphValidationError (ValueError)    ... or a graph
    ├── WorkflowValidationError (ValueError) ... or a workflow spec
    ├── UnknownPipelineError (KeyError)      a router was asked for a name that is not registered
    ├── MissingInputError (KeyError)         a step asked for an input that the run was not given
    ├── InputTypeError (TypeError)           an input is not of the type that was asked for
    ├── MissingDependencyError (KeyError)    a step asked for an output that it cannot have
    ├── DependencyTypeError (TypeError)      an output is not of the type that was asked for
    ├── StepExecutionError                   a step failed; `original_error` is why
    ├── GraphStopped                         a graph ended without the output that was asked for
    ├── MemoryConflict                       two branches of a graph wrote one key
    ├── VisitsExhausted                      a branch went in a circle of nodes over their max_visits
    ├── RecordedError                        an exception of an earlier process, as far as it is on record
    ├── ContractViolation                    inputs or output of a step do not fit its contract
    │   ├── PreconditionFailed               ... inputs of a typed function do not meet its `given`
    │   ├── PostconditionFailed              ... or its output not its `ensure`, after the last attempt
    │   └── ParseFailure                     ... or its output is not of the declared type
    ├── ResultRejected                       the result of a step of a workflow did not pass its checks
    ├── ConvergenceFailure                   a refinement was not good enough after its last iteration
    ├── ConsensusFailure                     too few members of a quorum agree
    ├── StabilityAssertionError (AssertionError)    samples of one answer differ more than a test allows
    ├── ParallelFailed                       too many coroutines of `parallel` or `race` failed
    ├── ParallelValidationFailed             the outputs of `parallel` do not pass its `validate`
    ├── FlowStopped                          a run of a flow has no output yet
    ├── FlowDiverged                         a resumed flow makes other calls than those on record
    ├── JudgeEscalated                       a judge said that an agent's output cannot be made good
    ├── JudgeNotSatisfied                    ... or accepted none of its outputs
    ├── TimeLimitExceeded (TimeoutError)     a timeout ran out
    ├── AnswerCutError                       an answer broke off before its end
    ├── DispatchSkippedError                 a hook said not to dispatch an agent call
    ├── BudgetExceeded                       a budget stopped the run
    │   ├── CostBudgetExceeded               ... of money
    │   │   └── SpendLimitExceeded           ... of money, shared between runs and processes
    │   ├── TokenBudgetExceeded              ... of tokens
    │   ├── RequestBudgetExceeded            ... of requests
    │   └── TimeBudgetExceeded               ... of time
    ├── StoreUnavailable                     a store cannot be reached, or cannot write
    │   ├── SpendStoreUnavailable            ... the store of a SpendLimit
    │   └── RunStoreUnavailable              ... the store of runs
    ├── RevisionConflict                     another write came first in a store of runs
    ├── RunExists                            a run id that is taken
    ├── RunNotFound (KeyError)               a run id that the store does not have
    ├── RunInProgress                        the run is running elsewhere
    ├── RunStatusConflict                    the status of the run does not allow the operation
    ├── RunTakenOver                         another process has taken up the run, or it is gone
    ├── RunConflict                          a run has gone on since it was read
    ├── RunDefinitionChanged                 the pipeline is not the one that the run was started with
    ├── CallChangedError                     a call is not declared as it was when it was put on record
    ├── RunCorrupt                           the record of a run cannot be read
    ├── RunFromNewerVersion                  ... or is of a later version
    ├── RunFromOlderVersion                  ... or is of an earlier version
    ├── UnknownFactKind                      ... or has a fact that no imported module declares
    ├── AnswerRejected (ValueError)          an answer is not what a question asks for
    ├── QuestionClosed                       a question that takes no answer, or none any more
    ├── QuestionTimedOut (TimeoutError)      nobody answered a question in time
    │   └── HumanTimeoutError                ... a question of `await_human`
    ├── MessageRejected (ValueError)         a message that a run cannot receive
    ├── MessageTimedOut (TimeoutError)       nobody sent a message in time
    ├── OnceInterrupted                      a side effect that may have happened or not
    ├── CancelledInside                      a step awaited a task that something else cancelled
    ├── ValueNotStorable (TypeError)         a value that the store could not give back unchanged
    ├── CircuitOpenError                     a circuit breaker lets no requests through
    ├── UnpricedModelError                   a budget of money, and a model without a price
    ├── UnboundedRequestError                a budget of money, and a request without an upper bound
    ├── UnmeteredRequestError                a request in a way that the account cannot follow
    ├── PriceUpdateError                     newer prices could not be downloaded
    ├── LangGraphStopped                     a LangGraph graph that is a step stopped before its end
    ├── ScopeClosedError                     a request at or after the end of the run it belongs to
    ├── ForkedScopeError                     spending under a budget of the process that forked this one
    ├── RunningLoopError (RuntimeError)      a sync entry point was called on a running event loop
    └── NoRunningLoopError (RuntimeError)    no event loop of asyncio is running

An error knows the usage of the run until then: `error.usage` for these errors, `usage_of(error)` for any
exception. It also knows the trace of the run that it ended: `error.trace` for these errors,
`fastroai.store.trace_of(error)` for any exception.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from types import MappingProxyType
from typing import (
    TYPE_CHECKING,
    ClassVar,
    Final,
    Literal,
    NamedTuple,
    NotRequired,
    Protocol,
    TypeAlias,
    TypedDict,
)

from fastroai.records import MICROCENTS_PER_DOLLAR, RequestRecord, Usage, microcents_to_usd

if TYPE_CHECKING:
    from pydantic_ai.messages import ModelMessage, ModelResponse

__all__ = [
    "AnswerCutError",
    "AnswerRejected",
    "BudgetExceeded",
    "CallChangedError",
    "CircuitOpenError",
    "CompileError",
    "ConfigurationError",
    "ConsensusFailure",
    "ContractViolation",
    "ConvergenceFailure",
    "CostBudgetExceeded",
    "CostBudgetExceededError",
    "DependencyTypeError",
    "DispatchSkippedError",
    "ExpressionError",
    "ExpressionProblem",
    "FailedAttempt",
    "FastroAIError",
    "FastroAIWarning",
    "FlowDiverged",
    "FlowStopped",
    "ForkedScopeError",
    "GraphProblem",
    "GraphStopped",
    "GraphValidationError",
    "HumanTimeoutError",
    "InputTypeError",
    "JudgeEscalated",
    "JudgeNotSatisfied",
    "LangGraphStopped",
    "MemoryConflict",
    "MessageRejected",
    "MessageTimedOut",
    "MissingDependencyError",
    "MissingExtraError",
    "MissingInputError",
    "CancelledInside",
    "OnceInterrupted",
    "ParallelFailed",
    "ParallelValidationFailed",
    "ParseFailure",
    "PipelineValidationError",
    "PostconditionFailed",
    "ResultRejected",
    "PreconditionFailed",
    "PriceUpdateError",
    "QuestionClosed",
    "QuestionTimedOut",
    "RecordedError",
    "RequestBudgetExceeded",
    "RevisionConflict",
    "RunConflict",
    "RunCorrupt",
    "RunDefinitionChanged",
    "RunExists",
    "RunFromNewerVersion",
    "RunFromOlderVersion",
    "RunInProgress",
    "RunNotFound",
    "RunStoreUnavailable",
    "RunStatusConflict",
    "RunTakenOver",
    "UnknownFactKind",
    "NoRunningLoopError",
    "RunningLoopError",
    "ScopeClosedError",
    "SpendLimitExceeded",
    "SpendStoreUnavailable",
    "StabilityAssertionError",
    "StepExecutionError",
    "StoppedRun",
    "StoreUnavailable",
    "TimeBudgetExceeded",
    "TimeLimitExceeded",
    "TokenBudgetExceeded",
    "Trace",
    "UnboundedRequestError",
    "UnknownModelError",
    "UnknownPipelineError",
    "UnmeteredRequestError",
    "UnpricedModelError",
    "ValueNotStorable",
    "ViolationDetail",
    "VisitsExhausted",
    "WorkflowProblem",
    "WorkflowValidationError",
    "records_of",
    "usage_of",
]

Direction: TypeAlias = Literal["input", "output", "require", "ensure"]
"""The part of a contract that a `ContractViolation` is about."""

_USAGE_ATTRIBUTE = "__fastroai_usage__"
_RECORDS_ATTRIBUTE = "__fastroai_records__"
_TRACE_ATTRIBUTE = "__fastroai_trace__"


_LONGEST_PART: Final = 1_000
"""The most characters that a message shows of an invalid value, or of one problem of several."""
_MOST_LISTED: Final = 101
"""The most problems that a message lists."""


class Trace(Protocol):
    """The trace of a run, as errors expose it. The object is a `RunTrace`, which offers much more."""

    @property
    def run_id(self) -> str:
        """The id of the run."""
        ...

    @property
    def status(self) -> str:
        """The status with which the run ended."""
        ...

    def explain(self) -> str:
        """Say why each step started, waited, was retried or was skipped, and how the run ended."""
        ...

    def to_json(self) -> str:
        """Return the trace as JSON text, which `RunTrace.from_json` reads."""
        ...


class TraceSource(Protocol):
    """Makes the trace of a run when it is first asked for. It can be pickled, because errors can be."""

    @property
    def trace(self) -> Trace:
        """The trace."""
        ...


def nearest(name: str, known: Iterable[str]) -> str | None:
    """Return the known name that is most like a name; `None` where none is near."""
    near = difflib.get_close_matches(name, list(known), n=1)
    return near[0] if near else None


def nearest_hint(name: str, known: Iterable[str]) -> str:
    """Return ` Did you mean 'x'?`, or an empty text if no known name is near."""
    near = nearest(name, known)
    return "" if near is None else f" Did you mean {near!r}?"


def attach_usage(error: BaseException, usage: Usage, records: Iterable[RequestRecord] = ()) -> None:
    """Attach to an exception the usage of a scope that it left. The outermost scope does so last."""
    error.__dict__[_USAGE_ATTRIBUTE] = usage.copy()
    error.__dict__[_RECORDS_ATTRIBUTE] = tuple(records)


def usage_of(error: BaseException) -> Usage | None:
    """Return the usage of a run when this exception left it, for FastroAI's errors and for any other.

    `None` if the exception, and those that it was raised from, never left a run.

        try:
            await pipeline.execute(inputs)
        except Exception as error:
            spent = usage_of(error)
    """
    return next((link.__dict__[_USAGE_ATTRIBUTE] for link in _spenders(error)), None)


def records_of(error: BaseException) -> tuple[RequestRecord, ...]:
    """Return every request that a run had made when this exception left it, for `UsageReport.of`."""
    return next((link.__dict__[_RECORDS_ATTRIBUTE] for link in _spenders(error)), ())


def attach_trace(error: BaseException, source: TraceSource) -> None:
    """Attach to an exception the trace of the run that it ended. The outermost run does so last."""
    error.__dict__[_TRACE_ATTRIBUTE] = source


def failure_inside(error: StepExecutionError) -> BaseException:
    """Return the failure of the only step of a run, with the trace and the id of that run."""
    original = error.original_error
    if (source := trace_source_of(error)) is not None:
        attach_trace(original, source)
    if isinstance(original, FastroAIError):
        original.run_id = error.run_id
    return original


def trace_source_of(error: BaseException) -> TraceSource | None:
    """Return the trace of the run that this exception, or one that it was raised from, has ended."""
    known = (link.__dict__.get(_TRACE_ATTRIBUTE) for link in error_chain(error))
    return next((source for source in known if source is not None), None)


def _spenders(error: BaseException) -> Iterator[BaseException]:
    return (link for link in error_chain(error) if _USAGE_ATTRIBUTE in link.__dict__)


def error_chain(error: BaseException) -> Iterator[BaseException]:
    """Yield an exception, those it was raised from, and members of exception groups, nearest first.

    Raises:
        ConfigurationError: `error` is no exception.
    """
    if not isinstance(error, BaseException):
        expected = "an exception; a result has its usage and its trace itself: result.usage, result.trace"
        raise ConfigurationError("error", type(error).__name__, expected)
    seen: set[int] = set()
    waiting: list[BaseException] = [error]
    while waiting:
        link = waiting.pop(0)
        if id(link) in seen:
            continue
        seen.add(id(link))
        yield link
        if isinstance(link, BaseExceptionGroup):
            waiting.extend(link.exceptions)
        before = link.__cause__ or (None if link.__suppress_context__ else link.__context__)
        if before is not None:
            waiting.append(before)


class FastroAIError(Exception):
    """Base of every error that FastroAI raises on purpose."""

    retryable: ClassVar[bool] = False
    """Whether trying the same thing again can help. Stops and mistakes are final."""
    step_outputs: Mapping[str, object] = MappingProxyType({})
    """Outputs of the steps that had finished, by step id, if the error stopped a pipeline."""
    run_id: str | None = None
    """The id of the run that the error stopped."""

    @property
    def trace(self) -> Trace | None:
        """The trace of the run that this error ended; `None` if it did not end a run.

        `fastroai.store.trace_of` gives the same for any exception, typed as a `RunTrace`.
        """
        source = trace_source_of(self)
        return None if source is None else source.trace

    @property
    def usage(self) -> Usage:
        """The usage of the run when this error left it; zero if it never left a run."""
        return usage_of(self) or Usage()


class FastroAIWarning(UserWarning):
    """Something works otherwise than its declaration says, because the configuration lacks what it needs."""


def _shown(value: object) -> str:
    """Return a value as text for a message, not longer than a few lines."""
    try:
        text = repr(value)
    except ValueError:  # an integer of thousands of digits
        return f"<{type(value).__name__} too long to show>"
    return _cut(text)


def _cut(text: str) -> str:
    if len(text) <= _LONGEST_PART:
        return text
    return f"{text[:_LONGEST_PART]}... ({len(text):,} characters in all)"


class ConfigurationError(FastroAIError, ValueError):
    """An option has an invalid value."""

    def __init__(self, option: str, value: object, expected: str) -> None:
        super().__init__(option, value, expected)
        self.option, self.value, self.expected = option, value, expected

    def __str__(self) -> str:
        if self.value is ...:  # nothing was given
            return f"{self.option} needs {self.expected}"
        return f"{self.option}={_shown(self.value)}: expected {self.expected}"


class CompileError(ConfigurationError):
    """A typed function, contract or flow cannot work as it is declared.

    `problems` has every problem that was found, a sentence each.
    """

    def __init__(self, declared: str, problems: tuple[str, ...]) -> None:
        super().__init__(declared, problems, "a declaration that can work")
        self.args = (declared, problems)
        self.declared, self.problems = declared, problems

    def __str__(self) -> str:
        return _listed(self.declared, self.problems)


class ExpressionProblem(NamedTuple):
    """One problem of an expression."""

    message: str
    line: int = 0
    column: int = 0
    """Line and column of the problem, in characters, from 1; both are 0 if it is the text as a whole."""


class ExpressionError(FastroAIError, ValueError):
    """A text is not an expression, or it cannot be evaluated with the data that it was given.

    `problems` has every problem. `missing` is the name that an evaluation looked up and did not find.
    """

    def __init__(
        self, text: str, problems: tuple[ExpressionProblem, ...], missing: str | None = None
    ) -> None:
        super().__init__(text, problems, missing)
        self.text, self.problems, self.missing = text, problems, missing

    def __str__(self) -> str:
        short = self.text if len(self.text) <= 120 else f"{self.text[:119]}…"
        if self.missing is not None:
            return f"expression {short!r}: {self.missing} is missing; ask with has({self.missing}) before"
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
    """A model reference whose provider cannot be told."""

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
    """Return the command that installs an extra. On the package index, our name is another project's."""
    return f"pip install -e '.[{extra}]' in the checkout of FastroAI"


class MissingExtraError(FastroAIError, ImportError):
    """An optional dependency is not installed."""

    def __init__(self, feature: str, extra: str, package: str) -> None:
        super().__init__(feature, extra, package)
        self.feature, self.extra, self.package = feature, extra, package

    def __str__(self) -> str:
        return (
            f"{self.feature} needs {self.package}, which the extra {self.extra!r} brings: "
            f"{how_to_install(self.extra)}"
        )


class PipelineValidationError(FastroAIError, ValueError):
    """A pipeline that cannot run. `problems` has every problem that was found, a sentence each."""

    def __init__(self, pipeline: str, problems: tuple[str, ...]) -> None:
        super().__init__(pipeline, problems)
        self.pipeline, self.problems = pipeline, problems

    def __str__(self) -> str:
        return _listed(f"pipeline {self.pipeline!r}", self.problems)


@dataclass(frozen=True, slots=True)
class GraphProblem:
    """One thing that keeps a graph from running. As text: the message, with the place in front."""

    message: str
    about: tuple[str | int, ...] = ()
    """The place of the problem in the graph's arguments, as keys and indices: `("edges", 3, "condition")`."""
    line: int | None = None
    """The line in the YAML document that the graph was loaded from, from 1."""
    column: int | None = None

    def __str__(self) -> str:
        return (
            self.message if self.line is None else f"line {self.line}, column {self.column}: {self.message}"
        )


class GraphValidationError(FastroAIError, ValueError):
    """A graph that cannot run. `problems` has every problem that was found.

    `source` is the file that the graph was loaded from, if there is one.
    """

    def __init__(self, graph: str, problems: tuple[GraphProblem, ...], source: str | None = None) -> None:
        super().__init__(graph, problems, source)
        self.graph, self.problems, self.source = graph, problems, source

    def __str__(self) -> str:
        where = "" if self.source is None else f" in {self.source}"
        return _listed(f"graph {self.graph!r}{where}", self.problems)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkflowProblem:
    """One thing that is wrong with a workflow spec. As text: the message, with the place in front."""

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
    """A workflow spec that cannot run. `problems` has every problem that was found, at most 101.

    `source` is the file that the spec was loaded from, if there is one.
    """

    def __init__(self, problems: tuple[WorkflowProblem, ...], source: str | None = None) -> None:
        super().__init__(problems, source)
        self.problems, self.source = problems, source

    def __str__(self) -> str:
        where = "" if self.source is None else f" {self.source}"
        return _listed(f"workflow spec{where}", self.problems)


def _listed(what: str, problems: tuple[object, ...]) -> str:
    what = _cut(what)
    if len(problems) == 1:
        return f"{what}: {_cut(str(problems[0]))}"
    lines = "".join(f"\n  - {_cut(str(problem))}" for problem in problems[:_MOST_LISTED])
    left = len(problems) - _MOST_LISTED
    return f"{what} has {len(problems)} problems:{lines}" + (f"\n  ... and {left} more" if left > 0 else "")


class UnknownPipelineError(FastroAIError, KeyError):
    """A router was asked for a pipeline that is not registered."""

    def __init__(self, router: str, name: str, known: tuple[str, ...]) -> None:
        super().__init__(router, name, known)
        self.router, self.name, self.known = router, name, known

    def __str__(self) -> str:
        registered = ", ".join(map(repr, self.known)) or "none"
        hint = nearest_hint(str(self.name), self.known)
        return f"router {self.router!r} has no pipeline {self.name!r}; registered: {registered}.{hint}"


class MissingInputError(FastroAIError, KeyError):
    """A step asked for an input that the run was not given, or a graph node for a key not in memory."""

    def __init__(self, step_id: str, key: str, known: tuple[str, ...], in_graph: bool = False) -> None:
        super().__init__(step_id, key, known, in_graph)
        self.step_id, self.key, self.known, self.in_graph = step_id, key, known, in_graph

    def __str__(self) -> str:
        given = ", ".join(map(repr, self.known)) or "none"
        if self.in_graph:
            return (
                f"node {self.step_id!r} asked for {self.key!r}, which is not in the memory that it sees; "
                f"that has: {given}.{nearest_hint(self.key, self.known)} Give it as an input, let a node "
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
    """A step asked for the output of a step that it does not depend on, or that has none."""

    def __init__(self, step_id: str, dependency: str, reason: str) -> None:
        super().__init__(step_id, dependency, reason)
        self.step_id, self.dependency, self.reason = step_id, dependency, reason

    def __str__(self) -> str:
        return f"step {self.step_id!r} asked for the output of {self.dependency!r}: {self.reason}"


class DependencyTypeError(FastroAIError, TypeError):
    """The output of a dependency is not of the type that the step asked for."""

    def __init__(self, step_id: str, dependency: str, expected: str, actual: str) -> None:
        super().__init__(step_id, dependency, expected, actual)
        self.step_id, self.dependency, self.expected, self.actual = step_id, dependency, expected, actual

    def __str__(self) -> str:
        return (
            f"step {self.step_id!r} expected {self.expected} from {self.dependency!r}, "
            f"whose output is {self.actual}"
        )


class InputTypeError(FastroAIError, TypeError):
    """An input, or a value in the memory of a graph, is not of the type that the step asked for."""

    def __init__(self, step_id: str, key: str, expected: str, actual: str) -> None:
        super().__init__(step_id, key, expected, actual)
        self.step_id, self.key, self.expected, self.actual = step_id, key, expected, actual

    def __str__(self) -> str:
        return f"step {self.step_id!r} expected {self.expected} as input {self.key!r}, which is {self.actual}"


class StepExecutionError(FastroAIError):
    """A step failed. `original_error` is the cause; `step_outputs` and `usage` have what was not lost."""

    def __init__(self, step_id: str, original_error: BaseException) -> None:
        super().__init__(step_id, original_error)
        self.step_id, self.original_error = step_id, original_error

    def __str__(self) -> str:
        error = self.original_error
        kind = type(error).__name__
        if isinstance(error, RecordedError):
            kind = error.error_type.rpartition(".")[2]
        return f"step {self.step_id!r} failed: {kind}: {error}"


class GraphStopped(FastroAIError):
    """A graph ended without the output of a terminal. `status` says how, `reason` why."""

    def __init__(self, graph: str, status: str, reason: str) -> None:
        super().__init__(graph, status, reason)
        self.graph, self.status, self.reason = graph, status, reason

    def __str__(self) -> str:
        return f"graph {self.graph!r} is {self.status}: {self.reason}"


class MemoryConflict(FastroAIError):
    """Branches of a fork wrote the same key of a graph's memory, and their values could not be merged.

    Either `on_conflict="error"` holds for the key, or its reducer failed: then `why` says with which error.
    """

    def __init__(self, key: str, first: str, second: str, why: str = "") -> None:
        super().__init__(key, first, second, why)
        self.key, self.first, self.second, self.why = key, first, second, why

    def __str__(self) -> str:
        if self.why:
            return f"the reducer of {self.key!r} failed on what branches of one fork wrote: {self.why}"
        return (
            f"nodes {self.first!r} and {self.second!r}, in branches of one fork, both wrote {self.key!r}; "
            "let them write different keys, or say what becomes of both: "
            f"reducers={{{self.key!r}: 'append'}}, on_conflict='last_wins'"
        )


class VisitsExhausted(FastroAIError):
    """A branch of a graph went in a circle of `nodes` that have all reached their `max_visits`."""

    def __init__(self, nodes: tuple[str, ...]) -> None:
        super().__init__(nodes)
        self.nodes = nodes

    def __str__(self) -> str:
        return f"a cycle of nodes that are all over their max_visits: {', '.join(map(repr, self.nodes))}"


class RecordedError(FastroAIError):
    """An exception in place of another one, with its type and message.

    It stands for an exception of an earlier process of a run, as far as that is on record; and in what `wake`
    and `recover` return for one that is no `Exception`, such as `SystemExit`, which is its `__cause__`.
    """

    def __init__(self, error_type: str, message: str) -> None:
        super().__init__(error_type, message)
        self.error_type, self.message = error_type, message

    def __str__(self) -> str:
        return self.message or self.error_type


class ViolationDetail(TypedDict):
    """One problem in the form of pydantic, as plain data, whatever the value is."""

    type: str
    """Pydantic's name of the error, or `check_failed`, `check_error`, `validator_error`."""
    loc: tuple[int | str, ...]
    """The place in the value: names and indices."""
    msg: str
    input: NotRequired[str]
    """The invalid value, as a short text."""


class ContractViolation(FastroAIError):
    """The inputs or the output of a step do not fit its contract. Trying again would not change that.

    `details` has every problem, `data` the values in question: inputs by name, or the output. `step_id` is
    `None` if the inputs of a run are not what its pipeline accepts. `kind` says what has this id: a step, a
    typed function or a flow.
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
        """All violations, one text each."""
        return tuple(map(_told, self.details))

    def __str__(self) -> str:
        whose = f"pipeline {self.pipeline!r}" if self.step_id is None else f"{self.kind} {self.step_id!r}"
        told = "; ".join(self.violations[:5])
        more = len(self.details) - 5
        return f"{whose}: {_VIOLATED[self.direction]}: {told}{f'; and {more} more' if more > 0 else ''}"


_VIOLATED: Mapping[Direction, str] = {
    "input": "its inputs do not fit its contract",
    "output": "its output does not fit its contract",
    "require": "what it requires does not hold",
    "ensure": "what it ensures does not hold",
}


def _told(detail: ViolationDetail) -> str:
    where = ".".join(map(str, detail["loc"]))
    got = f" (got {detail['input']})" if "input" in detail else ""
    return f"{where}: {detail['msg']}{got}" if where else f"{detail['msg']}{got}"


class _FunctionViolation(ContractViolation):
    _direction: ClassVar[Direction]

    def __init__(self, function: str, violations: tuple[str, ...], data: object) -> None:
        details = tuple(ViolationDetail(type="check_failed", loc=(), msg=text) for text in violations)
        super().__init__(function, self._direction, details, data, kind="function")


class PreconditionFailed(_FunctionViolation):
    """The inputs of a typed function do not meet its `given` conditions. Nothing was sent.

    `violations` are the conditions that do not hold, and `data` has the inputs by name.
    """

    _direction = "require"

    def __init__(self, function: str, violations: tuple[str, ...], inputs: Mapping[str, object]) -> None:
        super().__init__(function, violations, inputs)
        self.args = (function, violations, inputs)


@dataclass(frozen=True, slots=True)
class FailedAttempt:
    """An attempt at a typed function, or an iteration of a refinement, that was not good enough."""

    output: object
    """The output; the text of the answer if that is not of the declared type."""
    violations: tuple[str, ...]
    """The problems of the output, as the model was told before the next attempt."""


class PostconditionFailed(_FunctionViolation):
    """The output of a typed function does not meet its `ensure` conditions after the last attempt.

    `violations` are those of the last output, which is `data`; `history` has every attempt.
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

    `raw_output` is its text, `violations` say what did not match; `history` has all attempts.
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


def _after(history: tuple[FailedAttempt, ...]) -> str:
    return f" (after {len(history)} attempts)" if len(history) > 1 else ""


class ConvergenceFailure(FastroAIError):
    """A refinement was not good enough after its last iteration.

    `history` has every iteration: the output, and the feedback on it.
    """

    def __init__(self, function: str, history: tuple[FailedAttempt, ...]) -> None:
        super().__init__(function, history)
        self.function, self.history = function, history

    def __str__(self) -> str:
        return (
            f"function {self.function!r}: until= does not hold after {len(self.history)} iterations, whose "
            "outputs are in error.history. Allow more with max_iterations=, or ask for less"
        )


class ResultRejected(FastroAIError):
    """The result of a step of a workflow did not pass its checks.

    `check` is `SchemaFailed`, `ContractFailed` or `EnsureFailed`; `violations` has every problem of the
    `output`.
    """

    def __init__(self, step_id: str, check: str, violations: tuple[str, ...], output: object) -> None:
        super().__init__(step_id, check, violations, output)
        self.step_id, self.check, self.violations, self.output = step_id, check, violations, output

    def __str__(self) -> str:
        return f"step {self.step_id!r}: the result did not pass its checks: {'; '.join(self.violations)}"


class ConsensusFailure(FastroAIError):
    """Too few members of a quorum agree.

    `outputs` has the outputs of the members that succeeded, `errors` the errors of those that failed.
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
    """Samples of one answer agree less than `assert_stable` asks for. `outputs` are the samples."""

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


class ParallelFailed(FastroAIError):
    """So many coroutines failed that `parallel` or `race` cannot get the results it requires.

    `errors` are their errors, in the order in which they failed.
    """

    def __init__(self, required: int, started: int, errors: tuple[BaseException, ...]) -> None:
        super().__init__(required, started, errors)
        self.required, self.started, self.errors = required, started, errors

    def __str__(self) -> str:
        return (
            f"{self.required} of {self.started} coroutines must succeed{_failed(self.errors)}. "
            "error.errors has all of them"
        )


class ParallelValidationFailed(FastroAIError):
    """The `validate` of `parallel` refuses its results, which are `outputs`."""

    def __init__(self, violations: tuple[str, ...], outputs: tuple[object, ...]) -> None:
        super().__init__(violations, outputs)
        self.violations, self.outputs = violations, outputs

    def __str__(self) -> str:
        return f"the results of parallel do not pass validate: {'; '.join(self.violations)}"


def _failed(errors: tuple[BaseException, ...]) -> str:
    return f"; {len(errors)} failed, the first with {type(errors[0]).__name__}: {errors[0]}" if errors else ""


class FlowStopped(FastroAIError):
    """A run of a flow has no output yet: it waits for a person, or was paused or cancelled.

    `status` is the status of the run, `reason` says why it has it, and `questions` wait for answers.
    `waits_until` is the time at which `wake` goes on with it, if it waits for one.
    `await flow.resume(run_id)` goes on with the run.
    """

    def __init__(
        self,
        flow: str,
        run_id: str,
        status: str,
        reason: str,
        questions: tuple[object, ...] = (),
        waits_until: datetime | None = None,
    ) -> None:
        super().__init__(flow, run_id, status, reason, questions, waits_until)
        self.flow, self.status, self.reason, self.questions = flow, status, reason, questions
        self.run_id, self.waits_until = run_id, waits_until

    def __str__(self) -> str:
        asked = ", ".join(str(getattr(one, "id", one)) for one in self.questions)
        why = f"it waits for the answer to {asked}" if asked else self.reason
        return (
            f"flow {self.flow!r} is {self.status}: {why}. "
            f"await {self.flow}.resume({self.run_id!r}) goes on with it"
        )


class FlowDiverged(FastroAIError):
    """A resumed flow makes other calls than before, so results on record cannot be given back to it.

    After an answer that was asked anew, because the declaration of its call has changed, calls of functions
    that ask a model may differ. Those of `@compute` functions may not.

    `recorded` is the call on record that was not made again, and `called` the one that was made instead. In
    both, the values of opaque inputs are left out.
    """

    def __init__(self, flow: str, recorded: str, called: str) -> None:
        super().__init__(flow, recorded, called)
        self.flow, self.recorded, self.called = flow, recorded, called

    def __str__(self) -> str:
        return (
            f"flow {self.flow!r} has {self.recorded} on record, and now calls {self.called} instead. "
            "A resumed flow must make the same calls: take what changes (times, random numbers, other "
            "services) from its inputs or from a @compute function, or start a new run"
        )


class JudgeEscalated(FastroAIError):
    """The judge of an `AgentNode` said that trying again cannot help.

    `reason` is the reason of the judge, `output` the last output of the agent.
    """

    def __init__(self, step_id: str, reason: str, iterations: int, output: object) -> None:
        super().__init__(step_id, reason, iterations, output)
        self.step_id, self.reason = step_id, reason
        self.iterations, self.output = iterations, output

    def __str__(self) -> str:
        return f"the judge of step {self.step_id!r} escalated at iteration {self.iterations}: {self.reason}"


class JudgeNotSatisfied(FastroAIError):
    """The judge of an `AgentNode` accepted none of the outputs that `max_iterations` allows.

    `reason` is the reason of the judge against the last output, which is `output`.
    """

    def __init__(self, step_id: str, reason: str, iterations: int, output: object) -> None:
        super().__init__(step_id, reason, iterations, output)
        self.step_id, self.reason = step_id, reason
        self.iterations, self.output = iterations, output

    def __str__(self) -> str:
        times = "the output" if self.iterations == 1 else f"any of {self.iterations} outputs"
        return (
            f"the judge of step {self.step_id!r} did not accept {times}; of the last it said: {self.reason}. "
            "Allow more with max_iterations=, or handle the failure with an on_failure edge"
        )


class TimeLimitExceeded(FastroAIError, TimeoutError):
    """A timeout ran out."""

    retryable = True

    def __init__(self, what: str, seconds: float) -> None:
        super().__init__(what, seconds)
        self.what, self.seconds = what, seconds

    def __str__(self) -> str:
        return f"{self.what} took longer than {self.seconds:g} s"


class AnswerCutError(FastroAIError):
    """An answer broke off: its stream ended without the finish reason that the provider gives.

    `usage` has the cost of the answer, at its bound if the provider did not report it.
    """

    retryable = True

    def __init__(self, model: str, provider: str) -> None:
        super().__init__(model, provider)
        self.model, self.provider = model, provider
        self.partial_response: ModelResponse | None = None
        """The part of the answer that arrived."""

    def __str__(self) -> str:
        return (
            f"the answer of {self.provider}:{self.model} broke off: its stream ended without a finish "
            "reason; what came of it is in error.partial_response"
        )


class DispatchSkippedError(FastroAIError):
    """Raised by a hook to say that an agent call must not be made: it fails at once and is not retried."""

    def __init__(self, reason: str = "") -> None:
        super().__init__(reason)
        self.reason = reason

    def __str__(self) -> str:
        return f"agent call skipped: {self.reason}" if self.reason else "agent call skipped"


@dataclass(frozen=True, slots=True)
class StoppedRun:
    """An agent run that a budget stopped, with the messages that are needed to go on."""

    agent: str
    messages: list[ModelMessage]
    """Its messages so far, the request that was not sent included: pass them as `message_history=`."""


class RequestCause(NamedTuple):
    """One of the things that make a refused request as large as it is."""

    kind: str
    """`instructions`, `tools`, `history`, `prompt`, `results` (of tools), `image`, `pdf`, `file`, `searches`
    (what those of the provider find), `added` (by PydanticAI, the host or the provider), or `answer`."""
    share: float
    """Its share of the least that the request could have used, from 0 to 1."""
    what: str
    """Its name, with its size."""
    advice: str
    """What to do about exactly that; empty if nothing can be done."""


class BudgetExceeded(FastroAIError):
    """A budget stopped the run.

    `messages` are those of the agent run that the budget stopped. To go on without paying again:

        try:
            response = await agent.run("...", budget=Budget(usd="0.10"))
        except BudgetExceeded as stop:
            response = await agent.run(message_history=stop.messages, budget=Budget(usd="0.20"))
    """

    unit: ClassVar[str] = ""
    _verb: ClassVar[str] = "use"

    def __init__(
        self,
        limit: int,
        committed: int,
        step_id: str | None = None,
        requested: int | None = None,
        scope_path: tuple[str, ...] = (),
    ) -> None:
        super().__init__(limit, committed, step_id, requested, scope_path)
        self.limit = limit
        self.committed = committed
        """Amount of the budget that was used: known use, and bounds of unmeasured requests."""
        self.step_id = step_id
        self.requested = requested
        """The most that the refused request could have used; `None` if that is not known."""
        self.scope_path = scope_path
        """The path to the scope that has the budget, outermost scope first."""
        self.reserved = 0
        """Amount reserved for requests in flight that the request could not wait for, such as open streams;
        if a run was stopped, for all requests in flight."""
        self.stopped: Literal["request", "spend", "run", "step", "recorded"] = "request"
        """The thing that was stopped. `request`: a model request, before it was sent. `spend`: a purchase of
        `spend`, before it was made. `run`: a run that was to reserve its quote, before it began. `step`: a
        step or node, before it began, as the budget was crossed already. `recorded`: code that recorded more
        spending after the budget was crossed; it is charged, as it had happened already."""
        self.why: str | None = None
        """Why the requested amount is far above the likely use of the request; `None` if it is not."""
        self.causes: tuple[RequestCause, ...] = ()
        """What makes the refused request large, largest first; empty if that is not known."""
        self.at_least: int | None = None
        """The least that the refused request could have been lowered to, with the shortest answer; `None` if
        that is not known."""
        self.answer_limit = "max_tokens"
        """The setting with which the code that asked can ask for a shorter answer."""
        self.partial_response: ModelResponse | None = None
        """The answer that was cut, if the budget paid for the beginning of one."""
        self.stopped_runs: list[StoppedRun] = []
        """The agent runs that the budget stopped, innermost first: an agent called by a tool, its caller."""
        self.may_wait = False
        """Whether a run that a store keeps waits instead of failing: `SpendLimit(on_limit="wait")`."""

    @property
    def messages(self) -> list[ModelMessage]:
        """Messages of the outermost agent run that the budget stopped; empty if it stopped none."""
        return self.stopped_runs[-1].messages if self.stopped_runs else []

    def __str__(self) -> str:
        reserved = f", {self._amount(self.reserved)} reserved"
        by = "" if self.stopped == "run" else " by requests in flight"
        in_flight = f"{reserved}{by}" if self.reserved else ""
        came = "has too little left" if self.stopped == "run" else "reached"
        beginning = f"{self._name} {came}{self._place}: {self._used}{in_flight}"
        if self._is_too_small:
            beginning = f"{self._name} is too small{self._place}: its limit is {self._limit}"
        why = "" if self.why is None else f" ({self.why})"
        return f"{beginning}{self._stopped}. {self._advice}{why}"

    @property
    def _is_too_small(self) -> bool:
        """Whether nothing is used of the budget, and it cannot pay for the request even so."""
        refused = self.stopped == "request" and self.requested is not None and self.partial_response is None
        return refused and not self.committed and not self.reserved

    @property
    def _limit(self) -> str:
        return f"{self._amount(self.limit)}{f' {self.unit}' if self.unit else ''}"

    def _amount(self, number: int) -> str:
        return f"{number:,}"

    @property
    def _name(self) -> str:
        return f"budget{self._whose}"

    @property
    def _whose(self) -> str:
        return f" of {' / '.join(self.scope_path)!r}" if self.scope_path else ""

    @property
    def _place(self) -> str:
        return f" in step {self.step_id!r}" if self.step_id else ""

    @property
    def _used(self) -> str:
        unit = f" {self.unit}" if self.unit else ""
        return f"{self.committed:,} of {self.limit:,}{unit} {'is' if self.committed == 1 else 'are'} used"

    @property
    def _stopped(self) -> str:
        if self.partial_response is not None:
            return "; it paid for the beginning of the last answer (error.partial_response)"
        if self.stopped == "recorded":
            return " (the budget was crossed before the last charge, which is counted, too)"
        if self.stopped == "step":
            return ", so the step was not begun"
        if self.stopped == "run":
            quote, left = self._amount(self.requested or 0), self._amount(self._left)
            return f", so {left} is left. The run could cost {quote} by its quote, so it was not begun"
        what, end = ("next request", "sent") if self.stopped == "request" else ("purchase", "begun")
        if self.requested is None:
            return f", so the {what} was not {end}"
        least = self.requested if self.at_least is None else self.at_least
        shortest = " even with the shortest answer" if least < self.requested else ""
        mostly = f", {self.causes[0].share:.0%} of it for {self.causes[0].what}" if self.causes else ""
        could = f"could {self._verb} {self._amount(least)}{shortest}{mostly}"
        return f", and the {what} {could}, so it was not {end}"

    @property
    def _left(self) -> int:
        return max(0, self.limit - self.committed - self.reserved)

    @property
    def _advice(self) -> str:
        if self._is_held_by_others:
            return f"{_AFTER_OTHERS}, or raise the budget"
        return _sentence(f"{self._lower}raise the budget")

    @property
    def _is_held_by_others(self) -> bool:
        """Whether only reservations of others stand against a run, which end with these."""
        would_fit = self.committed + (self.requested or 0) <= self.limit
        return self.stopped == "run" and self.reserved > 0 and would_fit

    @property
    def _lower(self) -> str:
        if self.causes and self.causes[0].kind != "answer":
            advice = self.causes[0].advice
            return f"{advice}, or " if advice else ""
        asks_for_less = self.stopped == "request" and self.requested is not None
        return f"set a lower {self.answer_limit} or " if asks_for_less else ""


_AFTER_OTHERS: Final = "Try again when those that have reserved it have ended"


def _sentence(text: str) -> str:
    return text[0].upper() + text[1:]


class CostBudgetExceeded(BudgetExceeded):
    """A budget of money stopped the run. Amounts are microcents ($1 = 1,000,000)."""

    unit = "microcents"
    _verb = "cost"

    def __init__(
        self,
        limit: int = 0,
        committed: int = 0,
        step_id: str | None = None,
        requested: int | None = None,
        scope_path: tuple[str, ...] = (),
        *,
        budget: int | None = None,
        actual: int | None = None,
    ) -> None:
        """In your own tests, `budget` and `actual` may stand for `limit` and `committed`."""
        limit, committed = limit if budget is None else budget, committed if actual is None else actual
        super().__init__(limit, committed, step_id, requested, scope_path)

    @property
    def budget_microcents(self) -> int:
        """The limit, in microcents."""
        return self.limit

    @property
    def actual_microcents(self) -> int:
        """The committed amount, in microcents: known cost, and bounds of unmeasured requests."""
        return self.committed

    @property
    def requested_microcents(self) -> int | None:
        """The most that the refused request could have cost, in microcents; `None` if that is not known."""
        return self.requested

    @property
    def budget_usd(self) -> Decimal:
        """The limit, in US dollars, rounded to six decimals like the amounts below."""
        return microcents_to_usd(self.limit)

    @property
    def actual_usd(self) -> Decimal:
        """The committed amount, in US dollars."""
        return microcents_to_usd(self.committed)

    @property
    def requested_usd(self) -> Decimal | None:
        """The most that the refused request could have cost, in US dollars; `None` if that is not known."""
        return None if self.requested is None else microcents_to_usd(self.requested)

    @property
    def _limit(self) -> str:
        return self._amount(self.limit)

    def _amount(self, number: int) -> str:
        dollars, rest = divmod(number, MICROCENTS_PER_DOLLAR)
        return f"${dollars:,}{f'.{rest:06}'.rstrip('0') if rest else ''}"

    @property
    def _used(self) -> str:
        return f"{self._amount(self.committed)} of {self._amount(self.limit)} is spent"

    @property
    def _advice(self) -> str:
        if self.stopped in ("recorded", "step"):
            return "Raise the budget, or reserve before you spend: ctx.spend(...)"
        return super()._advice


CostBudgetExceededError = CostBudgetExceeded


class SpendLimitExceeded(CostBudgetExceeded):
    """A `SpendLimit`, which runs and processes share, stopped the run. Amounts are microcents."""

    key: str = ""
    """The key of the limit: the name under which spending counts."""
    window: str = ""
    resets_at: datetime | None = None
    """Time at which the next window starts from zero; `None` for a total."""
    resets_in: timedelta | None = None
    """Time until then, by the clock of the store."""
    deadline: timedelta | None = None
    """The longest that a run waits for it: that of the `SpendLimit`."""

    @property
    def _name(self) -> str:
        return f"spend limit {self.key!r} ({self.window})"

    @property
    def _advice(self) -> str:
        too_much = self.requested is not None and self.requested > self.limit
        by_hand = " (until its window ends: SpendBook.set_limit, or `fastroai spend set`)"
        if self._is_held_by_others:
            return f"{_AFTER_OTHERS}, or raise the limit{by_hand}"
        if too_much or self.resets_at is None:
            return _sentence(f"{self._lower}raise the limit") + by_hand
        return f"Wait until {self.resets_at:%Y-%m-%d %H:%M} UTC, or {self._lower}raise the limit{by_hand}"


class TokenBudgetExceeded(BudgetExceeded):
    """A budget of tokens stopped the run."""

    unit = "tokens"


class RequestBudgetExceeded(BudgetExceeded):
    """A budget of requests stopped the run."""

    unit = "requests"


class TimeBudgetExceeded(BudgetExceeded):
    """A budget of time stopped the run: it was cancelled when its milliseconds had passed."""

    unit = "milliseconds"

    def __str__(self) -> str:
        return (
            f"time budget of {self.limit:,} ms{self._whose} is over{self._place}; "
            "what was running was cancelled. Raise the budget"
        )


class StoreUnavailable(FastroAIError):
    """A store could not be reached, did not answer, or cannot write. `advice` says what to do."""

    retryable = True

    def __init__(self, store: str, reason: str, advice: str = "see that it is there and answers") -> None:
        super().__init__(store, reason, advice)
        self.store, self.reason, self.advice = store, reason, advice

    def __str__(self) -> str:
        return f"store {self.store} is unavailable: {self.reason}; {self.advice}"


class SpendStoreUnavailable(StoreUnavailable):
    """The store of a `SpendLimit` could not be reached or did not answer, so the limit cannot be kept."""

    def __str__(self) -> str:
        return f"spend {super().__str__()}, or SpendLimit(on_unavailable='allow') sends requests uncounted"


class RunStoreUnavailable(StoreUnavailable):
    """A store of runs could not be reached, did not answer, or cannot write.

    No write is half done. If the answer of the store was lost, the whole write may have been done.
    """

    retryable = False  # writing is retried by itself; the work to be written must not be done again

    def __str__(self) -> str:
        return (
            f"run {super().__str__()}. Nothing is half written. Afterwards repeat a call that only reads, "
            "and resume a run that was stopped"
        )


class RevisionConflict(FastroAIError):
    """Another write to a key came first, after it was read; nothing was written now.

    After an operation whose connection dropped, that write can be the caller's own.
    """

    def __init__(self, key: str, expected: int, actual: int) -> None:
        super().__init__(key, expected, actual)
        self.key, self.expected, self.actual = key, expected, actual

    def __str__(self) -> str:
        return (
            f"key {self.key!r} is at revision {self.actual}, not {self.expected}: another writer was there, "
            "or an earlier attempt at the same write; read the key again"
        )


class RunExists(FastroAIError):
    """A run with this id is in the store already."""

    def __init__(self, run_id: str, status: str) -> None:
        super().__init__(run_id, status)
        self.run_id, self.status = run_id, status

    def __str__(self) -> str:
        return (
            f"there is a run {self.run_id!r} in the store already ({self.status}); go on with it by "
            "resume(run_id) or execute(..., on_existing='resume'), or choose another run_id"
        )


class RunNotFound(FastroAIError, KeyError):
    """The store has no run with this id, or without a store, this process runs none."""

    def __init__(self, run_id: str, store: str | None) -> None:
        super().__init__(run_id, store)
        self.run_id, self.store = run_id, store

    def __str__(self) -> str:
        if self.store is None:
            return (
                f"this process does not run {self.run_id!r}, and no store was given in which to look for it; "
                f"check the id, and pass the store that keeps the run: store=..."
            )
        return (
            f"there is no run {self.run_id!r} in {self.store}; check the id (fastroai runs list) and the "
            f"store, or start a run with run_id={self.run_id!r}"
        )


class RunInProgress(FastroAIError):
    """The run is running in another process, or in another task of this one."""

    retryable = True

    def __init__(self, run_id: str, owner: str, lease_until: datetime) -> None:
        super().__init__(run_id, owner, lease_until)
        self.run_id, self.owner, self.lease_until = run_id, owner, lease_until

    def __str__(self) -> str:
        return (
            f"run {self.run_id!r} is running in {self.owner.partition(' (')[0]}, whose lease is until "
            f"{self.lease_until:%H:%M:%S} UTC unless it renews it; wait for it, or end that process"
        )


class RunStatusConflict(FastroAIError):
    """The status of the run does not allow the operation: a run that has finished cannot be cancelled."""

    def __init__(self, run_id: str, status: str, expected: str) -> None:
        super().__init__(run_id, status, expected)
        self.run_id, self.status, self.expected = run_id, status, expected

    def __str__(self) -> str:
        return f"run {self.run_id!r} is {self.status}; expected {self.expected}"


class RunTakenOver(FastroAIError):
    """Another process has taken this run up, after its lease had ended or by force; or its record is gone."""

    def __init__(self, run_id: str, is_gone: bool = False) -> None:
        super().__init__(run_id, is_gone)
        self.run_id = run_id
        self.is_gone = is_gone
        """Whether the record of the run is gone from the store, so that nobody can resume it."""

    def __str__(self) -> str:
        if self.is_gone:
            return (
                f"run {self.run_id!r} was deleted, or its store was emptied or has lost it (as Redis does "
                "that evicts keys, or restarts without them): what this process wrote is gone. It has "
                "stopped, and the run cannot be resumed: start a new one"
            )
        return (
            f"run {self.run_id!r} was deleted, or taken up by another process by force, or because this one "
            "had not renewed its lease in time. This process has stopped; what it did after that is not on "
            "record"
        )


class RunConflict(FastroAIError):
    """A run has gone on since the caller read it, so nothing of this call was put on record."""

    def __init__(self, run_id: str, expecting: int) -> None:
        super().__init__(run_id, expecting)
        self.run_id, self.expecting = run_id, expecting

    def __str__(self) -> str:
        return (
            f"run {self.run_id!r} is no longer at revision {self.expecting}: somebody else has reported to "
            "it, or taken it up. Nothing of this call is on record. Read it again, and decide anew"
        )


class RunDefinitionChanged(FastroAIError):
    """The pipeline or graph is not the one that the run was started with."""

    def __init__(
        self,
        run_id: str,
        changes: tuple[str, ...],
        kind: str = "pipeline",
        versions: tuple[str | None, str | None] = (None, None),
    ) -> None:
        super().__init__(run_id, changes, kind, versions)
        self.run_id, self.changes, self.kind, self.versions = run_id, changes, kind, versions

    def __str__(self) -> str:
        changes = "".join(f"\n  - {change}" for change in self.changes)
        before, now = self.versions
        versions = f" (version {before or 'unnamed'}, now {now or 'unnamed'})"
        if before == now:
            versions = "" if now is None else f" (both are called version {now})"
        return (
            f"the {self.kind} has changed since run {self.run_id!r} was started{versions}:{changes}\n"
            f"Resume it with the {self.kind} as it was, or take the risk: {self.kind}.resume(..., force=True)"
        )


class CallChangedError(FastroAIError):
    """A call is not declared as it was when its answer was put on record, so that answer is not used.

    With `on_changed="fail"`, nothing was sent. With `"keep"`, the answer does not fit what is declared now.
    """

    def __init__(
        self, run_id: str, step: str, call: str, changed: tuple[str, ...], misfit: str | None = None
    ) -> None:
        super().__init__(run_id, step, call, changed, misfit)
        self.run_id, self.step, self.call, self.changed, self.misfit = run_id, step, call, changed, misfit

    def __str__(self) -> str:
        what = ", ".join(self.changed)
        changed = (
            f"step {self.step!r} of run {self.run_id!r}: the declaration of {self.call} has changed ({what})"
        )
        if self.misfit is None:
            return (
                f"{changed} since its answer was put on record, and on_changed='fail'; nothing was sent. "
                "Resume the run with the declaration as it was, with on_changed='ask' to ask the model anew, "
                "or with on_changed='keep' to use the answer on record"
            )
        return (
            f"{changed}, and the answer on record, which on_changed='keep' is to use, does not fit it: "
            f"{self.misfit}. Resume the run with on_changed='ask' to ask the model anew, or with the "
            "declaration as it was"
        )


class RunCorrupt(FastroAIError):
    """The record of a run cannot be read: entry `position` of its log, or another part if that is 0."""

    def __init__(self, run_id: str, position: int, reason: str) -> None:
        super().__init__(run_id, position, reason)
        self.run_id, self.position, self.reason = run_id, position, reason

    def __str__(self) -> str:
        what = f"entry {self.position}" if self.position else "the record"
        return (
            f"{what} of run {self.run_id!r} cannot be read: {self.reason}. Restore the store from a backup, "
            f"or start a new run; RunHistory(store).delete({self.run_id!r}, force=True) deletes this one"
        )


class RunFromNewerVersion(FastroAIError):
    """A later version of FastroAI has written the record of this run."""

    def __init__(self, run_id: str, format: int, known: int) -> None:
        super().__init__(run_id, format, known)
        self.run_id, self.format, self.known = run_id, format, known

    def __str__(self) -> str:
        return (
            f"run {self.run_id!r} is written in format {self.format}, and this version of fastroai reads up "
            f"to {self.known}; nothing was run. Update fastroai, or start a new run"
        )


class RunFromOlderVersion(FastroAIError):
    """An earlier version of FastroAI has written the record of this run."""

    def __init__(self, run_id: str, format: int, known: int) -> None:
        super().__init__(run_id, format, known)
        self.run_id, self.format, self.known = run_id, format, known

    def __str__(self) -> str:
        return (
            f"run {self.run_id!r} is written in format {self.format}, and this version of fastroai reads "
            f"format {self.known} and later ones; nothing was run. Resume it with the version that wrote it, "
            "start a new run, or delete it: RunHistory(store).delete(run_id, force=True)"
        )


class UnknownFactKind(FastroAIError):
    """A run cannot go on: entry `position` of its log is a fact that no imported module declares."""

    def __init__(self, run_id: str, position: int, kind: str) -> None:
        super().__init__(run_id, position, kind)
        self.run_id, self.position, self.kind = run_id, position, kind

    def __str__(self) -> str:
        return (
            f"run {self.run_id!r} cannot go on: entry {self.position} of its log is a {self.kind!r}, a kind "
            "of fact that no imported module declares; nothing was run. Import the module with that subclass "
            "of fastroai.pipelines.Fact, and try again; the trace of the run can be read without it"
        )


class AnswerRejected(FastroAIError, ValueError):
    """An answer is not of the type that the question asks for, or not one of its options.

    The question stays open.
    """

    def __init__(self, question_id: str, reason: str) -> None:
        super().__init__(question_id, reason)
        self.question_id, self.reason = question_id, reason

    def __str__(self) -> str:
        return (
            f"the answer to question {self.question_id!r} is not what it asks for: {self.reason}. "
            "The question stays open"
        )


class QuestionClosed(FastroAIError):
    """A question takes no answer: it has one, its time is over, or its run does not wait for it."""

    def __init__(self, question_id: str, reason: str) -> None:
        super().__init__(question_id, reason)
        self.question_id, self.reason = question_id, reason

    def __str__(self) -> str:
        return f"question {self.question_id!r} takes no answer: {self.reason}"


class QuestionTimedOut(FastroAIError, TimeoutError):
    """Nobody answered a question in time, and `ctx.ask` was given no `on_timeout=`."""

    def __init__(self, question_id: str, deadline: datetime) -> None:
        super().__init__(question_id, deadline)
        self.question_id, self.deadline = question_id, deadline

    def __str__(self) -> str:
        return (
            f"nobody answered question {self.question_id!r} until {self.deadline:%Y-%m-%d %H:%M:%S} UTC; "
            "ctx.ask(..., on_timeout=) goes on without an answer"
        )


class HumanTimeoutError(QuestionTimedOut):
    """Nobody answered a question of `await_human` in time, and its `on_timeout` says to raise."""

    @property
    def review_id(self) -> str:
        """The id of the question in the inbox."""
        return self.question_id

    def __str__(self) -> str:
        return (
            f"nobody answered review {self.review_id!r} until {self.deadline:%Y-%m-%d %H:%M:%S} UTC; "
            "await_human(..., on_timeout=) goes on without an answer"
        )


class MessageRejected(FastroAIError, ValueError):
    """A message that the run cannot receive. It was not sent."""

    def __init__(self, run_id: str, name: str, reason: str) -> None:
        super().__init__(run_id, name, reason)
        self.run_id, self.name, self.reason = run_id, name, reason

    def __str__(self) -> str:
        return f"message {self.name!r} was not sent to run {self.run_id!r}: {self.reason}"


class MessageTimedOut(FastroAIError, TimeoutError):
    """Nobody sent a message in time, and `ctx.receive` was given no `on_timeout=`."""

    def __init__(self, run_id: str, name: str, deadline: datetime) -> None:
        super().__init__(run_id, name, deadline)
        self.run_id, self.name, self.deadline = run_id, name, deadline

    def __str__(self) -> str:
        return (
            f"nobody sent message {self.name!r} to run {self.run_id!r} until "
            f"{self.deadline:%Y-%m-%d %H:%M:%S} UTC; ctx.receive(..., on_timeout=) goes on without it"
        )


class OnceInterrupted(FastroAIError):
    """A process died during a side effect of `ctx.once`, so nobody knows whether it has happened."""

    def __init__(self, step_id: str, name: str) -> None:
        super().__init__(step_id, name)
        self.step_id, self.name = step_id, name

    def __str__(self) -> str:
        return (
            f"it is not known whether {self.name!r} of step {self.step_id!r} has happened: its process died "
            "meanwhile, or its result could not be stored. Find out; if it must be done again, resume with "
            "ctx.once(..., if_interrupted='repeat'), else fork the run with the output of the step"
        )


class CancelledInside(FastroAIError):
    """A step failed because it awaited a task that was cancelled; the step itself was not cancelled."""

    retryable = True

    def __init__(self, step_id: str) -> None:
        super().__init__(step_id)
        self.step_id = step_id

    def __str__(self) -> str:
        return (
            f"step {self.step_id!r} awaited a task that was cancelled, although the step itself was not. "
            "Look for what cancelled the task, such as a client or a pool that was closed"
        )


class ValueNotStorable(FastroAIError, TypeError):
    """A value cannot be written to the store of the run so that it comes back as it was."""

    def __init__(self, what: str, field: str, type_name: str, reason: str) -> None:
        super().__init__(what, field, type_name, reason)
        self.what, self.field, self.type_name, self.reason = what, field, type_name, reason

    def __str__(self) -> str:
        where = f" at {self.field}" if self.field else ""
        return f"{self.what} cannot be stored: {self.type_name}{where}: {self.reason}"


class CircuitOpenError(FastroAIError):
    """A circuit breaker is open: the provider has failed too often, and the request was not sent.

    The error that is raised is also a PydanticAI `ModelAPIError`, so a `FallbackModel` goes on to its next
    candidate.
    """

    retryable = True

    def __init__(
        self, provider: str, opens_in: float, last_failure: str = "", agent: str | None = None
    ) -> None:
        # Not super(): the error that is raised is a ModelAPIError as well, which takes other arguments.
        Exception.__init__(self, provider, opens_in, last_failure, agent)
        self.provider = provider
        self.opens_in = opens_in
        """Seconds until a request may test whether the provider is well; 0 while one is testing it."""
        self.last_failure = last_failure
        self.agent = agent
        """The agent that has the breaker; `None` for the breaker of a `ProviderLimit`."""
        self.retry_after: float | None = opens_in or None

    def __str__(self) -> str:
        whose = f" of agent {self.agent!r}" if self.agent is not None else ""
        when = f"the next try is in {self.opens_in:.1f} s" if self.opens_in else "a request is trying it now"
        last = f"; the last failure: {self.last_failure}" if self.last_failure else ""
        return (
            f"circuit breaker{whose} lets no requests through to {self.provider!r}, which fails; "
            f"{when}{last}. Retry later, or put another model behind this one in a FallbackModel"
        )


class UnpricedModelError(FastroAIError):
    """No price is known for a model where one is needed, as under a budget of money."""

    def __init__(
        self,
        model: str,
        provider: str,
        needed_for: Literal["request", "spend", "record", "price"] = "request",
        near: str | None = None,
        override: str | None = None,
    ) -> None:
        super().__init__(model, provider, needed_for, near, override)
        self.model, self.provider = model, provider
        self.needed_for = needed_for
        """The use of the price: a request, spending or a record under a budget of money, or the caller."""
        self.near = near
        """The known model of the same provider that has nearly this name."""
        self.override = override
        """The override that matches the model and has no prices of its own, such as a discount."""

    def __str__(self) -> str:
        key = f"{self.provider}:{self.model}" if self.provider else self.model
        hint = f". Did you mean {self.near!r}?" if self.near else ""
        return f"no price is known for model {key!r}{self._remedy(key)}{hint}"

    def _remedy(self, key: str) -> str:
        if self.override is not None:
            return (
                f": {self.override} matches, but there is no list price to take a discount from; "
                "add input_per_mtok and output_per_mtok"
            )
        per_mtok = "{'input_per_mtok': ..., 'output_per_mtok': ...}"
        prices = f"CostCalculator(pricing_overrides={{{key!r}: {per_mtok}}})"
        if self.needed_for == "price":
            return f"; add one: {prices}"
        needed = ", and a cost budget cannot hold without one; "
        allow = "or set on_unpriced='allow' on the Budget or SpendLimit"
        if self.needed_for == "spend":
            return (
                f"{needed}give the price of a unit: spend(units=..., price_usd=...), or, for images, "
                "the most that a call can cost: image_model(..., most_usd=...); "
                f"or, for tokens, add one: {prices} as cost_calculator= of spend, {allow}"
            )
        if self.needed_for == "record":
            return (
                f"{needed}what was recorded is charged as an unknown cost. Pass cost_usd= to record_usage, "
                f"or add a price: {prices} as cost_calculator= of record_usage, {allow}"
            )
        return f"{needed}add one: {prices} as cost_calculator= of the agent, {allow}"


class UnboundedRequestError(FastroAIError):
    """A budget is set, and nothing bounds what a request can use of it."""

    def __init__(self, model: str, provider: str, why: str | None = None) -> None:
        super().__init__(model, provider, why)
        self.model, self.provider = model, provider
        self.why = why
        """The part of the request that is not bounded, and what helps; `None` if that is not known."""

    def __str__(self) -> str:
        return (
            f"nothing bounds what a request to {self.provider}:{self.model} can use, so no budget of it can "
            f"hold: {self.why or 'set max_tokens on the agent'}. To send it all the same, set "
            "on_unbounded='allow' on the Budget or SpendLimit"
        )


class UnmeteredRequestError(FastroAIError):
    """Inside of a run, a request was refused because the account cannot follow it."""

    def __init__(self, call: str, scope_path: tuple[str, ...], instead: str) -> None:
        super().__init__(call, scope_path, instead)
        self.call, self.scope_path, self.instead = call, scope_path, instead

    def __str__(self) -> str:
        path = " / ".join(self.scope_path)
        return f"{self.call} cannot be counted in {path}, so it was not made; {self.instead}"


class PriceUpdateError(FastroAIError):
    """Newer prices could not be downloaded; those in use stay in use."""

    retryable = True

    def __init__(self, url: str, reason: str) -> None:
        super().__init__(url, reason)
        self.url, self.reason = url, reason

    def __str__(self) -> str:
        return f"no newer prices from {self.url}: {self.reason}; the prices in use stay in use"


class LangGraphStopped(FastroAIError):
    """A LangGraph graph that is a step stopped before its end: it waits for an answer, or went on too long.

    `reason` is `"interrupt"`, with the question in `detail`, or `"recursion limit"`, with the limit.
    """

    def __init__(self, step_id: str, reason: Literal["interrupt", "recursion limit"], detail: str) -> None:
        super().__init__(step_id, reason, detail)
        self.step_id, self.reason, self.detail = step_id, reason, detail

    def __str__(self) -> str:
        if self.reason == "interrupt":
            return (
                f"the graph of step {self.step_id!r} waits for an answer to {self.detail}; give "
                "graph_step(answer=...) a function that has it, and resume the run, which takes a store for "
                "the run and a checkpointer in the graph"
            )
        return (
            f"the graph of step {self.step_id!r} has reached its recursion limit ({self.detail}); see that "
            "it ends, or raise the limit: graph_step(graph_config={'recursion_limit': ...})"
        )


class ScopeClosedError(FastroAIError):
    """A request was made after the run that it belongs to had ended, or was in flight when it ended."""

    def __init__(self, scope_path: tuple[str, ...], in_flight: bool = False) -> None:
        super().__init__(scope_path, in_flight)
        self.scope_path = scope_path
        self.in_flight = in_flight
        """Whether the request had been sent. Then it was ended with the run, and may have been billed."""

    def __str__(self) -> str:
        what = f"a request was made under {' / '.join(self.scope_path)} after that run had ended"
        if self.in_flight:
            what = f"a request under {' / '.join(self.scope_path)} was ended, as its run ended before it"
        return f"{what}; await everything that a step starts before it returns"


class ForkedScopeError(FastroAIError):
    """Code tried to spend in a process that was forked inside of a budget, or of a run on record.

    A budget counts in the process that opened it. In copies of that process each copy could spend all of it.
    """

    def __init__(
        self, left: Literal["budget", "run"], scope_path: tuple[str, ...], opened_in: int, process: int
    ) -> None:
        super().__init__(left, scope_path, opened_in, process)
        self.left = left
        """The part that stays in the other process: a budget, or the only writer of a run on record."""
        self.scope_path = scope_path
        """The path to the scope that has the budget, outermost first; else to the scope that was forked."""
        self.opened_in = opened_in
        """The id of the process that has the budget, or writes the run."""
        self.process = process
        """The id of the process in which code tried to spend."""

    def __str__(self) -> str:
        where = " / ".join(self.scope_path)
        if self.left == "run":
            return (
                f"the run of {where} is on record by process {self.opened_in}, and this is process "
                f"{self.process}, forked from it: call models in threads or tasks of the run, or start the "
                "process with the method 'spawn', and give it budgets of its own"
            )
        return (
            f"the budget of {where} was opened in process {self.opened_in}, and this is process "
            f"{self.process}, forked from it: a budget is not shared between processes, and each of them "
            "could spend all of it. Open a budget in this process (with budget_scope(...)), or share one "
            "ceiling among them: SpendLimit(usd=..., store=SQLiteSpendStore(...))"
        )


class RunningLoopError(FastroAIError, RuntimeError):
    """A sync entry point was called where an event loop of asyncio or trio is running."""

    def __init__(self, called: str, instead: str, loop: Literal["asyncio", "trio"] = "asyncio") -> None:
        super().__init__(called, instead, loop)
        self.called, self.instead, self.loop = called, instead, loop

    def __str__(self) -> str:
        use = f"await {self.instead}(...)"
        if self.loop == "trio":
            use = f"await trio.to_thread.run_sync(lambda: {self.called}(...))"
        return f"{self.called}() was called on a running event loop and would block it; use: {use}"


class NoRunningLoopError(FastroAIError, RuntimeError):
    """Something that needs asyncio was awaited where no event loop of asyncio is running."""

    def __init__(self, under: Literal["trio"] | None = None) -> None:
        super().__init__(under)
        self.under = under
        """The other library whose event loop is running, if one is."""

    def __str__(self) -> str:
        if self.under is None:
            return (
                "this was awaited without an event loop; FastroAI needs that of asyncio: call it in a "
                "coroutine that asyncio.run runs, or use the sync method, such as run_sync"
            )
        return (
            "this was awaited on the event loop of trio; FastroAI needs that of asyncio: use the sync method "
            "in a thread, as in: await trio.to_thread.run_sync(lambda: agent.run_sync(...))"
        )
