"""Problems with the nodes and the edges of a graph, and with names of nodes."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence, Set
from collections.abc import Set as AbstractSet
from typing import Any, Final, TypeGuard

from fastroai.contracts.annotations import checker_of
from fastroai.errors import ConfigurationError, nearest_hint
from fastroai.graphs.errors import GraphProblem
from fastroai.graphs.machine.events import decision_name
from fastroai.graphs.shape.edge import WHEN, Edge
from fastroai.graphs.shape.node import Node
from fastroai.records import NotGiven
from fastroai.runtime.options import check_count
from fastroai.steps import BaseStep, StepConfig
from fastroai.steps.outputs import is_type

EDGES_SAY: Final = (
    "in a graph, edges say what a failure does: Edge(..., when='on_failure'). Leave on_error out"
)


def node_problems(nodes: Mapping[str, Node[Any]], pauses: Set[str]) -> Iterator[GraphProblem]:
    """Yield the problems with each node; `pauses` are the nodes that ask a person."""
    if not nodes:
        yield GraphProblem("it has no nodes; give at least one: nodes={'name': step}", ("nodes",))
    for node_id, node in nodes.items():
        if not is_name(node_id):
            message = f"node id {node_id!r} is not a name; ids are non-empty strings of valid Unicode"
            yield GraphProblem(message, ("nodes",))
            continue
        for option, message in _problems_of(node):
            yield GraphProblem(f"node {node_id!r} {message}", ("nodes", node_id, option))
        if not isinstance(node.answer_type, NotGiven) and node_id not in pauses:
            message = f"node {node_id!r} has an answer_type but asks no question; name it in pause_nodes"
            yield GraphProblem(message, ("nodes", node_id, "answer_type"))


def _problems_of(node: Node[Any]) -> Iterator[tuple[str, str]]:
    """Yield the problems with a node, each after the option that it is about."""
    step: object = node.step
    if not isinstance(step, BaseStep):
        yield "step", f"is not a step but {_describe(step)}"
    elif not isinstance(step.config, StepConfig):
        yield "step", f"has a config that is a {type(step.config).__name__}; expected a StepConfig"
    elif not isinstance(step.config.on_error, NotGiven):
        yield "step", f"sets on_error={step.config.on_error!r}; {EDGES_SAY}"
    for option, names in (("reads", node.reads), ("writes", node.writes)):
        yield from ((option, message) for message in _key_problems(option, names))
    try:
        check_count("max_visits", node.max_visits, least=1)
    except ConfigurationError as error:
        yield "max_visits", f"has {error}"
    focus: object = node.focus
    if not isinstance(focus, str | None):
        yield "focus", f"has the focus {focus!r}; expected a text"
    answer: object = node.answer_type
    if not isinstance(answer, NotGiven) and not (is_type(answer) and checker_of(answer)):
        yield "answer_type", f"has the answer_type {answer!r}; expected a type that pydantic can check"


def _describe(step: object) -> str:
    from pydantic_ai.agent import AbstractAgent  # slow to load, and needed for an error only

    kind = f"a {type(step).__name__}"
    if isinstance(step, type):
        return f"the class {step.__name__}; give an instance: {step.__name__}()"
    if hasattr(step, "as_step"):
        return f"{kind}; use agent.as_step(prompt)"
    if isinstance(step, Node):
        return "a Node; give its step"
    if isinstance(step, AbstractAgent):
        return f"{kind}; use FastroAgent(agent=agent).as_step(prompt)"
    if callable(step):
        return f"{kind}; decorate the function with @step"
    return f"{kind}; give a BaseStep, a @step function, agent.as_step(prompt), a pipeline or a graph"


def _key_problems(option: str, names: object) -> Iterator[str]:
    if not isinstance(names, tuple) or not all(map(is_name, names)):
        yield f"has {option}={names!r}; expected a list of names"
        return
    for name in dict.fromkeys(names):
        if names.count(name) > 1:
            yield f"has {name!r} in {option} more than once"


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
