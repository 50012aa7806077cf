"""Graphs from YAML documents, with the line and column of every problem, and as such documents."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final, Literal, NotRequired, TypedDict, cast

from pydantic import Field, JsonValue

from fastroai.documents.parts import Misfit, Misshapen, Part, PartsAt, shaped
from fastroai.documents.yaml_text import DocumentProblem, Way, YamlText, kind, read_yaml
from fastroai.documents.yaml_writing import dump_yaml
from fastroai.errors import ConfigurationError, nearest_hint
from fastroai.graphs.errors import GraphProblem, GraphValidationError
from fastroai.graphs.shape.edge import Edge
from fastroai.graphs.shape.node import Node, NodeLike
from fastroai.graphs.shape.plan import OnBranchFailure, OnConflict, Reducer
from fastroai.usage import Budget


class GraphArguments(TypedDict):
    """The arguments of `Graph` that a document can set. Arguments that it does not set are left out."""

    name: str
    goal: NotRequired[str | None]
    nodes: Mapping[str, Node[Any]]
    edges: Sequence[Edge]
    entry: NotRequired[str | None]
    terminals: NotRequired[Sequence[str] | None]
    pause_nodes: NotRequired[Sequence[str]]
    max_steps: NotRequired[int]
    on_branch_failure: NotRequired[OnBranchFailure]
    on_conflict: NotRequired[OnConflict]
    reducers: NotRequired[Mapping[str, Reducer] | None]
    branch_timeout: NotRequired[float | None]
    max_concurrency: NotRequired[int | None]
    budget: NotRequired[Budget | None]
    conversation: NotRequired[Literal["continuous", "isolated"]]


@dataclass(frozen=True, slots=True)
class GraphDocument:
    """A document that was loaded: its arguments, and their places in the text."""

    arguments: GraphArguments
    text: YamlText
    source: str | None
    """The file from which the document was read; `None` if it was given as text."""

    @contextmanager
    def located(self) -> Iterator[None]:
        """Add lines and columns to the problems that are found in this block.

            with document.located():
                graph = Graph(**document.arguments)

        Problems that are about no part of the document stay unchanged.
        """
        try:
            yield
        except GraphValidationError as error:
            problems = _in_order(map(self._located, error.problems))
            raise GraphValidationError(error.graph, problems, self.source) from None

    def _located(self, problem: GraphProblem) -> GraphProblem:
        way: Way = problem.about
        if way and way[0] in PoliciesPart.model_fields:
            way = ("policies", *way)
        if way[:1] not in self.text.values:
            return problem  # it is about a part that the document does not have
        line, column = self.text.place(way)
        return replace(problem, line=line, column=column)


def load_graph_yaml(source: str | Path, *, nodes: Mapping[str, NodeLike[Any]]) -> GraphDocument:
    """Read a document. Each of its nodes names its step, a key of `nodes`; by default that is the node's id.

    A value in `nodes` may be a `Node`, for settings that a document cannot express, such as the type of an
    answer. Settings in the document replace those of the `Node`.

    Args:
        source: The text of the document, or the `Path` of a file.
        nodes: Steps, pipelines, routers, graphs or nodes, by the names that the document uses.

    Raises:
        GraphValidationError: The document is not YAML, or not a graph. The error has every problem, with
            its place.
        MissingExtraError: PyYAML is not installed (the extra `yaml`).
    """
    file = str(source) if isinstance(source, Path) else None
    text = read_yaml(source, "Graph.from_yaml")
    data = _with_nodes_by_id(text)
    shown = data.get("name") if isinstance(data, dict) else None
    name = shown if isinstance(shown, str) and shown else "(no name)"
    made: GraphArguments | None = None
    if not text.problems:
        try:
            made = _arguments(shaped(GraphPart, data, text, _PARTS_AT), nodes, text)
        except Misshapen as error:
            raise GraphValidationError(name, _in_order(map(_problem, error.misfits)), file) from None
    if made is None or text.problems:
        problems = _in_order(GraphProblem(*problem) for problem in text.problems)
        raise GraphValidationError(name, problems, file)
    return GraphDocument(made, text, file)


def _in_order(problems: Iterable[GraphProblem]) -> tuple[GraphProblem, ...]:
    """Return the problems in the order of the document; problems without a place come last."""
    return tuple(sorted(problems, key=lambda one: (one.line is None, one.line, one.column)))


# --- the parts of a document ---


class NodePart(Part):
    """A node."""

    step: str | None = None
    reads: list[str] | None = None
    writes: list[str] | None = None
    max_visits: int | None = None
    focus: str | None = None


class EdgePart(Part):
    """An edge."""

    source: str
    target: str
    when: str = "on_success"
    condition: str | None = None
    fallback: bool = False


class BudgetPart(Part):
    """The budget of a run."""

    # `Budget` checks the types of these values: money, for example, is a number or a text.
    usd: object = None
    tokens: object = None
    requests: object = None
    ms: object = None


class PoliciesPart(Part):
    """The policies for branches of a fork: failures, and writes to the same key."""

    on_branch_failure: str | None = None
    on_conflict: str | None = None
    reducers: dict[str, str] | None = None


class GraphPart(Part):
    """The whole document."""

    name: str
    goal: str | None = None
    entry: str | None = None
    terminals: list[str] | None = None
    pause_nodes: list[str] | None = None
    max_steps: int | None = None
    policies: PoliciesPart | None = None
    branch_timeout: float | None = None
    max_concurrency: int | None = None
    budget: BudgetPart | None = None
    conversation: str | None = None
    nodes: dict[str, NodePart | None]
    edges: list[EdgePart] = Field(default_factory=list)


_PARTS_AT: Final[PartsAt] = {
    (): GraphPart,
    ("policies",): PoliciesPart,
    ("budget",): BudgetPart,
    ("nodes", "*"): NodePart,
    ("edges", "*"): EdgePart,
}


def _with_nodes_by_id(text: YamlText) -> JsonValue:
    """Return the data, with a list of node ids turned into a mapping of the ids to `None`."""
    data = text.data
    nodes = data.get("nodes") if isinstance(data, dict) else None
    if not isinstance(data, dict) or not isinstance(nodes, list):
        return data
    by_id: dict[str, JsonValue] = {}
    for index, node_id in enumerate(nodes):
        place = text.place(("nodes", index))
        if not isinstance(node_id, str):
            message = f"nodes[{index}] is {kind(node_id)}; expected a node id, or a mapping of ids to nodes"
            text.problems.append(DocumentProblem(message, ("nodes", index), *place))
            continue
        if node_id in by_id:
            message = f"node {node_id!r} is listed more than once; keep one of them"
            text.problems.append(DocumentProblem(message, ("nodes", index), *place))
        by_id[node_id] = None
        text.values.setdefault(("nodes", node_id), place)
    return {**data, "nodes": by_id}


def _problem(misfit: Misfit) -> GraphProblem:
    found = misfit.problem
    hint = "" if misfit.unknown is None else nearest_hint(misfit.unknown, misfit.allowed)
    return GraphProblem(found.message + hint, found.way, found.line, found.column)


# --- the arguments of a graph ---


def _arguments(document: GraphPart, nodes: Mapping[str, NodeLike[Any]], text: YamlText) -> GraphArguments:
    """Return the arguments for `Graph` of a document that has the right form. Note problems in `text`."""
    policies = document.policies or PoliciesPart()
    said = {
        **document.model_dump(exclude={"policies", "budget", "nodes", "edges"}),
        **policies.model_dump(),
        "budget": _budget(document.budget, text),
    }
    arguments: dict[str, Any] = {option: value for option, value in said.items() if value is not None}
    arguments["nodes"] = {
        node_id: _node(node_id, part or NodePart(), nodes, text) for node_id, part in document.nodes.items()
    }
    # The word in `when` may be invalid: `build_plan` reports that, with the nearest valid word.
    arguments["edges"] = [Edge(**part.model_dump()) for part in document.edges]
    return cast("GraphArguments", arguments)


def _node(
    node_id: str, part: NodePart, nodes: Mapping[str, NodeLike[Any]], text: YamlText
) -> Node[Any] | None:
    name = node_id if part.step is None else part.step
    if name not in nodes:
        way: Way = ("nodes", node_id) if part.step is None else ("nodes", node_id, "step")
        message = f"node {node_id!r} has the step {name!r}, which was not given in nodes={{...}}."
        hint = nearest_hint(name, nodes)
        text.problems.append(DocumentProblem(message + hint, way, *text.place(way)))
        return None
    given = nodes[name]
    node = given if isinstance(given, Node) else Node(given)
    return replace(node, **part.model_dump(exclude={"step"}, exclude_none=True))


def _budget(part: BudgetPart | None, text: YamlText) -> Budget | None:
    if part is None:
        return None
    try:
        return Budget(**part.model_dump())
    except ConfigurationError as error:
        way = ("budget", error.option)
        text.problems.append(DocumentProblem(f"budget: {error}", way, *text.place(way)))
        return None


def dump_graph_yaml(arguments: GraphArguments) -> str:
    """Return these arguments as a document, in declaration order.

    Steps are named by the ids of their nodes. Types of answers are left out.

    Raises:
        ConfigurationError: A document cannot express the budget.
        MissingExtraError: PyYAML is not installed (the extra `yaml`).
    """
    return dump_yaml(_document(arguments), "Graph.to_yaml")


def _document(arguments: GraphArguments) -> dict[str, JsonValue]:
    """Return the arguments in the form that `load_graph_yaml` reads, without default values."""
    said: dict[str, Any] = {**arguments}
    policies = {name: said.pop(name) for name in PoliciesPart.model_fields if name in said}
    said["policies"] = PoliciesPart(**policies) if policies else None
    said["budget"] = _budget_part(arguments.get("budget"))
    for names in ("terminals", "pause_nodes"):
        said[names] = list(said.get(names) or ()) or None
    said["nodes"] = {node_id: _node_part(node) for node_id, node in arguments["nodes"].items()}
    said["edges"] = [EdgePart(**asdict(edge)) for edge in arguments["edges"]]
    document: dict[str, Any] = GraphPart.model_construct(**said).model_dump(exclude_defaults=True)
    if not any(document["nodes"].values()):
        document["nodes"] = list(document["nodes"])
    return {**document, "edges": document.get("edges", [])}


def _node_part(node: Node[Any]) -> NodePart:
    reads, writes = list(node.reads) or None, list(node.writes) or None
    return NodePart(reads=reads, writes=writes, max_visits=node.max_visits, focus=node.focus)


def _budget_part(budget: Budget | None) -> BudgetPart | None:
    if budget is None:
        return None
    usd = None if budget.usd is None else str(budget.usd)
    part = BudgetPart(usd=usd, tokens=budget.tokens, requests=budget.requests, ms=budget.ms)
    if not isinstance(budget, Budget) or Budget(**part.model_dump()) != budget:
        raise ConfigurationError(
            "budget", budget, "a Budget with usd, tokens, requests and ms alone, which YAML can hold"
        )
    return part
