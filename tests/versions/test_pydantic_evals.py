"""Datasets, evaluators and reports of pydantic_evals, with the version of PydanticAI that it pins."""

from __future__ import annotations

import sys
from decimal import Decimal
from pathlib import Path
from typing import Any, Literal

import pytest
from pydantic_evals import Case, Dataset
from pydantic_evals.evaluators import Contains, EqualsExpected, EvaluationReason, Evaluator, EvaluatorContext
from typer.testing import CliRunner

from fastroai import infer
from fastroai.evaluation import compare, task
from fastroai.testing import Fault, ModelServer, Reply, Usage


class Length(Evaluator[str, str, None]):
    def evaluate(self, ctx: EvaluatorContext[str, str, None]) -> EvaluationReason:
        assert ctx.metrics["request_count"] == 1
        return EvaluationReason(value=len(ctx.output) / 10, reason="its length")


@pytest.fixture
def classify(model_server: ModelServer) -> Any:
    model_server.rule(lambda request: "broken" in str(request.messages), Reply(fault=Fault.status(400)))
    model_server.rule(
        None,
        lambda request: Reply(
            data={"response": "other" if "wrong" in str(request.messages) else "billing"},
            usage=Usage(100, 10),
        ),
    )

    @infer(intent="Classify", model=model_server.model("openai:gpt-5-nano"), retries=0)
    async def classify(text: str) -> Literal["billing", "other"]:
        raise NotImplementedError

    return classify


DATASET: Dataset[str, str, None] = Dataset(
    name="tickets",
    cases=[
        Case(name="paid", inputs="I paid twice", expected_output="billing", evaluators=[Contains("bill")]),
        Case(name="wrong", inputs="wrong", expected_output="billing"),
        Case(name="none", inputs="no expected output"),
        Case(name="broken", inputs="broken", expected_output="billing"),
    ],
    evaluators=[EqualsExpected(), Length()],
)


async def test_a_task_of_pydantic_evals_has_costs_tokens_and_attempts_as_metrics(classify: Any) -> None:
    report = await DATASET.evaluate(task(classify), progress=False)
    assert report.name == "classify"
    assert [(case.name, case.metrics) for case in report.cases] == [
        (name, {"cost_usd": 0.000009, "total_tokens": 110, "request_count": 1, "attempts": 1})
        for name in ("paid", "wrong", "none")
    ]
    assert [
        case.assertions.get("EqualsExpected") and case.assertions["EqualsExpected"].value
        for case in report.cases
    ] == [True, False, None]
    assert [failure.name for failure in report.failures] == ["broken"]


async def test_a_dataset_and_its_evaluators_are_compared(classify: Any, tmp_path: Path) -> None:
    comparison = await compare({"one": classify}, DATASET, store=str(tmp_path / "runs.db"), run_id="r")
    cases = comparison.variants["one"].cases
    assert cases["paid"].assertions == {"Contains": True, "EqualsExpected": True}
    assert (cases["wrong"].scores, cases["wrong"].evaluations["Length"].reason) == (
        {"Length": 0.5},
        "its length",
    )
    assert cases["none"].assertions == {}  # an evaluator of pydantic_evals gives no value there
    assert comparison.cost_usd == 3 * Decimal("0.000009")
    quality = comparison.quality("EqualsExpected")["one"]
    assert quality is not None
    assert (quality.value, quality.count) == (pytest.approx(1 / 3), 3)


def test_the_command_takes_a_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from fastroai.cli.app import app

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    Path("evals_of_reports.py").write_text(
        "from pydantic_evals import Case, Dataset\n"
        "from pydantic_evals.evaluators import EqualsExpected\n"
        "from fastroai.evaluation import task\n"
        "cases = [Case(name=n, inputs=n, expected_output='a') for n in 'ab']\n"
        "async def report():\n"
        "    dataset = Dataset(name='d', cases=cases, evaluators=[EqualsExpected()])\n"
        "    return await dataset.evaluate(task(lambda inputs: inputs), progress=False)\n"
    )
    command = ["eval", "evals_of_reports:report", "--baseline", "kept.json"]
    assert CliRunner().invoke(app, [*command, "--update-baseline"]).exit_code == 0
    failed = CliRunner().invoke(app, [*command, "--least", "EqualsExpected=0.6"])
    assert failed.exit_code == 1
    assert "EqualsExpected: 0.500, at least 0.6 needed" in failed.output
