"""The shape of a graph: nodes, edges and plan, and the search for problems with them."""
