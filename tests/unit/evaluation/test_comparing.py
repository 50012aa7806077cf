"""`compare`: variants whose quality and cost are known from what the model server says."""

from __future__ import annotations

import re
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal
from xml.etree import ElementTree

import pytest

from fastroai import BasePipeline, Budget, FastroAgent, Graph, Pipeline, StepContext, flow, infer, step
from fastroai.errors import ConfigurationError
from fastroai.evaluation import Case, EvaluatorContext, compare, compare_splits, compare_sync, results, task
from fastroai.evaluation.results import metrics_of
from fastroai.store import MemoryRunStore
from fastroai.testing import Fault, ModelServer, Reply, ServedRequest, Usage

SMALL, LARGE = "openai:gpt-5-nano", "openai:gpt-5"
CASES = [
    Case(name=f"ticket {number}", inputs=f"ticket {number}", expected_output="billing")
    for number in range(20)
]


def number_in(request: ServedRequest) -> int:
    found = re.search(r"ticket (\d+)", str(request.messages))
    assert found is not None
    return int(found[1])


def answer(request: ServedRequest) -> Reply:
    """The small model is wrong on every fourth ticket. It costs $0.000009, and the large one $0.00045."""
    if "Is it polite" in str(request.messages):
        return Reply(data={"response": 0.5}, usage=Usage(100, 10))
    is_small = "nano" in request.model
    said = "other" if is_small and number_in(request) % 4 == 0 else "billing"
    return Reply(data={"response": said}, usage=Usage(100, 10) if is_small else Usage(200, 20))


def function(server: ModelServer, model: str = SMALL, intent: str = "Classify the ticket") -> Any:
    @infer(intent=intent, model=server.model(model), retries=0)
    async def classify(text: str) -> Literal["billing", "other"]:
        raise NotImplementedError

    return classify


@pytest.fixture
def server(model_server: ModelServer) -> ModelServer:
    model_server.rule(None, answer)
    return model_server


@pytest.fixture
def variants(server: ModelServer) -> dict[str, Any]:
    return {"small": function(server), "large": function(server, LARGE)}


async def test_quality_cost_and_differing_cases_are_those_of_the_script(variants: Any) -> None:
    comparison = await compare(variants, CASES)

    quality = comparison.quality()
    assert {name: one and one.value for name, one in quality.items()} == {"small": 0.75, "large": 1.0}
    small, large = comparison.variants["small"], comparison.variants["large"]
    assert (small.cost_usd_per_case, large.cost_usd_per_case) == (Decimal("0.000009"), Decimal("0.00045"))
    assert comparison.cost_usd == 20 * (Decimal("0.000009") + Decimal("0.00045"))
    assert [*comparison.differing] == [f"ticket {number}" for number in (0, 4, 8, 12, 16)]
    difference = comparison.difference(None, "large")
    assert difference is not None
    assert (difference.value, difference.method) == (0.25, "Agresti-Min")
    assert (difference.low, difference.high) == (
        pytest.approx(0.0308, abs=1e-4),
        pytest.approx(0.4237, abs=1e-4),
    )
    assert small.cases["ticket 1"].metrics == {
        "cost_usd": 0.000009,
        "total_tokens": 110,
        "request_count": 1,
        "attempts": 1,
    }
    assert not comparison.problems


async def test_a_comparison_is_shown_as_text_as_html_and_as_a_plot(variants: Any) -> None:
    cases = [*CASES[:4], Case(name="<b>bold</b>", inputs="ticket 40", expected_output="billing")]
    comparison = await compare(variants, cases)

    text = str(comparison)
    assert re.search(r"small +60\.0 % \(23\.1 to 88\.2\) +\$0\.000009 +5 +0 ", text)
    assert "large - small, equals_expected: +40.0 % (-15.1 to +72.2), which can be by chance" in text
    assert "(Wilson, Agresti-Min)" in text
    assert re.search(r"ticket 0\n +small +other +equals_expected: not passed\n +large +billing", text)
    html = comparison._repr_mimebundle_()["text/html"]
    assert "&lt;b&gt;bold&lt;/b&gt;" in html
    assert "<b>bold" not in html
    assert html.count("<circle") == 2
    plot = ElementTree.fromstring(comparison.to_svg())
    titles = [one.text for one in plot.iter("{http://www.w3.org/2000/svg}title")]
    assert titles == ["equals_expected against cost", "small: 60%, $0.000009", "large: 100%, $0.00045"]
    with pytest.raises(ConfigurationError, match="one of 'equals_expected'"):
        comparison.to_svg("polite")


