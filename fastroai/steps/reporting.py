"""What happens in a step, told to whoever listens to the run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from fastroai.errors import ContractViolation
from fastroai.runtime import ContractViolated, Retry, Scope, StepRetried, TextChunk


@dataclass(frozen=True, slots=True)
class StepReports:
    """Those of one step."""

    scope: Scope
    """That of the step."""
    pipeline: str
    path: tuple[str, ...]
    """Of the run that the step belongs to, as events have it."""

    async def retry(self, retry: Retry, unit: Literal["step", "call"]) -> None:
        """An attempt failed, and another follows."""
        await self.scope.emit(
            StepRetried(
                run_id=self.scope.run_id,
                pipeline=self.pipeline,
                path=self.path,
                step_id=self.scope.name,
                attempt=retry.failed_attempt,
                error=retry.error,
                failure_class=retry.failure_class,
                delay=retry.delay,
                used=retry.used,
                unit=unit,
            )
        )

    async def violation(self, violation: ContractViolation) -> None:
        """The contract of the step does not hold."""
        await self.scope.emit(
            ContractViolated(
                run_id=self.scope.run_id,
                pipeline=self.pipeline,
                path=self.path,
                step_id=self.scope.name,
                error=violation,
            )
        )

    async def text(self, text: str) -> None:
        """A piece of an answer that the step streams."""
        await self.scope.emit(
            TextChunk(
                run_id=self.scope.run_id,
                pipeline=self.pipeline,
                path=self.path,
                step_id=self.scope.name,
                text=text,
            )
        )
