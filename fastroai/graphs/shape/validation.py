"""Checks that find every problem of a graph at once, and the plan of a graph without problems."""

from __future__ import annotations

import inspect
from collections.abc import Collection, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from functools import partial
from typing import Any

from fastroai.contracts.accepted import Accepted
from fastroai.errors import ConfigurationError, nearest_hint
from fastroai.graphs.conversation.conversation import MODES
from fastroai.graphs.errors import GraphProblem, GraphValidationError
from fastroai.graphs.shape.conditions import Conditions
from fastroai.graphs.shape.edge import Edge
from fastroai.graphs.shape.node import Node
from fastroai.graphs.shape.plan import (
    DEFAULT_MAX_STEPS,
    DEFAULT_STEPS_PER_NODE,
    ON_BRANCH_FAILURE,
    ON_CONFLICT,
    REDUCERS,
    GraphPlan,
    OnBranchFailure,
    OnConflict,
    Reducer,
)
from fastroai.graphs.shape.problems import (
    EDGES_SAY,
    decision_problems,
    edge_problems,
    expected_words,
    is_name,
    listed,
    names_problems,
    node_problems,
    same_edge_problems,
    send_problems,
)
from fastroai.graphs.shape.shape import Shape
from fastroai.records import Duration, NotGiven
from fastroai.runtime.options import check_count, check_timeout
from fastroai.steps import PipelineConfig


def build_plan(
    graph: str,
    nodes: Mapping[str, Node[Any]],
    edges: Sequence[Edge],
    *,
    entry: str | None = None,
    terminals: Sequence[str] | None = None,
    pause_nodes: Collection[str] = (),
    decider: object = None,
    max_steps: int | None = None,
    on_branch_failure: OnBranchFailure = "fail_all",
    on_conflict: OnConflict = "last_wins",
    reducers: Mapping[str, Reducer] | None = None,
    branch_timeout: Duration | None = None,
    max_concurrency: int | None = None,
    conversation: object = "continuous",
    config: PipelineConfig | None = None,
    accepts: Accepted | None = None,
) -> GraphPlan:
    """Check a graph, and return its plan. `nodes` come from `nodes_of`.

    Raises:
        GraphValidationError: the graph cannot run. The error has every problem that was found.
    """
    asking: object = list(pause_nodes) if isinstance(pause_nodes, AbstractSet) else pause_nodes
    pauses = frozenset(filter(is_name, listed(asking)))
    # A value that is not a text is a GraphConversation, which checks itself.
    word = conversation if isinstance(conversation, str) else "continuous"
    problems = [
        *node_problems(nodes, pauses),
        *_config_problems(config),
        *_number_problems(max_steps, branch_timeout, max_concurrency),
        *_word_problems("on_branch_failure", on_branch_failure, ON_BRANCH_FAILURE),
        *_word_problems("on_conflict", on_conflict, ON_CONFLICT),
        *_reducer_problems({} if reducers is None else reducers, nodes),
        *_word_problems("conversation", word, MODES),
        *names_problems("pause_nodes", asking, nodes),
    ]
    unknown = [
        *edge_problems(edges, nodes),
        *names_problems("terminals", () if terminals is None else terminals, nodes),
        *names_problems("entry", () if entry is None else (entry,), nodes),
    ]
    indexed = [(index, edge) for index, edge in enumerate(listed(edges)) if isinstance(edge, Edge)]
    conditions = Conditions(nodes, pauses, accepts)
    problems += [
        *unknown,
        *same_edge_problems(indexed),
        *conditions.problems(indexed),
        *decision_problems(indexed, nodes, decider),
        *send_problems(indexed, nodes, pauses),
    ]
    # With a misspelt name, it is not known which nodes are connected.
    shape: Shape | None = None
    if nodes and not unknown:
        shape = Shape.of(nodes, (edge for _, edge in indexed), entry, terminals)
        problems += shape.problems(on_branch_failure)
    if problems or shape is None or shape.entry is None:
        raise GraphValidationError(graph, tuple(problems))
    return GraphPlan(
        edges=shape.edges,
        conditions=conditions.parsed,
        entry=shape.entry,
        terminals=shape.terminals,
        pauses=pauses,
        reads={node_id: frozenset(node.reads) for node_id, node in nodes.items() if node.reads},
        writes={node_id: node.writes for node_id, node in nodes.items() if node.writes},
        max_visits={
            node_id: node.max_visits for node_id, node in nodes.items() if node.max_visits is not None
        },
        max_steps=max_steps or max(DEFAULT_MAX_STEPS, DEFAULT_STEPS_PER_NODE * len(nodes)),
        on_branch_failure=on_branch_failure,
        on_conflict=on_conflict,
        reducers=dict(reducers or {}),
        max_concurrency=max_concurrency,
    )


def _config_problems(config: PipelineConfig | None) -> Iterator[GraphProblem]:
    if config is not None and not isinstance(config.on_error, NotGiven):
        yield GraphProblem(f"config sets on_error={config.on_error!r}; {EDGES_SAY}", ("config",))


def _number_problems(
    max_steps: int | None, branch_timeout: Duration | None, max_concurrency: int | None
) -> Iterator[GraphProblem]:
    for check in (
        partial(check_count, "max_steps", max_steps, least=1),
        partial(check_timeout, "branch_timeout", branch_timeout),
        partial(check_count, "max_concurrency", max_concurrency, least=1),
    ):
        try:
            check()
        except ConfigurationError as error:
            yield GraphProblem(str(error), (error.option,))


def _word_problems(option: str, word: object, words: Sequence[str]) -> Iterator[GraphProblem]:
    if word not in words:
        yield GraphProblem(f"{option}={word!r}: {expected_words(word, words)}", (option,))


def _reducer_problems(reducers: object, nodes: Mapping[str, Node[Any]]) -> Iterator[GraphProblem]:
    if not isinstance(reducers, Mapping):
        yield GraphProblem(f"reducers={reducers!r}: expected a mapping of keys to reducers", ("reducers",))
        return
    writes = [[key for key in listed(node.writes) if is_name(key)] for node in nodes.values()]
    known = {key for keys in writes for key in keys} if all(writes) else None  # else a node may write any key
    for key, how in reducers.items():
        about = ("reducers", str(key))
        if not is_name(key):
            yield GraphProblem(f"reducers has the key {key!r}; expected a non-empty text", about)
        elif known is not None and key not in known:
            hint = nearest_hint(key, known)
            yield GraphProblem(f"reducers names {key!r}, which no node writes.{hint}", about)
        if inspect.iscoroutinefunction(how) or not (callable(how) or how in REDUCERS):
            words = expected_words(how, REDUCERS).removeprefix("expected ")
            expected = f"expected a function of two values, not async, or {words}"
            yield GraphProblem(f"the reducer of {key!r} is {how!r}; {expected}", about)
