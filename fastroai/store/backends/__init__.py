"""Stores of runs: in memory, in a file, on servers, and adapters."""
