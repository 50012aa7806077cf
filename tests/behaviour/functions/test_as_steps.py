"""Functions stand in pipelines and graphs as they are, and one with a body takes the place of one without."""

from __future__ import annotations

import asyncio
import threading
from decimal import Decimal

import pytest
from pydantic_ai.models import Model
from support.typed_functions import Sentiment, listed_costs, sentiment

from fastroai import (
    Budget,
    CostBudgetExceeded,
    Edge,
    FastroAgent,
    Graph,
    Node,
    Pipeline,
    StepConfig,
    StepContext,
    budget_scope,
    compute,
    infer,
    step,
)
from fastroai.errors import (
    ConfigurationError,
    ContractViolation,
    MissingInputError,
    StepExecutionError,
)
from fastroai.functions import Function, call_records, parallel
from fastroai.functions.errors import CompileError, PostconditionFailed, PreconditionFailed
from fastroai.functions.kept_calls import kept_records
from fastroai.testing import Fault, ModelServer, Reply, ToolCall
from fastroai.usage import Quote


@compute
def shout(text: str, mark: str = "!") -> str:
    return text.upper() + mark


@compute
async def shout_async(text: str, mark: str = "!") -> str:
    await asyncio.sleep(0)
    return text.upper() + mark


async def test_a_function_with_a_body_is_called_like_one_without() -> None:
    for function in (shout, shout_async):
        assert await function("a") == await function(text="a", mark="!") == "A!"
        record = kept_records()[-1]
        assert (record.kind, record.outcome, record.model, record.attempts) == ("compute", "success", "", 1)
        assert record.inputs == {"text": "a", "mark": "!"}
        with pytest.raises(TypeError, match="missing"):
            function()  # type: ignore[call-arg]
        with pytest.raises(ContractViolation):
            await function(text=[])  # type: ignore[arg-type]


async def test_a_body_that_blocks_holds_up_nobody() -> None:
    threads: list[threading.Thread] = []

    @compute
    def where(text: str) -> str:
        threads.append(threading.current_thread())
        return text

    await where("a")

    assert threads != [threading.main_thread()]


async def test_given_and_ensure_are_checked_around_a_body() -> None:
    @compute(given=lambda n: n > 0, ensure=lambda r: r < 10)
    def double(n: int) -> int:
        return n * 2

    assert await double(4) == 8
    with pytest.raises(PreconditionFailed, match=r"given: n > 0 \(n = 0\)"):
        await double(0)
    with pytest.raises(PostconditionFailed, match=r"ensure: result < 10 \(result = 12\)"):
        await double(6)


async def test_the_output_of_a_body_is_of_the_declared_type() -> None:
    @compute
    def wrong(n: int) -> int:
        return "many"  # type: ignore[return-value]

    @compute
    def made(n: int) -> Sentiment:
        return {"label": "neutral", "confidence": n}  # type: ignore[return-value]

    with pytest.raises(ContractViolation, match="'wrong': its output"):
        await wrong(1)
    assert await made(1) == Sentiment(label="neutral", confidence=1)


def test_a_body_that_yields_is_refused() -> None:
    with pytest.raises(CompileError, match="it yields"):

        @compute
        def many(n: int) -> int:  # type: ignore[misc]
            yield n


async def test_variadic_parameters_work() -> None:
    @compute
    def total(*numbers: int, **named: int) -> int:
        return sum(numbers) + sum(named.values())

    assert await total(1, 2, a=3) == 6


async def test_what_is_called_inside_of_a_body_counts_under_its_budget(server: ModelServer) -> None:
    model = server.model("openai:gpt-5-mini")

    @infer(intent="Classify", model=model)
    async def classify(text: str) -> Sentiment:
        raise NotImplementedError

    @compute(budget=Budget(usd="0.000001"))
    async def both(text: str) -> list[Sentiment]:
        return [await classify(text), await classify(text)]

    with pytest.raises(CostBudgetExceeded):
        await both("fine")
    assert not server.ledger.entries


