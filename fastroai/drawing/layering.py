"""The layers of the nodes of a drawing."""

from __future__ import annotations

from collections.abc import Sequence


def layers_of(edges: Sequence[tuple[int, int]], first: Sequence[int]) -> list[int]:
    """Return the layer of each node, with 0 at the top. A node is below its longest way from above.

    An edge that closes a cycle leads up, and every other edge leads down. A walk finds the edges that close
    cycles. It starts from the nodes in the order of `first`, which has all nodes. No edge may lead from a
    node to itself.
    """
    targets: list[list[int]] = [[] for _ in first]
    for source, target in edges:
        targets[source].append(target)
    from_above = _last_left_first(targets, first)
    turn = {node: index for index, node in enumerate(from_above)}
    below = [[target for target in targets[node] if turn[target] > turn[node]] for node in range(len(first))]
    layer = [0] * len(first)
    for node in from_above:
        for target in below[node]:
            layer[target] = max(layer[target], layer[node] + 1)
    # A node that nothing leads to moves down to just above its targets: otherwise, layer 0 would collect
    # nodes that are far from them.
    led_to = {target for node in from_above for target in below[node]}
    for node in from_above:
        if node not in led_to and below[node]:
            layer[node] = min(layer[target] for target in below[node]) - 1
    return layer


def _last_left_first(targets: Sequence[Sequence[int]], first: Sequence[int]) -> list[int]:
    """Return the nodes of a depth-first walk, last left first: in topological order, but for cycles."""
    left: list[int] = []
    seen: set[int] = set()
    for root in first:
        if root in seen:
            continue
        seen.add(root)
        walk = [(root, iter(targets[root]))]
        while walk:
            node, ahead = walk[-1]
            unseen = next((target for target in ahead if target not in seen), None)
            if unseen is None:
                left.append(node)
                walk.pop()
            else:
                seen.add(unseen)
                walk.append((unseen, iter(targets[unseen])))
    return left[::-1]
