"""The kinds of facts that FastroAI declares, without those of tests."""

from __future__ import annotations

from typing import Final

from fastroai.runtime.fact_base import Fact
from fastroai.runtime.kinds import fact_classes

FACTS: Final[tuple[type[Fact], ...]] = tuple(
    fact for fact in fact_classes() if fact.__module__.startswith("fastroai.")
)
