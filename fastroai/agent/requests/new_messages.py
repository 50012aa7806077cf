"""The messages that a request adds to its conversation, for the log of the run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Self

from pydantic import JsonValue
from pydantic_ai.messages import ModelMessage, ModelMessagesTypeAdapter, ModelRequest, ModelResponse

_LEFT_OUT: Final = {"__all__": {"timestamp", "run_id", "conversation_id", "metadata", "state"}}
"""Fields of messages that are not sent to a model, and that the fact or the response beside it has."""


@dataclass(frozen=True, slots=True)
class NewMessages:
    """What a request adds to its conversation, encoded only when it is read or stored."""

    messages: Sequence[ModelMessage]
    history: int
    """Number of messages in the request before them."""
    knows_instructions: bool
    """Whether an earlier request of the same run of the agent had the same instructions."""

    @classmethod
    def of(cls, messages: Sequence[ModelMessage]) -> Self:
        """Return the messages of a request after its last response."""
        history = len(messages)
        while history and not isinstance(messages[history - 1], ModelResponse):
            history -= 1
        new = messages[history:]
        before = next((one for one in reversed(messages[:history]) if isinstance(one, ModelRequest)), None)
        return cls(new, history, before is not None and all(_is_instructed_as(one, before) for one in new))

    def to_json(self) -> JsonValue:
        """Return the messages as PydanticAI stores them, but for binary data and what is not sent."""
        told: list[Any] = ModelMessagesTypeAdapter.dump_python(
            list(self.messages), mode="json", exclude=_LEFT_OUT, exclude_none=True, fallback=repr
        )
        for message in told:
            if self.knows_instructions:
                message.pop("instructions", None)
            for part in message["parts"]:
                if not isinstance(content := part.get("content", ""), str):
                    part["content"] = _without_binary(content)
        return told


def _is_instructed_as(message: ModelMessage, before: ModelRequest) -> bool:
    return (
        isinstance(message, ModelRequest)
        and message.run_id == before.run_id
        and message.instructions == before.instructions
    )


def _without_binary(content: Any) -> Any:
    """Return the content of a part with the kind and the size of images and files in place of their data."""
    if isinstance(content, list):
        return [_without_binary(one) for one in content]
    if not isinstance(content, dict):
        return content
    data, media_type = content.get("data"), content.get("media_type")
    if content.get("kind") == "binary" and isinstance(data, str) and isinstance(media_type, str):
        size = len(data) // 4 * 3 - data[-2:].count("=")
        return f"[{media_type}, {size:,} bytes]"
    return {name: _without_binary(one) for name, one in content.items()}
