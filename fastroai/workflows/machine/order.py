"""The order of a flow: a step may start when its needs are over and no earlier step may route elsewhere.

A flow runs in *passes*. A pass goes through the steps from a position on; a route begins another pass. Each
step is looked at once in a pass, and again when a step that it needs is over, so a pass takes linear time.
"""

from __future__ import annotations

from dataclasses import dataclass

from fastroai.workflows.machine.state import FlowState
from fastroai.workflows.spec.document import FlowSpec


@dataclass(frozen=True, slots=True)
class FlowOrder:
    """The order of a flow, as far as it is known before a run. Steps are given by their positions."""

    needs: tuple[tuple[int, ...], ...]
    dependents: tuple[tuple[int, ...], ...]
    routes: tuple[bool, ...]
    """Whether each step can route elsewhere; then nothing after it starts before it is over."""
    alone: tuple[bool, ...]
    """Whether each step starts only when everything before it is over: gates, and steps with `next`."""
    routed_only: frozenset[int]

    @classmethod
    def of(cls, flow: FlowSpec) -> FlowOrder:
        """Return the order of a flow."""
        position = {step.id: number for number, step in enumerate(flow.steps)}
        needs = tuple(
            tuple(sorted({position[one] for one in flow.needs.get(step.id, ())})) for step in flow.steps
        )
        dependents: list[list[int]] = [[] for _ in flow.steps]
        for number, before in enumerate(needs):
            for one in before:
                dependents[one].append(number)
        alone = tuple(step.gate is not None or step.next is not None for step in flow.steps)
        return cls(
            needs=needs,
            dependents=tuple(map(tuple, dependents)),
            routes=tuple(
                is_alone or step.on_fail is not None for step, is_alone in zip(flow.steps, alone, strict=True)
            ),
            alone=alone,
            routed_only=frozenset(position[one] for one in flow.routed_only),
        )

    def begin(self, flow: FlowState, target: int | None = None) -> list[int]:
        """Begin a pass at its target. The target runs even if it is a step that only routes lead to.

        Return the positions of steps that may start: the target is one of them.
        """
        flow.cursor, flow.admitted, flow.router = target or 0, target, None
        flow.todo.clear()
        return self._come_up(flow)

    def over(self, flow: FlowState, position: int) -> list[int]:
        """Take in that a step is over. Return the positions of steps that may start now."""
        del flow.todo[position]
        ready: list[int] = []
        for dependent in self.dependents[position]:
            if dependent in flow.todo:
                flow.todo[dependent] -= 1
                if not flow.todo[dependent] and not self.alone[dependent]:
                    ready.append(dependent)
        router = flow.router
        if router == position:
            flow.router = None
        elif router is not None and self.alone[router] and len(flow.todo) == 1:
            ready.append(router)
        return ready + self._come_up(flow)

    def is_over(self, flow: FlowState) -> bool:
        """Return whether nothing is left to do in the pass."""
        return not flow.todo and flow.cursor >= len(self.needs)

    def left_out(self, flow: FlowState, target: int) -> list[int]:
        """Return the positions of steps that a route forward to `target` skips."""
        return [one for one in range(flow.cursor, target) if one not in self.routed_only]

    def _come_up(self, flow: FlowState) -> list[int]:
        """Go on to the next step that can route. Return the positions of steps that may start."""
        ready: list[int] = []
        while flow.router is None and flow.cursor < len(self.needs):
            position = flow.cursor
            flow.cursor += 1
            if position != flow.admitted and (flow.killing or position in self.routed_only):
                continue
            missing = sum(1 for one in self.needs[position] if one in flow.todo)
            flow.todo[position] = missing
            if self.routes[position]:
                flow.router = position
            if not missing and not (self.alone[position] and len(flow.todo) > 1):
                ready.append(position)
        return ready
