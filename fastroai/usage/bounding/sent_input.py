"""The input of a request as it is sent, compared with the input that was counted.

Both are compared as texts, never as bytes: a text of 2,200 bytes can be 6,500 in the body, as escapes. Texts
that are equal cancel out, so only the others are counted. Roles, types, ids and parameters are no input.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from fastroai.usage.bounding.tokenizers import Count, bytes_of


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_PARAMETERS: Final = _words(
    "model stop stop_sequences stopSequences user metadata service_tier serviceTier reasoning "
    "reasoning_effort reasoning_format thinking prompt_cache_key prompt_cache_retention safety_identifier "
    "include stream_options modalities truncation tool_choice toolChoice inference_geo speed betas "
    "anthropic_version conversation previous_response_id background safetySettings labels inferenceConfig "
    "performanceConfig requestMetadata guardrailConfig additionalModelResponseFieldPaths verbosity "
    "thinkingConfig responseMimeType responseModalities mediaResolution speechConfig cachedContent "
    "anthropic_beta provider transforms models route plugins usage cache_control prediction"
)
"""Keys of a body, or of its configuration, whose texts a model does not read."""
_CONFIGURATIONS: Final = frozenset({"generationConfig", "additionalModelRequestFields", "output_config"})
_NAMES: Final = _words(
    "type role id call_id tool_call_id tool_use_id toolUseId callId status mime_type mimeType media_type "
    "mediaType cache_control cachePoint detail ttl phase effort strict mode resolution verbosity"
)
"""Keys whose texts are words of the API, in messages and tools."""
_OPAQUE: Final = _words(
    "signature encrypted_content encryptedContent thoughtSignature thought_signature redactedContent"
)
"""Keys of earlier thoughts, whose texts cannot be read. They are counted by the usage that was reported."""
_NAMING: Final = frozenset({"properties", "patternProperties", "$defs", "definitions"})
"""Keys of a schema whose value has names as keys."""
_DATA: Final = frozenset(
    {"data", "file_data", "fileData", "bytes", "input_audio", "document_url", "image_url"}
)


@dataclass(frozen=True, slots=True)
class Unseen:
    """Input that is sent and was not counted."""

    tokens: int
    """The most tokens that it can be."""
    places: tuple[str, ...] = ()
    """Where in the body it is: keys, without numbers and without the texts themselves."""


NOTHING_UNSEEN: Final = Unseen(0)


def unseen_input(
    body: object,
    counted: Iterable[str],
    rendered: Collection[str],
    file_sizes: Iterable[int | None],
    count: Count,
    allowance: int,
) -> Unseen:
    """Return the input in a body beyond the texts and files that were counted.

    Args:
        body: The decoded JSON of the body.
        counted: The texts that were counted by `count`.
        rendered: The texts that were counted by their bytes, as PydanticAI renders them in its own way.
        file_sizes: Bytes of each file that was counted; `None` for one that is given by its URL, in whose
            place its content may be sent.
        count: A function that returns the most tokens of a text.
        allowance: Tokens that a provider may add to each text.
    """
    in_base64 = (None if size is None else (size + 2) // 3 * 4 for size in file_sizes)
    sizes = Counter(in_base64)
    places: dict[str, str] = {}
    sent: Counter[str] = Counter()
    for place, text in _texts(body, ""):
        if not _is_file(place, text, sizes):
            sent[text] += 1
            places[text] = place
    left, residue = _cancelled(sent, Counter([*counted, *rendered]))
    if not left:
        return NOTHING_UNSEEN
    # A text that is JSON on one side can be an object on the other.
    left, residue = _cancelled(_unfolded(left, places), _unfolded(residue, {}))
    if not left:
        return NOTHING_UNSEEN
    tokens = sum(times * count(text) for text, times in left.items()) - sum(
        times * (bytes_of if text in rendered else count)(text) for text, times in residue.items()
    )
    more_texts = max(0, left.total() - residue.total())
    tokens += more_texts * allowance
    if tokens <= 0:
        return NOTHING_UNSEEN
    return Unseen(tokens, tuple(dict.fromkeys(places[text] for text in left)))


def _cancelled(sent: Counter[str], counted: Counter[str]) -> tuple[Counter[str], Counter[str]]:
    return sent - counted, counted - sent


def _unfolded(texts: Counter[str], places: dict[str, str]) -> Counter[str]:
    """Return the texts, with the texts in those that are JSON objects or lists in their place."""
    unfolded: Counter[str] = Counter()
    for text, times in texts.items():
        inner = _parsed(text)
        if inner is None:
            unfolded[text] += times
            continue
        for _, each in _texts(inner, "."):
            unfolded[each] += times
            places.setdefault(each, places.get(text, ""))
    return unfolded


def _parsed(text: str) -> dict[str, object] | list[object] | None:
    if text[:1] not in ("{", "["):
        return None
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict | list) else None


def _texts(value: object, place: str) -> Iterator[tuple[str, str]]:
    """Yield the texts in decoded JSON that a model may read, each with its place."""
    waiting = [(place, value)]
    while waiting:
        place, value = waiting.pop()
        if isinstance(value, str):
            if value:
                yield place, value
        elif isinstance(value, list):
            waiting += [(place, each) for each in value]
        elif isinstance(value, dict):
            skipped = _PARAMETERS if not place or place in _CONFIGURATIONS else _NAMES
            names = place.rpartition(".")[2] in _NAMING
            for key, each in value.items():
                if names:
                    yield place, key
                if names or not (key in _OPAQUE or key in skipped):
                    waiting.append((f"{place}.{key}" if place and place != "." else key, each))


def _is_file(place: str, text: str, sizes: Counter[int | None]) -> bool:
    """Return whether a text is the content of a file that was counted, and take the file off the list."""
    if text.startswith("data:"):
        length = len(text) - text.find(",") - 1
    elif not _DATA.isdisjoint(place.split(".")):
        length = len(text)
    else:
        return False
    for size in (length, None):
        if sizes[size] > 0:
            sizes[size] -= 1
            return True
    return False
