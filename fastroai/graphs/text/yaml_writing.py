"""Graphs as YAML documents that people can read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from pydantic import JsonValue

from fastroai.errors import ConfigurationError, MissingExtraError
from fastroai.graphs.shape.edge import Edge
from fastroai.graphs.shape.node import Node
from fastroai.graphs.text.yaml import GraphArguments
from fastroai.graphs.text.yaml_text import scalar
from fastroai.usage import Budget


def dump_graph_yaml(arguments: GraphArguments) -> str:
    """A document that says the same, in declaration order. Steps are named by the ids of their nodes.

    Types of answers are not in it.

    Raises:
        ConfigurationError: The budget is one that a document cannot say.
        MissingExtraError: PyYAML is not installed (the extra `yaml`).
    """
    try:
        import yaml
    except ImportError as error:
        raise MissingExtraError("Graph.to_yaml", "yaml", "pyyaml") from error

    class Dumper(yaml.SafeDumper):
        """Puts texts into quotes that would be read as something else."""

    def represent(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
        return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=_style(text))

    Dumper.add_representer(str, represent)
    return yaml.dump(
        _said(_document(arguments)),
        Dumper=Dumper,
        sort_keys=False,
        allow_unicode=True,
        default_flow_style=None,
        width=100,
    )


def _style(text: str) -> str | None:
    """The quotes that a text needs to be read as it is; `None` where PyYAML knows."""
    if not text.replace("\n", "").isprintable():
        return '"'
    if "\n" in text:
        return "|"
    return None if isinstance(scalar(text), str) else "'"


def _document(arguments: GraphArguments) -> dict[str, JsonValue]:
    policies: dict[str, JsonValue] = {
        "on_branch_failure": arguments.get("on_branch_failure"),
        "on_conflict": arguments.get("on_conflict"),
    }
    nodes: dict[str, JsonValue] = {node_id: _node_part(node) for node_id, node in arguments["nodes"].items()}
    terminals, pauses = arguments.get("terminals"), arguments.get("pause_nodes")
    return {
        "name": arguments["name"],
        "goal": arguments.get("goal"),
        "entry": arguments.get("entry"),
        "terminals": None if terminals is None else list(terminals),
        "pause_nodes": list(pauses) if pauses else None,
        "max_steps": arguments.get("max_steps"),
        "policies": _said(policies) or None,
        "branch_timeout": arguments.get("branch_timeout"),
        "max_concurrency": arguments.get("max_concurrency"),
        "budget": _budget_part(arguments.get("budget")),
        "conversation": arguments.get("conversation"),
        "nodes": list(nodes) if not any(nodes.values()) else nodes,
        "edges": [_edge_part(edge) for edge in arguments["edges"]],
    }


def _node_part(node: Node[Any]) -> dict[str, JsonValue]:
    return _said(
        {
            "reads": list(node.reads) or None,
            "writes": list(node.writes) or None,
            "max_visits": node.max_visits,
            "focus": node.focus,
        }
    )


def _edge_part(edge: Edge) -> dict[str, JsonValue]:
    return _said(
        {
            "source": edge.source,
            "target": edge.target,
            "when": None if edge.when == "on_success" else edge.when,
            "condition": edge.condition,
            "fallback": edge.fallback or None,
        }
    )


def _budget_part(budget: Budget | None) -> dict[str, JsonValue] | None:
    if budget is None:
        return None
    part = _said(
        {
            "usd": None if budget.usd is None else str(budget.usd),
            "tokens": budget.tokens,
            "requests": budget.requests,
            "ms": budget.ms,
        }
    )
    if not isinstance(budget, Budget) or Budget(**cast("dict[str, Any]", part)) != budget:
        raise ConfigurationError("budget", budget, "a Budget of usd, tokens, requests and ms, to be written")
    return part


def _said(options: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
    return {option: value for option, value in options.items() if value is not None}
