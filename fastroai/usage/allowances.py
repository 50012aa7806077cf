"""Input tokens that are billed around the texts of a request: what delimits them, and hidden prompts.

Every number covers what is documented or was measured, with a margin; it is part of the bound of a request.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from fastroai.usage.endpoints import is_first_party


@dataclass(frozen=True, slots=True, kw_only=True)
class Allowances:
    """Tokens besides the texts themselves."""

    request: int
    """Once."""
    tools: int
    """Once, if there are any tools."""
    output_format: int
    """Once, if the answer has a schema."""
    message: int
    """For each text that is sent as a message, or as a part of one."""
    call: int
    """For each tool call of the history, besides its name and arguments."""
    result: int
    """For each result of a tool, besides the name of the tool."""
    tool: int
    """For each tool, besides its definition as JSON."""
    names_calls: bool = True
    """Whether the ids of tool calls may be part of what the model reads."""
    tells_reasoning: bool = False
    """Whether responses tell how much of their output was reasoning."""


OPENAI: Final = Allowances(
    # Documented: 3 tokens for each message, 1 for its role, 3 that prime the answer; 10 and 12 for the first
    # and the last of some functions. https://github.com/openai/openai-cookbook/blob/main/examples/
    # How_to_count_tokens_with_tiktoken.ipynb. Requests on record (in PydanticAI's test cassettes, gpt-4o to
    # gpt-5.6, Chat and Responses): 6 or 7 tokens besides the text of one message; 14 to 16 for a call and its
    # result, 25 for each pair where calls are parallel.
    request=16,
    message=8,
    call=24,
    result=12,
    tool=16,
    # With tools, models have been given instructions on parallel calls as a tool of its own,
    # `multi_tool_use.parallel`: 194 tokens, and that much is what a recording of March 2025 shows.
    tools=256,
    output_format=64,
    names_calls=False,
    tells_reasoning=True,
)
ANTHROPIC: Final = Allowances(
    # Measured: 8 tokens for a message of one word. Prompts of Anthropic's own are not billed, but for those
    # below. https://platform.claude.com/docs/en/build-with-claude/token-counting
    request=64,
    message=16,
    call=64,
    result=64,
    tool=32,
    # The largest of the table is 804 tokens, of Claude Opus 4.7 with a forced tool.
    # https://platform.claude.com/docs/en/agents-and-tools/tool-use/overview#pricing
    tools=1_024,
    # "An additional system prompt explaining the expected output format", of which no size is documented.
    # https://platform.claude.com/docs/en/build-with-claude/structured-outputs
    output_format=1_024,
)
GATEWAY: Final = Allowances(
    # OpenAI's, Anthropic's or Google's models under their name, but not at their address, or not documented;
    # or an open model behind their API, whose template tells it of tools in some hundred tokens. With tools,
    # both together are twice the largest prompt that is documented, see above.
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
_NAMED: Final = frozenset({"anthropic", "azure", "google", "google-cloud", "openai"})
_OWN: Final = {"anthropic": ANTHROPIC, "azure": OPENAI, "openai": OPENAI}


def allowances_of(provider: str, url: str | None) -> Allowances:
    """What a provider may add at a URL."""
    if provider in _OWN and is_first_party(provider, url):
        return _OWN[provider]
    return GATEWAY if provider in _NAMED else OTHER
