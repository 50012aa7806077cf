"""Warnings of what is hardly meant: conditions that cannot be evaluated, and values that are overwritten."""

from __future__ import annotations

import logging
from collections import Counter

from fastroai.graphs.machine.branches import Joined
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


def warn_of_overwritten(graph: str, joined: Joined) -> None:
    """Warn of each value that a branch wrote and another one overwrote, where nobody said that it may."""
    for key, nodes in joined.overwritten.items():
        *others, last = nodes
        lost = [
            f"{node!r} ({count} times)" if count > 1 else repr(node)
            for node, count in Counter(others).items()
        ]
        logger.warning(
            "graph %r: branches after %r wrote %r. The value of %r was the last, that of %s is overwritten. "
            "Keep all by reducers={%r: 'append'} or 'merge', 'add', a function; 'last_wins' if it is meant",
            graph,
            joined.fork.node,
            key,
            last,
            ", ".join(lost),
            key,
        )
