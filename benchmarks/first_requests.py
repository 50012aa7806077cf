"""How much budget the first request of an agent needs, as a multiple of its bill.

The first figure pays for the whole answer: the bound of the input, or the provider's own count with its
margin, and the answer at its price. The second is what a budget with `admission="expected"` reserves.

The bills are documented or measured by others, not taken from the tables that the figures are made of, except
for the rules of images and the prices:

- Texts: OpenAI's tokenizer for its own models. For others, in the proportion of one page of text as measured
  in October 2026 (https://huggingface.co/datasets/JOHNISKING/pdf-token-cost): OpenAI has 461 tokens, Claude
  Haiku 4.5 has 503, and Gemini has 455.
- PDFs: pages of text, of the same measurement: 2,100 for Claude Haiku 4.5, 560 for Gemini 3. For OpenAI, the
  text alone, as a recorded PDF was billed: 23 tokens for a page and its prompt, in the cassette
  test_document_url_input_response_api of https://github.com/pydantic/pydantic-ai.
- Tools: as OpenAI's cookbook counts them; for Claude, the prompt for tools that Anthropic documents besides.
- A web search: 8,000 tokens, as OpenAI documents for small models.
- Answers: 100 tokens, "one paragraph" by OpenAI's help page, and 300, three of them.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from io import BytesIO
from math import ceil
from typing import Any

from pydantic_ai.messages import (
    BinaryContent,
    ImageUrl,
    ModelMessage,
    ModelRequest,
    ModelResponse,
    TextPart,
    UserPromptPart,
)
from pydantic_ai.models import Model, ModelRequestParameters
from pydantic_ai.models.google import GoogleModel
from pydantic_ai.models.openrouter import OpenRouterModel
from pydantic_ai.native_tools import WebSearchTool
from pydantic_ai.providers.google import GoogleProvider
from pydantic_ai.providers.openrouter import OpenRouterProvider
from pydantic_ai.settings import ModelSettings
from pydantic_ai.tools import ToolDefinition
from pydantic_ai.usage import RequestUsage
from support.bodies import chat_model, claude_model, responses_model
from support.traffic import Exchange, openai_input_tokens

from benchmarks.measure import Row
from fastroai.agent import Metered
from fastroai.agent.requests.request_terms import Terms
from fastroai.usage import CostCalculator, RequestBound, base_url_of, request_bound
from fastroai.usage.bounding.bounds import AskedRequest
from fastroai.usage.bounding.tokenizers import tokenizer_of

CALCULATOR = CostCalculator()
ANSWERS = (100, 300)
PARAGRAPH = (
    "The quarterly report shows that revenue grew by twelve percent while costs stayed flat, and the board "
    "asked for a plan. "
)
TOKENS_OF_PAGE = {"openai": 461, "anthropic": 503, "google": 455, "openrouter": 503}
TOKENS_OF_PDF_PAGE = {"openai": 461, "anthropic": 2_100, "google": 560}
TOOLS_OF_CLAUDE = 346
TOKENS_OF_SEARCH = 8_000
PAGES = 5


@dataclass(frozen=True)
class Case:
    """A first request, and the tokens that it is billed."""

    name: str
    model: Model
    messages: list[ModelMessage]
    parameters: ModelRequestParameters
    billed_input: int
    searches: int = 0


@dataclass(frozen=True)
class Needed:
    """What a budget needs for a first request, as multiples of its bill."""

    bound: float | None
    """For the whole answer, by the bound alone; `None` if nothing bounds the request."""
    counted: float | None
    """The same with the provider's count of the input; `None` if the provider does not count it for free."""
    expected: tuple[float, ...]
    """What is expected, for the shorter and the longer answer."""


def models() -> Iterator[Model]:
    """Yield the models of the table."""
    yield responses_model("gpt-5-mini")
    yield chat_model("gpt-5-mini")
    yield claude_model("claude-haiku-4-5")
    yield GoogleModel("gemini-3-flash-preview", provider=GoogleProvider(api_key="none"))
    yield OpenRouterModel("anthropic/claude-sonnet-4.5", provider=OpenRouterProvider(api_key="none"))


