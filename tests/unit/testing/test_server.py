import asyncio
import socket
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import httpx2
import pytest
import uvicorn
from pydantic_ai import Agent
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from support.patience import PATIENCE

from fastroai.testing import Fault, ModelServer, Reply, Usage, application


def servers_running() -> int:
    return sum(thread.name == "fastroai-model-server" for thread in threading.enumerate())


def post(server: ModelServer, prompt: str = "hi", **more: object) -> httpx2.Response:
    messages = [{"role": "user", "content": prompt}]
    return httpx2.post(
        f"{server.openai_url}/chat/completions", json={"model": "m", "messages": messages, **more}
    )


def test_a_server_runs_in_a_with_block_and_not_after_it() -> None:
    before = servers_running()
    with ModelServer() as server:
        assert servers_running() == before + 1
        assert post(server).json()["choices"][0]["message"]["content"] == "echo: hi"
        url = server.url

    assert servers_running() == before
    with pytest.raises(httpx2.ConnectError):
        httpx2.get(url)
    assert len(server.ledger.entries) == 1


async def test_a_server_runs_in_an_async_with_block() -> None:
    async with ModelServer() as server:
        assert (await Agent(server.model("openai:gpt-5-mini")).run("hi")).output == "echo: hi"


def test_two_servers_have_ports_and_ledgers_of_their_own() -> None:
    with ModelServer() as one, ModelServer() as other:
        post(one)

        assert one.url != other.url
        assert (len(one.ledger.entries), len(other.ledger.entries)) == (1, 0)


def test_a_server_can_be_started_again() -> None:
    server = ModelServer()
    for count in (1, 2):
        with server:
            post(server)
            assert len(server.ledger.entries) == count
    server.stop()  # stopping twice is no error


def test_a_server_listens_on_the_port_that_it_was_given() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    with ModelServer(port=port) as server:
        assert server.url == f"http://127.0.0.1:{port}"
        with pytest.raises(OSError, match="in use"):
            ModelServer(port=port).start()


def test_a_server_listens_on_the_loopback_of_ipv6() -> None:
    with ModelServer(host="::1") as server:
        assert server.url.startswith("http://[::1]:")
        assert post(server).status_code == 200


def test_stopping_does_not_wait_for_answers_under_way() -> None:
    with ModelServer() as server:
        server.fail_next(1, Fault.hang())
        with ThreadPoolExecutor() as threads:
            asking = threads.submit(post, server)
            server.ledger.wait_for_sync(1)
            server.stop()

            with pytest.raises(httpx2.TransportError):
                asking.result(PATIENCE)
    assert server.ledger.entries[0].ended is not None


def test_a_server_that_cannot_start_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    async def startup(self: uvicorn.Server, sockets: object = None) -> None:
        raise OSError("no more sockets")

    monkeypatch.setattr(uvicorn.Server, "startup", startup)

    with pytest.raises(RuntimeError, match="did not start") as caught:
        ModelServer().start()
    assert "no more sockets" in str(caught.value.__cause__)


def test_starting_twice_is_an_error() -> None:
    with ModelServer() as server, pytest.raises(RuntimeError, match=r"runs already, at http://127\.0\.0\.1"):
        server.start()


@pytest.mark.parametrize("attribute", ["url", "openai_url", "anthropic_url"])
def test_a_server_has_no_address_before_it_runs(attribute: str) -> None:
    with pytest.raises(RuntimeError, match=r"no address yet: start it with `with ModelServer\(\)"):
        getattr(ModelServer(), attribute)


@pytest.mark.parametrize("host", ["0.0.0.0", "192.0.2.1", "example.com"])
def test_a_host_that_others_can_reach_must_be_permitted(host: str) -> None:
    with pytest.raises(ValueError, match=r"expected a loopback host.*allow_remote=True"):
        ModelServer(host=host)
    ModelServer(host=host, allow_remote=True)


def test_localhost_is_loopback() -> None:
    with ModelServer(host="localhost") as server:
        assert post(server).status_code == 200


@pytest.mark.parametrize("latency", [-1, float("nan"), float("inf")])
def test_a_latency_that_cannot_pass_is_refused(latency: float) -> None:
    with pytest.raises(ValueError, match=r"ModelServer\(latency="):
        ModelServer(latency=latency)


def test_the_latency_of_a_server_delays_every_answer() -> None:
    with ModelServer(latency=0.05) as server:
        server.fail_next(1, Fault.status(500))
        post(server)
        post(server)
        entries = server.ledger.wait_for_sync(2, state="finished")

    for entry in entries:
        assert entry.ended is not None
        assert entry.ended - entry.started >= timedelta(seconds=0.05)


@pytest.mark.parametrize("module", ["starlette", "uvicorn"])
def test_a_missing_extra_says_what_to_install(monkeypatch: pytest.MonkeyPatch, module: str) -> None:
    for name in list(sys.modules):
        if name == module or name.startswith((f"{module}.", "fastroai.testing.")):
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, module, None)

    with pytest.raises(ImportError, match=r"starlette and uvicorn: pip install 'fastroai-runs\[testing\]'"):
        ModelServer().start()


