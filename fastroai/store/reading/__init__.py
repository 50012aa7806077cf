"""Runs read by people and programs: history, traces, explanations and spending."""
