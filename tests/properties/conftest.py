"""How many examples: Hypothesis' default in the suite, many more with `make soak` and `make fuzz`."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("soak", max_examples=20_000, deadline=None, derandomize=False)
settings.register_profile("fuzz", max_examples=100_000, deadline=None, derandomize=False)
