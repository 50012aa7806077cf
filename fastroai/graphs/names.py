"""Names of nodes, and the problems with invalid names."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeGuard

from fastroai.errors import nearest_hint
from fastroai.graphs.errors import GraphProblem
from fastroai.graphs.shape.node import Node


def is_name(name: object) -> TypeGuard[str]:
    """Return whether a value can be a node id or a key of memory: non-empty text that UTF-8 can encode."""
    return isinstance(name, str) and name != "" and name.encode(errors="ignore").decode() == name


def is_node(name: object, nodes: Mapping[str, Node[Any]]) -> bool:
    """Return whether there is a node with this id."""
    return isinstance(name, str) and name in nodes


def is_list(values: object) -> TypeGuard[Sequence[object]]:
    """Return whether a value is a list, or another sequence that is not a text."""
    return isinstance(values, Sequence) and not isinstance(values, str | bytes)


def listed(values: object) -> Sequence[object]:
    """Return the items of a list; no items if the value is not a list."""
    return values if is_list(values) else ()


def unknown(name: object, nodes: Mapping[str, Node[Any]]) -> str:
    """Return the text for an unknown node name, with the most similar known name."""
    hint = nearest_hint(name, filter(is_name, nodes)) if isinstance(name, str) else ""
    return f"{name!r}, which is not a node.{hint}"


def names_problems(option: str, names: object, nodes: Mapping[str, Node[Any]]) -> Iterator[GraphProblem]:
    """Yield each problem with the node ids that an option lists."""
    if not is_list(names):
        yield GraphProblem(f"{option}={names!r}: expected a list of node ids", (option,))
        return
    for index, name in enumerate(names):
        if not is_node(name, nodes):
            about = (option,) if option == "entry" else (option, index)
            yield GraphProblem(f"{option} names {unknown(name, nodes)}", about)


def expected_words(word: object, words: Sequence[str]) -> str:
    """Return the text that lists the expected words, with the one most similar to `word`."""
    return f"expected one of {', '.join(map(repr, words))}.{nearest_hint(str(word), words)}"
