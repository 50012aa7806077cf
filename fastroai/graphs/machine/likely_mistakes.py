"""Warnings of likely mistakes: conditions that cannot be evaluated, and values that are overwritten."""

from __future__ import annotations

import logging
from collections import Counter

from fastroai.graphs.machine.branches import Joined
from fastroai.graphs.machine.routing import Unevaluated

logger = logging.getLogger("fastroai.graphs")


def warn_of_unevaluated(graph: str, conditions: Unevaluated) -> None:
    """Warn of each edge whose condition cannot be evaluated."""
    for one in conditions.edges:
        logger.warning(
            "graph %r: the condition of the edge from %r to %r cannot be evaluated, so it does not hold: %s",
            graph,
            conditions.node,
            one.target,
            one.why,
        )


def warn_of_overwritten(graph: str, joined: Joined) -> None:
    """Warn of each value that a branch wrote and another one overwrote, if no reducer says so."""
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
