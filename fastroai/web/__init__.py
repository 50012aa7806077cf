"""The runs of a pipeline over HTTP: routes for FastAPI and Starlette, with the extra `web`.

from fastroai.web import runs_router

app.include_router(runs_router(pipeline, caller=signed_in_caller), prefix="/letters")
"""

from typing import TYPE_CHECKING

from fastroai.errors import MissingExtraError

try:
    from fastroai.web.caller import Action as Action
    from fastroai.web.caller import Caller as Caller
    from fastroai.web.events import shown_to_clients as shown_to_clients
    from fastroai.web.host import RunsHost as RunsHost
    from fastroai.web.operations import RunOperations as RunOperations
    from fastroai.web.problems import Problem as Problem
    from fastroai.web.problems import problem_of as problem_of
    from fastroai.web.schema import api_schema as api_schema
    from fastroai.web.starlette import runs_routes as runs_routes
except ModuleNotFoundError as error:
    if error.name not in ("starlette", "sse_starlette"):
        raise
    raise MissingExtraError("fastroai.web", "web", error.name) from error

if TYPE_CHECKING:
    from fastroai.web.fastapi import runs_router as runs_router


def __getattr__(name: str) -> object:
    if name != "runs_router":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        from fastroai.web.fastapi import runs_router
    except ModuleNotFoundError as error:
        if error.name != "fastapi":
            raise
        raise MissingExtraError("runs_router", "web", "fastapi") from error
    return runs_router


__all__ = [
    "Action",
    "Caller",
    "Problem",
    "RunOperations",
    "RunsHost",
    "api_schema",
    "problem_of",
    "runs_router",
    "runs_routes",
    "shown_to_clients",
]
