"""The cost of a request, as a gateway states it in a header of its response.

PydanticAI does not pass headers on, so a hook of the HTTP client reads them, in models that FastroAI builds.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextvars import ContextVar
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

from fastroai.agent.stated_cost import usd_amount
from fastroai.pydantic_ai_private import change_http_clients
from fastroai.records import exact_sum

if TYPE_CHECKING:
    import httpx
    import httpx2
    from pydantic_ai.providers import Provider

_EVENT_STREAM: Final = "text/event-stream"


class StatedInHeaders:
    """Reads the cost of one request from the headers of the responses to it.

    Inside `with`, it reads the headers of all responses that arrive in this task and in tasks it starts.
    """

    __slots__ = ("_costs", "_names", "_token")

    def __init__(self, names: Sequence[str]) -> None:
        """Read the first of the headers `names` that a response has."""
        self._names = names
        self._costs: list[Decimal | None] = []

    def __enter__(self) -> None:
        self._token = _listening.set(self)

    def __exit__(self, *error: object) -> None:
        _listening.reset(self._token)

    @property
    def usd(self) -> Decimal | None:
        """The total that all responses state, in US dollars; `None` if one of them states nothing."""
        known = [cost for cost in self._costs if cost is not None]
        return exact_sum(known) if known and len(known) == len(self._costs) else None

    def note(self, response: httpx.Response | httpx2.Response) -> None:
        """Read the headers of a response.

        The headers of a stream arrive before its answer is written, so they cannot tell its cost.
        """
        is_stream = response.headers.get("content-type", "").startswith(_EVENT_STREAM)
        if response.request.method != "POST" or not response.is_success or is_stream:
            return
        stated = (usd_amount(response.headers[name]) for name in self._names if name in response.headers)
        self._costs.append(next(stated, None))


_listening: Final[ContextVar[StatedInHeaders | None]] = ContextVar("fastroai_cost_headers", default=None)
"""The reader of this task. It is not kept by scope, as several requests go on at once under one scope."""


async def _read_headers(response: httpx.Response | httpx2.Response) -> None:
    listening = _listening.get()
    if listening is not None:
        listening.note(response)


def read_cost_headers(provider: Provider[Any] | None) -> None:
    """Make the HTTP client of a provider read cost headers, and also its replacements on other loops.

    Providers without an HTTP client of PydanticAI's (Bedrock) are left alone.
    """
    # PydanticAI has no public way to hook into the clients that it makes; its own gateway does it like this.
    if provider is not None:
        change_http_clients(provider, _add_hook)


def _add_hook(client: httpx.AsyncClient | httpx2.AsyncClient) -> None:
    client.event_hooks["response"].append(_read_headers)