def test_another_import_error_is_not_blamed_on_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(sys.modules):
        if name.startswith("fastroai.testing."):
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "h11", None)
    monkeypatch.setitem(sys.modules, "uuid", None)

    with pytest.raises(ModuleNotFoundError, match="uuid"):
        ModelServer().start()


async def test_models_reach_the_server_with_retries_off(model_server: ModelServer) -> None:
    kinds = {
        "openai:gpt-5-mini": OpenAIResponsesModel,
        "openai-responses:gpt-5-mini": OpenAIResponsesModel,
        "openai-chat:gpt-5-mini": OpenAIChatModel,
        "anthropic:claude-haiku-4-5": AnthropicModel,
    }
    for reference, kind in kinds.items():
        model_server.reset()
        model_server.fail_next(1, Fault.status(500))
        model = model_server.model(reference)

        with pytest.raises(Exception, match="status 500"):
            await Agent(model).run("hi")

        assert type(model) is kind
        assert model.model_name == reference.partition(":")[2]
        assert len(model_server.ledger.entries) == 1


@pytest.mark.parametrize("reference", ["gpt-5-mini", "groq:llama", "openai:", "anthropic:", ""])
def test_a_model_of_no_known_protocol_is_refused(model_server: ModelServer, reference: str) -> None:
    with pytest.raises(ValueError, match=r"no protocol for .*expected 'openai:NAME', 'openai-chat:NAME' or"):
        model_server.model(reference)


@pytest.mark.parametrize(
    "reference", ["openai:gpt-5-mini", "openai-chat:gpt-5-mini", "anthropic:claude-haiku-4-5"]
)
async def test_the_environment_leads_plain_clients_to_the_server(
    model_server: ModelServer, monkeypatch: pytest.MonkeyPatch, reference: str
) -> None:
    for name, value in model_server.environment().items():
        monkeypatch.setenv(name, value)

    assert (await Agent(reference).run("hi")).output == "echo: hi"
    assert len(model_server.ledger.entries) == 1


@pytest.mark.slow
async def test_two_hundred_requests_at_once_are_all_served_and_recorded(model_server: ModelServer) -> None:
    model_server.rule(None, lambda request: Reply(request.prompt, usage=Usage(int(request.prompt), 1)))
    count = 200

    async with httpx2.AsyncClient(limits=httpx2.Limits(max_connections=None), timeout=60) as client:

        async def ask(number: int) -> str:
            streamed = number % 2 == 0
            messages = [{"role": "user", "content": str(number)}]
            body = {"model": "m", "messages": messages, "max_tokens": 9, "stream": streamed}
            answer = await client.post(f"{model_server.url}/v1/messages", json=body)
            return answer.text

        answers = await asyncio.gather(*(ask(number) for number in range(1, count + 1)))

    assert all(f'"{number}"' in answer for number, answer in enumerate(answers, start=1))
    entries = await model_server.ledger.wait_for(count, state="finished")
    assert sorted(entry.usage.input_tokens for entry in entries) == list(range(1, count + 1))
    assert model_server.ledger.totals().usage == Usage(count * (count + 1) // 2, count)
    assert len({entry.request_id for entry in entries}) == count
    assert all(entry.completed for entry in entries)


async def test_requests_are_under_way_side_by_side(model_server: ModelServer) -> None:
    model_server.fail_next(50, Fault.hang())
    body = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}

    async with httpx2.AsyncClient(timeout=60) as client:
        url = f"{model_server.openai_url}/chat/completions"
        asking = [asyncio.create_task(client.post(url, json=body)) for _ in range(50)]
        entries = await model_server.ledger.wait_for(50)
        for task in asking:
            task.cancel()
        await asyncio.gather(*asking, return_exceptions=True)

    assert all(entry.ended is None for entry in entries)
    ended = await model_server.ledger.wait_for(50, state="finished")
    assert all(entry.client_disconnected for entry in ended)


def test_a_request_that_never_arrived_whole_is_not_recorded() -> None:
    with ModelServer() as server:
        host, port = server.url.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port))) as connection:
            connection.sendall(b"POST /v1/messages HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{")
        post(server)  # is served after that one was given up

        assert [entry.protocol for entry in server.ledger.entries] == ["openai-chat"]


def test_every_request_is_one_line_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO", "fastroai.testing"), ModelServer() as server:
        server.script(Reply("hi", usage=Usage(10, 2, cache_read_tokens=4)))
        server.fail_next(1, Fault.status(503))
        post(server)
        post(server, stream=True)
        server.ledger.wait_for_sync(2, state="finished")

    refused, served = (record.getMessage() for record in caplog.records if record.name == "fastroai.testing")
    assert refused.startswith("#1 openai-chat m: status 503; input 0 (0 cached), output 0, not billed;")
    assert served.startswith("#2 openai-chat m stream: 200; input 10 (4 cached), output 2;")


def test_a_body_that_is_too_large_is_refused_and_not_kept(
    model_server: ModelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(application, "MOST_BYTES", 1_000)
    refused = post(model_server, "x" * 2_000)
    assert (refused.status_code, "more than 1,000 bytes" in refused.text) == (413, True)
    assert post(model_server, "x" * 200).status_code == 200
    assert [len(entry.raw_body) < 1_000 for entry in model_server.ledger.entries] == [True, True]
