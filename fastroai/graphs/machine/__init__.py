"""The state machine of a graph: the nodes that run next, and the values in memory."""
