"""Which steps always finish before which others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from functools import cached_property
from graphlib import CycleError, TopologicalSorter
from typing import NamedTuple


class _Place(NamedTuple):
    """The place of a step in a chain: a longest row of steps, each the only one before or after the next."""

    chain: int
    position: int


class Ancestry:
    """The ancestors of steps; made of their direct dependencies when somebody first asks.

    A question takes the same time at any distance. The answers take a bit for each pair of chains, so a long
    pipeline that hardly branches needs next to nothing.
    """

    def __init__(self, dependencies: Mapping[str, tuple[str, ...]]) -> None:
        self._dependencies = dependencies

    def is_before(self, step_id: str, of: str) -> bool:
        """Return whether a step always finishes before another. In a circle, all are before all."""
        known = self._known
        if known is None:
            return True
        places, before = known
        place, place_of = places[step_id], places[of]
        if place.chain == place_of.chain:
            return place.position < place_of.position
        return bool(before[place_of.chain] >> place.chain & 1)

    @cached_property
    def _known(self) -> tuple[Mapping[str, _Place], list[int]] | None:
        """The place of each step, and for each chain a bit for each chain before it; `None` with a circle."""
        try:
            order = [*TopologicalSorter(self._dependencies).static_order()]
        except CycleError:
            return None
        uses = Counter(need for needs in self._dependencies.values() for need in needs)
        places: dict[str, _Place] = {}
        before: list[int] = []
        for step_id in order:
            needs = self._dependencies[step_id]
            if len(needs) == 1 and uses[needs[0]] == 1:
                chain, position = places[needs[0]]
                places[step_id] = _Place(chain, position + 1)
                continue
            places[step_id] = _Place(len(before), 0)
            chains = {places[need].chain for need in needs}
            above = 0
            for chain in chains:
                above |= before[chain] | 1 << chain
            before.append(above)
        return places, before