class TestBudgets:
    async def test_a_budget_bounds_all_variants_and_what_was_paid_is_kept(
        self, server: ModelServer, tmp_path: Path
    ) -> None:
        both = {"one": function(server), "other": function(server, intent="Sort the ticket")}
        store, less, enough = str(tmp_path / "runs.db"), Budget(usd="0.00025"), Budget(usd="0.01")
        first = await compare(both, CASES, budget=less, store=store, run_id="r", concurrency=1)
        done = sum(len(one.cases) for one in first.variants.values())
        assert 0 < done < 40
        assert first.cost_usd == done * Decimal("0.000009") <= Decimal("0.00025")
        assert "cases were not asked" in first.problems[0]
        assert "budget of 'compare' reached" in first.problems[0]
        assert all(case.assertions for one in first.variants.values() for case in one.cases.values())

        again = await compare(both, CASES, budget=less, store=store, run_id="r", concurrency=1)
        # The budget counts what the first call has spent. There can be room for a case that had none beside
        # the one that was asked at the same time.
        assert first.cost_usd <= again.cost_usd <= first.cost_usd + Decimal("0.000009")
        assert again.cost_usd == len(server.ledger.entries) * Decimal("0.000009") <= Decimal("0.00025")

        last = await compare(both, CASES, budget=enough, store=store, run_id="r")
        assert (last.cost_usd, last.problems) == (40 * Decimal("0.000009"), [])
        assert len(server.ledger.entries) == 40

    async def test_a_changed_variant_is_asked_anew_and_the_other_is_not(
        self, server: ModelServer, tmp_path: Path
    ) -> None:
        store = str(tmp_path / "runs.db")
        await compare({"a": function(server), "b": function(server)}, CASES, store=store, run_id="r")
        changed = {"a": function(server), "b": function(server, LARGE)}
        comparison = await compare(changed, CASES, store=store, run_id="r")
        assert len(server.ledger.entries) == 60
        assert [one and one.value for one in comparison.quality().values()] == [0.75, 1.0]


