"""How many examples: Hypothesis' default in the suite, many more with `make soak`."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("soak", max_examples=20_000, deadline=None)
