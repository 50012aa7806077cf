"""What goes over the wire in one attempt at a request: each request that an SDK sends, and each response.

PydanticAI's models add to a request after it was counted, the SDKs below them send it again by themselves,
and PydanticAI passes on neither headers nor all of a bill. Hooks of the SDKs' clients see all of it. A hook
does nothing unless somebody listens, so the clients may be the user's own.

An `httpx` auth or transport that changes a request works below the hooks, which do not see its changes.
"""

from __future__ import annotations

import importlib
import json
import logging
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias
from weakref import WeakSet

from fastroai.agent.requests.stated_cost import usd_amount
from fastroai.pydantic_ai_private import change_http_clients
from fastroai.records import exact_sum

if TYPE_CHECKING:
    import httpx
    import httpx2
    from pydantic_ai.providers import Provider

    HTTPClient: TypeAlias = httpx.AsyncClient | httpx2.AsyncClient

_EVENT_STREAM: Final = "text/event-stream"
_BESIDES: Final = ("count_tokens", "countTokens", "count-tokens", "input_tokens", "files", "upload", "token")
"""Ends of paths of requests that a model may send besides the one that is billed."""
_ASKS_AGAIN: Final = frozenset({301, 302, 303, 307, 308, 401, 407})
"""Statuses after which a client sends the same request again as it should: elsewhere, or with a key."""


logger = logging.getLogger("fastroai.agent")

_told: Final[set[object]] = set()


def tell_once(kind: object, message: str) -> None:
    """Log a warning, once for each kind in each process."""
    if kind not in _told:
        _told.add(kind)
        logger.warning("%s", message)


