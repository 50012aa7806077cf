"""Hashes of requests, which are equal if the requests ask the same."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any, Final

from pydantic_ai.messages import ModelMessage, ModelMessagesTypeAdapter
from pydantic_ai.models import ModelRequestParameters
from pydantic_ai.settings import ModelSettings
from pydantic_core import to_json, to_jsonable_python

from fastroai.usage.bounding.known_inputs import comparable

_VOLATILE: Final = frozenset({"timestamp", "run_id", "conversation_id", "metadata"})
"""Fields of messages that are not sent to a provider, and differ each time."""


def fingerprint(
    messages: Sequence[ModelMessage],
    settings: ModelSettings | None,
    parameters: ModelRequestParameters,
    asked_for: str = "",
) -> str:
    """Hash a request to a model: messages, settings, tools and output, without times and ids of runs."""
    sent = ModelMessagesTypeAdapter.dump_python(list(messages), mode="json", fallback=_name_of_type)
    asked: list[object] = [
        list(map(_without_volatile, sent)),
        settings or {},
        comparable(parameters),
        *([asked_for] if asked_for else []),
    ]
    text = to_json(to_jsonable_python(asked, fallback=_name_of_type, inf_nan_mode="constants"))
    return hashlib.sha256(text).hexdigest()


def _without_volatile(message: dict[str, Any]) -> dict[str, Any]:
    kept = {key: value for key, value in message.items() if key not in _VOLATILE}
    parts = [{key: value for key, value in part.items() if key not in _VOLATILE} for part in message["parts"]]
    return {**kept, "parts": parts}


def _name_of_type(value: object) -> str:
    return type(value).__qualname__
