"""The messages of one agent as the next agent gets them."""

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
"""Parts that belong to one agent: its system prompt, and PydanticAI's notes on its settings and tools."""
_NOTHING_SAID: Final = "(no prompt)"


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
