"""FastroAI in a minute, offline: `make demo`, and `make view` to see its runs in a browser."""
