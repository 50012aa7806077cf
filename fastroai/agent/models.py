"""Models built from references, whose requests FastroAI alone retries, and the event loops of models."""

from __future__ import annotations

import asyncio
import re
import threading
from asyncio import AbstractEventLoop
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, Final
from weakref import WeakKeyDictionary

from pydantic_ai.models import Model, infer_model
from pydantic_ai.models.fallback import FallbackModel
from pydantic_ai.models.wrapper import WrapperModel
from pydantic_ai.providers import Provider, infer_provider
from pydantic_ai.settings import ModelSettings

from fastroai.agent.config import DEFAULT_REQUEST_RETRIES
from fastroai.agent.one_time import outside_of_time_limits
from fastroai.agent.requests.wire import watch_from_now_on
from fastroai.errors import MissingExtraError
from fastroai.forks import in_forked_process
from fastroai.runtime.concurrency.threads import run_in_thread
from fastroai.runtime.concurrency.wakeup import running_loop
from fastroai.usage import model_reference

_THEIR_EXTRA: Final = re.compile(r"pydantic-ai-slim\[([\w-]+)\]")
"""The extra that PydanticAI's error names for missing packages. Our extras have the same names."""
_RESOURCES: Final = {"openai": ("chat", "responses"), "anthropic": ("messages", "beta")}
"""The attributes of SDKs' clients through which PydanticAI sends requests; `chat` for all other SDKs."""


@contextmanager
def naming_our_extra(reference: str) -> Iterator[None]:
    """Turn the error of a build whose packages are missing into one that names the extra of FastroAI.

    Raises:
        MissingExtraError: the packages of its provider are not installed.
    """
    try:
        yield
    except ImportError as error:
        if not (theirs := _THEIR_EXTRA.search(str(error))):
            raise
        raise MissingExtraError(repr(reference), theirs[1], "the packages of its provider") from error


def build_model(reference: str) -> Model:
    """Build the model of a reference such as `openai:gpt-5-mini`, or `gpt-5-mini` for a first-party one.

    Hidden retries of the provider's SDK are turned off: each of them may be billed.

    Raises:
        UnknownModelError: the provider cannot be told.
        MissingExtraError: the packages of its provider are not installed.
        pydantic_ai.exceptions.UserError: the provider is not set up, for example without an API key.
    """
    provider, name = model_reference(reference)
    full = f"{provider}:{name}" if provider != name else name
    with naming_our_extra(full):
        # With a provider factory of ours, PydanticAI's error would not suggest a similar name.
        model = infer_model(full)
    if model.provider is not None:
        _take_over(model.provider)
    return model


def build_provider(name: str) -> Provider[Any]:
    """Build the provider of a name, for embeddings and images. Its SDK does not retry (see `build_model`)."""
    provider = infer_provider(name)
    _take_over(provider)
    return provider


def _take_over(provider: Provider[Any]) -> None:
    watch_from_now_on(provider)
    # The clients of OpenAI, Anthropic, Groq and others are made by one generator and share this public
    # attribute. `ModelSettings["max_retries"]` would do too, at the price of a client copy for each request.
    client = provider.client
    sdk = type(client).__module__.partition(".")[0]
    for resource in _RESOURCES.get(sdk, ("chat",)):  # an SDK imports its module when it is first used
        getattr(client, resource, None)
    if isinstance(getattr(client, "max_retries", None), int):
        client.max_retries = 0


def repeats_by_itself(model: Model) -> bool:
    """Return whether the SDK of a model may send a request again, and can be told not to by `max_retries`."""
    if model.provider is None or "max_retries" in model.unsupported_settings:
        return False
    return getattr(model.provider.client, "max_retries", None) != 0


def retries_of(model: Model, settings: ModelSettings | None, given: int | None) -> int:
    """Return the number of extra attempts at requests to a model: as given, else as its SDK is told to make.

    The SDK is told by the setting `max_retries`, or by its client. A client with 0 says nothing, as that is
    also how FastroAI turns off the retries of an SDK.
    """
    if given is not None:
        return given
    asked = {**(model.settings or {}), **(settings or {})}.get("max_retries")
    if isinstance(asked, int):
        return asked
    client = None if model.provider is None else model.provider.client
    asked = getattr(client, "max_retries", None)
    return asked if isinstance(asked, int) and asked > 0 else DEFAULT_REQUEST_RETRIES


