"""Names of nodes, and what is wrong with those that are none."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeGuard

from fastroai.errors import GraphProblem, nearest_hint
from fastroai.graphs.shape.node import Node


def is_name(name: object) -> TypeGuard[str]:
    """Whether it can be the id of a node, or a key of memory: a text that UTF-8 can say, and so a store."""
    return isinstance(name, str) and name != "" and name.encode(errors="ignore").decode() == name


def is_node(name: object, nodes: Mapping[str, Node[Any]]) -> bool:
    """Whether there is a node with this id."""
    return isinstance(name, str) and name in nodes


def is_list(values: object) -> TypeGuard[Sequence[object]]:
    """Whether it is a list, of whatever."""
    return isinstance(values, Sequence) and not isinstance(values, str | bytes)


def listed(values: object) -> Sequence[object]:
    """What is in a list; nothing, if it is none."""
    return values if is_list(values) else ()


def unknown(name: object, nodes: Mapping[str, Node[Any]]) -> str:
    """A name that is no node's, and the nearest that is."""
    hint = nearest_hint(name, filter(is_name, nodes)) if isinstance(name, str) else ""
    return f"{name!r}, which is not a node.{hint}"


def names_problems(option: str, names: object, nodes: Mapping[str, Node[Any]]) -> Iterator[GraphProblem]:
    """What is wrong with names of nodes that an option lists."""
    if not is_list(names):
        yield GraphProblem(f"{option}={names!r}: expected a list of node ids", (option,))
        return
    for index, name in enumerate(names):
        if not is_node(name, nodes):
            about = (option,) if option == "entry" else (option, index)
            yield GraphProblem(f"{option} names {unknown(name, nodes)}", about)


def expected_words(word: object, words: Sequence[str]) -> str:
    """What was expected of a word that is none of these, and the nearest."""
    return f"expected one of {', '.join(map(repr, words))}.{nearest_hint(str(word), words)}"
