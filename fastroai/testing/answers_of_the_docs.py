"""The answers that pages for newcomers show: `python -m fastroai.testing` gives them, and echoes the rest.

These pages are README, `docs/index.md` and `docs/learn`. Each rule is for one agent or typed function.
"""

from fastroai.testing.replies import Reply, Usage
from fastroai.testing.requests import JsonObject, ServedRequest
from fastroai.testing.rules import When
from fastroai.testing.server import ModelServer


def rules(server: ModelServer) -> None:
    """Add the rules of these pages."""
    paris = Reply("The capital of France is Paris.", usage=Usage(24, 9))
    server.rule(_has("Answer in one sentence", "capital of France"), paris)
    server.rule(_has("Name the topic"), Reply("billing", usage=Usage(60, 4)))
    server.rule(_has("Write a reply"), _write)
    server.rule(_has("Classify the ticket"), _classify)
    server.rule(_has("Rate the tone"), _rate)


def _has(*words: str) -> When:
    return lambda request: all(word in _said(request) for word in words)


def _said(request: ServedRequest) -> str:
    return "\n".join((request.system, *(message.text for message in request.messages)))


def _write(request: ServedRequest) -> Reply:
    text, usage = "We have refunded the second charge.", Usage(90, 200, reasoning_tokens=192)
    return Reply(data={"text": text}, usage=usage) if _fields(request) else Reply(text, usage=usage)


def _classify(request: ServedRequest) -> Reply:
    said, topics = _said(request), {"charged": "billing", "crashes": "technical"}
    category = next((topic for word, topic in topics.items() if word in said), "other")
    answer = {"category": category, "urgent": "now" in said}
    return Reply(
        data={name: answer[name] for name in answer if name in _fields(request)}, usage=Usage(100, 20)
    )


def _rate(request: ServedRequest) -> Reply:
    """Be sure only when asked again."""
    tone, confidence = ("angry", 0.93) if len(request.messages) > 1 else ("happy", 0.42)
    return Reply(data={"tone": tone, "confidence": confidence}, usage=Usage(120, 12))


def _fields(request: ServedRequest) -> JsonObject:
    """The fields that the request demands; none if it asks for text."""
    schema = request.output_tool.schema if request.output_tool else request.output_schema
    fields: JsonObject = (schema or {}).get("properties", {})
    return fields
