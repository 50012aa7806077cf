"""Agent calls as values: the arguments of a call, and its response."""
