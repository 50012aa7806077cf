"""Other libraries' ways of running things: `fastroai.integrations.langgraph`.

Nothing is imported here; each module needs the extra of its name.
"""
