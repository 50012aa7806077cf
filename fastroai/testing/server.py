"""The model server for tests."""

import asyncio
import socket
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Self, TypeVar, overload

from fastroai.testing.addresses import is_loopback
from fastroai.testing.ledger import Ledger
from fastroai.testing.replies import Duration, Fault, Reply, check_durations, in_seconds
from fastroai.testing.rules import Answer, Rules, When

if TYPE_CHECKING:
    from pydantic_ai.models import Model

    from fastroai.testing.background import BackgroundServer

_API_KEY = "model-server-needs-no-key"
_SECONDS_TO_CONNECT = 60.0
_SECONDS_TO_ANSWER = 600.0
"""Seconds to wait for an answer, as in the SDKs."""


AnswerT = TypeVar("AnswerT", bound=Answer)


class ModelServer:
    """A local model server that speaks OpenAI Responses, OpenAI Chat Completions and Anthropic Messages.

        with ModelServer(script=[Reply("hello")]) as server:
            agent = Agent(server.model("openai:gpt-5-mini"))
            assert agent.run_sync("Hi").output == "hello"
            assert server.ledger.totals().requests == 1

    It has the batches of OpenAI Responses and Anthropic Messages, too.

    Its answers come from a script, then from rules, then from a default: an echo of the prompt, or the
    smallest output that fits the demanded schema. Its `ledger` holds every request with its exact usage. It
    runs in a thread of this process, and no request leaves the machine. Start the server with `async with`,
    `with`, or the pytest fixture `model_server`. It needs the extra `testing`.

    Raises:
        ValueError: the host is not a loopback host, without `allow_remote=True`; or the latency is negative.
    """

    def __init__(
        self,
        *,
        script: Sequence[Reply] = (),
        host: str = "127.0.0.1",
        port: int = 0,
        latency: Duration = 0.0,
        keep_alive: bool = False,
        allow_remote: bool = False,
    ) -> None:
        """Set up a server, which does not run yet.

        `port=0` takes a free port. `latency` is the time before the first byte of every answer.
        `keep_alive` keeps connections open between requests, as providers do. By default each request has its
        own connection, so that a client that nobody closes leaves no open socket behind. `allow_remote`
        permits a host that is not loopback: the server asks nobody for a key.

        Raises:
            ValueError: for a host that is not loopback, or a negative latency.
        """
        check_durations("ModelServer", latency=latency)
        if not allow_remote and not is_loopback(host):
            raise ValueError(
                f"ModelServer(host={host!r}): expected a loopback host such as '127.0.0.1'; "
                "allow_remote=True lets other machines in"
            )
        self._host, self._port, self._latency = host, port, in_seconds(latency)
        self._keep_alive = keep_alive
        self._rules = Rules()
        self._running: BackgroundServer | None = None
        self._address: tuple[str, int] | None = None
        self.holds_batches = False
        """Whether batches go on, so that their results cannot be read yet. They end at once otherwise."""
        self.ledger = Ledger()
        """The ledger of every request that arrived."""
        if script:
            self.script(*script)

    # running

    def start(self) -> Self:
        """Start the server in a thread, wait until it accepts connections, and return the server itself.

        A stopped server can be started again, at a new port by default. Its scripts, rules and ledger stay.

        Raises:
            ImportError: the extra `testing` is not installed.
            OSError: the port is taken.
            RuntimeError: the server is already running, or did not start.
        """
        if self._running:
            raise RuntimeError(f"the model server runs already, at {self.url}")
        try:
            from fastroai.testing.application import make_application
            from fastroai.testing.background import BackgroundServer
        except ModuleNotFoundError as error:
            if (error.name or "").partition(".")[0] not in ("starlette", "uvicorn"):
                raise
            # The same text as in `fastroai.errors.how_to_install`, which the server does not import.
            how = "pip install 'fastroai-runs[testing]'"
            raise ImportError(f"fastroai.testing needs starlette and uvicorn: {how}") from error

        family = socket.AF_INET6 if ":" in self._host else socket.AF_INET
        listener = socket.create_server((self._host, self._port), family=family, backlog=4096)
        self._address = (self._host, listener.getsockname()[1])
        running = BackgroundServer(
            listener,
            lambda hang_up: make_application(
                self._rules,
                self.ledger,
                latency=self._latency,
                keep_alive=self._keep_alive,
                hang_up=hang_up,
                holds_batches=lambda: self.holds_batches,
            ),
        )
        running.start()
        self._running = running
        return self

    def stop(self) -> None:
        """Stop the server, close all open connections, and wait for the end of its thread.

        The ledger, scripts and rules stay; `url` raises `RuntimeError` then. Nothing happens if the server is
        not running.
        """
        if self._running:
            self._running.stop()
            self._running = self._address = None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *error: object) -> None:
        self.stop()

    async def __aenter__(self) -> Self:
        return await asyncio.to_thread(self.start)

    async def __aexit__(self, *error: object) -> None:
        await asyncio.to_thread(self.stop)

    # addresses

    @property
    def url(self) -> str:
        """The URL of the server, without a path: `http://127.0.0.1:PORT` by default.

        Raises:
            RuntimeError: the server has not started, or was stopped.
        """
        if self._address is None:
            raise RuntimeError(
                "the model server has no address yet: start it with `with ModelServer() as server:` "
                "or `async with ModelServer() as server:`"
            )
        host, port = self._address
        return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"

    @property
    def openai_url(self) -> str:
        """The base URL for the SDK of OpenAI: `url` with `/v1`.

        Raises:
            RuntimeError: the server is not running.
        """
        return f"{self.url}/v1"

    @property
    def anthropic_url(self) -> str:
        """The base URL for the SDK of Anthropic, which appends `/v1` itself: the same as `url`.

        Raises:
            RuntimeError: the server is not running.
        """
        return self.url

    def environment(self) -> dict[str, str]:
        """Return the environment variables that direct the SDKs of OpenAI and Anthropic to this server.

        They are the base URLs and dummy keys: `OPENAI_BASE_URL`, `OPENAI_API_KEY`, `ANTHROPIC_BASE_URL` and
        `ANTHROPIC_API_KEY`. The environment of this process is not changed.

        Raises:
            RuntimeError: the server is not running.
        """
        return {
            "OPENAI_BASE_URL": self.openai_url,
            "OPENAI_API_KEY": _API_KEY,
            "ANTHROPIC_BASE_URL": self.anthropic_url,
            "ANTHROPIC_API_KEY": _API_KEY,
        }

    def model(self, reference: str) -> "Model":
        """Return a PydanticAI model that asks this server, with the SDK's own retries off.

        `openai:NAME` and `openai-responses:NAME` speak Responses, `openai-chat:NAME` Chat Completions, and
        `anthropic:NAME` Messages. The name can be any: the server answers for it.

        It waits a minute for a connection, not the SDK's 5 s: where a test sends a thousand requests at once
        on a busy machine, many connect late, and none has failed.

        Raises:
            ValueError: the reference has none of these forms.
            RuntimeError: the server is not running.
        """
        provider, _, name = reference.partition(":")
        if provider in ("openai", "openai-responses", "openai-chat") and name:
            from openai import Timeout as OpenAITimeout
            from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
            from pydantic_ai.providers.openai import OpenAIProvider

            openai = OpenAIProvider(base_url=self.openai_url, api_key=_API_KEY)
            openai.client.max_retries = 0
            openai.client.timeout = OpenAITimeout(_SECONDS_TO_ANSWER, connect=_SECONDS_TO_CONNECT)
            kind = OpenAIChatModel if provider == "openai-chat" else OpenAIResponsesModel
            return kind(name, provider=openai)
        if provider == "anthropic" and name:
            from anthropic import Timeout as AnthropicTimeout
            from pydantic_ai.models.anthropic import AnthropicModel
            from pydantic_ai.providers.anthropic import AnthropicProvider

            anthropic = AnthropicProvider(base_url=self.anthropic_url, api_key=_API_KEY)
            anthropic.client.max_retries = 0
            anthropic.client.timeout = AnthropicTimeout(_SECONDS_TO_ANSWER, connect=_SECONDS_TO_CONNECT)
            return AnthropicModel(name, provider=anthropic)
        raise ValueError(
            f"the model server has no protocol for {reference!r}; "
            "expected 'openai:NAME', 'openai-chat:NAME' or 'anthropic:NAME'"
        )

    # answers

    def script(self, *replies: Reply, model: str | None = None) -> None:
        """Queue replies, each for one request to a model of this name; without `model`, to any model.

        They come after the replies that are queued already. A request takes the next reply from the script of
        its model; when that is used up, or there is none, from the script for any model. If its scripts are
        used up, rules answer it; if the server has no rules, it gets an error 500 that says so. Without any
        script for it, rules or the default answer it.
        """
        self._rules.add_script(replies, model)

    @overload
    def rule(self, when: When | None, answer: Answer) -> None: ...
    @overload
    def rule(self, when: When | None = None) -> Callable[[AnswerT], AnswerT]: ...

    def rule(self, when: When | None = None, answer: Answer | None = None) -> object:
        """Add a rule that answers requests for which no script has a reply: all, or those with `when` true.

        `when` is a function of the `ServedRequest` that returns a bool; by default, all requests match.
        `answer` is a `Reply`, or a function, not async, that takes the `ServedRequest` and returns a `Reply`.
        Without `answer`, this is a decorator of that function:
        `@server.rule(lambda request: "refund" in request.prompt)`. It returns the function unchanged.

        The first rule that matches answers, in the order in which they were added. If none does, the server
        gives its default answer. If a rule raises, or returns no `Reply`, the client gets an error 500.
        Rules run on the server's thread, one at a time, and hold up all requests to the server while they do.
        """
        if answer is not None:
            self._rules.add_rule(when, answer)
            return None

        def decorate(answer: AnswerT) -> AnswerT:
            self._rules.add_rule(when, answer)
            return answer

        return decorate

    def fail_next(self, count: int, fault: Fault) -> None:
        """Give the answers to the next `count` requests, to any model, a fault.

        They leave the script as it is: a retry gets the reply. A second call adds to the faults of the first.

        Raises:
            ValueError: `count` is below 1.
        """
        if count < 1:
            raise ValueError(f"fail_next({count!r}, ...): expected at least 1 request")
        self._rules.add_faults(count, fault)

    def reset(self) -> None:
        """Remove scripts, rules, pending faults and the entries of the ledger. The server keeps running.

        `holds_batches` becomes `False`: the results of batches that it held can then be read.
        """
        self.holds_batches = False
        self._rules.reset()
        self.ledger.clear()
