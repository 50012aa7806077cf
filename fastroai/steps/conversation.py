"""Conversations with users: a step may need more from the user before the pipeline can go on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import UnionType
from typing import Any, ClassVar, Generic, TypeVar, Union, get_args, get_origin

from pydantic import ConfigDict

from fastroai.errors import ConfigurationError

DataT = TypeVar("DataT")


class ConversationStatus(StrEnum):
    """Status of a conversation with a user: `COMPLETE`, or `INCOMPLETE` if more is needed from the user.

    It is the `status` of a `ConversationState`. With `INCOMPLETE`, the run of the pipeline pauses; in a
    graph, it is an error. Members are text: `"complete"`, `"incomplete"`.
    """

    COMPLETE = "complete"
    INCOMPLETE = "incomplete"


@dataclass(frozen=True)
class ConversationState(Generic[DataT]):
    """The output of a step that talks to a user over several runs.

    A step that returns it as `INCOMPLETE` stops the pipeline early: no other step starts, running steps
    finish, and the status of the run is `paused`. `result.conversation_state` has the state, and `resume`
    starts the step again. Dependents of a `COMPLETE` state receive the state, not only its `data`. In a
    graph, an incomplete state is an error.

    `data` is the information so far, and `context` is for anything else that the next run needs.

    Raises:
        ConfigurationError: the status is neither a `ConversationStatus` nor its text.
    """

    status: ConversationStatus
    """A `ConversationStatus`, or its text: `"complete"`, `"incomplete"`."""
    data: DataT | None = None
    context: Mapping[str, object] = field(default_factory=dict)

    def __post_init__(self) -> None:
        try:
            object.__setattr__(self, "status", ConversationStatus(self.status))
        except ValueError:
            raise ConfigurationError("status", self.status, "'complete' or 'incomplete'") from None

    @property
    def is_incomplete(self) -> bool:
        """Whether the status is `INCOMPLETE`: more is needed from the user, so the pipeline stops for now."""
        return self.status is ConversationStatus.INCOMPLETE

    # By default, pydantic takes any instance of a dataclass as valid. `ConversationState[T]` checks the data.
    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(
        arbitrary_types_allowed=True, revalidate_instances="always"
    )


def state_in(declared: Any) -> Any:
    """Return the state in a declared type such as `Order | ConversationState[Order]`; any if it has none."""
    members = get_args(declared) if get_origin(declared) in (Union, UnionType) else (declared,)
    states = (member for member in members if (get_origin(member) or member) is ConversationState)
    return next(states, ConversationState)
