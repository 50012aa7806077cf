"""Problems with the edges of a graph."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any

from fastroai.graphs.errors import GraphProblem
from fastroai.graphs.machine.events import decision_name
from fastroai.graphs.names import expected_words, is_list, is_name, is_node, listed, unknown
from fastroai.graphs.shape.edge import WHEN, Edge
from fastroai.graphs.shape.node import Node


def edge_problems(edges: object, nodes: Mapping[str, Node[Any]]) -> Iterator[GraphProblem]:
    """Yield the problems with each single edge: invalid objects, unknown nodes, unknown words."""
    if not is_list(edges):
        yield GraphProblem(f"edges are a {type(edges).__name__}; expected a list of Edge(...)", ("edges",))
    for index, edge in enumerate(listed(edges)):
        if not isinstance(edge, Edge):
            message = f"edge {edge!r} is a {type(edge).__name__}; expected an Edge(source, target)"
            yield GraphProblem(message, ("edges", index))
            continue
        for option, name in (("source", edge.source), ("target", edge.target)):
            if not is_node(name, nodes):
                message = f"edge {edge} has the {option} {unknown(name, nodes)}"
                yield GraphProblem(message, ("edges", index, option))
        if edge.when not in WHEN:
            message = f"edge {edge} has when={edge.when!r}: {expected_words(edge.when, WHEN)}"
            yield GraphProblem(message, ("edges", index, "when"))


def same_edge_problems(edges: Sequence[tuple[int, Edge]]) -> Iterator[GraphProblem]:
    """Yield a problem for each edge that repeats another."""
    seen: set[tuple[object, ...]] = set()
    for index, edge in edges:
        told = (repr(edge.source), repr(edge.target), repr(edge.when), repr(edge.condition))
        if told in seen:
            condition = "" if edge.condition is None else f" with the condition {edge.condition!r}"
            message = f"edge {edge} ({edge.when}{condition}) is listed more than once; keep one of them"
            yield GraphProblem(message, ("edges", index))
        seen.add(told)


def send_problems(
    edges: Sequence[tuple[int, Edge]], nodes: Mapping[str, Node[Any]], pauses: AbstractSet[str]
) -> Iterator[GraphProblem]:
    """Yield the problems with `send` edges."""
    sends = [(index, edge) for index, edge in edges if edge.when == "send"]
    for index, edge in sends:
        if edge.source in pauses:
            message = f"edge {edge} sends, and {edge.source!r} is a pause node, whose output is an answer"
            yield GraphProblem(message, ("edges", index, "when"))
    targets = {edge.target for _, edge in sends if is_node(edge.target, nodes)}
    for name in filter(is_name, nodes if targets else ()):
        found = re.fullmatch(r"(.*)\[\d+\]", name, re.DOTALL)
        if found is not None and found[1] in targets:
            message = f"node {name!r} has the name that a branch of the sends to {found[1]!r} would get"
            yield GraphProblem(f"{message}; give it another id", ("nodes", name))


def decision_problems(
    edges: Sequence[tuple[int, Edge]], nodes: Mapping[str, Node[Any]], decider: object
) -> Iterator[GraphProblem]:
    """Yield the problems with `llm_decide` edges: the fallback, the names, a missing decider."""
    candidates: dict[str, list[tuple[int, Edge]]] = {}
    for index, edge in edges:
        if edge.when == "llm_decide" and is_node(edge.source, nodes):
            candidates.setdefault(edge.source, []).append((index, edge))
        elif edge.fallback:
            message = (
                f"edge {edge} has fallback={edge.fallback!r}, which only edges with when='llm_decide' have"
            )
            yield GraphProblem(message, ("edges", index, "fallback"))
    for source, decided in candidates.items():
        if (taken := decision_name(source)) in nodes:
            message = f"node {taken!r} has the name of the decision after {source!r}; give it another id"
            yield GraphProblem(message, ("nodes", taken))
        fallbacks = [(index, edge) for index, edge in decided if edge.fallback]
        if not fallbacks:
            message = (
                f"none of the llm_decide edges of {source!r} is the fallback; set fallback=True on the one "
                "to take where the decider gives no answer"
            )
            yield GraphProblem(message, ("edges", decided[0][0]))
        for index, edge in fallbacks[1:]:
            message = f"edge {edge} is a second fallback of {source!r}; set fallback=True on one edge only"
            yield GraphProblem(message, ("edges", index, "fallback"))
    if decider is not None and not candidates:
        message = (
            "it has a decider but no llm_decide edges; set when='llm_decide' on edges, or remove decider="
        )
        yield GraphProblem(message, ("decider",))
    if candidates and decider is None:
        message = "it has llm_decide edges but no decider; give an agent: decider=..."
        yield GraphProblem(message, ("edges", next(iter(candidates.values()))[0][0]))
