"""Functions that a model implements, and the flows that they make up."""
