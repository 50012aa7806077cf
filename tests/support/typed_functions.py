"""What tests of typed functions share: a contract, and what was on the wire, part by part."""

from __future__ import annotations

import json
from collections.abc import Sequence
from decimal import Decimal
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field

from fastroai.functions import contract
from fastroai.testing import LedgerEntry, ModelServer, Reply
from support.accounting import listed_cost

DATA = "DATA. "
"""How a data part begins."""


@contract
class Sentiment(BaseModel):
    label: Literal["positive", "negative", "neutral"]
    confidence: Annotated[float, Field(ge=0, le=1)]


def sentiment(label: str = "positive", confidence: float = 0.9) -> Reply:
    """A reply of the model server."""
    return Reply(data={"label": label, "confidence": confidence})


def listed_costs(server: ModelServer) -> Decimal:
    """What all that the server has billed costs by the published prices."""
    return sum((listed_cost(entry) for entry in server.ledger.entries if entry.billed), Decimal(0))


def said_to_model(entry: LedgerEntry) -> list[str]:
    """Every text of the request that is not the model's own: parts of messages, tool returns, definitions."""
    body = entry.body
    texts = [body.get("instructions"), body.get("system")]
    for message in body.get("input") or body.get("messages") or ():
        if message.get("role") != "assistant" and message.get("type") != "function_call":
            texts += _texts(message.get("content", message.get("output")))
    texts += [json.dumps(body.get("tools", []))]
    return [text for text in texts if isinstance(text, str)]


def _texts(content: Any) -> Sequence[Any]:
    if not isinstance(content, list):
        return [content]
    return [text for part in content for text in _texts(part.get("text", part.get("content")))]


def instructions_to(entry: LedgerEntry) -> list[str]:
    """Those texts of a request that are no data part."""
    return [text for text in said_to_model(entry) if not text.startswith(DATA)]


def data_for(entry: LedgerEntry) -> dict[str, Any]:
    """What the data parts of a request hold."""
    data: dict[str, Any] = {}
    for text in said_to_model(entry):
        if text.startswith(DATA):
            data |= json.loads(text.partition("\n")[2])
    return data
