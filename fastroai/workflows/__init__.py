"""Workflows: typed specs in YAML, driven by a coding agent over MCP or run by FastroAI itself."""
