"""The root of all exceptions, with what every one of them knows: the usage and the trace of its run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import ClassVar, Protocol

from fastroai.errors.texts import shown
from fastroai.records import RequestRecord, Usage

_USAGE_ATTRIBUTE = "__fastroai_usage__"


_RECORDS_ATTRIBUTE = "__fastroai_records__"


_TRACE_ATTRIBUTE = "__fastroai_trace__"


class Trace(Protocol):
    """The trace of a run, as errors expose it: what happened in the run, and how it ended.

    The object is a `RunTrace`, which offers much more.
    """

    @property
    def run_id(self) -> str:
        """The id of the run."""
        ...

    @property
    def status(self) -> str:
        """The status with which the run ended: `finished`, `paused`, `failed` or `cancelled`.

        `running` if no end is on record.
        """
        ...

    def explain(self) -> str:
        """Return text that says why each step started, waited, was retried or was skipped.

        It ends with how the run ended.
        """
        ...

    def to_json(self) -> str:
        """Return the trace as JSON text, which `RunTrace.from_json` reads.

        If the process redacts (`fastroai.tracing.set_redaction`), the text is redacted.
        """
        ...


class TraceSource(Protocol):
    """Makes the trace of a run when it is first asked for. It can be pickled, because errors can be."""

    @property
    def trace(self) -> Trace:
        """The trace."""
        ...


def attach_usage(error: BaseException, usage: Usage, records: Iterable[RequestRecord] = ()) -> None:
    """Attach to an exception the usage of a scope that it left. The outermost scope does so last."""
    error.__dict__[_USAGE_ATTRIBUTE] = usage.copy()
    error.__dict__[_RECORDS_ATTRIBUTE] = tuple(records)


def usage_of(error: BaseException) -> Usage | None:
    """Return the usage of a run when this exception left it, for FastroAI's errors and for any other.

    It is the usage of the outermost run that the exception left; an agent call outside of runs counts as a
    run. `None` if the exception, and those that it was raised from or contains, never left a run.

        try:
            await pipeline.execute(inputs)
        except Exception as error:
            spent = usage_of(error)

    Raises:
        ConfigurationError: `error` is not an exception.
    """
    return next((link.__dict__[_USAGE_ATTRIBUTE] for link in _spenders(error)), None)


def records_of(error: BaseException) -> tuple[RequestRecord, ...]:
    """Return every request that a run had made when this exception left it, for `UsageReport.of`.

    An agent call outside of runs counts as a run. The tuple is empty if the exception, and those that it was
    raised from or contains, never left a run.

    Raises:
        ConfigurationError: `error` is not an exception.
    """
    return next((link.__dict__[_RECORDS_ATTRIBUTE] for link in _spenders(error)), ())


def attach_as(error: BaseException, other: BaseException) -> None:
    """Attach to an exception all that FastroAI has attached to another one that it stands for."""
    for link in error_chain(other):
        for name, value in link.__dict__.items():
            if name.startswith("__fastroai_"):
                error.__dict__.setdefault(name, value)


def attach_trace(error: BaseException, source: TraceSource) -> None:
    """Attach to an exception the trace of the run that it ended. The outermost run does so last."""
    error.__dict__[_TRACE_ATTRIBUTE] = source


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
        expected = "an exception; for a result, read result.usage and result.trace"
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
    """Base of every error that FastroAI raises on purpose.

    If it stopped a run, `usage` has what the run had spent, `trace` what had happened in it, `run_id` its id,
    and `step_outputs` the outputs of the steps that had finished. Otherwise these are empty or `None`.
    `retryable` says whether trying again can help.

    What to do: Read the message: it says what was wrong, where, and what to do.
    """

    retryable: ClassVar[bool] = False
    """Whether trying the same thing again can help. Stops and mistakes are final."""
    step_outputs: Mapping[str, object] = MappingProxyType({})
    """Outputs of the steps that had finished, by step id, if the error stopped a pipeline."""
    run_id: str | None = None
    """The id of the run that the error stopped."""

    def __init_subclass__(cls) -> None:
        """Give a class of FastroAI the name that users import, in tracebacks, in spans and on record."""
        super().__init_subclass__()
        library, package, *modules = [*cls.__module__.split("."), ""]
        if library == "fastroai" and "errors" in (package, *modules):
            cls.__module__ = f"{library}.{package}"

    @property
    def trace(self) -> Trace | None:
        """The trace of the run that this error ended, or that an error it was raised from ended.

        `None` if there is no such run.

        `fastroai.store.trace_of` returns the same for any exception, typed as a `RunTrace`.
        """
        source = trace_source_of(self)
        return None if source is None else source.trace

    @property
    def usage(self) -> Usage:
        """The usage of the run when this error left it: requests, tokens and cost.

        All of it is zero if the error never left a run.
        """
        return usage_of(self) or Usage()


class FastroAIWarning(UserWarning):
    """Base of all warnings of FastroAI, such as `NearMissWarning`: a filter with it is for all of them.

    A warning of this class itself says that something does not work as declared, because the configuration
    lacks a setting.

    What to do: Configure what the message names, or silence the warning with `warnings.filterwarnings`.
    """


class ConfigurationError(FastroAIError, ValueError):
    """An option has an invalid value.

    What to do: Give the option a value that the message describes.
    """

    def __init__(self, option: str, value: object, expected: str) -> None:
        super().__init__(option, value, expected)
        self.option, self.value, self.expected = option, value, expected

    def __str__(self) -> str:
        if self.value is ...:  # nothing was given
            return f"{self.option} needs {self.expected}"
        return f"{self.option}={shown(self.value)}: expected {self.expected}"


class NoUsableOutput(FastroAIError):
    """A model was asked as often as it may be, and no answer could be used. Other models may do better."""
