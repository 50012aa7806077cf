"""Usage reports: sums of requests by name, as tables and as data."""
