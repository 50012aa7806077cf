"""A function whose implementation is a model: what it sends, gives back, tries again, and costs."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from typing import Any, Literal

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from pydantic_ai import Agent
from pydantic_ai.models import Model
from support.typed_functions import Sentiment, instructions_to, listed_costs, said_to_model, sentiment

from fastroai import Budget, CostBudgetExceeded, FastroAgent, infer, usage_of
from fastroai.errors import ConfigurationError, ContractViolation, TimeBudgetExceeded
from fastroai.functions import Probabilistic, configured, contract
from fastroai.functions.errors import (
    CompileError,
    ParseFailure,
    PostconditionFailed,
    PreconditionFailed,
)
from fastroai.functions.kept_calls import kept_records
from fastroai.records import CallRecord
from fastroai.testing import Fault, ModelServer, Reply, ToolCall, Usage
from fastroai.tracing import OpenTelemetryTracer


def last_record() -> CallRecord:
    return kept_records()[-1]


@contract
@dataclass
class Invoice:
    number: str
    due: date
    scan: bytes
    lines: list[int]


@contract
class Flag:
    """Plain annotations."""

    reason: str
    level: int = 1


async def test_a_call_gives_the_contract_and_costs_what_the_request_does(
    server: ModelServer, model: Model
) -> None:
    @infer(intent="Classify the tone", context="Treat sarcasm as negative.", model=model)
    async def classify(text: str, *, brief: bool = True) -> Sentiment:
        raise NotImplementedError

    server.script(Reply(data={"label": "negative", "confidence": 0.8}, usage=Usage(1_000, 100)))

    assert await classify("Great, another delay.") == Sentiment(label="negative", confidence=0.8)

    [entry] = server.ledger.entries
    [said] = [text for text in said_to_model(entry) if "tone" in text]
    assert "Classify the tone" in said
    assert "Treat sarcasm as negative." in said
    assert '- text: "Great, another delay."' in said
    assert "- brief: true" in said
    record = last_record()
    assert (record.function, record.kind, record.outcome) == ("classify", "infer", "success")
    assert record.cost_usd == listed_costs(server) > 0
    assert record.attempts == record.requests == 1
    assert record.prompt_hash == classify.compile("Great, another delay.").hash
    assert record.model == entry.model


async def test_it_can_be_declared_with_def_and_with_a_docstring_and_with_dots(
    server: ModelServer, model: Model
) -> None:
    @infer(intent="Count", model=model)
    def count(text: str) -> int: ...  # type: ignore[empty-body]

    @infer(intent="Count", model=model)
    async def count_words(text: str) -> int:  # type: ignore[empty-body]
        """How many words there are."""

    server.script(Reply(data={"response": 3}), Reply(data={"response": 4}))

    assert await count("a b c") == 3
    assert await count_words("a b c d") == 4
    assert count_words.__doc__ == "How many words there are."
    assert (count.__name__, count.__module__) == ("count", __name__)


@pytest.mark.parametrize(
    ("returns", "answer", "expected"),
    [
        (int, 3, 3),
        (float, 0.5, 0.5),
        (bool, True, True),
        (bytes, "AAEC", b"\x00\x01\x02"),
        (list[bytes], ["AAEC"], [b"\x00\x01\x02"]),
        (date, "2026-01-02", date(2026, 1, 2)),
        (list[int], [1, 2], [1, 2]),
        (dict[str, int], {"a": 1}, {"a": 1}),
        (Literal["a", "b"], "b", "b"),
        (Sentiment | None, None, None),
        (Sentiment | None, {"label": "neutral", "confidence": 1}, Sentiment(label="neutral", confidence=1)),
        (Sentiment | Flag, {"reason": "rude"}, Flag(reason="rude")),  # type: ignore[call-arg]
        (
            Invoice,
            {"number": "7", "due": "2026-01-02", "scan": "AAEC", "lines": [1]},
            Invoice("7", date(2026, 1, 2), b"\x00\x01\x02", [1]),
        ),
        (list[Flag], [{"reason": "rude", "level": 2}], [Flag(reason="rude", level=2)]),  # type: ignore[call-arg]
    ],
    ids=str,
)
async def test_every_kind_of_output_comes_as_its_type(
    server: ModelServer, model: Model, returns: type, answer: object, expected: object
) -> None:
    async def get(text: str) -> object:
        raise NotImplementedError

    get.__annotations__["return"] = returns
    function = infer(intent="Get it", model=model, retries=0)(get)
    is_object = returns in (Invoice, dict[str, int])
    server.script(Reply(data=answer if is_object else {"response": answer}))

    output = await function("x")

    assert output == expected
    assert type(output) is type(expected)


async def test_a_text_comes_as_plain_text(server: ModelServer, model: Model) -> None:
    @infer(intent="Summarize", model=model)
    async def summarize(text: str) -> str:
        raise NotImplementedError

    server.script(Reply("Short."))

    assert await summarize("Long.") == "Short."
    assert not server.ledger.entries[0].body.get("tools")


async def test_json_in_a_string_is_read_too(server: ModelServer, model: Model) -> None:
    @infer(intent="List", model=model, retries=0)
    async def numbers(text: str) -> list[int]:
        raise NotImplementedError

    server.script(Reply(data={"response": "[1, 2]"}))

    assert await numbers("x") == [1, 2]


async def test_arguments_bind_as_in_python_and_are_validated(server: ModelServer, model: Model) -> None:
    @infer(intent="Count", model=model)
    async def count(text: str, most: int = 3) -> int:
        raise NotImplementedError

    for args, kwargs in [((), {}), (("a", 1, 2), {}), (("a",), {"least": 1}), (("a",), {"text": "b"})]:
        with pytest.raises(TypeError, match=r"count\(\) "):
            count(*args, **kwargs)  # type: ignore[call-arg]
    with pytest.raises(ContractViolation, match="most"):
        await count("a", most="many")  # type: ignore[arg-type]
    server.script(Reply(data={"response": 2}))
    assert await count(most="2", text="a b") == 2  # type: ignore[arg-type]
    assert "- most: 2" in said_to_model(server.ledger.entries[0])[0]


async def test_what_given_refuses_sends_nothing(server: ModelServer, model: Model) -> None:
    @infer(intent="Count", given=lambda text: len(text) < 5, model=model)
    async def count(text: str) -> int:
        raise NotImplementedError

    with pytest.raises(PreconditionFailed, match=r"given: len\(text\) < 5 \(text = 'too long'\)") as raised:
        await count("too long")

    assert not server.ledger.entries
    assert raised.value.usage.cost_usd == 0
    assert last_record().outcome == "precondition_failed"


async def test_the_model_is_told_exactly_what_was_wrong_in_the_same_conversation(
    server: ModelServer, model: Model
) -> None:
    @infer(intent="Classify", ensure=lambda r: r.confidence > 0.7, model=model)
    async def classify(text: str) -> Sentiment:
        raise NotImplementedError

    server.script(sentiment("happy"), sentiment(confidence=0.42), sentiment(confidence=0.9))

    assert (await classify("I love it")).confidence == 0.9

    first, second, third = server.ledger.entries
    begun = [text for text in said_to_model(first) if "Classify" in text]
    told = [
        "Previous attempt failed:\n"
        "- parse: result.label: Input should be 'positive', 'negative' or 'neutral' (actual: 'happy')\n"
        "Fix these issues specifically.",
        "Previous attempt failed:\n"
        "- ensure: result.confidence > 0.7 (result = Sentiment(label='positive', confidence=0.42))\n"
        "Fix these issues specifically.",
    ]
    assert [text for text in said_to_model(second) if text in (*begun, *told)] == [*begun, told[0]]
    assert [text for text in said_to_model(third) if text in (*begun, *told)] == [*begun, *told]
    assert b"0.42" in third.raw_body, "the answer that failed is in the conversation"
    record = last_record()
    assert (record.attempts, record.requests) == (3, 3)
    assert record.retry_reasons == (
        "parse: result.label: Input should be 'positive', 'negative' or 'neutral' (actual: 'happy')",
        "ensure: result.confidence > 0.7 (result = Sentiment(label='positive', confidence=0.42))",
    )
    assert record.prompt_hash == classify.compile("I love it").hash
    assert record.cost_usd == listed_costs(server)


async def test_the_last_attempt_decides_the_error_which_has_all_that_was_spent(
    server: ModelServer, model: Model
) -> None:
    @infer(intent="Classify", ensure=lambda r: r.confidence > 0.7, model=model, retries=1)
    async def classify(text: str) -> Sentiment:
        raise NotImplementedError

    server.script(sentiment("happy"), sentiment(confidence=0.1))
    with pytest.raises(PostconditionFailed) as post:
        await classify("a")

    assert post.value.violations == (
        "ensure: result.confidence > 0.7 (result = Sentiment(label='positive', confidence=0.1))",
    )
    assert [attempt.output for attempt in post.value.history] == [
        '{"label":"happy","confidence":0.9}',
        Sentiment(label="positive", confidence=0.1),
    ]
    assert post.value.usage.cost_usd == listed_costs(server)
    assert post.value.usage.request_count == 2
    assert last_record().outcome == "postcondition_failed"

    server.reset()
    server.script(sentiment(confidence=0.1), sentiment("sad"))
    with pytest.raises(ParseFailure, match="label") as parse:
        await classify("a")

    assert parse.value.raw_output == '{"label":"sad","confidence":0.9}'
    assert parse.value.violations == (
        "parse: result.label: Input should be 'positive', 'negative' or 'neutral' (actual: 'sad')",
    )
    assert len(parse.value.history) == 2
    assert parse.value.usage.cost_usd == listed_costs(server)
    assert last_record().outcome == "parse_failure"


@pytest.mark.parametrize(
    ("reply", "raw", "problem"),
    [
        (Reply("I cannot say."), "I cannot say.", "parse: result: it is not the JSON asked for"),
        (
            Reply(tool_calls=[ToolCall("final_result", '{"label": ')]),
            '{"label": ',
            "parse: result: it is not the JSON asked for",
        ),
        (Reply(data={}), "{}", "parse: result.label: Field required"),
    ],
)
async def test_an_answer_that_is_no_json_is_a_parse_failure_and_is_asked_for_again(
    server: ModelServer, model: Model, reply: Reply, raw: str, problem: str
) -> None:
    @infer(intent="Classify", model=model, retries=1)
    async def classify(text: str) -> Sentiment:
        raise NotImplementedError

    server.script(reply, sentiment())
    assert (await classify("a")).label == "positive"
    assert last_record().retry_reasons[0].startswith(problem)

    server.script(reply, reply)
    with pytest.raises(ParseFailure) as raised:
        await classify("b")
    assert raised.value.raw_output == raw
    assert raised.value.__cause__ is None
    assert len(server.ledger.entries) == 4


async def test_retries_of_zero_mean_one_attempt(server: ModelServer, model: Model) -> None:
    @infer(intent="Classify", model=model, retries=0)
    async def classify(text: str) -> Sentiment:
        raise NotImplementedError

    server.script(sentiment("happy"), sentiment())

    with pytest.raises(ParseFailure):
        await classify("a")
    assert len(server.ledger.entries) == 1


async def test_transport_failures_are_no_attempts(server: ModelServer, model: Model) -> None:
    @infer(intent="Classify", model=model, retries=0)
    async def classify(text: str) -> Sentiment:
        raise NotImplementedError

    server.fail_next(2, Fault.status(503))
    server.script(sentiment())

    assert (await classify("a")).label == "positive"
    assert last_record().attempts == 1
    assert last_record().retry_reasons == ()
    assert [entry.status for entry in server.ledger.entries] == [503, 503, 200]

    server.fail_next(3, Fault.status(503))
    with pytest.raises(Exception, match="503"):
        await classify("b")


async def test_a_budget_stops_before_the_attempt_that_would_cross_it(server: ModelServer) -> None:
    model = server.model("openai:gpt-5-mini")

    @infer(intent="Classify", model=model, ensure=lambda r: r.confidence > 0.7, budget=Budget(usd="0.002"))
    async def classify(text: str) -> Sentiment:
        raise NotImplementedError

    server.rule(None, Reply(data={"label": "neutral", "confidence": 0.1}, usage=Usage(4_000, 400)))

    with pytest.raises(CostBudgetExceeded) as raised:
        await classify("a")

    assert len(server.ledger.entries) == 1
    assert raised.value.usage.cost_usd == listed_costs(server) <= Decimal("0.002")
    assert last_record().outcome == "budget_exceeded"
    assert last_record().cost_usd == listed_costs(server)


async def test_what_a_budget_refuses_says_which_option_of_the_function_helps(server: ModelServer) -> None:
    model = server.model("openai:gpt-5-mini")

    @infer(intent="Classify", model=model, budget=Budget(usd="0.0001"))
    async def classify(text: str) -> Sentiment:
        raise NotImplementedError

    @infer(intent="Classify", agent=FastroAgent(model), budget=Budget(usd="0.0001"))
    async def classify_by_agent(text: str) -> Sentiment:
        raise NotImplementedError

    told = "even with the shortest answer, .* for what its host may add to it"
    with pytest.raises(CostBudgetExceeded, match=told) as caught:
        await classify("a")
    assert caught.value.answer_limit == "Budget(max_tokens_per_request=...)"
    with pytest.raises(CostBudgetExceeded, match=told) as caught:
        await classify_by_agent("a")
    assert caught.value.answer_limit == "max_tokens"


async def test_time_is_a_budget_too(server: ModelServer, model: Model) -> None:
    @infer(intent="Classify", model=model, budget=Budget(ms=50))
    async def classify(text: str) -> Sentiment:
        raise NotImplementedError

    server.rule(None, Reply(data={"label": "neutral", "confidence": 0.1}, latency=5))

    with pytest.raises(TimeBudgetExceeded):
        await classify("a")
    assert (last_record().outcome, last_record().error_type) == (
        "budget_exceeded",
        "fastroai.errors.TimeBudgetExceeded",
    )


async def test_a_call_that_is_cancelled_is_on_record_with_what_it_cost(
    server: ModelServer, model: Model
) -> None:
    @infer(intent="Classify", model=model)
    async def classify(text: str) -> Sentiment:
        raise NotImplementedError

    server.rule(None, Reply(data={"label": "neutral", "confidence": 0.1}, latency=30))
    task = asyncio.create_task(classify("a"))
    await server.ledger.wait_for(1)

    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    assert last_record().outcome == "cancelled"
    assert not last_record().cost_complete


async def test_the_temperature_and_the_name_are_those_of_the_declaration(
    server: ModelServer,
) -> None:
    model = server.model("openai-chat:gpt-4o-mini")

    @infer(intent="Classify", model=model, temperature=0.3)
    async def classify(text: str) -> Sentiment:
        raise NotImplementedError

    server.script(sentiment())
    await classify("a")

    assert server.ledger.entries[0].body["temperature"] == 0.3


async def test_tools_are_offered_and_called_inside_of_one_attempt(server: ModelServer, model: Model) -> None:
    asked: list[str] = []

    def look_up(word: str) -> str:
        """Look a word up."""
        asked.append(word)
        return "good"

    @infer(intent="Classify", model=model, tools=[look_up])
    async def classify(text: str) -> Sentiment:
        raise NotImplementedError

    server.script(Reply(tool_calls=[ToolCall("look_up", {"word": "fine"})]), sentiment())

    assert (await classify("fine")).label == "positive"
    assert asked == ["fine"]
    assert (last_record().attempts, last_record().requests) == (1, 2)


@pytest.mark.parametrize("kind", [FastroAgent, Agent])
async def test_an_agent_can_be_brought_with_its_own_instructions(
    server: ModelServer, model: Model, kind: type
) -> None:
    agent = kind(model, instructions="You are a judge.", system_prompt="Be strict.")

    @infer(intent="Classify", agent=agent, ensure=lambda r: r.confidence > 0.7)
    async def classify(text: str) -> Sentiment:
        raise NotImplementedError

    server.script(sentiment(confidence=0.1), sentiment())

    assert (await classify("a")).confidence == 0.9
    for entry in server.ledger.entries:
        assert b"You are a judge." in entry.raw_body
        assert b"Be strict." in entry.raw_body
    assert last_record().cost_usd == listed_costs(server)


async def test_the_model_is_that_of_the_declaration_else_the_configured_one(server: ModelServer) -> None:
    small, large = server.model("openai:gpt-5-mini"), server.model("anthropic:claude-haiku-4-5")

    @infer(intent="Classify")
    async def classify(text: str) -> Sentiment:
        raise NotImplementedError

    @infer(intent="Classify", model=large)
    async def classify_well(text: str) -> Sentiment:
        raise NotImplementedError

    with pytest.raises(ConfigurationError, match=r"configure\(default_model=\.\.\.\)"):
        await classify("a")
    server.rule(None, sentiment())
    with configured(default_model=small):
        await classify("a")
        await classify_well("a")
    with configured(default_model=large):
        await classify("a")
    assert [entry.model for entry in server.ledger.entries] == [
        "gpt-5-mini",
        "claude-haiku-4-5",
        "claude-haiku-4-5",
    ]


async def test_an_agent_without_a_model_asks_the_configured_one(server: ModelServer, model: Model) -> None:
    @infer(intent="Classify", agent=Agent(instructions="You are a judge."))
    async def classify(text: str) -> Sentiment:
        raise NotImplementedError

    server.script(sentiment())
    with configured(default_model=model):
        assert (await classify("a")).label == "positive"


async def test_each_retry_is_an_event_on_the_span_of_the_call(server: ModelServer, model: Model) -> None:
    spans = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(spans))

    @infer(intent="Classify", model=model)
    async def classify(text: str) -> Sentiment:
        raise NotImplementedError

    server.script(sentiment("happy"), sentiment())
    with configured(tracer=OpenTelemetryTracer(provider)):
        await classify("a")

    [span] = [span for span in spans.get_finished_spans() if span.events]
    assert "classify" in span.name
    [event] = span.events
    assert event.attributes is not None
    assert event.attributes["exception.type"] == "fastroai.functions.ParseFailure"
    assert event.attributes["fastroai.retry"] == 1
    assert span.status.is_ok


async def test_a_check_that_is_broken_raises_as_it_is_and_is_no_attempt(
    server: ModelServer, model: Model
) -> None:
    def broken(result: Sentiment) -> bool:
        raise KeyError("oops")

    @infer(intent="Classify", model=model, ensure=broken)
    async def classify(text: str) -> Sentiment:
        raise NotImplementedError

    server.script(sentiment())

    with pytest.raises(KeyError) as raised:
        await classify("a")
    assert raised.value.__notes__ == ["Raised by ensure: broken"]
    assert usage_of(raised.value).cost_usd == listed_costs(server)  # type: ignore[union-attr]
    assert len(server.ledger.entries) == 1


def test_everything_that_is_wrong_with_a_declaration_is_named_at_once() -> None:
    with pytest.raises(CompileError) as raised:

        @infer(
            intent="Say {text}",
            ensure=lambda: True,
            given=lambda txt: txt,
            retries=-1,
            cache="forever",  # type: ignore[arg-type]
            quorum=3,
            threshold=4,
            model=3,  # type: ignore[arg-type]
            temperature="hot",  # type: ignore[arg-type]
            agent=Agent(),
            budget=1,  # type: ignore[arg-type]
        )
        async def classify(text: str) -> Sentiment:
            return Sentiment(label="neutral", confidence=1)

    told = "\n".join(raised.value.problems)
    for wrong in (
        "its body has code",
        "intent names the input {text}",
        "must take one argument, the output",
        "'txt' is no parameter",
        "retries=-1",
        "cache='forever'",
        "threshold=4",
        "model=3",
        "temperature='hot'",
        "model= cannot be combined with agent=",
        "budget=1",
    ):
        assert wrong in told, told


@pytest.mark.parametrize("tools", [print, [1]])
def test_tools_that_are_no_list_of_functions_are_refused(tools: Any) -> None:
    with pytest.raises(CompileError, match="expected a list of functions, or of tools of PydanticAI"):

        @infer(intent="Classify", tools=tools)
        async def classify(text: str) -> Sentiment:
            raise NotImplementedError


@pytest.mark.parametrize("decorated", [Sentiment, len, 3, staticmethod(len)])
def test_what_is_no_function_is_refused(decorated: object) -> None:
    with pytest.raises(CompileError, match="it must be a function"):
        infer(intent="Classify")(decorated)  # type: ignore[call-overload]


async def test_parallel_calls_share_the_budget_around_them(server: ModelServer, model: Model) -> None:
    @infer(intent="Classify", model=model)
    async def classify(text: str) -> Sentiment:
        raise NotImplementedError

    server.rule(None, sentiment())
    results: Sequence[Sentiment] = await asyncio.gather(*(classify(text) for text in "abc"))

    assert len(results) == len(server.ledger.entries) == 3
    assert instructions_to(server.ledger.entries[0])


@pytest.mark.parametrize("declared", [Probabilistic[Sentiment], list[Probabilistic[Sentiment]]])
@pytest.mark.parametrize("stable", [True, False])
def test_samples_are_not_the_declared_result(declared: Any, stable: bool) -> None:
    def classify(text: str) -> Any:
        raise NotImplementedError

    classify.__annotations__["return"] = declared
    with pytest.raises(CompileError, match=r"Write `-> Sentiment`, the type of one answer, and stable=False"):
        infer(intent="Classify the tone", stable=stable)(classify)  # type: ignore[call-overload]


async def test_a_context_may_be_a_list_of_paragraphs(server: ModelServer, model: Model) -> None:
    server.script(sentiment())

    @infer(intent="Classify the tone", context=["Sarcasm is negative.", "In doubt: neutral."], model=model)
    async def classify(text: str) -> Sentiment:
        raise NotImplementedError

    await classify("Great.")
    assert "Sarcasm is negative.\n\nIn doubt: neutral." in instructions_to(server.ledger.entries[0])[0]