async def cases(model: Model) -> AsyncIterator[Case]:
    """Yield the requests to a model, with their bills."""
    maker = "openai" if model.system == "openai" else model.system
    ratio = TOKENS_OF_PAGE[maker] / TOKENS_OF_PAGE["openai"]
    plain = ModelRequestParameters()

    async def case(
        name: str, messages: list[ModelMessage], parameters: ModelRequestParameters = plain, **more: int
    ) -> Case:
        exchange = Exchange(name, messages, 100, 100, parameters)
        counted = await openai_input_tokens(responses_model(), _texts_of(exchange))
        tools = TOOLS_OF_CLAUDE if "claude" in model.model_name and parameters.function_tools else 0
        files = more.get("files", 0) + more.get("searches", 0) * TOKENS_OF_SEARCH
        return Case(
            name, model, messages, parameters, ceil(counted * ratio) + tools + files, more.get("searches", 0)
        )

    question = "Explain in a paragraph why the sky is blue."
    yield await case("a question", _asked(question))
    yield await case("a question, with 2 KB of text", _asked(PARAGRAPH * 17 + question))
    tools = ModelRequestParameters(function_tools=[_tool(number) for number in range(10)])
    yield await case("a question, with 10 tools", _asked(question), tools)
    yield await case("80 messages", [*_history(), *_asked("And now?")])
    if maker == "openrouter":
        return
    image = {"openai": 1_244, "anthropic": 1_036, "google": 1_120}[maker]
    yield await case("an image of 1,024 x 768", _asked("What is it?", IMAGE), files=image)
    if maker != "google":
        yield await case(
            "the same image, by its URL",
            _asked("What is it?", ImageUrl("https://example.com/a.png")),
            files=image,
        )
    yield await case(
        f"a PDF of {PAGES} pages", _asked("Summarise.", PDF), files=PAGES * TOKENS_OF_PDF_PAGE[maker]
    )
    if "Chat" not in type(model).__name__:
        search = ModelRequestParameters(native_tools=[WebSearchTool()])
        yield await case("a web search", _asked("What is new?"), search, searches=1)


def needed(case: Case) -> Needed:
    """Return what a budget needs for a request."""
    bills = [_bill(case, answer) for answer in ANSWERS]
    terms = Terms(Metered(), case.model, case.messages, _SETTINGS, case.parameters, streamed=False)
    expected = terms.expected_usd
    assert expected is not None
    return Needed(
        bound=_worst(_bound(case), bills),
        counted=_worst(_counted(case), bills),
        expected=tuple(float(expected / bill) for bill in bills),
    )


_SETTINGS = ModelSettings(service_tier="default")


def _bound(case: Case, most_counted: int | None = None) -> RequestBound:
    return request_bound(
        CALCULATOR, case.model, case.messages, _SETTINGS, case.parameters, most_counted=most_counted
    )


def _counted(case: Case) -> RequestBound | None:
    if CALCULATOR.host(case.model).count_endpoint is None or type(case.model) is type(chat_model()):
        return None
    asked = AskedRequest(CALCULATOR, case.model, case.messages, _SETTINGS, case.parameters)
    parts = asked.input_parts
    left_out = {"instructions", "tools"} if case.model.system == "google" else set()
    counts = case.billed_input - sum(part.tokens or 0 for part in parts if part.kind in left_out) // 4
    return _bound(case, asked.most_by_count(max(counts, 1), parts))


def _worst(bound: RequestBound | None, bills: Sequence[Decimal]) -> float | None:
    if bound is None or bound.prices is None:
        return None
    costs = [bound.prices.cost(bound.input_tokens, answer) for answer in ANSWERS]
    return max(float(cost / bill) for cost, bill in zip(costs, bills, strict=True) if cost is not None)


def _bill(case: Case, output_tokens: int) -> Decimal:
    usage = RequestUsage(
        input_tokens=case.billed_input, output_tokens=output_tokens, web_searches=case.searches
    )
    cost = CALCULATOR.cost_of_usage(
        usage, model=case.model.model_name, provider=case.model.system, provider_url=base_url_of(case.model)
    )
    return cost.cost_usd or Decimal("NaN")


