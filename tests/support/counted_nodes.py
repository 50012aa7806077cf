"""Nodes of graphs that count their executions, for tests of runs on record."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

from fastroai.pipelines import BaseStep, StepContext, step


class Counted:
    """Nodes that count their executions, and fail while their name is in `failing`."""

    def __init__(self) -> None:
        self.ran: Counter[str] = Counter()
        self.failing: set[str] = set()

    def node(
        self, name: str, does: Callable[[StepContext[Any]], Awaitable[Any]] | None = None, **options: Any
    ) -> BaseStep[Any, Any]:
        @step(**{"retries": 0, **options})
        async def counted(ctx: StepContext[Any]) -> Any:
            self.ran[name] += 1
            if name in self.failing:
                raise ConnectionError(f"{name} is down")
            return name if does is None else await does(ctx)

        return counted

    def nodes(self, *names: str) -> dict[str, BaseStep[Any, Any]]:
        return {name: self.node(name) for name in names}

    def take(self) -> dict[str, int]:
        """What ran since this was last asked."""
        ran, self.ran = dict(self.ran), Counter()
        return ran
