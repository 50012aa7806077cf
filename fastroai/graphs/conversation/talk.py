"""What one attempt at a node hears of a conversation, and adds to it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from pydantic_ai.capabilities import ReinjectSystemPrompt
from pydantic_ai.messages import ModelMessage, ModelRequest, UserPromptPart

from fastroai.calls.call import AgentCall
from fastroai.graphs.conversation.compaction import Compaction, summarize
from fastroai.graphs.conversation.markers import Done
from fastroai.graphs.conversation.prompt_layers import Narrative, layers
from fastroai.graphs.conversation.thread import Phase, Thread
from fastroai.graphs.conversation.travelling import travelling
from fastroai.runtime.failures import stops
from fastroai.steps import StepContext
from fastroai.tracing.attributes import error_summary


class Talk:
    """It gives agent calls their history and their layers of prompt.

    Calls that a node makes at the same time have the same history; their messages follow each other in the
    order in which they were answered.
    """

    def __init__(
        self, thread: Thread, node: str, visit: int, *, focus: str | None = None, goal: str | None = None
    ) -> None:
        """Of the attempt at this visit to a node, in the conversation of its branch."""
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
        """The call with the history and the instructions that it has here.

        Raises:
            BudgetExceeded: the summarizer met a budget that is set above this node.
        """
        call = replace(call, instructions=_composed(call.instructions, self._layers))
        if not self._is_shared:
            return call
        async with self._compacting:
            await self._compact(context)
        history = [*self._thread.messages(), *self._messages]
        if not history:
            return call
        # The history has no system prompt, and PydanticAI adds the agent's own only where there is none.
        own_system_prompt = ReinjectSystemPrompt[Any]()
        capabilities = [*(call.capabilities or ()), own_system_prompt]
        return replace(call, message_history=history, capabilities=capabilities)

    def heard(self, messages: Sequence[ModelMessage]) -> None:
        """The new messages of a call that was answered."""
        if self._is_shared:
            self._messages.extend(travelling(messages))
            self._heard = True

    def phase(self, wrote: Mapping[str, object], failure: BaseException | None = None) -> Phase:
        """This visit as part of the conversation; of one that failed, nothing that was said in it."""
        said = tuple(self._messages) if self._heard and failure is None else ()
        return Phase(Done.of(self._node, self._visit, wrote, failure), said, self._compaction)

    async def _compact(self, context: StepContext[Any]) -> None:
        """Once in a visit, at most: what is older does not grow in it."""
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
        keep, older = self._thread.conversation.keep_phases, self._thread.older()
        if not older:
            return None
        summary = await self._summary(older, context)
        if summary is not None:
            return Compaction(keep, summary)
        dropped = Compaction(keep)
        return None if self._thread.compact(dropped) is self._thread else dropped

    async def _summary(self, older: Sequence[ModelMessage], context: StepContext[Any]) -> str | None:
        """`None` where nobody is to write one, or could not."""
        summarizer = self._thread.conversation.summarizer
        if summarizer is None:
            return None
        failure = "it is empty"
        try:
            summary = await summarize(summarizer, older, self._goal, context)
        except Exception as error:
            if stops(context.scope.parent, error):
                raise
            summary, failure = "", error_summary(error)
        if summary:
            return summary
        context.logger.warning("no summary of the conversation, so tool results are dropped: %s", failure)
        return None


def _composed(said: object, layers: Sequence[str]) -> object:
    """Instructions of the call, then the layers."""
    if not layers:
        return said
    if said is None:
        return list(layers)
    return [*said, *layers] if isinstance(said, list | tuple) else [said, *layers]
