"""Setting up coding agents for the MCP server: their configuration, instructions, skills and hooks."""
