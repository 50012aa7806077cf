"""Problems with the nodes of a graph."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set
from typing import Any, Final

from fastroai.contracts.annotations import checker_of
from fastroai.errors import ConfigurationError
from fastroai.graphs.errors import GraphProblem
from fastroai.graphs.names import is_name
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
