"""The data that all runs of one pipeline share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from fastroai.contracts import Contract
from fastroai.contracts.annotations import Annotation
from fastroai.pipelines.machine import PipelineMachine
from fastroai.pipelines.plan import Plan
from fastroai.runtime.fact_base import Part
from fastroai.steps import BaseStep, ResolvedConfig
from fastroai.steps.contracts import BoundContract, declared_output


@dataclass(frozen=True, kw_only=True)
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
    said: Mapping[str, Contract]
    """Contracts that the pipeline sets for its steps, by step id."""

    @cached_property
    def declared(self) -> Mapping[str, Annotation]:
        """Declared types of outputs, by step id, for steps that have one. Only runs on record use them."""
        types = {
            step_id: declared_output(step, self.said.get(step_id)) for step_id, step in self.steps.items()
        }
        return {step_id: declared for step_id, declared in types.items() if declared is not None}

    def machine(self, part: Part) -> PipelineMachine:
        """Return the state machine of a new run."""
        return PipelineMachine(self.plan, exempt=self.exempt, max_concurrency=self.max_concurrency, part=part)
