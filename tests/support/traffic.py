"""Requests as applications make them, and what they would use. They are made up, not recorded.

The prose is that of Python's own help. There are as many runs of each kind. `max_tokens` is what
somebody sets who knows the answers: the longest ones just fit, and the others are evenly as short as a third
of it. A tool loop has one `max_tokens` for all its requests, as agents have, and its calls are short.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pydoc_data.topics import topics
from typing import Any, Literal

from pydantic import BaseModel, Field
from pydantic_ai import Tool
from pydantic_ai.messages import (
    InstructionPart,
    ModelMessage,
    ModelRequest,
    ModelResponse,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models import Model, ModelRequestParameters
from pydantic_ai.tools import ToolDefinition

from .bodies import body_of
from .cookbook import function_tokens, message_tokens, tokens

Kind = Literal["short chats", "RAG", "tool loops", "extraction", "long answers"]
KINDS: tuple[Kind, ...] = ("short chats", "RAG", "tool loops", "extraction", "long answers")
SHORTEST, LONGEST = 1 / 3, 1.0
"""Of `max_tokens`: the answers."""


@dataclass(frozen=True)
class Exchange:
    """One request, and the length of its answer."""

    kind: Kind
    messages: list[ModelMessage]
    max_tokens: int
    output_tokens: int
    parameters: ModelRequestParameters = field(default_factory=ModelRequestParameters)


def traffic(runs: int = 20, seed: int = 7) -> list[Exchange]:
    """So many runs of each kind; always the same."""
    made = _Traffic(random.Random(seed))
    return [exchange for _ in range(runs) for kind in KINDS for exchange in made.run(kind)]


async def openai_input_tokens(model: Model, exchange: Exchange) -> int:
    """What a model of OpenAI has as input, as OpenAI's cookbook counts it."""
    body = await body_of(model, exchange.messages, parameters=exchange.parameters)
    messages: list[dict[str, Any]] = list(body.get("messages") or body["input"])
    if "instructions" in body:
        messages.append({"role": "developer", "content": body["instructions"]})
    return message_tokens(messages) + function_tokens(
        [tool.get("function", tool) for tool in body.get("tools", [])]
    )


class Line(BaseModel):
    """One line of an invoice."""

    description: str
    quantity: int = Field(gt=0)
    unit_price: float = Field(description="Net, in the currency of the invoice")


class Invoice(BaseModel):
    """An invoice as its supplier sent it."""

    supplier: str = Field(description="Name of the company that sent it")
    number: str
    issued: str = Field(description="Date of issue, as YYYY-MM-DD")
    currency: Literal["EUR", "GBP", "USD"]
    lines: list[Line]
    total: float = Field(description="Gross")
    paid: bool = False


def find_orders(customer_id: str, since: str | None = None, limit: int = 10) -> str:
    """Find orders of a customer, the newest first.

    Args:
        customer_id: As in the ticket.
        since: Only those from this day on, as YYYY-MM-DD.
        limit: At most so many.
    """
    return ""


def track_parcel(order_id: str) -> str:
    """Where a parcel is, with all of its stations."""
    return ""


def search_help(query: str, language: Literal["de", "en", "fr"] = "en") -> str:
    """Search the help pages; answers with the best passages and their addresses."""
    return ""


def refund(order_id: str, cents: int, reason: Literal["damaged", "late", "wrong item", "other"]) -> str:
    """Pay back a part of an order. Ask the customer before you do it."""
    return ""


def write_note(ticket: int, text: str, tags: list[str]) -> str:
    """Leave a note for colleagues."""
    return ""


def hand_over(ticket: int, team: Literal["billing", "legal", "logistics"]) -> str:
    """Give the ticket to another team, if you cannot solve it."""
    return ""


TOOLS = [
    Tool(tool).tool_def for tool in (find_orders, track_parcel, search_help, refund, write_note, hand_over)
]
INVOICE = ToolDefinition(
    name="final_result",
    description="The final response which ends this conversation",
    parameters_json_schema=Invoice.model_json_schema(),
)
SUPPORT = (
    "You are the assistant of a shop for garden tools. Answer in the language of the customer, politely and "
    "in at most three short paragraphs. Never promise a refund before you have looked at the order. If you "
    "do not know something, say so, and offer to ask a colleague."
)
GROUNDED = (
    "Answer the question from the passages only. Name the passages that you used in brackets. If they do not "
    "hold the answer, say that you do not know."
)
EXTRACT = "Extract the invoice. Leave nothing out, and invent nothing."


