"""The answers that the pages show: `python -m fastroai.testing` gives them, and echoes the rest.

A rule is a pattern and an answer. The first pattern counts that is found in what the request says: its model,
instructions and messages, each on lines of its own. So one server answers all pages.
"""

import re
from collections.abc import Callable
from itertools import cycle

from fastroai.testing.replies import Fault, Reply, ToolCall, Usage
from fastroai.testing.requests import JsonObject, ServedRequest
from fastroai.testing.rules import Answer, When
from fastroai.testing.server import ModelServer


def rules(server: ModelServer) -> None:
    """Add the rules of these pages."""
    for pattern, answer in (*_agents(), *_budgets(), *_pipelines(), *_functions(), *_shared()):
        server.rule(_says(pattern), answer)


# --- agents, prices and tools ---


def _agents() -> list[tuple[str, Answer]]:
    oslo = {"x-litellm-response-cost": "0.0000061"}
    weather, umbrella = (
        Reply("It rains.", usage=Usage(1_000, 100)),
        Reply("Take an umbrella.", usage=Usage(80, 5)),
    )
    story = Reply("Once upon a time there was a parcel.", usage=Usage(10, 9), chunk_size=12)
    return [
        ("second largest city", Reply("Lyon.", usage=Usage(20, 4))),
        (
            "And how many people",
            Reply("About two million people.", usage=Usage(48, 12, cache_read_tokens=16)),
        ),
        (
            "one sentence.*capital of France",
            Reply("The capital of France is Paris.", usage=Usage(24, 9)),
        ),
        ("capital of France", Reply("Paris.", usage=Usage(24, 9))),
        ("capital of Norway", Reply("Oslo.", usage=Usage(14, 2), headers=oslo)),
        (
            "weather in Oslo",
            _with_a_tool(Usage(40, 450), Reply("It rains in Oslo.", usage=Usage(60, 6)), city="Oslo"),
        ),
        ("Sum up|^Research\\.$.*the weather", weather),
        ("take along", _with_a_tool(Usage(50, 10), umbrella, topic="the weather")),
        (
            "Where is order 1182",
            _with_a_tool(
                Usage(100, 20), Reply("Your parcel left on Monday.", usage=Usage(150, 10)), order_id="1182"
            ),
        ),
        (
            r"2 \+ 3",
            _in_turn(
                Reply(fault=Fault.status(503)),
                Reply(tool_calls=[ToolCall("add", {"a": 2, "b": 3})], usage=Usage(90, 20)),
                Reply("5", usage=Usage(130, 1, cache_read_tokens=64)),
            ),
        ),
        ("Tell me a story", story),
        ("Summarise the letter", Reply("A complaint.", usage=Usage(1_000, 200, cache_read_tokens=500))),
        ("Write a poem", Reply("Baa.", usage=Usage(20, 50))),
        ("^Write to ", Reply("ok", usage=Usage(1_000, 100))),
        (
            "kettle is broken|tin is empty",
            Reply("We are sorry about the kettle. A new one is on its way.", chunk_size=8),
        ),
    ]


# --- budgets, retries and time ---


def _budgets() -> list[tuple[str, Answer]]:
    unavailable = Reply(fault=Fault.status(503))
    return [
        (r"^(one|two|three|turn \d+|question( \d+)?|Letter \d+|Draft it\.|Polish it\.)$", _ok(20, 100)),
        (r"^Question \d+$", Reply("ok", usage=Usage(10, 5), latency=0.5)),
        ("^claude.*Are you there", Reply("from the other one", usage=Usage(10, 5))),
        ("Are you there", Reply(fault=Fault.status(500))),
        ("at length", Reply("word " * 800)),
        ("Yes or no", _ok(20, 10)),
        ("Is anybody there", _in_turn(unavailable, unavailable, _ok(10, 1))),
        ("Are you busy", Reply(fault=Fault.status(429, retry_after=30))),
        ("Take a second", Reply("ok", usage=Usage(10, 1), latency=1.0)),
        ("Take your time", Reply("It", fault=Fault.hang())),
        ("How many\\?", Reply(data={"response": "many"}, usage=Usage(30, 4))),
        ("Say more", Reply("billing", usage=Usage(40, 401))),
    ]


# --- pipelines, graphs and routers ---


