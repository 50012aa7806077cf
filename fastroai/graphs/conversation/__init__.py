"""What the agents of a graph hear of each other."""
