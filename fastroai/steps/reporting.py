"""What happens in a step, told to whoever listens to the run."""

from __future__ import annotations

from dataclasses import dataclass

from fastroai.errors import ContractViolation
from fastroai.runtime import ContractViolated, Scope, TextChunk


@dataclass(frozen=True, slots=True)
class StepReports:
    """Those of one step."""

    scope: Scope
    """That of the step."""

    async def violation(self, violation: ContractViolation) -> None:
        """The contract of the step does not hold."""
        scope = self.scope
        await scope.emit(ContractViolated(part=scope.part, step_id=scope.name, error=violation))

    async def text(self, text: str) -> None:
        """A piece of an answer that the step streams."""
        await self.scope.emit(TextChunk(part=self.scope.part, step_id=self.scope.name, text=text))
