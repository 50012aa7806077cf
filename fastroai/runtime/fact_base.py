"""What every event and fact of a run is: the base classes, and what listeners and logs read of them.

A *fact* is an event that a state machine takes in or decides, that the log of a run keeps, and that traces
read. Each fact is made once. Other events, such as pieces of text, are told only to listeners.

A *place* names a position in a run: step ids and attempts from the outermost pipeline inwards, such as
`write@1/inner/check`.
`write` is a step, `write@1` its first attempt, `inner` a pipeline that runs in it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cache
from operator import attrgetter
from time import time
from typing import Annotated, Any, ClassVar, Final, Literal, Protocol, Self, TypeAlias

from pydantic import (
    Field,
    GetCoreSchemaHandler,
    JsonValue,
    PlainValidator,
)
from pydantic_core import CoreSchema, core_schema
from typing_extensions import override

from fastroai.data_kinds import Text
from fastroai.errors import RecordedError
from fastroai.places import step_name
from fastroai.records import RequestRecord, Usage


class Part:
    """A pipeline or graph of a run, the outermost or a nested one: where facts happen."""

    __slots__ = ("name", "path", "place", "prefix", "run_id")

    def __init__(self, run_id: str = "", name: str = "", path: tuple[str, ...] = (), place: str = "") -> None:
        self.run_id, self.name = run_id, name
        self.path = path
        """Names of the pipelines and steps around it, outermost first, and its own last."""
        self.place = place
        """Place of this pipeline or graph, such as `write@1/inner`; empty for the outermost."""
        self.prefix = f"{place}/" if place else ""
        """Beginning of the places of its steps, such as `write@1/inner/`; empty for the outermost."""

    def __repr__(self) -> str:
        return f"Part({self.run_id!r}, {self.name!r}, {self.path!r}, {self.place!r})"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Part):
            return NotImplemented
        return (self.run_id, self.name, self.place) == (other.run_id, other.name, other.place)

    def __hash__(self) -> int:
        return hash((self.run_id, self.name, self.place))

    def inside(self, place: str) -> Part:
        """Return the part at a place inside this one. Its name is derived from the place."""
        if not place:
            return self
        names = [step_name(one) for one in place.split("/")]
        return Part(self.run_id, names[-1], (*self.path, *names), place)

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Serialize a part as its place only, because the first entry of the log has the rest."""
        return core_schema.no_info_plain_validator_function(
            lambda given: (
                given if isinstance(given, cls) else cls(place=checked_text(given)) if given else NOWHERE
            ),
            serialization=core_schema.plain_serializer_function_ser_schema(lambda part: part.place),
        )


def checked_text(given: object) -> str:
    """Return a value from a log if it is text. Raises `ValueError`, as validators of pydantic do."""
    if not isinstance(given, str):
        raise ValueError("expected text")
    return given


NOWHERE: Final = Part()
"""Part of a fact that a state machine has just decided; the runner replaces it with the part of the run."""


@dataclass(slots=True, kw_only=True)
class RunEvent:
    """Something that happens in a run: the base class of all events that `on_event` and `stream` get."""

    part: Part = NOWHERE
    """The pipeline or graph in which it happens; nested ones report their own."""
    timestamp: float = field(default_factory=time, compare=False)
    """Time at which it happened, in seconds since 1970."""
    counted_as: ClassVar[str] = ""
    """The noun under which `Progress` counts such events, such as `step`; empty if it does not."""

    @property
    def run_id(self) -> str:
        """The id of the run. Events of nested pipelines and graphs have the id of the outermost run.

        A row of a `map` over a pipeline, graph, router or flow is a run with its own id if a store keeps the
        rows. Otherwise, events of rows have the id of the `map`. In a `budget_scope` outside of runs, the id
        is that of the outermost scope.
        """
        return self.part.run_id

    @property
    def pipeline(self) -> str:
        """The name of the pipeline or graph in which the event happens; empty outside of any."""
        return self.part.name

    @property
    def path(self) -> tuple[str, ...]:
        """Names of the pipelines and steps around the event, from the outermost to its own pipeline."""
        return self.part.path

    @property
    def at(self) -> datetime:
        """The time at which the event happened, with the time zone UTC."""
        return datetime.fromtimestamp(self.timestamp, UTC)


Key: TypeAlias = tuple[str, ...]
"""Identifies what a fact is about in its run: what it is, and the place and the name of it."""