async def test_a_function_is_a_step_and_takes_inputs_and_outputs_by_name(
    server: ModelServer, model: Model
) -> None:
    @infer(intent="Classify", model=model)
    async def classify(text: str, mark: str = "?") -> Sentiment:
        raise NotImplementedError

    @compute
    def answer(text: str, tone: Sentiment) -> str:
        return f"{text}: {tone.label}"

    pipeline = Pipeline(
        "support", steps={"tone": classify, "answer": answer}, dependencies={"answer": ["tone"]}
    )
    server.script(sentiment("negative"))

    result = await pipeline.execute({"text": "Late again"})

    assert result.output == "Late again: negative"
    assert result.usage.cost_usd == listed_costs(server) > 0
    assert b'mark: \\"?\\"' in server.ledger.entries[0].raw_body


async def test_an_input_that_is_missing_is_named() -> None:
    with pytest.raises(StepExecutionError) as raised:
        await Pipeline("p", steps={"shout": shout}).execute({"words": "a"})
    assert isinstance(raised.value.original_error, MissingInputError)
    assert raised.value.original_error.key == "text"


async def test_a_mapping_or_a_function_says_where_arguments_come_from() -> None:
    async def from_context(ctx: StepContext[object]) -> dict[str, object]:
        return {"text": ctx.get_input("email")[:2], "mark": "?"}

    pipeline = Pipeline(
        "p",
        steps={
            "first": shout.as_step({"text": "email"}),
            "second": shout.as_step({"text": "first"}),
            "third": shout.as_step(from_context),
            "fourth": shout.as_step(lambda ctx: {"text": ctx.get_dependency("second")}),
        },
        dependencies={"second": ["first"], "fourth": ["second", "third"]},
    )
    result = await pipeline.execute({"email": "abc"})

    assert result.step_outputs == {"first": "ABC!", "second": "ABC!!", "third": "AB?", "fourth": "ABC!!!"}
    with pytest.raises(ConfigurationError, match=r"inputs='txt'.*'text', 'mark'"):
        shout.as_step({"txt": "email"})


async def test_a_step_has_settings_of_its_own(server: ModelServer) -> None:
    model = server.model("openai:gpt-5-mini")

    @infer(intent="Classify", model=model)
    async def classify(text: str) -> Sentiment:
        raise NotImplementedError

    one = Pipeline("p", steps={"tone": classify.as_step(config=StepConfig(retries=0))})
    server.fail_next(1, Fault.status(503))
    with pytest.raises(StepExecutionError, match="503"):
        await one.execute({"text": "fine"})
    assert len(server.ledger.entries) == 1, "the retries of the step are those of its requests"

    poor = Pipeline("p", steps={"tone": classify.as_step(config=StepConfig(budget=Budget(usd="0.000001")))})
    with pytest.raises(StepExecutionError) as raised:
        await poor.execute({"text": "fine"})
    assert isinstance(raised.value.original_error, CostBudgetExceeded)


async def test_a_function_is_a_node_of_a_graph(server: ModelServer, model: Model) -> None:
    @infer(intent="Classify", model=model, retries=0)
    async def classify(text: str) -> Sentiment:
        raise NotImplementedError

    @compute
    def praise(text: str) -> str:
        return f"{text}!"

    graph = Graph(
        "support",
        nodes={"tone": Node(classify, writes=["label", "confidence"]), "praise": praise},
        edges=[Edge("tone", "praise", "conditional", "label == 'positive'")],
        entry="tone",
        terminals=["praise"],
    )
    server.script(sentiment("positive"))

    result = await graph.execute({"text": "fine"})

    assert result.output == "fine!"

    server.reset()
    server.rule(None, sentiment("happy"))
    await graph.execute({"text": "fine"})
    assert len(server.ledger.entries) == 1, "what the model cannot do is not tried again by the node"


async def test_a_call_in_a_step_joins_its_scope_and_its_budget(server: ModelServer, model: Model) -> None:
    @infer(intent="Classify", model=model)
    async def classify(text: str) -> Sentiment:
        raise NotImplementedError

    @step
    async def twice(ctx: StepContext[object]) -> int:
        both = await asyncio.gather(classify("a"), classify("b"))
        assert ctx.usage.cost_usd == listed_costs(server)
        return len(both)

    server.rule(None, sentiment())
    result = await Pipeline("p", steps={"twice": twice}).execute({})

    assert result.output == 2
    assert result.usage.cost_usd == listed_costs(server)
    assert {record.run_id for record in kept_records()[-2:]} == {result.run_id}


