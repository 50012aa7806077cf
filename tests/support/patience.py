"""How long the tests wait for what must come."""

from typing import Final

PATIENCE: Final = 300
"""Seconds. However busy a machine is, what has not come by then never comes."""
