"""Flows: async functions as runs."""
