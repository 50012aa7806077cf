"""Realtime models, whose sessions the account cannot follow.

The cost of a session is not known before it ends, and no limit of the provider bounds it. So a session is
refused inside of a run, unless the caller has set money aside for it with `spend`.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Final, ParamSpec, TypeVar

from pydantic_ai.realtime import RealtimeModel, infer_realtime_model
from pydantic_ai.realtime.codec import CancelResponse, ClearAudio, RealtimeConnection, TruncateOutput

from fastroai.agent.models import naming_our_extra
from fastroai.agent.other_models.unmetered import refuse_session

_P = ParamSpec("_P")
_T = TypeVar("_T")

OPENING: Final = ("connect", "connect_webrtc")
"""Calls of a realtime model that open a session."""
SIGNALLING: Final = ("answer_webrtc_offer", "create_client_secret")
"""Calls that let a browser begin a session that this process does not see."""
_FREE: Final = (CancelResponse, ClearAudio, TruncateOutput)
"""Messages to a connection that do not make the model answer."""


def metered_realtime(model: RealtimeModel | str) -> RealtimeModel:
    """Return a copy of a realtime model that refuses, inside of runs, to open a session or speak in one."""
    if isinstance(model, str):
        with naming_our_extra(model):
            model = infer_realtime_model(model)
    metered = copy.copy(model)
    # PydanticAI has no wrapper for these models, and asks them for more than their public methods.
    for call in OPENING:
        setattr(metered, call, _listening(_refused(getattr(model, call), model), model))
    for call in SIGNALLING:
        setattr(metered, call, _refused(getattr(model, call), model))
    return metered


def _refused(method: Callable[_P, _T], model: RealtimeModel) -> Callable[_P, _T]:
    @functools.wraps(method)
    def call(*args: _P.args, **kwargs: _P.kwargs) -> _T:
        refuse_session(model)
        return method(*args, **kwargs)

    return call


def _listening(
    connect: Callable[_P, AbstractAsyncContextManager[RealtimeConnection]], model: RealtimeModel
) -> Callable[_P, AbstractAsyncContextManager[RealtimeConnection]]:
    """Return `connect`, whose sessions are refused inside of runs even if they were opened outside."""

    @functools.wraps(connect)
    @asynccontextmanager
    async def call(*args: _P.args, **kwargs: _P.kwargs) -> AsyncGenerator[RealtimeConnection]:
        async with connect(*args, **kwargs) as connection:
            _listen(connection, model)
            yield connection

    return call


def _listen(connection: RealtimeConnection, model: RealtimeModel) -> None:
    send = connection.send

    @functools.wraps(send)
    async def call(content: object) -> object:
        if not isinstance(content, _FREE):
            refuse_session(model)
        return await send(content)  # type: ignore[arg-type]  # whatever it is, as it came

    connection.send = call  # type: ignore[method-assign, assignment]  # each connection has its own
