"""Decisions on what runs next in a workflow: a pure state machine, and the state that it keeps."""