class HeldBack(BaseException):
    """Raised in a hook to hold a request back, and caught where the attempt was begun.

    It is no `Exception`, because SDKs take every exception for a broken connection, and send again.
    """


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A request that is about to leave."""

    method: str
    url: str
    body: object
    """The decoded JSON of the body; `None` if it is something else."""


@dataclass(frozen=True, slots=True)
class Incoming:
    """A response whose headers have arrived."""

    method: str
    status: int
    headers: Mapping[str, str]
    body: object = None
    """The decoded JSON of the body; `None` if it is something else, or a stream."""

    @property
    def is_stream(self) -> bool:
        """Whether the body is a stream of events, which has not arrived yet."""
        return self.headers.get("content-type", "").startswith(_EVENT_STREAM)


class StatedInHeaders:
    """Listens to a request: reads its cost from headers of the responses, where a gateway states it there."""

    def __init__(self, names: Sequence[str]) -> None:
        """Read the first of the headers `names` that a response has."""
        self._names = names
        self._costs: list[Decimal | None] = []

    @property
    def usd(self) -> Decimal | None:
        """The total that all responses state, in US dollars; `None` if one of them states nothing."""
        known = [cost for cost in self._costs if cost is not None]
        return exact_sum(known) if known and len(known) == len(self._costs) else None

    def sends(self, request: Outgoing) -> None:
        """Do nothing before a request leaves: requests state no cost."""

    def receives(self, response: Incoming) -> None:
        """Read the headers of a response.

        The headers of a stream arrive before its answer is written, so they cannot tell its cost.
        """
        if response.method != "POST" or not 200 <= response.status < 300 or response.is_stream:
            return
        headers = response.headers
        self._costs.append(next((usd_amount(headers[name]) for name in self._names if name in headers), None))


class AttemptOnWire(StatedInHeaders):
    """The requests to the endpoint of a model that one attempt sends. There should be one.

    It holds back the request that an SDK sends again by itself after a failure, as nobody has admitted it.
    """

    def __init__(self, cost_headers: Sequence[str], may_leave: Callable[[object], bool] | None) -> None:
        """Listen to an attempt.

        `may_leave` decides by the body whether a request may leave; it is `None` if nothing limits it.
        """
        super().__init__(cost_headers)
        self._may_leave = may_leave
        self._url: str | None = None
        self.sent = 0
        """Number of requests that have left for the endpoint to which the first one went."""
        self.held_back: Literal["repeated", "second", "refused"] | None = None
        """Why a request was held back; `None` if none was. `repeated`: the SDK was about to send it again
        after a failure. `second`: under a limit, the model was about to ask again after an answer. `refused`:
        it may not leave with its body."""
        self.status: int | None = None
        """The status of the last response; `None` if the last request brought none."""
        self.body: object = None
        """The decoded JSON of the last response; `None` if it is something else, or a stream."""

    @property
    def was_seen(self) -> bool:
        """Whether any request was seen. If none was, the client of the model cannot be watched."""
        return self._url is not None

    def sends(self, request: Outgoing) -> None:
        """Count a request that the SDK is about to send.

        Raises:
            HeldBack: the SDK repeats a request, sends a second one, or sends one that may not leave.
        """
        if request.method != "POST" or request.url.split("?")[0].endswith(_BESIDES):
            return
        if self._url is None:
            self._url = request.url
        is_again = request.url == self._url and self.status not in _ASKS_AGAIN
        if self.sent and is_again and (self.status is None or self.status >= 300):
            self.held_back = "repeated"
        elif self._may_leave is not None:
            if self.sent and is_again:
                self.held_back = "second"
            elif not self._may_leave(request.body):
                self.held_back = "refused"
        if self.held_back is not None:
            raise HeldBack
        if is_again:
            self.sent += 1
        self.status = None

    def receives(self, response: Incoming) -> None:
        """Note the status and the body of a response, and read its headers."""
        super().receives(response)
        if response.method == "POST":
            self.status, self.body = response.status, response.body


_listener: Final[ContextVar[StatedInHeaders | None]] = ContextVar("fastroai_wire", default=None)
"""The listener of this task. It is not kept by scope, as several requests go on at once under one."""


@contextmanager
def listening(listener: StatedInHeaders) -> Iterator[None]:
    """Tell a listener of what this task, and the tasks and threads that it starts, send and receive.

    A listener from outside is not told: what it listens to is another request.
    """
    token = _listener.set(listener)
    try:
        yield
    finally:
        _listener.reset(token)


# --- the hooks ---


def watch(provider: Provider[Any] | None) -> bool:
    """Hook into the client of a provider, once. Returns whether its requests can be seen.

    Call it before each request: PydanticAI gives a provider a new client on another event loop.
    """
    client = None if provider is None else _client_of(provider)
    if client is None:
        return False
    http = _http_client_of(client)
    if http is not None:
        _hook_into(http)
        return True
    return _watch_boto(client) or _watch_xai(client)


def _hook_into(client: HTTPClient) -> None:
    # A client returns its own lists of hooks.
    if _see_request not in client.event_hooks["request"]:
        client.event_hooks["request"].append(_see_request)
        client.event_hooks["response"].append(_see_response)


_unseen: Final[WeakSet[Provider[Any]]] = WeakSet()
"""Providers that have answered a request which no hook has seen, as if it went another way."""


def is_in_sight(provider: Provider[Any] | None) -> bool:
    """Return whether the requests through the client of a provider can be seen before they leave."""
    return watch(provider) and provider not in _unseen


def note_sight(provider: Provider[Any], *, was_seen: bool) -> None:
    """Note whether a request to a provider, which has answered it, was seen before it left."""
    (_unseen.discard if was_seen else _unseen.add)(provider)


def watch_from_now_on(provider: Provider[Any]) -> None:
    """Hook into the client of a provider, and into the clients that replace it on other event loops.

    This is for models whose requests do not pass where `watch` is called: of embeddings and images.
    """
    if not change_http_clients(provider, _hook_into):
        watch(provider)


def _client_of(provider: Provider[Any]) -> object:
    try:
        client: object = provider.client
    except Exception:  # the user's own provider raised it; the request will show the same error
        return None
    return client


_HTTP_CLIENTS: Final = (
    ("_client",),  # openai, anthropic, groq
    ("sdk_configuration", "async_client"),  # mistralai
    ("_api_client", "_async_httpx_client"),  # google-genai
    ("_client_wrapper", "httpx_client", "httpx_client"),  # cohere
    ("_async_client",),  # huggingface-hub, once it has sent a request
)
"""Where the SDKs keep their HTTP clients. PydanticAI replaces the clients in the same places."""


def _http_client_of(client: object) -> HTTPClient | None:
    for path in _HTTP_CLIENTS:
        found: Any = client
        for name in path:
            found = getattr(found, name, None)
        if isinstance(getattr(found, "event_hooks", None), dict):
            http: HTTPClient = found
            return http
    return None


async def _see_request(request: httpx.Request | httpx2.Request) -> None:
    if (listener := _listener.get()) is not None:
        listener.sends(Outgoing(request.method, str(request.url), _json(_content(request))))


async def _see_response(response: httpx.Response | httpx2.Response) -> None:
    if (listener := _listener.get()) is None:
        return
    headers = response.headers
    body = None
    if headers.get("content-type", "").startswith("application/json"):
        body = _json(await response.aread())  # a response is kept once it is read; the SDK reads it there
    listener.receives(Incoming(response.request.method, response.status_code, headers, body))


def _content(request: httpx.Request | httpx2.Request) -> bytes | None:
    try:
        return request.content
    except Exception:  # of httpx or of httpx2: the body is a stream that was not read
        return None


def _json(content: bytes | str | None) -> object:
    try:
        body: object = None if content is None else json.loads(content)
    except ValueError:
        return None
    return body


def _watch_boto(client: object) -> bool:
    events = getattr(getattr(client, "meta", None), "events", None)
    if events is None:
        return False
    # botocore calls the handlers for each attempt, in the thread in which PydanticAI sends the request.
    events.register_first("before-send.bedrock-runtime.*", _see_boto_request, "fastroai-wire-request")
    events.register("response-received.bedrock-runtime.*", _see_boto_response, "fastroai-wire-response")
    return True


def _watch_xai(client: object) -> bool:
    chat: Any = getattr(client, "chat", None)
    stub = getattr(chat, "_stub", None)
    if not hasattr(stub, "GetCompletion"):
        return False
    if not isinstance(stub, _WatchedStub):
        chat._stub = _WatchedStub(stub)  # the SDK takes interceptors only when it opens the channel
    return True


class _WatchedStub:
    """The stub by which xAI's SDK sends requests over gRPC. Listeners are told of requests for answers."""

    def __init__(self, stub: Any) -> None:
        self._stub = stub

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stub, name)

    async def GetCompletion(self, request: Any, **options: Any) -> Any:  # noqa: N802  # as the stub has it
        """Send a request for a whole answer."""
        listener = _tell_xai_request(request)
        response = await self._stub.GetCompletion(request, **options)
        _tell_xai_response(listener, response)
        return response

    def GetCompletionChunk(self, request: Any, **options: Any) -> Any:  # noqa: N802
        """Send a request for a stream."""
        listener = _tell_xai_request(request)
        call = self._stub.GetCompletionChunk(request, **options)
        return call if listener is None else _WatchedStream(call, listener)


