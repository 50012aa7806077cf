"""What of the messages of one agent goes on to the next."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

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

_STAYS: Final = (
    SystemPromptPart,
    InstructionBaselinePart,
    InstructionDeltaPart,
    ModelSettingsDeltaPart,
    ToolAvailabilityDeltaPart,
)
"""Who an agent is, and PydanticAI's notes on its instructions, settings and tools."""
_NOTHING_SAID: Final = "(no prompt)"


def travelling(messages: Sequence[ModelMessage]) -> list[ModelMessage]:
    """Without what belongs to the agent that they come from, and with no call of a tool left open.

    No response id either: a provider that went on from one would have the other agent's system prompt and
    all that was compacted since, or refuse an id that was not stored.
    """
    return repair_messages([_travelling(message) for message in messages])


def _travelling(message: ModelMessage) -> ModelMessage:
    if not isinstance(message, ModelRequest):
        return replace(message, provider_response_id=None, history_digest=None)
    parts = [part for part in message.parts if not isinstance(part, _STAYS)]
    # A history must not begin with a response.
    return replace(message, parts=parts or [UserPromptPart(_NOTHING_SAID)], instructions=None)