def repeated_by_sdk(model: Model, settings: ModelSettings | None, given: int | None) -> ModelSettings | None:
    """Return settings with which the SDK of a model built here makes the attempts, as nobody else does."""
    client = None if model.provider is None else model.provider.client
    if getattr(client, "max_retries", None) != 0:
        return settings  # its retries were not turned off
    return {**(settings or {}), "max_retries": retries_of(model, settings, given)}


def leaves(model: Model) -> list[Model]:
    """Return the leaf models to which a model hands its requests; each has one provider."""
    if isinstance(model, FallbackModel):
        return [leaf for candidate in model.models for leaf in leaves(candidate)]
    return leaves(model.wrapped) if isinstance(model, WrapperModel) else [model]


class ModelCache:
    """The models of references, each built once for each event loop in use.

    The connections of a model's client belong to one event loop, and a process can have several at once:
    that of a web application, for example, and the one of its sync calls in threads.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._built: dict[str, _Built] = {}
        self._loading: dict[tuple[AbstractEventLoop, str], asyncio.Lock] = {}
        in_forked_process(self._leave_clients)

    def _leave_clients(self) -> None:
        """Forget the connections, which belong to the process that forked this one."""
        self._lock = threading.Lock()
        for built in self._built.values():
            built.leave_clients()

    def get(self, reference: str) -> Model:
        """Return the model of a reference, for the running loop. Raises the errors of `build_model`."""
        with self._lock:
            if reference not in self._built:
                with outside_of_time_limits():
                    self._built[reference] = _Built(reference)
            return self._built[reference].here()

    async def load(self, reference: str) -> None:
        """Build the model in a thread, if `get` would have to build it: a provider's SDK imports slowly.

        Raises the errors of `build_model`.
        """
        if reference in self._built:
            return
        key = asyncio.get_running_loop(), reference
        with outside_of_time_limits():
            async with self._loading.setdefault(key, asyncio.Lock()):  # one thread for all calls
                if reference in self._built:
                    return
                try:
                    made = partial(_Built, reference)
                    built = await run_in_thread(made, what=f"loading the model {reference!r}")
                finally:
                    self._loading.pop(key, None)
        with self._lock:
            self._built.setdefault(reference, built)

    def here(self, model: Model) -> Model:
        """Return the same model for the running loop, if it was built here; any other model as it is."""
        with self._lock:
            return next((built.here() for built in self._built.values() if built.has(model)), model)

    def has_built(self, model: Model) -> bool:
        """Return whether a model was built here, so that another loop can have another one."""
        with self._lock:
            return any(built.has(model) for built in self._built.values())


class _Built:
    """The models of one reference: the first, which one loop may use, and others for other loops."""

    def __init__(self, reference: str) -> None:
        self._reference = reference
        self._first = build_model(reference)
        self._first_is_free = True
        self._of_loops: dict[AbstractEventLoop, Model] = {}

    def has(self, model: Model) -> bool:
        return model is self._first or any(model is other for other in self._of_loops.values())

    def here(self) -> Model:
        loop = running_loop()
        if loop is None or self._first.provider is None:  # without a provider it has no client
            return self._first
        if loop not in self._of_loops:
            self._add(loop)
        return self._of_loops[loop]

    def leave_clients(self) -> None:
        """Build the models of all loops anew, which have clients of their own."""
        self._of_loops = {}

    def _add(self, loop: AbstractEventLoop) -> None:
        # PydanticAI touches the client of an agent's own model, the first, whenever a run starts on another
        # loop. So once there is another loop, no loop uses the first model any more.
        self._of_loops = {
            known: model
            for known, model in self._of_loops.items()
            if model is not self._first and not known.is_closed()
        }
        self._of_loops[loop] = self._first if self._first_is_free else build_model(self._reference)
        self._first_is_free = False


_loops: Final[WeakKeyDictionary[Provider[Any], AbstractEventLoop]] = WeakKeyDictionary()
"""The loop on which a run last used the client of a provider."""


def providers_of(model: Model) -> list[Provider[Any]]:
    """Return the providers whose clients a model uses."""
    return [leaf.provider for leaf in leaves(model) if leaf.provider is not None]


def note_loop(providers: Iterable[Provider[Any]], loop: AbstractEventLoop | None) -> None:
    """Note that the clients of some providers are used on a loop."""
    for provider in providers:
        if loop is not None:
            _loops[provider] = loop


def loop_of(model: Model) -> AbstractEventLoop | None:
    """Return the loop that a model's client is bound to: the last one that used it, if it still runs."""
    loops = [_loops.get(provider) for provider in providers_of(model)]
    return next((loop for loop in loops if loop is not None and loop.is_running()), None)