Outcome: TypeAlias = Literal["succeeded", "incomplete", "failed", "retried", "cancelled", "skipped"]
"""How something ended. `incomplete`: it waits, or asks for more. `retried`: it failed, and begins again."""

_LIVE: Final[Mapping[str, Any]] = {"raised": None, "spent_in": None, "written": {}}
"""Fields that only the process of the run has, with the values that they have elsewhere."""


@cache
def _identifying(identity: tuple[str, ...]) -> tuple[str, tuple[Callable[[object], str], ...]]:
    what, *names = identity
    return what, tuple(attrgetter(name) for name in names)


@cache
def _live_fields(kind: Hashable) -> tuple[str, ...]:
    return tuple(name for name in _LIVE if hasattr(kind, name))


declared_facts: Final[dict[str, type[Fact]]] = {}
"""The classes of facts in the modules that are imported, by kind. See `fastroai.runtime.kinds`."""


@dataclass(slots=True, kw_only=True)
class Fact(RunEvent):
    """An event that decides how a run continues, or that the log of the run keeps.

    It is the base class of these events; a trace lists them as its entries. Each fact is about the run
    (`RunFact`), or it is the beginning (`Begins`) or the end (`Ends`) of something in the run, or a note
    about it (`Notes`). A small thing may have a single fact that is both, with its outcome and cost. A
    subclass with a `kind` is read from logs by every process that has imported its module; others read an
    `UnknownFact`. Defining a second class with the same `kind` raises `TypeError`.
    """

    kind: ClassVar[str]
    """Name of this kind of fact in the log."""
    says: ClassVar[str | None]
    """What happened, as a sentence: a format of texts; `None` if others tell it. See `sentences`."""
    short: ClassVar[str] = "{0.__class__.__name__}"
    """What happened in a few words: a format of texts."""
    holds: ClassVar[str] = "the fact {0.kind!r}"
    """What its largest value is, for the error about one that is too large for a store: a format of texts."""
    makes_values: ClassVar[bool] = False
    """Whether FastroAI has made its values. Those of users are not asked for their JSON."""

    def __init_subclass__(cls) -> None:
        """Declare the kind of a fact. Raises `TypeError` if another class has declared the same one."""
        if not isinstance(kind := vars(cls).get("kind"), str):
            return
        other = declared_facts.get(kind)
        # The decorator of a dataclass with slots makes the class twice.
        if other is not None and (other.__module__, other.__qualname__) != (cls.__module__, cls.__qualname__):
            raise TypeError(
                f"{cls.__qualname__} has the kind {kind!r} of {other.__module__}.{other.__qualname__}"
            )
        declared_facts[kind] = cls

    identity: ClassVar[tuple[str, ...]]
    """A word for what the fact is about, and the names of the fields that identify it."""

    @property
    def child_run(self) -> str:
        """Id of a separate run that the fact is about, such as a row of `map`; empty in most facts.

        That run belongs to this run, and is deleted with it.
        """
        return ""

    @property
    def child_usage(self) -> Usage:
        """The spending of the run `child_run` since it last ended, in a fact about its end.

        It is zero in all other facts. The log of that run has its requests.
        """
        return Usage()

    @property
    def about(self) -> Key:
        """The key of the thing that the fact is about, such as `("step", "write")`.

        It is a word for the kind of thing, followed by the texts that identify the thing in its run. All
        facts about one thing have the same key.
        """
        what, fields = _identifying(self.identity)
        return what, *[field(self) for field in fields]

    @property
    def where(self) -> str:
        """The place that the fact is about: step ids and attempts, such as `write@1/inner/check`.

        It is empty in a fact about a whole run, and in one that names no place, such as `RequestEnded`.
        """
        return ""

    def in_short(self) -> str:
        """Return what happened in a few words, for errors about a damaged log; by default, the class name."""
        return self.short.format(self)

    def detached(self) -> Self:
        """Return a copy without the objects that only the process of the run has, as traces keep it.

        These are the exception, the usage, and the values that a node has written. A fact that has none of
        them is returned itself.
        """
        kind: Any = type(self)
        live = {name: _LIVE[name] for name in _live_fields(kind) if getattr(self, name)}
        return replace(self, **live) if live else self

    def sentences(self, run: Telling) -> tuple[str, ...]:
        """Return what happened in sentences, for `explain` of a trace.

        Most facts have one sentence, some have none or several. Unless a class overrides this method, the
        sentence is made from the format in `says`. `run` looks up other things of the run.
        """
        return () if self.says is None else (self.says.format(self),)


