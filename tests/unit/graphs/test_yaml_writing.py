from __future__ import annotations

import sys

import pytest

from fastroai import Budget, StepContext, step
from fastroai.errors import ConfigurationError, MissingExtraError
from fastroai.graphs.document import GraphArguments, dump_graph_yaml
from fastroai.graphs.shape.edge import Edge
from fastroai.graphs.shape.node import Node


@step
async def work(ctx: StepContext) -> str: ...


def test_a_document_is_readable_and_in_declaration_order() -> None:
    text = dump_graph_yaml(
        {
            "name": "support",
            "goal": "Answer the ticket.\nBe kind.",
            "nodes": {
                "z": Node(work, reads=["x"], writes=["y"], answer_type=bool),
                "on": Node(work, max_visits=2),
            },
            "edges": [
                Edge("z", "on", "conditional", "y >= 0.8 and x in ['a']"),
                Edge("z", "on", "on_failure"),
            ],
            "terminals": ["on"],
            "on_conflict": "error",
            "budget": Budget(usd="0.50", ms=1000),
        }
    )
    assert text == (
        "name: support\n"
        "goal: |-\n"
        "  Answer the ticket.\n"
        "  Be kind.\n"
        "terminals: ['on']\n"
        "policies: {on_conflict: error}\n"
        "budget:\n"
        "  usd: '0.50'\n"
        "  ms: 1000\n"
        "nodes:\n"
        "  z:\n"
        "    reads: [x]\n"
        "    writes: [y]\n"
        "  'on': {max_visits: 2}\n"
        "edges:\n"
        "- {source: z, target: 'on', when: conditional, condition: 'y >= 0.8 and x in [''a'']'}\n"
        "- {source: z, target: 'on', when: on_failure}\n"
    )


def test_what_is_not_said_is_not_written() -> None:
    arguments: GraphArguments = {
        "name": "g",
        "goal": None,
        "nodes": {"a": Node(work)},
        "edges": [],
        "terminals": None,
        "pause_nodes": (),
        "budget": None,
    }
    assert dump_graph_yaml(arguments) == "name: g\nnodes: [a]\nedges: []\n"


def test_a_text_that_would_be_read_as_something_else_is_in_quotes() -> None:
    arguments: GraphArguments = {
        "name": "1e3",
        "goal": "one\u2028two",
        "nodes": {"a": Node(work)},
        "edges": [],
    }
    assert dump_graph_yaml(arguments) == "name: '1e3'\ngoal: \"one\\Ltwo\"\nnodes: [a]\nedges: []\n"


def test_a_budget_that_a_document_cannot_say_is_refused() -> None:
    arguments: GraphArguments = {"name": "g", "nodes": {"a": Node(work)}, "edges": []}
    arguments["budget"] = Budget(usd=1, on_unpriced="allow")
    with pytest.raises(ConfigurationError, match="expected a Budget with usd, tokens, requests and ms alone"):
        dump_graph_yaml(arguments)


def test_without_pyyaml_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "yaml", None)
    with pytest.raises(MissingExtraError, match=r"Graph.to_yaml needs pyyaml: .*yaml"):
        dump_graph_yaml({"name": "g", "nodes": {}, "edges": []})
