"""The likely and the least number of input tokens of a request."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import ceil
from typing import Final

from pydantic_ai.messages import BinaryContent, ModelMessage
from pydantic_ai.models import ModelRequestParameters
from pydantic_core import to_json

from fastroai.records import ratio
from fastroai.usage.bounding.image_sizes import image_size
from fastroai.usage.bounding.pdf_sizes import PDF_SIZES
from fastroai.usage.bounding.pieces import pieces
from fastroai.usage.bounding.tokenizers import LONGEST_INLINE, loaded_tokenizer
from fastroai.usage.facts.priors import prior_of
from fastroai.usage.facts.provider import Prior
from fastroai.usage.prices.hosts import Host

TOKENS_PER_FILE: Final = 1_000
"""Tokens assumed for a file of which nothing is known, such as one behind a URL."""


@dataclass(frozen=True, slots=True)
class InputTokens:
    """The tokens of a request's input, before any provider has counted it."""

    least: int
    likely: int


def input_tokens(
    host: Host, messages: Sequence[ModelMessage], parameters: ModelRequestParameters
) -> InputTokens:
    """Count the input of a request: exactly where a tokenizer is known, else by its bytes.

    Call `prepare_bound` before it: that loads the tokenizer.
    """
    tokenizer, prior = loaded_tokenizer(host.encoded_model), prior_of(host.model)
    least = likely = 0
    said, other = [part.content for part in parameters.instruction_parts or ()], list(_defined(parameters))
    for piece in pieces(messages):
        if piece.is_file:
            likely += _file(host, prior, piece.item)
        else:
            (said if piece.kind == "text" else other).append(piece.text)
    for text in said:
        if tokenizer is not None and len(text) <= LONGEST_INLINE:
            least += tokenizer.count(text)
            likely += tokenizer.count(text)
        else:
            likely += _by_bytes(prior, text)
    if parameters.function_tools or parameters.output_tools:
        likely += prior.tools
    likely += sum(_by_bytes(prior, text) for text in other)
    return InputTokens(least=max(1, least), likely=max(1, likely))


def _by_bytes(prior: Prior, text: str) -> int:
    return ceil(ratio(len(text.encode(errors="replace")), prior.bytes_per_token))


def _defined(parameters: ModelRequestParameters) -> Iterator[str]:
    """Yield the definitions of tools and outputs, which the provider puts in its own form."""
    for tool in (*parameters.function_tools, *parameters.output_tools):
        yield f"{tool.name} {tool.description or ''}"
        yield to_json(tool.parameters_json_schema).decode()
    if parameters.output_object is not None:
        yield to_json(parameters.output_object.json_schema).decode()


def _file(host: Host, prior: Prior, item: object) -> int:
    """Return the likely tokens of a file: by its pages, by the rule for its size, else an assumption."""
    if not isinstance(item, BinaryContent):
        return TOKENS_PER_FILE
    if item.media_type == "application/pdf":
        size = PDF_SIZES.size(item.data)
        return TOKENS_PER_FILE if size is None else size.pages * prior.page
    if item.media_type.startswith("text/"):
        return _by_bytes(prior, item.data.decode(errors="replace"))
    if host.facts is None or host.facts.images is None or not item.is_image:
        return TOKENS_PER_FILE
    size_of_image = image_size(item.data, item.media_type)
    detail = str((item.vendor_metadata or {}).get("detail", "auto"))
    known = None if size_of_image is None else host.facts.images.most_tokens(size_of_image, detail)
    return TOKENS_PER_FILE if known is None else known