class RunFact(Fact):
    """A fact about a run as a whole, or about a pipeline or graph nested in it."""

    __slots__ = ()

    identity: ClassVar = ("run", "part.place")
    reopens: ClassVar[bool] = False
    """Whether a run that had ended or was interrupted goes on after it."""


class Begins(Fact):
    """The beginning of something in a run."""

    __slots__ = ()

    @property
    def spending(self) -> RequestRecord | None:
        """The record of its cost that counts until the end is on record; `None` if it costs nothing."""
        return None


class Ends(Fact):
    """The end of something in a run, which has begun unless it was skipped."""

    __slots__ = ()

    ends_as: ClassVar[Outcome] = "succeeded"
    """How what such facts end has ended, unless `outcome` knows better."""

    @property
    def outcome(self) -> Outcome:
        """How it ended."""
        return self.ends_as

    @property
    def spending(self) -> RequestRecord | None:
        """The final record of its cost; `None` if it costs nothing."""
        return None


class Notes(Fact):
    """Something that is noted about what goes on."""

    __slots__ = ()


class PlanFact(Fact):
    """A fact that decides how a pipeline, graph or workflow goes on, or that is left behind for that."""

    __slots__ = ()


class Telling(Protocol):
    """What the sentences of facts look up in the rest of the log, in which facts are told one by one."""

    @property
    def running(self) -> Collection[str]:
        """The places of the steps that run when the fact happens, first started first."""
        ...

    def attempt(self, place: str, ended_at: datetime) -> tuple[int, str]:
        """Return the number, from 1, of the attempt at a place that ended then, and its cost in brackets."""
        ...

    def cost_until(self, place: str, by: datetime) -> str:
        """Return, in brackets, the cost of the attempt at a place that was interrupted before a time."""
        ...

    def shape(self, definition: JsonValue) -> str:
        """Return the kind of run that a definition describes, such as `graph`."""
        ...

    def version(self, definition: JsonValue) -> str:
        """Return, in brackets, the version of a definition; empty without one."""
        ...

    def unread(self, definition: JsonValue) -> str:
        """Return what to do to read a definition that is sealed; empty for any other."""
        ...


# --- failures ---


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureFacts:
    """The parts of an exception that can be stored: type name, message, failure class and traceback.

    A message of more than 10,000 characters is cut. `failure_class` is `recoverable`, `terminal` or
    `ambiguous`. The traceback leaves out the lines of FastroAI.
    """

    error_type: str
    message: Text[str]
    failure_class: str
    """`recoverable`, `terminal` or `ambiguous`."""
    traceback: Text[str] = field(default="", compare=False)
    """The lines of code that led to it, innermost last, as Python shows them, without those of FastroAI.
    Empty if they are not known, as in a log of an earlier version.
    """

    def as_error(self) -> RecordedError:
        """Return a `RecordedError` that has the name of the type and the message.

        It is not an exception of the original type.
        """
        return RecordedError(self.error_type, self.message)

    def __str__(self) -> str:
        message = " ".join(self.message.split())
        return f"{self.error_type}: {message}" if message else self.error_type

    @property
    def sentence(self) -> str:
        """The failure as the end of a sentence, such as `failed (terminal): ValueError: no such order`."""
        return f"failed ({self.failure_class}): {self}"


Raised: TypeAlias = Annotated[BaseException | None, Field(exclude=True), PlainValidator(lambda given: given)]


# --- steps and visits to nodes ---


@dataclass(slots=True, kw_only=True)
class PlacedFact(Fact):
    """A fact about something at a place, such as in an attempt at a step."""

    place: str

    @property
    @override
    def where(self) -> str:
        return self.place


@dataclass(slots=True, kw_only=True)
class RequestInLine(PlacedFact, Notes):
    """A note about a request in the line before a budget, a spend limit or a provider limit."""

    identity: ClassVar = ("request in line", "place")
    has_waited: ClassVar[bool]
    """Whether it waits no longer."""
    waits_for: Text[str]
    """What it waits for, in words: `$0.014 of a budget of $0.05, of which $0.002 is neither spent nor
    reserved`."""
