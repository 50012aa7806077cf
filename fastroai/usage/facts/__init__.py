"""What providers document: one table, each line with its source and the day on which it was read.

Nothing here is a guess: what no page says is `None`, and what is asked of such a line has no bound.
"""

from fastroai.usage.facts.regions import most_regional_factor, regional_factor
from fastroai.usage.facts.source import Source

__all__ = ["Source", "most_regional_factor", "regional_factor"]
