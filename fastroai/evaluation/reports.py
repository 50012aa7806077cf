"""Results as an `EvaluationReport` of pydantic_evals, and back."""

from __future__ import annotations

import importlib
from typing import Any, TypeVar

from fastroai.errors import MissingExtraError
from fastroai.evaluation.comparison import Comparison
from fastroai.evaluation.results import CaseResult, EvaluationResult, VariantResult
from fastroai.records import Usage

T = TypeVar("T")


def report_of(variant: VariantResult) -> Any:
    """Return the results of a variant as a report. Raises `MissingExtraError`."""
    try:
        reporting = importlib.import_module("pydantic_evals.reporting")
    except ImportError as error:
        raise MissingExtraError("a report of an evaluation", "evals", "pydantic-evals") from error
    evaluators = importlib.import_module("pydantic_evals.evaluators")

    def results(case: CaseResult, values: dict[str, Any]) -> dict[str, Any]:
        return {
            name: evaluators.EvaluationResult(
                name=name,
                value=value,
                reason=case.evaluations[name].reason,
                source=evaluators.EvaluatorSpec(name=case.evaluations[name].source, arguments=None),
            )
            for name, value in values.items()
        }

    def about(case: CaseResult) -> dict[str, Any]:
        return {
            "name": case.name,
            "inputs": case.inputs,
            "metadata": case.metadata,
            "expected_output": case.expected_output,
        }

    return reporting.EvaluationReport(
        name=variant.name,
        cases=[
            reporting.ReportCase(
                **about(case),
                output=case.output,
                metrics=case.metrics,
                attributes={},
                scores=results(case, case.scores),
                labels=results(case, case.labels),
                assertions=results(case, case.assertions),
                task_duration=case.duration_ms / 1000,
                total_duration=case.duration_ms / 1000,
                evaluator_failures=[
                    evaluators.EvaluatorFailure(
                        name=name,
                        error_message=message,
                        error_stacktrace="",
                        source=evaluators.EvaluatorSpec(name=name, arguments=None),
                    )
                    for name, message in case.evaluator_failures.items()
                ],
            )
            for case in variant.cases.values()
            if case.failure is None
        ],
        failures=[
            reporting.ReportCaseFailure(**about(case), error_message=case.failure, error_stacktrace="")
            for case in variant.cases.values()
            if case.failure is not None
        ],
    )


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
