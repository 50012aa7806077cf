"""Work that a process does once, before its first requests, and for which no time limit pays."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from threading import Lock
from typing import Final

from pydantic_ai.models import Model

from fastroai.forks import in_forked_process
from fastroai.runtime import current_scope
from fastroai.usage.hosts import Host
from fastroai.usage.tokenizers import in_bounding_thread, is_loaded, tokenizer_of


@contextmanager
def outside_of_time_limits() -> Iterator[None]:
    """Stop the clocks of all budgets and time limits around the running code."""
    scope = current_scope()
    if scope is None:
        yield
        return
    with scope.setting_up():
        yield


async def load_tokenizer(host: Host) -> None:
    """Load the tokenizer of a model in a thread, if this process has not loaded it yet."""
    name = host.encoded_model
    if name is None or name in _known:
        return
    with outside_of_time_limits():  # around `is_loaded` too, which imports the table of encodings
        if not is_loaded(name):
            await in_bounding_thread(partial(tokenizer_of, name))
    _known.add(name)


_known: Final[set[str]] = set()
"""Names of models whose tokenizers are loaded, or that have none."""

_RESPONSES: Final[Mapping[str, tuple[str, str, Mapping[str, object]]]] = {
    "OpenAIResponsesModel": ("openai.types.responses", "Response", {"output": [{"type": "function_call"}]}),
    "OpenAIChatModel": (
        "openai.types.chat",
        "ChatCompletion",
        {"choices": [{"message": {"tool_calls": []}}]},
    ),
    "AnthropicModel": ("anthropic.types.beta", "BetaMessage", {"content": [{"type": "tool_use"}]}),
}
"""Module and name of the response, and a small one, by the class of PydanticAI's model."""


async def load_response_types(model: Model) -> None:
    """Let the SDK of a model build in a thread what it builds when it reads its first response.

    These are the schemas of all parts that a response can have. Otherwise, the first response would block the
    event loop for so long that a short time budget ends.
    """
    names = [each.__name__ for each in type(model).__mro__ if each.__name__ in _RESPONSES]
    if names and names[0] not in _read:
        with outside_of_time_limits():
            await in_bounding_thread(partial(_read_response, names[0]))


def _read_response(name: str) -> None:
    module, response, small = _RESPONSES[name]
    with _reading:  # another thread would build them once more
        if name not in _read:
            getattr(importlib.import_module(module), response).construct(**small)
            _read.add(name)


_read: Final[set[str]] = set()
"""Classes of models whose SDK has read a response."""
_reading = Lock()


def _after_fork() -> None:
    global _reading
    _reading = Lock()


in_forked_process(_after_fork)