def _pipelines() -> list[tuple[str, Answer]]:
    stomachs = (
        Reply("Sheep, which are known for their wool, have as many as four stomachs.", usage=Usage(20, 15)),
        Reply("Sheep have four stomachs.", usage=Usage(60, 6)),
    )
    return [
        ("Name the department", Reply("billing", usage=Usage(20, 1))),
        ("Translate into English", Reply("I was charged twice.", usage=Usage(30, 6))),
        ("Summarise in a few words", Reply("A double charge.", usage=Usage(40, 5))),
        ("Extract the order number", _order),
        ("Review the reply", _ok(60, 1)),
        ("Check this reply", Reply("Fine.", usage=Usage(100, 20))),
        ("Where is my parcel", Reply("We are on it.", usage=Usage(20, 5))),
        ("^gpt-5$.*Where is it", Reply("a long answer", usage=Usage(100, 200))),
        ("Where is it", Reply("a short answer", usage=Usage(20, 4))),
        ("How many stomachs", _asked_again(*stomachs)),
        ("yeti", Reply("I cannot say.", usage=Usage(20, 4))),
        ("Do what the customer wants", _decide),
        ("^Summarize\\.$", Reply("Sheep: four stomachs.", usage=Usage(60, 5))),
        ("^Research\\.$", Reply("Sheep have four stomachs.", usage=Usage(50, 9))),
        ("^Write\\.$", Reply("Four stomachs, one sheep.", usage=Usage(90, 9))),
        ("^Edit\\.$", Reply("One sheep, four stomachs.", usage=Usage(140, 9))),
    ]


def _order(request: ServedRequest) -> Reply:
    found = re.search(r"order \d+", request.prompt)
    return Reply(found[0] if found else "none", usage=Usage(40, 4))


def _decide(request: ServedRequest) -> Reply:
    if "target" in _fields(request):
        data = {"reasoning": "They want their money back.", "target": "refund"}
        return Reply(data=data, usage=Usage(120, 20))
    return Reply("The customer wants a refund.", usage=Usage(30, 6))


# --- typed functions, rows and workflows ---


def _functions() -> list[tuple[str, Answer]]:
    return [
        (
            "emotional tone.*broke",
            _asked_again(_positive(), _sentiment("negative", 0.93, "It is sarcastic.")),
        ),
        ("emotional tone", _asked_again(_positive(), _sentiment("neutral", 0.6, "Hard to say."))),
        ("tone of customer feedback", _positive()),
        ("^gpt-5$.*two words", Reply("a large")),
        ("two words", Reply("a small")),
        ("Name the mood", Reply("angry", usage=Usage(40, 5))),
        ("how many dollars", _data(50, 8, response=80)),
        (
            "printer is warm",
            _in_turn(*(_data(level=level, confidence=0.9) for level in ("high", "high", "low", "high"))),
        ),
        (
            "printer is on fire",
            _in_turn(
                _data(level="high", confidence=0.6),
                _data(level="low", confidence=0.9),
                _data(level="high", confidence=0.8),
            ),
        ),
        ("how urgent", _data(level="low", confidence=0.9)),
        ("of 10 is not enough", _data(text="Warm as a sheep.", score=9)),
        ("Write a slogan", _asked_again(_data(text="Sheep.", score=3), _data(text="Wool.", score=5))),
        ('Argue for caution|"merge":"no"', _data(merge="no", reason="debts")),
        ("Argue for growth", _data(merge="yes", reason="growth")),
        (
            "tone of a customer's letter",
            _data(label="negative", confidence=0.8, reason="It stopped working."),
        ),
        ("customer's letter", _data(text="We are sorry. A new one is on its way.", escalate=False)),
        (
            "Review the text",
            _asked_again(
                _data(verdict="good", summary="A text about sheep, which are woolly animals that say so."),
                _data(verdict="good", summary="Sheep are woolly."),
            ),
        ),
        ("How friendly.*Denied", _data(80, 10, response=0.25)),
        ("How friendly", _data(80, 10, response=0.75)),
        ("Reply to the ticket", _deny),
    ]


def _sentiment(label: str, confidence: float, reasoning: str) -> Reply:
    return _data(120, 30, label=label, confidence=confidence, reasoning=reasoning)


def _positive() -> Reply:
    return _sentiment("positive", 0.42, "It says great.")


def _deny(request: ServedRequest) -> Reply:
    return _data(100, 20, response="Denied." if _number(request) % 3 else "Sorry! We refund it.")


# --- tickets, on many pages ---

_TOPICS = {
    "gibberish|order 1003": "nonsense",
    "charged|paid|refund": "billing",
    "crashes|offline": "technical",
    "Hello": "greeting",
}


