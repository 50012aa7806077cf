"""Models that judge and decide in a graph."""
