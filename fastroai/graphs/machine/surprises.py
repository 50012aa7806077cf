"""Warnings of what a graph does as it says, and yet hardly as it is meant."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from fastroai.graphs.machine.routing import EdgeOutcome
from fastroai.runtime.facts import EdgesResolved
from fastroai.tracing.attributes import error_summary

logger = logging.getLogger("fastroai.graphs")


def warn_of(graph: str, route: EdgesResolved, failures: Mapping[str, BaseException]) -> None:
    """A failure that an `always` edge goes on after, and conditions that cannot be evaluated."""
    node, edges = route.step_id, [one for one in route.edges if isinstance(one, EdgeOutcome)]
    if route.after == "failed":
        taken = [one.edge for one in edges if one.taken]
        if taken and all(edge.when == "always" for edge in taken):
            logger.warning(
                "graph %r: node %r failed, and the run goes on to %s, since always is after failures too: "
                "%s. Where it should not, say when='on_success'",
                graph,
                node,
                ", ".join(repr(edge.target) for edge in taken),
                error_summary(failures[node]),
            )
        return
    for one in edges:
        if one.test is not None and one.test.problem is not None:
            logger.warning(
                "graph %r: the condition of the edge from %r to %r cannot be evaluated, so it does not hold: "
                "%s",
                graph,
                node,
                one.edge.target,
                one.test.explain(),
            )
