"""Graphs as text and as images."""
