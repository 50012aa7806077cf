"""Recordings have the requests of models alone, as people can read them, and nothing secret."""

import gzip
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import httpx2
import pytest
from pydantic_ai import Agent
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.models.xai import XaiModel
from pydantic_ai.providers.openai import OpenAIProvider
from pydantic_ai.providers.xai import XaiProvider

from fastroai.testing import ModelServer
from fastroai.testing.recordings import RecordingMismatch, recorded, replayed

ANSWER = {
    "id": "chatcmpl-1",
    "object": "chat.completion",
    "created": 1_700_000_000,
    "model": "gpt-5-mini",
    "choices": [{"index": 0, "message": {"role": "assistant", "content": "zipped"}, "finish_reason": "stop"}],
    "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
}


class Zipping(BaseHTTPRequestHandler):
    """A provider that compresses its answers, whatever the client accepts."""

    asked: list[str | None] = []

    def do_POST(self) -> None:
        self.asked.append(self.headers.get("accept-encoding"))
        self.rfile.read(int(self.headers["content-length"]))
        body = gzip.compress(json.dumps(ANSWER).encode())
        self.send_response(200)
        headers = {
            "content-type": "application/json",
            "content-encoding": "gzip",
            "set-cookie": "session=secret",
        }
        for name, value in {**headers, "content-length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *arguments: object) -> None:
        pass


@pytest.fixture
def zipping() -> Iterator[str]:
    Zipping.asked.clear()
    server = ThreadingHTTPServer(("127.0.0.1", 0), Zipping)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def no_difference(text: str) -> None:
    pytest.fail(text)


async def test_compressed_answers_are_recorded_as_text(zipping: str, tmp_path: Path) -> None:
    provider = OpenAIProvider(base_url=zipping, api_key="sk-0123456789-0123456789")
    agent, file = Agent(OpenAIChatModel("gpt-5-mini", provider=provider)), tmp_path / "one.json"
    with recorded(file, ""):
        assert (await agent.run("hi")).output == "zipped"
    assert Zipping.asked == ["identity"]
    (interaction,) = json.loads(file.read_text())["interactions"]
    assert json.loads(interaction["response"]["body"]["string"]) == ANSWER
    assert set(interaction["response"]["headers"]) == {"content-type"}
    assert "secret" not in file.read_text()
    with replayed(file, "", no_difference):
        assert (await agent.run("hi")).output == "zipped"
    assert len(Zipping.asked) == 1


async def test_other_requests_of_the_program_are_neither_recorded_nor_replayed(
    model_server: ModelServer, tmp_path: Path
) -> None:
    agent, file = Agent(model_server.model("anthropic:claude-haiku-4-5")), tmp_path / "one.json"
    with ModelServer() as elsewhere:

        async def both() -> str:
            async with httpx2.AsyncClient() as client:
                answer = await client.post(
                    f"{elsewhere.openai_url}/responses", json={"model": "m", "input": "fetched"}
                )
            assert "echo: fetched" in answer.text
            return (await agent.run("hi")).output

        with recorded(file, ""):
            await both()
        with replayed(file, "", no_difference):
            assert await both() == "echo: hi"
        assert len(elsewhere.ledger.entries) == 2
    assert len(model_server.ledger.entries) == 1
    assert "fetched" not in file.read_text()


def test_a_block_that_asks_no_model_leaves_nothing_to_record(tmp_path: Path) -> None:
    file = tmp_path / "one.json"
    with pytest.raises(RecordingMismatch, match=r"no model was asked\. Do so\."), recorded(file, "Do so."):
        pass
    assert list(tmp_path.iterdir()) == []


async def test_a_model_whose_requests_cannot_be_recorded_is_refused(
    model_server: ModelServer, tmp_path: Path
) -> None:
    xai = Agent(XaiModel("grok-4", provider=XaiProvider(api_key="no-real-key")))
    with (
        pytest.raises(RuntimeError, match="the SDK of xAI sends its requests over gRPC"),
        recorded(tmp_path / "x", ""),
    ):
        await xai.run("hi")
