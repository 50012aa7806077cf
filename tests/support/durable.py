"""Pipelines whose steps count what they do, for tests of runs on record."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from fastroai.pipelines import BaseStep, Pipeline, StepContext, step


class Counted:
    """Steps that count their executions, and fail while their name is in `failing`."""

    def __init__(self) -> None:
        self.ran: Counter[str] = Counter()
        self.failing: set[str] = set()

    def step(self, name: str, gives: Callable[[StepContext[Any]], Any] | None = None) -> BaseStep[Any, Any]:
        @step
        async def counted(ctx: StepContext[Any]) -> Any:
            self.ran[name] += 1
            if name in self.failing:
                raise ValueError(f"{name} fails")
            if gives is not None:
                return gives(ctx)
            return [name, *(ctx.get_dependency_or_none(before) for before in ctx.dependencies)]

        return counted

    def pipeline(self, name: str, needs: Mapping[str, Sequence[str]], **options: Any) -> Pipeline[Any, Any]:
        """Each step is called `pipeline.step` in `ran`, unless the pipeline is `p`."""
        prefix = "" if name == "p" else f"{name}."
        return Pipeline(name, {each: self.step(prefix + each) for each in needs}, {**needs}, **options)

    def take(self) -> dict[str, int]:
        """What ran since this was last asked."""
        ran, self.ran = dict(self.ran), Counter()
        return ran


DIAMOND = {"a": [], "b": ["a"], "c": ["a"], "d": ["b", "c"]}
