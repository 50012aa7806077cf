"""The streams of this server beside those of llmock, an independent reading of the protocols."""

import json
from collections.abc import Iterator

import httpx2
import pytest
from llmock.testing import LLMockServer

from fastroai.testing import ModelServer


@pytest.fixture(scope="module")
def llmock_server() -> Iterator[LLMockServer]:
    with LLMockServer() as server:
        yield server


REQUESTS: dict[str, tuple[str, dict[str, object]]] = {
    "responses": ("/responses", {"input": "hi"}),
    "chat": (
        "/chat/completions",
        {"messages": [{"role": "user", "content": "hi"}], "stream_options": {"include_usage": True}},
    ),
    "messages": ("/v1/messages", {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 99}),
}


@pytest.mark.parametrize("protocol", REQUESTS)
def test_both_servers_stream_the_same_kinds_of_events(
    model_server: ModelServer, llmock_server: LLMockServer, protocol: str
) -> None:
    ours = events(model_server.anthropic_url if protocol == "messages" else model_server.openai_url, protocol)
    theirs = events(llmock_server.base_url("anthropic" if protocol == "messages" else "openai"), protocol)

    assert ours == theirs


def events(base_url: str, protocol: str) -> list[str]:
    """The kinds of the events of a stream, each repetition once, without keep-alives."""
    path, body = REQUESTS[protocol]
    answer = httpx2.post(base_url + path, json={"model": "m", "stream": True} | body)
    assert answer.headers["content-type"].startswith("text/event-stream")
    kinds: list[str] = []
    for line in answer.text.splitlines():
        if not line.startswith("data: ") or line == "data: [DONE]":
            continue
        data = json.loads(line.removeprefix("data: "))
        kind = data.get("type") or ",".join(
            sorted(data["choices"][0]["delta"]) if data["choices"] else ["usage"]
        )
        if kind != "ping" and kind not in kinds[-1:]:
            kinds.append(kind)
    return kinds
