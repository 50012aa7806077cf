"""Input tokens that are billed besides the texts themselves: delimiters, and hidden prompts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from typing import Final

from fastroai.usage.facts.source import STRICT, NamedSource, Source, TokenCount

_CHECKED: Final = date(2026, 11, 22)
_COOKBOOK: Final = (
    "https://github.com/openai/openai-cookbook/blob/main/examples/How_to_count_tokens_with_tiktoken.ipynb"
)
_CASSETTES: Final = "https://github.com/pydantic/pydantic-ai/tree/main/tests/models/cassettes"


@dataclass(frozen=True, slots=True, kw_only=True)
class Allowances:
    """Input tokens that are billed besides the texts themselves: delimiters, and hidden prompts.

    Every number covers the documented or measured tokens, with a margin; bounds include it.
    """

    __pydantic_config__ = STRICT
    request: int
    """Tokens of each request, once."""
    tools: int
    """Tokens of a request with tools, once."""
    output_format: int
    """Tokens of a request whose answer has a schema, once."""
    message: int
    """Tokens for each text that is sent as a message, or as a part of one."""
    call: int
    """Tokens for each tool call of the history, besides its name and arguments."""
    result: int
    """Tokens for each result of a tool, besides the name of the tool."""
    tool: int
    """Tokens for each tool, besides its definition as JSON."""
    names_calls: bool = True
    """Whether the ids of tool calls may be part of the input that the model reads."""
    tells_reasoning: bool = False
    """Whether responses tell how much of their output was reasoning."""
    sources: tuple[NamedSource, ...] = ()


GATEWAY: Final = Allowances(
    # Models of OpenAI, Anthropic or Google under their own name, but at another address, or not documented.
    # Also open models behind the same API, whose templates take some hundred tokens to describe tools.
    # `request` and `tools` together are twice the largest documented prompt for tools, see above.
    request=1_024,
    message=32,
    call=64,
    result=64,
    tool=64,
    tools=512,
    output_format=512,
)
OTHER: Final = Allowances(
    # A chat template can hold a default system prompt: that of gpt-oss has 70 tokens, others have hundreds.
    request=4_096,
    message=32,
    call=64,
    result=64,
    tool=64,
    tools=1_024,
    output_format=1_024,
)

_PARAMETERS: Final = Source(_COOKBOOK, _CHECKED, "3 for a property, 3 for an item of an enum")
_DESCRIPTIONS: Final = Source(
    "https://cookbook.openai.com/articles/openai-harmony#function-calling",
    _CHECKED,
    "functions are rendered as TypeScript, with descriptions as comments",
)
DEFINITION_MARGINS: Final[Mapping[str, TokenCount]] = {
    "object": TokenCount(1, _PARAMETERS),
    "item": TokenCount(2, _PARAMETERS),
    "line": TokenCount(2, _DESCRIPTIONS),
}
"""Tokens of a definition besides its compact JSON: for each object, item of a list, and line of a text."""

REASONING_STEP: Final = TokenCount(
    64, Source(_CASSETTES, _CHECKED, "reasoning tokens of some models of OpenAI are multiples of 64")
)
"""The most by which the reasoning tokens that OpenAI reports are rounded."""

COMPACTION_PROMPT: Final = TokenCount(
    4_096,
    Source(
        _CASSETTES,
        _CHECKED,
        "OpenAI billed about 100 for it in 2026; PydanticAI sends Anthropic one of about 800 where "
        "instructions are given",
    ),
)
"""The prompt with which a model is asked for a compaction. Its size is not documented."""

EMBEDDED_TEXT: Final = TokenCount(
    64,
    Source(
        "https://docs.voyageai.com/docs/embeddings",
        _CHECKED,
        "prompts for queries and documents; the longest documented one has 10 words",
    ),
)
"""Tokens that a provider may add to each text of an embedding: marks of its two ends, and a prompt."""

IMAGE_PROMPT: Final = TokenCount(64)
"""Tokens that a provider may add to the prompt for an image: the role of a message, and marks of its ends."""
