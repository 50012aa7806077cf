"""What the runs of one pipeline have in common."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fastroai.contracts.annotations import Annotation
from fastroai.pipelines.machine import PipelineMachine
from fastroai.pipelines.plan import Plan
from fastroai.runtime.facts import NOWHERE, Part
from fastroai.steps import BaseStep, ResolvedConfig
from fastroai.steps.contracts import BoundContract
from fastroai.usage import CostCalculator


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineSetup:
    """A pipeline, ready to run."""

    name: str
    plan: Plan
    steps: Mapping[str, BaseStep[Any, Any]]
    configs: Mapping[str, ResolvedConfig]
    contracts: Mapping[str, BoundContract]
    exempt: frozenset[str]
    """The steps whose failures do not stop a run."""
    max_concurrency: int | None
    declared: Mapping[str, Annotation]
    """Declared types of outputs, by step id; of those that have any."""
    calculator: CostCalculator

    def machine(self, part: Part = NOWHERE, *, resumes: bool = False) -> PipelineMachine:
        """The state machine of a run."""
        return PipelineMachine(
            self.plan,
            exempt=self.exempt,
            max_concurrency=self.max_concurrency,
            part=part,
            resumes=resumes,
        )
