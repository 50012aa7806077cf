"""Requests of models, seen before they are sent: those to other machines are refused in tests.

PydanticAI calls `check_allow_model_requests` in every method that sends a request: of models for chats and
batches, embeddings and images. It has no arguments, so the model is read from the method that calls it.
"""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, TypeAlias

from fastroai.testing.addresses import leads_elsewhere

Check: TypeAlias = Callable[[object], None]
"""A function that is called with the model before each request, and may raise an exception."""

_CHECK: Final = "check_allow_model_requests"


@contextmanager
def model_requests_checked(check: Check) -> Iterator[None]:
    """Call a function before each request that a model of PydanticAI sends, in all threads.

    `pydantic_ai.models.ALLOW_MODEL_REQUESTS` keeps its meaning.
    """
    from pydantic_ai import models  # takes time, and not every test has models

    allowed = models.check_allow_model_requests

    def checked() -> None:
        allowed()
        asking = sys._getframe(1).f_locals  # of a method of the model, or of a function that is given it
        check(asking.get("self", asking.get("model")))

    _replace(allowed, checked)
    try:
        yield
    finally:
        # Modules that were imported in between have the replacement, too.
        _replace(checked, allowed)


def refuse_other_machines(model: object) -> None:
    """Refuse the request of a model, unless it goes to this machine.

    Raises:
        RuntimeError: as PydanticAI does if `ALLOW_MODEL_REQUESTS` is false.
    """
    url = address_of(model)
    if leads_elsewhere(url):
        name = getattr(model, "model_name", None) or "a model"
        raise RuntimeError(
            f"a test was about to send a real request to {name!r} at {url or 'an unknown address'}, and real "
            "model requests are blocked. Ask the model server, model_server.model('openai:…'), or replay a "
            "recording with the fixture `recording`. To send real requests, use the fixture "
            "`allow_model_requests`"
        )


def address_of(model: object) -> str | None:
    """Return the URL to which a model sends its requests; `None` if it does not say."""
    url: object = getattr(model, "base_url", None)
    return None if url is None else str(url)


def _replace(old: object, new: object) -> None:
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] == "pydantic_ai" and module.__dict__.get(_CHECK) is old:
            setattr(module, _CHECK, new)
