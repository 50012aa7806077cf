"""What runs next in a graph, and what its memory holds."""
