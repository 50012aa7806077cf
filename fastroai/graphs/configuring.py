"""The settings of nodes, after inheritance."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, Final

from fastroai.graphs.machine.events import decision_name
from fastroai.graphs.shape.node import Node
from fastroai.records import NotGiven
from fastroai.steps import PipelineConfig, ResolvedConfig, StepConfig
from fastroai.steps.config import resolve

NODE_RETRIES: Final = 2
"""Default number of extra attempts at a node, which makes three attempts."""


def configs_of(
    nodes: Mapping[str, Node[Any]], asking: Iterable[str], config: PipelineConfig
) -> dict[str, ResolvedConfig]:
    """Return the settings of every node, and of the decisions after the nodes in `asking`, by step id.

    A node that judges itself makes its own attempts, so the default retries do not apply to it.
    """
    said = not (isinstance(config.retries, NotGiven) and isinstance(config.retry, NotGiven))
    retried = config if said else replace(config, retries=NODE_RETRIES)
    decider = resolve(StepConfig(), pipeline=config)
    return dict.fromkeys(map(decision_name, asking), decider) | {
        node_id: resolve(node.step.config, pipeline=config if judges_itself(node) else retried)
        for node_id, node in nodes.items()
    }


def judges_itself(node: Node[Any]) -> bool:
    """Return whether the step of a node has a judge of its own."""
    return getattr(node.step, "judges_itself", False) is True
