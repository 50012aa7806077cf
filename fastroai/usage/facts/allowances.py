"""Input tokens that are billed besides the texts themselves: delimiters, and hidden prompts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import date
from typing import Final

from fastroai.usage.facts.source import Source, TokenCount

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
    sources: tuple[Source, ...] = ()


OPENAI: Final = Allowances(
    request=16,
    message=8,
    call=24,
    result=12,
    tool=16,
    tools=256,
    output_format=64,
    names_calls=False,
    tells_reasoning=True,
    sources=(
        Source(
            _COOKBOOK,
            _CHECKED,
            "3 tokens for each message, 1 for its role, 3 that prime the answer; 10 and 12 for the first and "
            "the last of some functions",
        ),
        Source(
            _CASSETTES,
            _CHECKED,
            "requests on record, gpt-4o to gpt-5.6, Chat and Responses: 6 or 7 tokens besides the text of a "
            "message; 14 to 16 for a call and its result, 25 for each pair where calls are parallel; with "
            "tools, instructions on parallel calls of 194 tokens, in March 2025",
        ),
    ),
)
ANTHROPIC: Final = Allowances(
    request=64,
    message=16,
    call=64,
    result=64,
    tool=32,
    tools=1_024,
    output_format=1_024,
    sources=(
        Source(
            "https://platform.claude.com/docs/en/build-with-claude/token-counting",
            _CHECKED,
            "prompts that Anthropic adds are not billed, but for those of tools; 8 tokens were measured for "
            "a message of one word",
        ),
        Source(
            "https://platform.claude.com/docs/en/agents-and-tools/tool-use/overview#pricing",
            _CHECKED,
            "the largest prompt for tools is 804 tokens, of Claude Opus 4.7 with a forced tool",
        ),
        Source(
            "https://platform.claude.com/docs/en/build-with-claude/structured-outputs",
            _CHECKED,
            "a system prompt explains the output format; its size is not documented",
        ),
    ),
)
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
# What is added for tools comes from the model, and so is the same at any host.
OPENAI_AT_GATEWAY: Final = replace(GATEWAY, tools=OPENAI.tools, sources=OPENAI.sources)
GOOGLE: Final = replace(
    GATEWAY,
    request=64,
    sources=(
        Source(
            _CASSETTES,
            _CHECKED,
            "requests on record have the tokens of their texts and files, and none besides: 9 for a question "
            "of 7 words; 21 to 41 with a function",
        ),
    ),
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
