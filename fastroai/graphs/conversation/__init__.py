"""The conversation that the agents of a graph share."""
