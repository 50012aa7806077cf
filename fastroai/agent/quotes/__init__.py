"""Quotes of agent calls, before they are made."""