def _shared() -> list[tuple[str, Answer]]:
    return [
        ("Name the topic", Reply("billing", usage=Usage(60, 4))),
        ("Reply to a", Reply("We have refunded you.", usage=Usage(1_200, 80, cache_read_tokens=1_024))),
        ("^Reply, ", Reply("Sorry for that.", usage=Usage(60, 20))),
        ("Write a reply", _write),
        ("Rate the tone", _asked_again(_tone("happy", 0.42), _tone("angry", 0.93))),
        ("Was I charged twice", _asked_again(_misunderstand, _classify)),
        ("Classify", _classify),
        ("my money back", Reply("Refunded.", usage=Usage(50, 8))),
        ("charged twice", Reply("billing", usage=Usage(40, 1))),
    ]


def _classify(request: ServedRequest) -> Reply:
    said, fields = _said(request), _fields(request)
    found = next((topic for words, topic in _TOPICS.items() if re.search(words, said, re.IGNORECASE)), None)
    topic = found or "other"
    if set(fields) == {"response"} and "nano" in request.model and _number(request) % 4 == 3:
        topic = "technical"  # a small model errs
    answer: JsonObject = {
        "category": topic,
        "urgent": "now" in said,
        "confidence": 0.93 if found else 0.4,
        "order": _number(request),
        "response": topic,
    }
    if not fields:
        return Reply(topic, usage=Usage(100, 10))
    usage = Usage(100, 10 if set(fields) == {"response"} else 20)
    return Reply(data={name: answer[name] for name in answer if name in fields}, usage=usage)


def _misunderstand(request: ServedRequest) -> Reply:
    return Reply(usage=Usage(80, 12), fault=Fault.wrong_schema())


def _write(request: ServedRequest) -> Reply:
    said = _said(request)
    order = re.search(r"for (order \d+)", said)
    text = f"We have refunded {order[1]}." if order else "We have refunded the second charge."
    text = "We will send a new one." if "broke" in said else text
    usage = Usage(90, 200, reasoning_tokens=192)
    return Reply(data={"text": text}, usage=usage) if _fields(request) else Reply(text, usage=usage)


def _tone(tone: str, confidence: float) -> Reply:
    return _data(120, 12, tone=tone, confidence=confidence)


# --- what rules are made of ---


def _says(pattern: str) -> When:
    found = re.compile(pattern, re.MULTILINE | re.DOTALL)
    return lambda request: found.search(_said(request)) is not None


def _said(request: ServedRequest) -> str:
    return "\n".join((request.model, request.system, *(message.text for message in request.messages)))


def _number(request: ServedRequest) -> int:
    """The number of the order of which the request tells; 1 if it tells of none."""
    found = re.search(r"order (\d+)", _said(request))
    return int(found[1]) if found else 1


def _fields(request: ServedRequest) -> JsonObject:
    """The fields that the request demands; none if it asks for text."""
    schema = request.output_tool.schema if request.output_tool else request.output_schema
    fields: JsonObject = (schema or {}).get("properties", {})
    return fields


def _ok(input_tokens: int, output_tokens: int) -> Reply:
    return Reply("ok", usage=Usage(input_tokens, output_tokens))


def _data(input_tokens: int = 100, output_tokens: int = 20, **fields: object) -> Reply:
    return Reply(data=fields, usage=Usage(input_tokens, output_tokens))


def _in_turn(*replies: Reply) -> Callable[[ServedRequest], Reply]:
    """Give the next reply at each request, and begin anew after the last."""
    order = cycle(replies)
    return lambda request: next(order)


def _asked_again(first: Answer, again: Answer) -> Callable[[ServedRequest], Reply]:
    """Give another reply if the model is told that its first one will not do."""

    def answer(request: ServedRequest) -> Reply:
        repeated = len(request.messages) > 1 or request.tool_calls or '"previous' in request.prompt
        chosen = again if repeated else first
        return chosen if isinstance(chosen, Reply) else chosen(request)

    return answer


def _with_a_tool(usage: Usage, then: Reply, **arguments: str) -> Callable[[ServedRequest], Reply]:
    """Call the tool that is offered, with those of the arguments that it takes; then give a reply."""

    def answer(request: ServedRequest) -> Reply:
        if request.tool_results:
            return then
        (tool,) = request.tools
        taken = {
            name: value for name, value in arguments.items() if name in tool.schema.get("properties", {})
        }
        return Reply(tool_calls=[ToolCall(tool.name, taken)], usage=usage)

    return answer