async def test_a_function_that_a_tool_calls_is_under_the_agent(server: ModelServer) -> None:
    model = server.model("openai:gpt-5-mini")

    @infer(intent="Classify", model=model)
    async def classify(text: str) -> Sentiment:
        raise NotImplementedError

    async def tone_of(text: str) -> str:
        """The tone of a text."""
        return (await classify(text)).label

    agent = FastroAgent(model, tools=[tone_of])
    server.script(Reply(tool_calls=[ToolCall("tone_of", {"text": "fine"})]), sentiment(), Reply("Positive."))

    response = await agent.run("How is it?")

    assert response.output == "Positive."
    assert response.cost_usd == listed_costs(server)
    assert kept_records()[-1].cost_usd < response.cost_usd


async def test_a_pipeline_knows_the_type_of_a_function() -> None:
    assert shout.inferred_output() is str
    assert shout.as_step().inferred_output() is str
    assert isinstance(shout, Function)
    assert repr(shout) == "<compute shout(text: 'str', mark: 'str' = '!') -> 'str'>"
    assert repr(shout.as_step()) == f"<step of {shout!r}>"


async def test_a_pipeline_tells_what_its_functions_cost(server: ModelServer) -> None:
    model = server.model("openai:gpt-5-mini")

    def declared(**options: object) -> Function[..., Sentiment]:
        @infer(intent="Classify", model=model, **options)  # type: ignore[call-overload, untyped-decorator]
        async def classify(text: str) -> Sentiment:
            raise NotImplementedError

        return classify  # type: ignore[no-any-return]

    async def quote_of(function: Function[..., Sentiment]) -> Quote:
        return await Pipeline("p", steps={"tone": function}).estimate({"text": "fine"})

    once = await quote_of(declared(retries=0))
    thrice = await quote_of(declared(retries=2))
    voted = await quote_of(declared(retries=0, quorum=3, agree_on="label"))
    bounded = await quote_of(declared(budget=Budget(usd="0.001")))

    assert once.upper_usd is not None
    assert 0 < once.lower_usd <= once.expected_usd <= once.upper_usd
    assert (thrice.expected_usd, thrice.upper_usd) == (once.expected_usd, 3 * once.upper_usd)
    assert voted.expected_usd == 3 * once.expected_usd
    assert bounded.upper_usd == Decimal("0.001")
    assert not server.ledger.entries

    later = Pipeline(
        "p",
        steps={"shout": shout, "tone": declared().as_step({"text": "shout"})},
        dependencies={"tone": ["shout"]},
    )
    assert "its arguments need the output of step 'shout'" in str(await later.estimate({"text": "fine"}))


async def test_an_agent_is_made_once_for_a_function_and_model(
    server: ModelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[object] = []

    class Counted(FastroAgent[None, object]):
        def __init__(self, *args: object, **options: object) -> None:
            made.append(options)
            super().__init__(*args, **options)  # type: ignore[arg-type]

    monkeypatch.setattr("fastroai.functions.inferring.FastroAgent", Counted)

    @infer(intent="Classify", model=server.model("openai:gpt-5-mini"))
    async def classify(text: str) -> Sentiment:
        raise NotImplementedError

    server.rule(None, sentiment())
    await classify("a")
    await classify("b")

    assert len(made) == 1


async def test_each_call_of_the_process_is_told_with_its_index_its_row_and_its_labels() -> None:
    before = call_records()[-1].index if call_records() else 0

    @step
    async def all_of_them(ctx: StepContext[None]) -> list[str]:
        return await ctx.map(shout.as_step({"text": "item"}), ["a", "b"], concurrency=1)

    await shout("alone")
    await parallel(shout("first"), shout("second"))
    with budget_scope(tags=["row-17"], tenant="ada"):
        await shout("labelled")
    await Pipeline("p", {"all": all_of_them}).run(tags=["mapped"])

    calls = call_records(after=before)
    assert [one.index for one in calls] == [*range(before + 1, before + 7)]
    told = {one.record.inputs["text"]: (one.row, one.tags, one.tenant) for one in calls}
    assert told == {
        "alone": (None, (), None),
        "first": (0, (), None),
        "second": (1, (), None),
        "labelled": (None, ("row-17",), "ada"),
        "a": (0, ("mapped",), None),
        "b": (1, ("mapped",), None),
    }
    assert call_records(after=calls[-1].index) == ()
    assert [one.record for one in calls] == list(shout.records[-6:])
