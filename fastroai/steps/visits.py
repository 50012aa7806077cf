"""The visit of a step to a node of a graph: what it reads besides inputs and outputs, and what it writes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from typing_extensions import TypeVar

from fastroai.calls.call import AgentCall
from fastroai.runtime import FailureClass

if TYPE_CHECKING:
    from pydantic_ai.messages import ModelMessage

ContextT_contra = TypeVar("ContextT_contra", default=Any, contravariant=True)


class Talk(Protocol[ContextT_contra]):
    """The conversation in which the agent calls of one attempt at a node take part."""

    async def prepare(self, call: AgentCall, context: ContextT_contra) -> AgentCall:
        """Return the call with the earlier messages of the conversation."""
        ...

    def heard(self, messages: Sequence[ModelMessage]) -> None:
        """Add the messages of a call that was answered."""
        ...


@dataclass(frozen=True, slots=True)
class NodeFailure:
    """The failure of a visit to a node, as the nodes after it find it in `ctx.failures`."""

    error: BaseException
    """The exception of the last attempt; a `RecordedError`, if that was made in an earlier process."""
    failure_class: FailureClass
    attempts: int
    """Number of attempts; 0 if no attempt failed, but the branch took too long, or went in a circle."""


class NodeVisit(Protocol[ContextT_contra]):
    """The visit to a node in which a step runs, as the step's context reads it.

    `ContextT_contra` is the context that the step of the node is given.
    """

    @property
    def number(self) -> int:
        """Number of the visit among those to the node, from 1."""
        ...

    @property
    def goal(self) -> str | None:
        """The goal of the graph, if it has one."""
        ...

    @property
    def failures(self) -> Mapping[str, NodeFailure]:
        """The failures of nodes on the way to this visit, by node."""
        ...

    @property
    def talk(self) -> Talk[ContextT_contra]:
        """The conversation of this attempt, which begins when it is first needed."""
        ...

    def begin_attempt(self) -> None:
        """Forget the writes and messages of the attempt before."""
        ...

    def write(self, key: str, value: object) -> None:
        """Put a value into memory, where it stays whatever becomes of the node.

        Raises:
            ConfigurationError: the node declares the keys that it writes, and this is not among them.
            ValueNotStorable: the run is on record, and the value is not plain JSON.
        """
        ...
