"""One attempt at a node in a conversation: the history of its calls, and the messages that it adds."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from pydantic_ai.capabilities import ReinjectSystemPrompt
from pydantic_ai.messages import (
    InstructionBaselinePart,
    InstructionDeltaPart,
    ModelMessage,
    ModelRequest,
    ModelSettingsDeltaPart,
    SystemPromptPart,
    ToolAvailabilityDeltaPart,
    UserPromptPart,
    repair_messages,
)

from fastroai.calls.call import AgentCall
from fastroai.graphs.conversation.compaction import Compaction, summarize
from fastroai.graphs.conversation.markers import Done, Narrative, layers
from fastroai.graphs.conversation.thread import Phase, Thread
from fastroai.runtime.retrying.failures import stops
from fastroai.steps import StepContext
from fastroai.steps.context import scope_of
from fastroai.tracing.attributes import error_summary

_STAYS: Final = (
    SystemPromptPart,
    InstructionBaselinePart,
    InstructionDeltaPart,
    ModelSettingsDeltaPart,
    ToolAvailabilityDeltaPart,
)
"""Parts that belong to one agent: its system prompt, and PydanticAI's notes on its settings and tools."""
_NOTHING_SAID: Final = "(no prompt)"


class Talk:
    """Gives the agent calls of one attempt at a node their history and their layers of prompt.

    Calls that a node makes at the same time have the same history. Their messages are added in the order in
    which the calls were answered.
    """

    def __init__(
        self, thread: Thread, node: str, visit: int, *, focus: str | None = None, goal: str | None = None
    ) -> None:
        """Begin an attempt at this visit to a node, in the conversation of its branch."""
        self._thread, self._node, self._visit, self._goal = thread, node, visit, goal
        self._is_shared = thread.conversation.mode == "continuous"
        self._layers = layers(goal, thread.narrative if self._is_shared else Narrative(), focus)
        self._messages: list[ModelMessage] = []
        if self._is_shared and thread.untold:
            told = thread.untold.transition(node, focus)
            self._messages.append(ModelRequest(parts=[UserPromptPart(text) for text in told]))
        self._heard = False
        self._compaction: Compaction | None = None
        self._was_too_long = False
        self._compacting = asyncio.Lock()

    async def prepare(self, call: AgentCall, context: StepContext[Any]) -> AgentCall:
        """Return the call with the history and the instructions of this conversation.

        Raises:
            BudgetExceeded: the summarizer met a budget that is set above this node.
        """
        call = call.with_options(instructions=_composed(call.options.get("instructions"), self._layers))
        if not self._is_shared:
            return call
        async with self._compacting:
            await self._compact(context)
        history = [*self._thread.messages(), *self._messages]
        if not history:
            return call
        # The history has no system prompt, and PydanticAI does not add the agent's own to a history.
        own_system_prompt = ReinjectSystemPrompt[Any]()
        capabilities = [*(call.options.get("capabilities") or ()), own_system_prompt]
        return replace(call.with_options(capabilities=capabilities), message_history=history)

    def heard(self, messages: Sequence[ModelMessage]) -> None:
        """Add the new messages of a call that was answered."""
        if self._is_shared:
            self._messages.extend(handed_over(messages))
            self._heard = True

    def phase(self, wrote: Mapping[str, object], failure: BaseException | None = None) -> Phase:
        """Return this visit as a phase of the conversation. The phase of a failed visit has no messages."""
        said = tuple(self._messages) if self._heard and failure is None else ()
        return Phase(Done.of(self._node, self._visit, wrote, failure), said, self._compaction)

    async def _compact(self, context: StepContext[Any]) -> None:
        """Compact a long history, at most once in a visit, as its older phases do not grow in that time."""
        limit = self._thread.conversation.compact_above
        if limit is None or self._was_too_long or self._thread.tokens(self._messages) <= limit:
            return
        self._was_too_long = True
        self._compaction = await self._shorter(context)
        if self._compaction is not None:
            self._thread = self._thread.compact(self._compaction)
        left = self._thread.tokens(self._messages)
        if left > limit:
            context.logger.warning(
                "the conversation has about %d tokens, above compact_above=%d; what is left of it is kept",
                left,
                limit,
            )

    async def _shorter(self, context: StepContext[Any]) -> Compaction | None:
        """Return how the older messages get shorter: by a summary, else without results of tools."""
        keep, older = self._thread.conversation.keep_phases, self._thread.older()
        if not older:
            return None
        if (summarizer := self._thread.conversation.summarizer) is not None:
            failure = "it is empty"
            try:
                if summary := await summarize(summarizer, older, self._goal, context):
                    return Compaction(keep, summary)
            except Exception as error:
                if stops(scope_of(context).parent, error):
                    raise
                failure = error_summary(error)
            context.logger.warning(
                "the conversation could not be summarized, so results of tools are dropped: %s", failure
            )
        dropped = Compaction(keep)
        return None if self._thread.compact(dropped) is self._thread else dropped


def _composed(said: Any, layers: Sequence[str]) -> Any:
    """Return the instructions of the call, followed by the layers."""
    if not layers:
        return said
    if said is None:
        return list(layers)
    return [*said, *layers] if isinstance(said, list | tuple) else [said, *layers]


def handed_over(messages: Sequence[ModelMessage]) -> list[ModelMessage]:
    """Return the messages without the parts that belong to their agent, and with no tool call left open.

    Response ids are left out, too. A provider that continued from one would use the other agent's system
    prompt and messages that were compacted since, or refuse an id that it has not stored.
    """
    return repair_messages([_handed_over(message) for message in messages])


def _handed_over(message: ModelMessage) -> ModelMessage:
    if not isinstance(message, ModelRequest):
        return replace(message, provider_response_id=None, history_digest=None)
    parts = [part for part in message.parts if not isinstance(part, _STAYS)]
    # A history must not begin with a response.
    return replace(message, parts=parts or [UserPromptPart(_NOTHING_SAID)], instructions=None)
