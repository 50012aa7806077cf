"""Graphs as YAML documents that people can read."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from pydantic import JsonValue

from fastroai.documents.yaml_writing import dump_yaml
from fastroai.errors import ConfigurationError
from fastroai.graphs.shape.node import Node
from fastroai.graphs.text.yaml import (
    BudgetPart,
    EdgePart,
    GraphArguments,
    GraphPart,
    NodePart,
    PoliciesPart,
)
from fastroai.usage import Budget


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
