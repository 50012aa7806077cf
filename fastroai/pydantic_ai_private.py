"""Names of PydanticAI that are not public, each behind a function that says what happens without the name.

A later PydanticAI may rename them at any time, so none of these functions raises because of it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import httpx
    import httpx2
    from pydantic_ai.messages import InstructionPart, ModelMessage
    from pydantic_ai.models import Model, ModelRequestParameters
    from pydantic_ai.providers import Provider


def change_http_clients(
    provider: Provider[Any], change: Callable[[httpx.AsyncClient | httpx2.AsyncClient], None]
) -> bool:
    """Change the HTTP client that PydanticAI made for a provider, and its replacements on other event loops.

    Return whether there is one: not for the user's own clients, nor for providers without HTTP clients of
    PydanticAI's (Bedrock). Without the names no client is changed, as if all were the user's own.
    """
    client = getattr(provider, "_own_http_client", None)
    make = getattr(provider, "_http_client_factory", None)
    if client is None or not callable(make):
        return False

    def make_changed() -> httpx.AsyncClient | httpx2.AsyncClient:
        made: httpx.AsyncClient | httpx2.AsyncClient = make()
        change(made)
        return made

    change(client)
    provider._http_client_factory = make_changed
    return True


def refresh_http_client(model: Model) -> None:
    """Give a model a new HTTP client if the event loop of its last one has ended, as each agent run does.

    Without the name the client stays: the first request on another loop may fail as one to a closed loop.
    """
    refresh = getattr(model, "_refresh_http_client", None)
    if callable(refresh):
        refresh()


def batch_job_error() -> type[Exception]:
    """Return PydanticAI's error for a batch that ended without running any of its requests.

    Without the name it is an error that nobody raises: the requests of such a batch count at their bounds.
    """
    try:
        from pydantic_ai.models._batch_codec import BatchJobError
    except ImportError:
        return _Unraised
    return BatchJobError


class _Unraised(Exception):
    """An error that nobody raises."""


def is_of_every_agent(capability: type[object]) -> bool:
    """Return whether a class is one of the capabilities that PydanticAI gives to every agent.

    They are in private modules, and call no model. From elsewhere they would be named in estimates as code
    that may call models.
    """
    return capability.__module__.startswith("pydantic_ai.capabilities._")


def sent_instructions(
    model: Model, messages: Sequence[ModelMessage], parameters: ModelRequestParameters
) -> list[InstructionPart] | None:
    """Return the instructions that a model sends, with what PydanticAI adds to them.

    From 2.68 on it explains its `<system>` tags there. Takes the parameters that `Model.prepare_request`
    returns. Without the name the result is `None`: the added text is missing from bounds, and what is counted
    as the request is sent shows it.
    """
    collect = getattr(model, "_get_instruction_parts", None)
    try:
        parts: list[InstructionPart] | None = None if collect is None else collect(messages, parameters)
    except (AttributeError, TypeError):  # a method of other arguments or meaning
        return None
    return parts