class TestEvaluators:
    async def test_they_give_assertions_scores_and_labels_and_see_what_came_of_the_case(
        self, variants: Any
    ) -> None:
        seen: list[EvaluatorContext] = []

        async def graded(ctx: EvaluatorContext) -> dict[str, Any]:
            seen.append(ctx)
            right = ctx.output == ctx.expected_output
            return {"right": right, "grade": SimpleNamespace(value=len(ctx.output) / 10, reason="its length")}

        def kind(ctx: EvaluatorContext[str, str]) -> str:
            return ctx.output

        comparison = await compare(variants, CASES, [graded, kind])
        case = comparison.variants["small"].cases["ticket 0"]
        assert (case.assertions, case.scores, case.labels) == (
            {"right": False},
            {"grade": 0.5},
            {"kind": "other"},
        )
        assert case.evaluations["grade"].reason == "its length"
        assert [*comparison.evaluations] == ["right", "grade"]
        quality = comparison.quality("grade")["small"]
        assert quality is not None
        assert (quality.value, quality.method, quality.count) == (pytest.approx(0.65), "t", 20)
        assert {(one.metrics["request_count"], one.duration > 0, one.metadata) for one in seen} == {
            (1, True, None)
        }

    async def test_what_they_ask_models_is_paid_once_and_counted_by_itself(
        self, server: ModelServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        @infer(intent="Is it polite", model=server.model(SMALL), retries=0)
        async def judge(text: str) -> float:
            raise NotImplementedError

        async def polite(ctx: EvaluatorContext[str, str]) -> float:
            return await judge(ctx.output)

        how: dict[str, Any] = {"store": str(tmp_path / "runs.db"), "run_id": "r"}
        variant = {"small": function(server)}
        for _ in range(2):
            result = (await compare(variant, CASES, [polite], **how)).variants["small"]
            assert result.usage.cost_usd == result.evaluation_usage.cost_usd == 20 * Decimal("0.000009")
            assert len(server.ledger.entries) == 40

        with monkeypatch.context() as later:
            later.setattr(results, "metrics_of", lambda *known: {**metrics_of(*known), "seconds": 1.0})
            await compare(variant, CASES, [polite], **how)
            assert len(server.ledger.entries) == 40  # a metric more is no other result

        async def polite(ctx: EvaluatorContext[str, str]) -> float:  # type: ignore[no-redef]
            return await judge(f"{ctx.output}!")

        await compare(variant, CASES, [polite], **how)
        assert len(server.ledger.entries) == 60  # other code evaluates anew, and the task is not asked

    async def test_their_runs_are_apart_from_those_of_variants_whatever_the_names(self) -> None:
        def billing(inputs: object) -> str:
            return "billing"

        def other(inputs: object) -> str:
            return "other"

        def right(ctx: EvaluatorContext[str, str]) -> bool:
            return ctx.output == "billing"

        variants = {"small": billing, "small-right": other, "right/small": other, "small/right": other}
        store = MemoryRunStore()
        for _ in range(2):
            comparison = await compare(variants, CASES, [right], store=store, run_id="r")
            assert not comparison.problems
            quality = [one and one.value for one in comparison.quality().values()]
            assert quality == [1.0, 0.0, 0.0, 0.0]

    async def test_one_that_fails_is_told_with_the_case_and_the_others_count(self, variants: Any) -> None:
        def fails(ctx: EvaluatorContext) -> bool:
            if ctx.name == "ticket 3":
                raise LookupError("no grade")
            return True

        def no_value(ctx: EvaluatorContext) -> Any:
            return None

        comparison = await compare({"small": variants["small"]}, CASES[:4], [fails, no_value])
        quality = comparison.quality("fails")["small"]
        assert quality is not None
        assert (quality.value, quality.count) == (1.0, 3)
        assert "small, case 'ticket 3', evaluator 'fails': LookupError: no grade" in comparison.problems
        assert "a value is a bool, a finite number or a text" in str(comparison.problems)

    async def test_a_case_without_an_expected_output_is_named_before_anything_is_sent(
        self, variants: Any, server: ModelServer
    ) -> None:
        cases = [*CASES[:2], Case(inputs="ticket 2")]
        with pytest.raises(ConfigurationError, match="'Case 3' needs a value.* give the case one, or pass"):
            await compare(variants, cases)
        assert len(server.ledger.entries) == 0

        def same(ctx: EvaluatorContext) -> bool:
            return bool(ctx.output == ctx.expected_output)

        comparison = await compare({"small": variants["small"]}, cases, [same])
        assert "'Case 3' needs a value, because the evaluator 'same' reads it" in comparison.problems[0]
        own = Case(name="own", inputs="ticket 1", expected_output="billing", evaluators=[same])
        both = await compare({"small": variants["small"]}, [own, Case(inputs="ticket 2")])
        assert both.variants["small"].cases["own"].assertions == {"same": True}
        assert not both.problems


class TestTasks:
    async def test_a_task_that_fails_on_some_cases_has_not_passed_there(self, server: ModelServer) -> None:
        server.reset()
        server.rule(lambda request: number_in(request) == 1, Reply(fault=Fault.status(400)))
        server.rule(None, answer)

        def kind(ctx: EvaluatorContext) -> dict[str, Any]:
            return {"right": ctx.output == ctx.expected_output, "score": 1.0, "kind": "x"}

        comparison = await compare({"large": function(server, LARGE)}, CASES[:4], [kind])
        [right, score] = [comparison.quality(name)["large"] for name in ("right", "score")]
        assert right is not None
        assert score is not None
        assert (right.value, right.count, score.count) == (0.75, 4, 3)
        assert comparison.problems[0].startswith("large, case 'ticket 1': ")
        assert re.search(r"large +75\.0 %.* 4 +1 ", str(comparison))

    @pytest.mark.parametrize("kind", ["agent", "pipeline", "router", "graph", "flow", "async", "sync"])
    async def test_whatever_runs_is_compared_and_is_a_task(
        self, kind: str, server: ModelServer, tmp_path: Path
    ) -> None:
        server.reset()
        server.rule(None, Reply("billing", usage=Usage(100, 10)))
        agent = FastroAgent(server.model(SMALL), name="support")

        @step
        async def classify(ctx: StepContext[None]) -> str:
            return (await ctx.run(agent, str(ctx.get_input("text")))).output

        pipeline: Any = Pipeline("p", {"classify": classify})

        class Router(BasePipeline[None, dict[str, str], Any]):
            async def route(self, inputs: dict[str, str], deps: None) -> str:
                return "p"

        router = Router("r")
        router.register_pipeline("p", pipeline)

        @flow
        async def flowing(text: str) -> str:
            return (await agent.run(text)).output

        async def asks(inputs: Any) -> str:
            return (await agent.run(inputs["text"])).output

        def asks_sync(inputs: Any) -> str:
            return agent.run_sync(inputs["text"]).output

        variant: Any = {
            "agent": agent,
            "pipeline": pipeline,
            "router": router,
            "graph": Graph("g", nodes={"classify": classify}),
            "flow": flowing,
            "async": asks,
            "sync": asks_sync,
        }[kind]
        inputs: Any = "ticket 1" if kind == "agent" else {"text": "ticket 1"}
        case: Any = Case(inputs=inputs, expected_output="billing")
        store = str(tmp_path / "runs.db")
        for _ in range(2):
            comparison = await compare({"one": variant}, [case], store=store, run_id="r")
            assert comparison.variants["one"].cases["Case 1"].assertions == {"equals_expected": True}
            assert comparison.cost_usd == Decimal("0.000009")
        assert len(server.ledger.entries) == 1
        assert await task(variant)(inputs) == "billing"
        assert len(server.ledger.entries) == 2

    async def test_a_task_raises_what_the_variant_raises(self) -> None:
        def fails(inputs: Any) -> str:
            raise LookupError(inputs)

        with pytest.raises(LookupError, match="nothing"):
            await task(fails)("nothing")
        assert task(fails).__name__ == "fails"

    def test_mistakes_are_told_before_anything_is_sent(self, variants: Any) -> None:
        from pydantic_ai import Agent

        with pytest.raises(ConfigurationError, match=r"FastroAgent\(agent="):
            compare_sync({"plain": Agent("test")}, CASES)  # type: ignore[dict-item]
        with pytest.raises(ConfigurationError, match="a list of Case"):
            compare_sync(variants, [])
        with pytest.raises(ConfigurationError, match="two have this one"):
            compare_sync(variants, [CASES[0], CASES[0]])
        with pytest.raises(ConfigurationError, match="variants"):
            compare_sync({}, CASES)
        with pytest.raises(ConfigurationError, match="evaluators"):
            compare_sync(variants, CASES, ["exact"])  # type: ignore[list-item]
        with pytest.raises(ConfigurationError, match="deps='d': expected none, because .* is a function"):
            task(variants["small"], deps="d")


class Split(BasePipeline[None, dict[str, str], str]):
    """The first tickets go to one variant, the others to the other."""

    async def route(self, inputs: dict[str, str], deps: None) -> str:
        return "small" if int(inputs["text"].split()[1]) < 6 else "large"


async def test_splits_of_a_router_are_compared_by_the_runs_on_record(server: ModelServer) -> None:
    def variant(model: str) -> Any:
        asked = function(server, model)

        @step
        async def classify(ctx: StepContext[None]) -> str:
            return str(await asked(str(ctx.get_input("text"))))

        return Pipeline("variant", {"classify": classify})

    router, store = Split("split"), MemoryRunStore()
    router.register_pipeline("small", variant(SMALL))
    router.register_pipeline("large", variant(LARGE))
    for number in range(12):
        await router.run({"text": f"ticket {number}"}, run_id=f"run {number}", store=store)
    expected = {f"run {number}": "billing" for number in range(12)}

    comparison = await compare_splits(router, store=store, expected_outputs=expected)

    small, large = comparison.variants["small"], comparison.variants["large"]
    assert (len(small.cases), len(large.cases)) == (6, 6)
    assert (small.cost_usd_per_case, large.cost_usd_per_case) == (Decimal("0.000009"), Decimal("0.00045"))
    quality = [one and one.value for one in comparison.quality().values()]
    assert quality == [pytest.approx(4 / 6), 1.0]
    difference = comparison.difference(None, "large")
    assert difference is not None
    assert (difference.value, difference.method) == (pytest.approx(2 / 6), "Newcombe")
    assert not comparison.differing  # no run is of two variants
    assert len(server.ledger.entries) == 12
    with pytest.raises(ConfigurationError, match="runs of router 'other'"):
        await compare_splits(Split("other"), store=store)

    renamed = Split("split")  # a later version of it
    renamed.register_pipeline("large", variant(LARGE))
    again = await compare_splits(renamed, store=store, expected_outputs=expected)
    assert {name: len(one.cases) for name, one in again.variants.items()} == {"large": 6, "small": 6}
