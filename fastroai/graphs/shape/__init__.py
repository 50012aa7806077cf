"""What a graph is: nodes, edges, plan, and every problem of it."""
