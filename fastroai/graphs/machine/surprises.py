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
    node = route.step_id
    if route.after == "failed":
        taken = [one for one in route.edges if one.taken]
        if taken and all(one.when == "always" for one in taken):
            logger.warning(
                "graph %r: node %r failed, and the run goes on to %s, since always is after failures too: "
                "%s. Where it should not, say when='on_success'",
                graph,
                node,
                ", ".join(repr(one.target) for one in taken),
                error_summary(failures[node]),
            )
        return
    for one in route.edges:
        if isinstance(one, EdgeOutcome) and one.test is not None and one.test.problem is not None:
            logger.warning(
                "graph %r: the condition of the edge from %r to %r cannot be evaluated, so it does not hold: "
                "%s",
                graph,
                node,
                one.edge.target,
                one.test.explain(),
            )
