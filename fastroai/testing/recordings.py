"""Recordings: the model requests of a real run and their responses, replayed without a network.

VCR.py records and replays. This module decides which requests those are and what is left out of the file, and
says what differs if the recording no longer fits.
"""

from __future__ import annotations

import importlib
import json
import os
import re
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias
from unittest.mock import patch
from urllib.parse import urlsplit

from fastroai.errors import MissingExtraError
from fastroai.testing.model_requests import address_of, model_requests_checked

_MATCH_ON: Final = ("method", "scheme", "host", "port", "path", "query", "body")
_KEPT_HEADERS: Final = frozenset({"content-type", "retry-after", "x-should-retry"})
"""Names of the headers that a recording has; all others, such as keys, cookies and ids, are left out."""
_SECRET_PARAMETERS: Final = ("key", "api_key", "api-key", "access_token")
_SECRET_VARIABLE: Final = re.compile(r"KEY|TOKEN|SECRET|PASSWORD|CREDENTIAL", re.IGNORECASE)
_SHORTEST: Final = 16
"""Number of characters from which the value of such a variable is taken for a secret."""
_MOST_SHOWN: Final = 300
_NO_KEY: Final = "a-recording-needs-no-key"
_KEYS: Final = (
    *(
        "ANTHROPIC_API_KEY",
        "CEREBRAS_API_KEY",
        "CO_API_KEY",
        "DEEPSEEK_API_KEY",
        "FIREWORKS_API_KEY",
        "GOOGLE_API_KEY",
    ),
    *(
        "GROQ_API_KEY",
        "HF_TOKEN",
        "MISTRAL_API_KEY",
        "MOONSHOTAI_API_KEY",
        "OPENAI_API_KEY",
        "OPENROUTER_API_KEY",
    ),
    *("TOGETHER_API_KEY", "VERCEL_AI_GATEWAY_API_KEY", "VOYAGE_API_KEY"),
)
"""Variables without which PydanticAI builds no model of their providers."""

_Send: TypeAlias = Callable[[Any], Awaitable[Any]]
"""The way on for a request: to the recording, or to the provider."""


class RecordingMismatch(AssertionError):
    """The requests of a run are not those of its recording. The message says which, and what to do."""


@contextmanager
def recorded(path: Path, how: str) -> Iterator[None]:
    """Let the models of the block ask their providers, and write a recording, in place of an earlier one.

    If the block raises an exception, an earlier recording stays as it is. `how` tells readers of an error how
    to record.

    Raises:
        RecordingMismatch: no model was asked, so there is nothing to record.
        MissingExtraError: VCR.py is not installed.
    """
    unfinished = path.with_name(f"{path.name}.unfinished")
    try:
        with _cassette(unfinished, "all"), _sending(_uncompressed):
            yield
        if not unfinished.exists():
            raise RecordingMismatch(f"there is nothing to record in {path}: no model was asked. {how}")
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)


@contextmanager
def replayed(path: Path, how: str, tell: Callable[[str], None]) -> Iterator[None]:
    """Answer the models of the block from a recording. No request of a model leaves.

    A request that is not in the recording gets status 400, with a message that says what differs. `how` tells
    readers of an error how to record anew. `tell` is called with the message at once, for people.

    Raises:
        RecordingMismatch: there is no recording, it cannot be read, or the block did not send its requests.
        MissingExtraError: VCR.py is not installed.
    """
    _check(path, how)
    missing: Any = _vcr().errors.CannotOverwriteExistingCassetteException
    keys = {name: _NO_KEY for name in _KEYS if name not in os.environ}
    differences: list[str] = []

    async def answered(client: Any, send: _Send, request: Any) -> Any:
        try:
            return await send(request)
        except missing as error:
            differences.append(message := f"{_difference(error, path)}\n{how}")
            tell(message)
        # As an error of the network, SDKs would send it again.
        body = {"type": "error", "error": {"type": "recording_mismatch", "message": message}}
        return client.Response(400, headers={"x-should-retry": "false"}, json=body, request=request)

    with patch.dict(os.environ, keys), _cassette(path, "none") as cassette, _sending(answered):
        yield
    if differences:
        raise RecordingMismatch("\n".join(differences))
    left = [request for at, request in enumerate(cassette.requests) if not cassette.play_counts[at]]
    if left:
        sent = [f"  {one.method} {one.uri}: {_shown(one.body)}" for one in left]
        raise RecordingMismatch("\n".join([f"requests of {path} were not sent:", *sent, how]))


