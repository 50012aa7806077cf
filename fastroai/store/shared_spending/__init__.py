"""Shared spending kept in a store of runs."""
