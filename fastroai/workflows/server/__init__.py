"""The MCP server over which coding agents drive workflows. It needs the extra `mcp`."""
