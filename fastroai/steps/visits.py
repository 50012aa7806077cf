"""What a step knows of its visit to a node of a graph, beyond inputs and outputs."""

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


class NodeVisit(Protocol[ContextT_contra]):
    """The visit to a node that a step runs in, as its context asks for it.

    `ContextT_contra` is the context that the step of the node is given.
    """

    @property
    def number(self) -> int:
        """Its number among the visits to the node, from 1."""
        ...

    @property
    def goal(self) -> str | None:
        """What the graph is to achieve, if it says so."""
        ...

    @property
    def failures(self) -> Mapping[str, NodeFailure]:
        """The failures of nodes on the way to this visit, by node."""
        ...

    @property
    def talk(self) -> Talk[ContextT_contra]:
        """The conversation of this attempt; it begins when it is first needed."""
        ...

    def begin_attempt(self) -> None:
        """Forget what an attempt before has written and said."""
        ...

    def write(self, key: str, value: object) -> None:
        """Put a value into memory, whatever becomes of the node.

        Raises:
            ConfigurationError: the node declares what it writes, and this is not among it.
            ValueNotStorable: the run is on record, and the value has no form in JSON.
        """
        ...
