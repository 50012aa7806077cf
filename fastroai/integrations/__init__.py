"""Bridges to other libraries that run agents: `fastroai.integrations.langgraph`.

This package imports nothing; each of its modules needs the extra of its name.
"""
