"""An `EvaluationReport` of pydantic_evals as a comparison of one variant."""

from __future__ import annotations

from typing import Any

from fastroai.evaluation.comparison import Comparison
from fastroai.evaluation.results import CaseResult, EvaluationResult, VariantResult
from fastroai.records import Usage


def comparison_of(report: Any) -> Comparison:
    """Return a report as a comparison of one variant. Its costs are in the metrics of the report only."""
    names = {name for case in report.cases for name in case.assertions}
    cases = {
        case.name: _case(
            case,
            output=case.output,
            duration_ms=case.task_duration * 1000,
            evaluations={
                name: EvaluationResult(value=one.value, reason=one.reason, source=name)
                for values in (case.assertions, case.scores, case.labels)
                for name, one in values.items()
            },
            evaluator_failures={one.name: one.error_message for one in case.evaluator_failures},
        )
        for case in report.cases
    } | {
        case.name: _case(case, output=None, failure=case.error_message, duration_ms=0.0, evaluators=[*names])
        for case in report.failures
    }
    return Comparison("", [VariantResult(name=report.name, cases=cases)])


def _case(case: Any, **more: Any) -> CaseResult:
    return CaseResult(
        name=case.name,
        inputs=case.inputs,
        metadata=case.metadata,
        expected_output=case.expected_output,
        usage=Usage(),
        **more,
    )
