"""The record of a run: its log, header, index of facts, and their encoding."""
