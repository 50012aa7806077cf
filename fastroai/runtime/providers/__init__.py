"""Requests to providers besides their money: limits, lines and circuit breakers."""
