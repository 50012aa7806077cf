"""The warning of conditions that cannot be evaluated, and so never hold."""

from __future__ import annotations

import logging

from fastroai.graphs.machine.routing import EdgeOutcome
from fastroai.runtime.facts import EdgesResolved

logger = logging.getLogger("fastroai.graphs")


def warn_of(graph: str, route: EdgesResolved) -> None:
    """Warn of each edge whose condition cannot be evaluated."""
    for one in route.edges:
        if isinstance(one, EdgeOutcome) and one.test is not None and one.test.problem is not None:
            logger.warning(
                "graph %r: the condition of the edge from %r to %r cannot be evaluated, so it does not hold: "
                "%s",
                graph,
                route.step_id,
                one.edge.target,
                one.test.explain(),
            )
