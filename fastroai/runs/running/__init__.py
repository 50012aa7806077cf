"""One run: a state machine, its replay, and the runner that performs decisions."""
