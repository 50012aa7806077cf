"""The conversation of one branch of a graph, as a value."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, NotRequired

from pydantic import JsonValue, TypeAdapter
from pydantic_ai.messages import ModelMessage, ModelMessagesTypeAdapter
from pydantic_core import PydanticSerializationError
from typing_extensions import TypedDict

from fastroai.errors import ValueNotStorable
from fastroai.graphs.conversation.compaction import (
    Compaction,
    estimated_tokens,
    summary_message,
    tokens_in,
    without_payloads,
)
from fastroai.graphs.conversation.conversation import GraphConversation
from fastroai.graphs.conversation.markers import BranchDone, Done, Narrative, Recent, Untold


@dataclass(frozen=True, slots=True)
class Phase:
    """One visit to a node in a conversation: its messages and its result."""

    done: Done
    messages: tuple[ModelMessage, ...] = ()
    """Messages of the visit's agent calls, after the transition to it; empty if it called no agent."""
    compaction: Compaction | None = None
    """Compaction of the earlier history, if that got too long in this visit."""

    def to_json(self) -> dict[str, JsonValue]:
        """Return the phase as plain data. Earlier phases are not in it, so it can be stored for each visit.

        Raises:
            ValueNotStorable: a tool has returned a value that JSON cannot hold.
        """
        data: dict[str, Any] = {"node": self.done.node, "visit": self.done.visit}
        if self.done.wrote:
            data["wrote"] = dict(self.done.wrote)
        if self.done.failure is not None:
            data["failure"] = self.done.failure
        if self.messages:
            data["messages"] = self._messages_to_json()
        if self.compaction is not None:
            data["compaction"] = {"keep": self.compaction.keep, "summary": self.compaction.summary}
        return data

    def _messages_to_json(self) -> JsonValue:
        try:
            stored = ModelMessagesTypeAdapter.dump_python(list(self.messages), mode="json")
        except (PydanticSerializationError, ValueError) as error:
            what = f"the conversation of node {self.done.node!r}"
            raise ValueNotStorable(
                what, "", "ModelMessage", f"{error}; let tools return what pydantic can serialize"
            ) from error
        return [_without_defaults(message) for message in stored]

    @classmethod
    def from_json(cls, data: JsonValue) -> Phase:
        """Return the phase that `to_json` gave as plain data.

        Raises:
            ValidationError: the data is not a phase. This is pydantic's error, a `ValueError`.
        """
        stored = _STORED_PHASE.validate_python(data)
        compaction = stored.get("compaction")
        return cls(
            Done(stored["node"], stored["visit"], stored.get("wrote", {}), stored.get("failure")),
            tuple(ModelMessagesTypeAdapter.validate_python(stored.get("messages", []))),
            None if compaction is None else Compaction(compaction["keep"], compaction["summary"]),
        )


class _StoredCompaction(TypedDict):
    keep: int
    summary: str | None


class _StoredPhase(TypedDict):
    node: str
    visit: int
    wrote: NotRequired[dict[str, str]]
    failure: NotRequired[str]
    messages: NotRequired[list[Any]]
    compaction: NotRequired[_StoredCompaction]


_STORED_PHASE: TypeAdapter[_StoredPhase] = TypeAdapter(_StoredPhase)


def _without_defaults(message: dict[str, Any]) -> dict[str, Any]:
    """Return a message without fields that are `None` or 0, their default. That makes it half as long."""
    usage = {name: count for name, count in message.get("usage", {}).items() if count}
    parts = [
        {name: value for name, value in part.items() if value is not None or name == "content"}
        for part in message["parts"]
    ]
    kept = {name: value for name, value in message.items() if value is not None and name != "usage"}
    return {**kept, "parts": parts, **({"usage": usage} if usage else {})}


_CONTINUOUS: Final = GraphConversation()


@dataclass(frozen=True, slots=True)
class Thread:
    """The conversation of one branch of a graph so far: its messages and its visits.

        talk = Talk(thread, "reply", 1, focus="be short", goal="answer the ticket")
        ...  # agent calls go through talk.prepare and talk.heard
        thread = thread.add(talk.phase({"reply": "We are sorry."}))

    A thread never changes: its methods return new threads.
    """

    conversation: GraphConversation = _CONTINUOUS
    phases: tuple[Phase, ...] = field(default=(), repr=False)
    """Phases that have messages and are not part of the summary."""
    summary: str | None = None
    """Summary of the phases before `phases`; `None` if there is none."""
    narrative: Narrative = field(default=Narrative(), repr=False)
    untold: Untold = field(default=Untold(), repr=False)
    """Visits and branches that no transition in the history tells of yet."""
    in_branch: Recent = field(default=Recent(), repr=False)
    """Visits since the fork that this branch comes from."""
    compacted: int = 0
    """Number of oldest phases whose responses answered a longer history; their token counts are too high."""

    def add(self, phase: Phase) -> Thread:
        """Return the thread with one more visit, and with the compaction that happened in it."""
        if self.conversation.mode == "isolated":
            return self
        after = self if phase.compaction is None else self.compact(phase.compaction)
        return replace(
            after,
            phases=(*after.phases, phase) if phase.messages else after.phases,
            narrative=self.narrative.add(phase.done),
            untold=(Untold() if phase.messages else self.untold).add(phase.done),
            in_branch=self.in_branch.add(phase.done),
        )

    def fork(self) -> Thread:
        """Return the conversation of a branch that begins here."""
        return replace(self, in_branch=Recent())

    def join(self, branches: Sequence[tuple[str, Thread]]) -> Thread:
        """Return this thread after its branches, given as pairs of first node and thread.

        The next transition tells of each branch, in this order. Messages of the branches are not taken over.
        """
        narrative, in_branch = self.narrative, self.in_branch
        for _, branch in branches:
            in_branch = in_branch.extend(branch.in_branch)
            for done in branch.in_branch.visits:
                narrative = narrative.add(done)
        untold = self.untold.join(BranchDone(target, branch.in_branch) for target, branch in branches)
        return replace(self, narrative=narrative, untold=untold, in_branch=in_branch)

    def messages(self) -> list[ModelMessage]:
        """Return the history that a call begins with."""
        return self._history(self.phases)

    def older(self) -> list[ModelMessage]:
        """Return the messages that a compaction shortens; empty if all of them are kept."""
        kept = len(self.phases) - self.conversation.keep_phases
        return self._history(self.phases[:kept]) if kept > 0 else []

    def _history(self, phases: Sequence[Phase]) -> list[ModelMessage]:
        before = [] if self.summary is None else [summary_message(self.summary)]
        return [*before, *(message for phase in phases for message in phase.messages)]

    def compact(self, compaction: Compaction) -> Thread:
        """Return the thread with its older phases shortened, or this thread if that changes nothing."""
        split = max(0, len(self.phases) - compaction.keep)
        older, kept = self.phases[:split], self.phases[split:]
        if compaction.summary is not None:
            return replace(self, phases=kept, summary=compaction.summary, compacted=len(kept))
        shorter = tuple(replace(phase, messages=without_payloads(phase.messages)) for phase in older)
        if shorter == older:
            return self
        return replace(self, phases=(*shorter, *kept), compacted=len(self.phases))

    def tokens(self, since: Sequence[ModelMessage] = ()) -> int:
        """Return about how many tokens the history has, with the messages that have come `since`."""
        fresh = [message for phase in self.phases[self.compacted :] for message in phase.messages]
        known = tokens_in([*fresh, *since])
        return estimated_tokens([*self.messages(), *since]) if known is None else known
