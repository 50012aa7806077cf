"""Spending that many runs and processes share: limits, stores and their rules."""
