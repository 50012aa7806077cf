"""Work that a process does once, before its first requests, and for which no time limit pays."""

from __future__ import annotations

import importlib
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from threading import Lock
from typing import Any, Final, NamedTuple

from pydantic import create_model
from pydantic_ai.models import Model

from fastroai.forks import in_forked_process
from fastroai.runtime import current_scope
from fastroai.usage.bounding import tokenizers
from fastroai.usage.bounding.tokenizers import in_bounding_thread
from fastroai.usage.prices.hosts import Host

logger: Final = logging.getLogger("fastroai.agent")

_NOT_LOADED: Final = (
    "the types of responses in %s could not be loaded in advance, so the first response may take longer"
)


@contextmanager
def outside_of_time_limits() -> Iterator[None]:
    """Stop the clocks of all budgets and time limits around the running code."""
    scope = current_scope()
    if scope is None:
        yield
        return
    with scope.time.setting_up():
        yield


async def load_tokenizer(host: Host) -> None:
    """Load the tokenizer of a model in a thread, if this process has not loaded it yet."""
    name = host.encoded_model
    if name is None or name in _known:
        return
    with outside_of_time_limits():  # also for what is loaded already: this imports the table of encodings
        await tokenizers.load_tokenizer(name)
    _known.add(name)


_known: Final[set[str]] = set()
"""Names of models whose tokenizers are loaded, or that have none."""


class _Responses(NamedTuple):
    """The types of responses in an SDK, and one small response and one event of a stream, as JSON.

    The SDKs build the schemas of a type when they first read a value of it.
    """

    sdk: str
    module: str
    response: str
    one: dict[str, Any]
    event: str
    first: dict[str, Any]


_RESPONSES: Final = {
    "OpenAIResponsesModel": _Responses(
        sdk="openai",
        module="openai.types.responses",
        response="Response",
        one={
            "output": [{"type": "function_call"}],
            "tools": [{"type": "function"}],
            "tool_choice": "auto",
            "text": {"format": {"type": "text"}},
        },
        event="ResponseStreamEvent",
        first={"type": "response.created", "response": {"output": []}},
    ),
    "AnthropicModel": _Responses(
        sdk="anthropic",
        module="anthropic.types.beta",
        response="BetaMessage",
        one={"content": [{"type": "tool_use"}]},
        event="BetaRawMessageStreamEvent",
        first={"type": "message_start", "message": {"content": []}},
    ),
}
"""By the class of PydanticAI's model. Those whose types take more than a few milliseconds are here."""


async def load_response_types(model: Model, *, streamed: bool) -> None:
    """Have the SDK of a model build in a thread what it needs to read responses, if it has not read any yet.

    These are the schemas of all parts that a response can have. Otherwise, the first response would block the
    event loop for hundreds of milliseconds, and time budgets would pay for them.
    """
    kind = type(model), streamed
    if kind in _read:
        return
    found = (_RESPONSES[each.__name__] for each in type(model).__mro__ if each.__name__ in _RESPONSES)
    if (types := next(found, None)) is None:
        _read.add(kind)
        return
    with outside_of_time_limits():
        try:
            await in_bounding_thread(partial(_read_first, kind, types))
        except Exception:  # another version of the SDK may have other types, and can read its own responses
            _read.add(kind)
            logger.warning(_NOT_LOADED, types.module, exc_info=True)


def _read_first(kind: tuple[type[Model], bool], types: _Responses) -> None:
    with _reading:
        if kind in _read:
            return  # another thread has done it meanwhile
        module = importlib.import_module(types.module)
        # Also before a stream: its events contain responses, and are built in half the time after them.
        getattr(module, types.response).construct(**types.one)
        if kind[1]:
            base = importlib.import_module(types.sdk).BaseModel
            holder: Any = create_model("_Event", __base__=base, event=(getattr(module, types.event), ...))
            holder.construct(event=types.first)
        _read.add(kind)


_read: Final[set[tuple[type[Model], bool]]] = set()
"""Classes of models whose SDK has read responses, and whether in streams."""
_reading = Lock()


def _after_fork() -> None:
    global _reading
    _reading = Lock()


in_forked_process(_after_fork)
