"""OpenAI's own way to count the input of a request, from its cookbook: another than that of `fastroai`.

https://github.com/openai/openai-cookbook/blob/main/examples/How_to_count_tokens_with_tiktoken.ipynb
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any

PER_MESSAGE = 3
PRIMING = 3
FUNCTION_START, FUNCTIONS_END = 10, 12
"""The larger of what the cookbook has for older and newer models."""
PROPERTIES, PROPERTY = 3, 3
ENUM, ENUM_ITEM = -3, 3


@cache
def _encoding(name: str) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        import bpe_openai  # type: ignore[import-untyped]

        return bpe_openai.get_encoding(name)


def tokens(text: str, encoding: str = "o200k_base") -> int:
    """Exactly as many as a text has."""
    return len(_encoding(encoding).encode_ordinary(text))


def message_tokens(messages: Sequence[Mapping[str, object]]) -> int:
    """Of the messages of a body: roles, contents, names and arguments."""
    texts = [text for message in messages for text in _texts(message)]
    return PER_MESSAGE * len(messages) + sum(map(tokens, texts)) + PRIMING


def _texts(message: Mapping[str, object]) -> Iterator[str]:
    """Each text of a message. Several texts of one content are one after the other, as one."""
    for key, value in message.items():
        if key in ("role", "content", "output", "name", "arguments"):
            yield _joined(value)
        elif key == "tool_calls" and isinstance(value, list):
            for call in value:
                yield call["function"]["name"]
                yield call["function"]["arguments"]


def _joined(content: object) -> str:
    if isinstance(content, list):
        return "".join(str(part["text"]) for part in content)
    return "" if content is None else str(content)


def function_tokens(functions: Sequence[Mapping[str, Any]]) -> int:
    """Of flat function definitions, each with name, description and parameters."""
    total = FUNCTIONS_END if functions else 0
    for function in functions:
        total += FUNCTION_START + tokens(f"{function['name']}:{_sentence(function.get('description'))}")
        properties = function["parameters"].get("properties", {})
        total += PROPERTIES if properties else 0
        for name, given in properties.items():
            total += PROPERTY + tokens(f"{name}:{given.get('type')}:{_sentence(given.get('description'))}")
            if "enum" in given:
                total += ENUM + sum(ENUM_ITEM + tokens(str(item)) for item in given["enum"])
    return total


def _sentence(text: str | None) -> str:
    return (text or "").removesuffix(".")


def typescript(function: Mapping[str, Any]) -> str:
    """A function as models of OpenAI read it: https://cookbook.openai.com/articles/openai-harmony."""
    comment = _comment(function.get("description"))
    return f"{comment}type {function['name']} = (_: {_type(function['parameters'])}) => any;\n\n"


def _comment(text: str | None) -> str:
    return "".join(f"// {line}\n" for line in text.split("\n")) if text else ""


def _type(schema: Mapping[str, Any]) -> str:
    if "enum" in schema:
        return " | ".join(json.dumps(item, ensure_ascii=False) for item in schema["enum"])
    if "anyOf" in schema:
        return " | ".join(map(_type, schema["anyOf"]))
    if schema.get("type") == "array":
        return f"{_type(schema['items'])}[]"
    if schema.get("type") == "object":
        return _object(schema)
    return {"integer": "number"}.get(str(schema.get("type")), str(schema.get("type", "any")))


def _object(schema: Mapping[str, Any]) -> str:
    lines = ["{\n"]
    for name, given in schema.get("properties", {}).items():
        optional = "" if name in schema.get("required", ()) else "?"
        default = f" // default: {json.dumps(given['default'])}" if "default" in given else ""
        lines += [_comment(given.get("description")), f"{name}{optional}: {_type(given)},{default}\n"]
    return "".join([*lines, "}"])
