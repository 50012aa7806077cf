"""An upper bound on the input tokens of the definition of a tool, or the schema of an answer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache

from pydantic_core import from_json, to_json

from fastroai.usage.bounding.tokenizers import Count
from fastroai.usage.facts.allowances import DEFINITION_MARGINS


def definition_tokens(count: Count, definition: Mapping[str, object]) -> int:
    """Return an upper bound on a definition's tokens: as JSON, as TypeScript, or with expanded references.

    OpenAI renders functions as TypeScript, with descriptions as comments, and does not say how schemas are
    rendered otherwise. As far as it is documented and can be measured, both have at most the tokens of
    compact JSON and of a margin for each object, item of a list and line of a text (`DEFINITION_MARGINS`).
    """
    text = to_json(definition).decode()
    schema = _schema(text)
    if not schema.definitions:
        return count(text) + schema.root.margin
    sizes: dict[str, int] = {}
    return max(
        count(text) + schema.root.margin + sum(each.margin for each in schema.definitions.values()),
        _expanded(count, schema.root, schema.definitions, sizes),
    )


@dataclass(frozen=True, slots=True)
class _Node:
    """A schema without the definitions that it refers to."""

    text: str
    margin: int
    references: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Schema:
    root: _Node
    definitions: Mapping[str, _Node]


def _expanded(count: Count, node: _Node, definitions: Mapping[str, _Node], sizes: dict[str, int]) -> int:
    """Return the size of a schema with its references expanded, except recursive ones."""
    total = count(node.text) + node.margin
    for name in node.references:
        if name in definitions and name not in sizes:
            sizes[name] = 0
            sizes[name] = _expanded(count, definitions[name], definitions, sizes)
        total += sizes.get(name, 0)
    return total


@lru_cache(maxsize=512)
def _schema(text: str) -> _Schema:
    definition = from_json(text)
    definitions: dict[str, object] = {}
    root = _node(_without_definitions(definition, definitions))
    return _Schema(root, {f"#/$defs/{name}": _node(each) for name, each in definitions.items()})


def _without_definitions(value: object, definitions: dict[str, object]) -> object:
    if isinstance(value, dict):
        found = value.get("$defs")
        if isinstance(found, dict):
            definitions.update(found)
        return {key: _without_definitions(each, definitions) for key, each in value.items() if key != "$defs"}
    return [_without_definitions(each, definitions) for each in value] if isinstance(value, list) else value


def _node(value: object) -> _Node:
    margin, references = 0, []
    for kind, item in _walk(value):
        if kind == "reference":
            references.append(item)
        else:
            margin += DEFINITION_MARGINS[kind].tokens
    return _Node(to_json(value).decode(), margin, tuple(references))


def _walk(value: object) -> Iterator[tuple[str, str]]:
    """Yield every object, item, line and reference in a schema."""
    if isinstance(value, dict):
        yield "object", ""
        for key, each in value.items():
            if key == "$ref" and isinstance(each, str):
                yield "reference", each
            yield from _walk(each)
    elif isinstance(value, list):
        for each in value:
            yield "item", ""
            yield from _walk(each)
    elif isinstance(value, str):
        yield from (("line", "") for _ in range(value.count("\n")))