class _WatchedStream:
    """A stream of xAI's SDK. Its last chunk has the bill."""

    def __init__(self, call: Any, listener: StatedInHeaders) -> None:
        self._call, self._listener = call, listener

    def __getattr__(self, name: str) -> Any:
        return getattr(self._call, name)

    async def __aiter__(self) -> AsyncIterator[Any]:
        async for chunk in self._call:
            if chunk.HasField("usage"):
                _tell_xai_response(self._listener, chunk)
            yield chunk


def _tell_xai_request(request: Any) -> StatedInHeaders | None:
    if (listener := _listener.get()) is not None:
        listener.sends(Outgoing("POST", "GetCompletion", _xai_fields(request)))
    return listener


def _tell_xai_response(listener: StatedInHeaders | None, response: Any) -> None:
    if listener is not None:
        body = {"model": response.model, "usage": _xai_fields(response.usage)}
        listener.receives(Incoming("POST", 200, {}, body))


def _xai_fields(message: Any) -> object:
    to_dict = importlib.import_module("google.protobuf.json_format").MessageToDict  # xAI's SDK brings it
    fields: object = to_dict(message, preserving_proto_field_name=True)
    return fields


def _see_boto_request(request: Any, **_: object) -> None:
    if (listener := _listener.get()) is not None:
        listener.sends(Outgoing(request.method, str(request.url), _json(request.body)))


def _see_boto_response(parsed_response: object = None, **_: object) -> None:
    if (listener := _listener.get()) is not None and isinstance(parsed_response, Mapping):
        told = parsed_response.get("ResponseMetadata", {})
        listener.receives(Incoming("POST", told.get("HTTPStatusCode", 200), told.get("HTTPHeaders", {})))