def _asked(*content: Any) -> list[ModelMessage]:
    return [ModelRequest(parts=[UserPromptPart(content[0] if len(content) == 1 else list(content))])]


def _texts_of(exchange: Exchange) -> Exchange:
    """The exchange without files and native tools, whose tokens are added apart."""
    messages = [
        ModelRequest(parts=[UserPromptPart(part.content[0])])
        if isinstance(part := message.parts[0], UserPromptPart) and not isinstance(part.content, str)
        else message
        for message in exchange.messages
    ]
    parameters = ModelRequestParameters(function_tools=exchange.parameters.function_tools)
    return Exchange(exchange.kind, messages, 100, 100, parameters)


def _history() -> list[ModelMessage]:
    usage = RequestUsage(input_tokens=200, output_tokens=75)
    return [
        message
        for _ in range(40)
        for message in (
            *_asked(PARAGRAPH * 2),
            ModelResponse(parts=[TextPart(PARAGRAPH * 3)], usage=usage),
        )
    ]


def _tool(number: int) -> ToolDefinition:
    return ToolDefinition(
        name=f"search_records_{number}",
        description="Search the company's records and return the matching entries as text.",
        parameters_json_schema={
            "type": "object",
            "properties": {
                "query": {"type": "string", "description": "What to look for."},
                "limit": {"type": "integer", "description": "The most entries.", "default": 10},
                "since": {"anyOf": [{"type": "string"}, {"type": "null"}], "description": "A date."},
            },
            "required": ["query"],
            "additionalProperties": False,
        },
    )


def _png(width: int, height: int) -> bytes:
    rows = b"".join(b"\0" + b"\x80" * (width * 3) for _ in range(height))

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", head)
        + chunk(b"IDAT", zlib.compress(rows))
        + chunk(b"IEND", b"")
    )


def _pdf(pages: int) -> bytes:
    from pypdf import PdfWriter

    writer, data = PdfWriter(), BytesIO()
    for _ in range(pages):
        writer.add_blank_page(612, 792)
    writer.write(data)
    return data.getvalue()


IMAGE = BinaryContent(_png(1_024, 768), media_type="image/png")
PDF = BinaryContent(_pdf(PAGES), media_type="application/pdf")


async def table() -> AsyncIterator[tuple[Case, Needed]]:
    """Yield each request with what it needs."""
    from fastroai.usage.bounding.pdf_sizes import PDF_SIZES

    tokenizer_of("gpt-5-mini")  # loaded
    PDF_SIZES.prepare(PDF.data)
    for model in models():
        async for case in cases(model):
            yield case, needed(case)


async def markdown() -> str:
    """Return the table of docs/reference/bounds.md: a line for each request."""
    columns = ["gpt-5-mini", "claude-haiku-4-5", "gemini-3-flash-preview", "anthropic/claude-sonnet-4.5"]
    cells: dict[str, dict[str, str]] = {}
    expected: dict[str, list[tuple[float, ...]]] = {}
    async for case, found in table():
        shown = "" if found.bound is None else f"{found.bound:.1f}"
        if found.counted is not None and f"{found.counted:.1f}" != shown:
            shown = f"{found.counted:.1f}; {shown}"
        cells.setdefault(case.name, {}).setdefault(case.model.model_name, shown or "refused")
        expected.setdefault(case.name, []).append(found.expected)
    lines = []
    for name, row in cells.items():
        short, long = (max(each[number] for each in expected[name]) for number in (0, 1))
        line = [name, *(row.get(column, "") for column in columns), f"{long:.1f}; {short:.1f}"]
        lines.append(f"| {' | '.join(line)} |")
    return "\n".join(lines)


async def needed_over_billed() -> AsyncIterator[Row]:
    async for case, found in table():
        best = min((each for each in (found.bound, found.counted) if each is not None), default=None)
        name = f"{case.model.model_name} ({type(case.model).__name__}): {case.name}"
        expected = " to ".join(f"{each:.1f}" for each in sorted(found.expected))
        counted = "" if found.counted is None else f"{found.counted:.1f} counted"
        yield Row(name, f"{expected} expected", counted, found.bound, "≤ 3", best is not None and best <= 3)


BENCHMARKS = (needed_over_billed,)
