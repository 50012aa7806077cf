"""Prices of requests, exact, and the bill of each response."""