class _ModelRequests:
    """Knows which requests those of models are, and what of them belongs in a recording."""

    def __init__(self) -> None:
        self.is_reading = True
        """Whether the requests are those of the file."""
        self._places: set[str] = set()
        named = [value for name, value in os.environ.items() if _SECRET_VARIABLE.search(name)]
        secrets = [value for value in named if len(value) >= _SHORTEST]
        # Also as JSON has them, and the longest first, as one may contain another.
        self._secrets = sorted(
            {one for value in secrets for one in (value, json.dumps(value)[1:-1])}, key=len, reverse=True
        )

    def asked(self, model: object) -> None:
        """Take note of where a model is about to send a request."""
        if getattr(model, "system", None) == "xai":
            raise RuntimeError(
                "recordings hold requests over HTTP; the SDK of xAI sends its requests over gRPC"
            )
        if (url := address_of(model)) is not None:
            self._places.add(urlsplit(url).netloc)

    def request(self, request: Any) -> Any:
        """Return a request as a recording has it; `None` if it is not one of a model."""
        if not self.is_reading and urlsplit(request.uri).netloc not in self._places:
            return None
        request.headers = _kept(request.headers)
        request.uri = self._without_secrets(request.uri.encode()).decode()
        if isinstance(request.body, bytes):
            request.body = self._without_secrets(request.body)
        return request

    def response(self, response: Any) -> Any:
        """Return a response as a recording has it."""
        body = self._without_secrets(response["body"]["string"])
        return {**response, "headers": _kept(response["headers"]), "body": {"string": body}}

    def _without_secrets(self, content: bytes) -> bytes:
        for secret in self._secrets:
            content = content.replace(secret.encode(), b"SECRET")
        return content


def _vcr() -> Any:
    """Return the module of VCR.py, which has no types."""
    try:
        return importlib.import_module("vcr")
    except ModuleNotFoundError as error:
        raise MissingExtraError("a recording of model requests", "testing", "vcrpy") from error


@contextmanager
def _cassette(path: Path, mode: Literal["all", "none"]) -> Iterator[Any]:
    requests = _ModelRequests()
    recorder = _vcr().VCR(
        serializer="json",
        record_mode=mode,
        match_on=_MATCH_ON,
        decode_compressed_response=True,
        filter_query_parameters=_SECRET_PARAMETERS,
        before_record_request=requests.request,
        before_record_response=requests.response,
        record_on_exception=False,
    )
    with model_requests_checked(requests.asked), recorder.use_cassette(str(path)) as cassette:
        requests.is_reading = False
        yield cassette


@contextmanager
def _sending(send: Callable[[Any, _Send, Any], Awaitable[Any]]) -> Iterator[None]:
    """Let a function send the requests of SDKs. It gets the client's module, the way on, and the request."""

    def sends(client: Any) -> Any:
        transport = client.AsyncHTTPTransport
        before = transport.handle_async_request

        async def handle(self: Any, request: Any) -> Any:
            return await send(client, partial(before, self), request)

        return patch.object(transport, "handle_async_request", handle)

    with ExitStack() as stack:
        for name in ("httpx", "httpx2"):
            with suppress(ModuleNotFoundError):
                stack.enter_context(sends(importlib.import_module(name)))
        yield


async def _uncompressed(client: Any, send: _Send, request: Any) -> Any:
    """Ask for a response that people can read in the recording."""
    request.headers["accept-encoding"] = "identity"
    return await send(request)


def _difference(error: Any, path: Path) -> str:
    """Say which request a recording does not have, and how it differs from the one that is most like it."""
    request = error.failed_request
    found = f"the recording {path} has no answer to {request.method} {request.uri}"
    if error.reason == "already_played":
        return f"{found}: it was sent more often than when this was recorded: {_shown(request.body)}"
    if not error.similar_requests:
        return f"{found}: {_shown(request.body)}"
    cassette = error.cassette
    place = {id(one): at for at, one in enumerate(cassette.requests)}
    # Of those that are alike, the next one that was not sent yet.
    similar = sorted(error.similar_requests, key=lambda one: cassette.play_counts[place[id(one[0])]])
    nearest, _, differing = similar[0]
    lines = [f"{found}; its request {place[id(nearest)] + 1} differs:"]
    return "\n".join([*lines, *(f"{what}: {text}" for what, text in differing)])


def _check(path: Path, how: str) -> None:
    """Check that there is a recording. Raises `RecordingMismatch`."""
    try:
        read = json.loads(path.read_bytes())
    except FileNotFoundError:
        raise RecordingMismatch(f"there is no recording {path}. {how}") from None
    except ValueError as error:
        raise RecordingMismatch(f"the recording {path} cannot be read: {error}. {how}") from error
    if not isinstance(read, dict) or not isinstance(read.get("interactions"), list):
        raise RecordingMismatch(f"the recording {path} cannot be read: it has no `interactions`. {how}")


def _kept(headers: Any) -> dict[str, Any]:
    return {name: value for name, value in headers.items() if name.lower() in _KEPT_HEADERS}


def _shown(body: object) -> str:
    text = body.decode(errors="replace") if isinstance(body, bytes) else str(body)
    return text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]}…"