def _size(calls: Sequence[ToolCallPart]) -> int:
    """Tokens of calls, and about as many as delimit them."""
    return sum(tokens(call.tool_name) + tokens(call.args_as_json_str()) + 8 for call in calls)


class _Traffic:
    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self._passage = random.Random(1)  # its own, so that other prose leaves the rest as it is
        self._passages = [text for page in topics.values() for text in page.split("\n\n") if len(text) > 120]

    def run(self, kind: Kind) -> Iterator[Exchange]:
        if kind == "short chats":
            yield from self._chat()
        elif kind == "RAG":
            passages = "\n\n".join(f"[{number}] {self._prose(1_600)}" for number in range(self._pick(4, 9)))
            question = [ModelRequest(parts=[UserPromptPart(f"{passages}\n\nQuestion: {self._sentence()}")])]
            yield self._exchange(kind, question, 400, instructions=GROUNDED)
        elif kind == "tool loops":
            yield from self._tool_loop()
        elif kind == "extraction":
            text = [ModelRequest(parts=[UserPromptPart(self._invoice())])]
            yield self._exchange(kind, text, 500, instructions=EXTRACT, output=[INVOICE])
        else:
            task = f"Write an article of a thousand words on this:\n\n{self._prose(800)}"
            yield self._exchange(kind, [ModelRequest(parts=[UserPromptPart(task)])], 2_000)

    def _chat(self) -> Iterator[Exchange]:
        history: list[ModelMessage] = []
        for _ in range(self._pick(1, 5)):
            history.append(ModelRequest(parts=[UserPromptPart(self._sentence())]))
            yield self._exchange("short chats", history, 250, instructions=SUPPORT)
            history.append(ModelResponse(parts=[TextPart(self._prose(500))]))

    def _tool_loop(self) -> Iterator[Exchange]:
        tools = self._chance.sample(TOOLS, self._pick(3, 6))
        messages: list[ModelMessage] = [ModelRequest(parts=[UserPromptPart(self._prose(400))])]
        for turn in range(self._pick(1, 3)):
            calls = [
                ToolCallPart(
                    tool.name, self._arguments(), tool_call_id=f"call_{turn}{number}abcdefghijklmnop"
                )
                for number, tool in enumerate(self._chance.sample(tools, self._pick(1, 2)))
            ]
            results = [
                ToolReturnPart(call.tool_name, self._orders(), tool_call_id=call.tool_call_id)
                for call in calls
            ]
            yield self._exchange("tool loops", messages, 400, SUPPORT, tools, output_tokens=_size(calls))
            messages += [ModelResponse(parts=calls), ModelRequest(parts=results)]
        yield self._exchange("tool loops", messages, 400, SUPPORT, tools)

    def _exchange(
        self,
        kind: Kind,
        messages: Sequence[ModelMessage],
        max_tokens: int,
        instructions: str = "You are helpful.",
        tools: Sequence[ToolDefinition] = (),
        output: Sequence[ToolDefinition] = (),
        output_tokens: int | None = None,
    ) -> Exchange:
        answer = int(max_tokens * self._chance.uniform(SHORTEST, LONGEST))
        parameters = ModelRequestParameters(
            function_tools=list(tools),
            output_tools=list(output),
            output_mode="tool" if output else "text",
            instruction_parts=[InstructionPart(content=instructions)],
        )
        return Exchange(kind, list(messages), max_tokens, output_tokens or answer, parameters)

    def _pick(self, least: int, most: int) -> int:
        return self._chance.randint(least, most)

    def _prose(self, letters: int) -> str:
        text = ""
        while len(text) < letters:
            text += self._passage.choice(self._passages) + "\n\n"
        return text[:letters]

    def _sentence(self) -> str:
        return self._prose(self._pick(60, 200))

    def _arguments(self) -> dict[str, object]:
        return {"order_id": f"A-{self._pick(10_000, 99_999)}", "limit": self._pick(1, 10), "language": "en"}

    def _orders(self) -> list[dict[str, object]]:
        return [
            {
                "order_id": f"A-{self._pick(10_000, 99_999)}",
                "ordered": f"2026-0{self._pick(1, 9)}-{self._pick(10, 28)}",
                "items": self._sentence(),
                "total": self._pick(500, 50_000) / 100,
                "delivered": self._chance.random() < 0.5,
            }
            for _ in range(self._pick(1, 6))
        ]

    def _invoice(self) -> str:
        return (
            f"Invoice {self._pick(1_000, 9_999)}\n{self._prose(900)}\n{json.dumps(self._orders(), indent=1)}"
        )
