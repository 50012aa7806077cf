"""Requests of agents: admitted, priced, charged, and put on record."""
