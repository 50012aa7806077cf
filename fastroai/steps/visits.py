"""What a step knows of its visit to a node of a graph, beyond inputs and outputs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, Protocol

from typing_extensions import TypeVar

from fastroai.calls.call import AgentCall
from fastroai.errors import ConfigurationError, nearest_hint
from fastroai.runtime import FailureClass

if TYPE_CHECKING:
    from pydantic_ai.messages import ModelMessage

ContextT = TypeVar("ContextT", default=Any)
ContextT_contra = TypeVar("ContextT_contra", default=Any, contravariant=True)


class Talk(Protocol[ContextT_contra]):
    """The conversation that the agent calls of one attempt at a node go on with."""

    async def prepare(self, call: AgentCall, context: ContextT_contra) -> AgentCall:
        """The call with what was said before."""
        ...

    def heard(self, messages: Sequence[ModelMessage]) -> None:
        """A call was answered: what it has added."""
        ...


@dataclass(frozen=True, slots=True)
class NodeFailure:
    """The failure of a visit to a node, as the nodes after it find it in `ctx.failures`."""

    error: BaseException
    """The exception of the last attempt; a `RecordedError`, if that was in an earlier process."""
    failure_class: FailureClass
    attempts: int
    """How many were made; 0 where no attempt failed: the branch took too long, or went in a circle."""


class NodeVisit(Generic[ContextT]):
    """A visit to a node; what it collects is that of its latest attempt.

    `ContextT` is the context that the step of the node is given, which has this visit among its facts.
    """

    __slots__ = (
        "_new_talk",
        "_on_write",
        "failures",
        "goal",
        "kept",
        "number",
        "talk_so_far",
        "writes",
        "written",
    )

    def __init__(
        self,
        number: int,
        *,
        goal: str | None,
        writes: Sequence[str] | None,
        failures: Mapping[str, NodeFailure],
        new_talk: Callable[[], Talk[ContextT] | None],
        on_write: Callable[[str, object], object],
    ) -> None:
        """`writes` are the keys that the node may write, all of them where it does not say.

        `on_write` puts a value on record, and gives the copy of it that is kept.
        """
        self.number, self.goal, self.failures = number, goal, failures
        self.writes, self._new_talk, self._on_write = writes, new_talk, on_write
        self.written: dict[str, object] = {}
        """What it has written before its end."""
        self.kept: dict[str, object] = self.written
        """The same, or what the attempt before wrote, as long as this one has written nothing."""
        self.talk_so_far: Talk[ContextT] | None = None
        """The conversation of this attempt, if it has one yet."""

    @property
    def talk(self) -> Talk[ContextT] | None:
        """The conversation of this attempt; it begins when it is first needed."""
        if self.talk_so_far is None:
            self.talk_so_far = self._new_talk()
        return self.talk_so_far

    def begin_attempt(self) -> None:
        """Forget what an attempt before has written and said; what it wrote is kept until this one writes."""
        self.written, self.talk_so_far = {}, None

    def write(self, key: str, value: object) -> None:
        """Put a value into memory, whatever becomes of the node.

        Raises:
            ConfigurationError: the node declares what it writes, and this is not among it.
            ValueNotStorable: the run is on record, and the value has no form in JSON.
        """
        if not isinstance(key, str) or not key:
            raise ConfigurationError("key", key, "a non-empty string")
        if self.writes is not None and key not in self.writes:
            names = ", ".join(map(repr, self.writes))
            expected = f"one of the node's writes, {names}.{nearest_hint(key, self.writes)}"
            raise ConfigurationError("key", key, expected)
        self.written[key] = self._on_write(key, value)
        self.kept = self.written
