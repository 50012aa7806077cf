"""`runs_routes`: the runs of a pipeline as routes of Starlette."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from inspect import isawaitable
from typing import Any, TypeAlias

from pydantic import BaseModel, ValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from fastroai.errors import ConfigurationError
from fastroai.web.caller import Caller, DepsT
from fastroai.web.client import client_response, schema_response
from fastroai.web.events import Show, shown_to_clients
from fastroai.web.host import RunsHost
from fastroai.web.models import GivenAnswer
from fastroai.web.operations import RunOperations
from fastroai.web.problems import answered, invalid, invalid_input, not_json, refused
from fastroai.web.requests import MOST_BYTES, Events, Listed, Runs, Wait, check_query, limited

CallerOf: TypeAlias = Callable[[Request], Caller[Any] | Awaitable[Caller[Any]]]
"""Returns who asks; it may be async, and may raise an `HTTPException`."""
_Endpoint: TypeAlias = Callable[[Request, Caller[Any]], Awaitable[Response]]


def runs_routes(
    runs: RunsHost[DepsT],
    *,
    caller: CallerOf | None = None,
    show: Show = shown_to_clients,
    max_bytes: int = MOST_BYTES,
) -> list[Route]:
    """Return routes for Starlette that start, list, read, follow, answer, pause, cancel and resume runs.

    They are those of `runs_router`, without OpenAPI. Errors are answered as problem details (RFC 9457).

        runs = RunsHost(pipeline, store="runs.db")
        app = Starlette(routes=[Mount("/letters", routes=runs_routes(runs))], lifespan=runs.lifespan)

    Args:
        runs: A `RunsHost`, whose lifespan the application opens.
        caller: Function of the request that returns a `Caller`. It may be async, and refuses a request by
            raising an `HTTPException` of Starlette. Without one, everybody may do everything.
        show: Function that returns a fact as clients see it in the events, or `None` to hide it.
        max_bytes: Most bytes of the body of a request, by default 1,000,000; a larger one is refused (413).

    Raises:
        ConfigurationError: `runs` is not a `RunsHost`, so no application can open its lifespan.
    """
    if not isinstance(runs, RunsHost):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ConfigurationError("runs", runs, "a RunsHost, whose lifespan the application opens")
    do = RunOperations(runs, show=show)

    async def start(request: Request, who: Caller[Any]) -> Response:
        wait = Wait.model_validate(dict(request.query_params)).wait
        run_id = request.path_params.get("run_id")
        begins, state = await do.start(who, await _object(request), run_id=run_id, wait=wait)
        return _json(state, 202 if begins and not state.has_ended else 200)

    async def listed(request: Request, who: Caller[Any]) -> Response:
        asked = Runs.model_validate(dict(request.query_params))
        query = do.query(who, **asked.wanted())
        return _json(await do.list(who, query, limit=asked.limit, after=asked.after))

    async def read(request: Request, who: Caller[Any]) -> Response:
        wait = Wait.model_validate(dict(request.query_params)).wait
        return _json(await do.read(who, request.path_params["run_id"], wait=wait))

    async def report(request: Request, who: Caller[Any]) -> Response:
        return _json(await do.report(who, request.path_params["run_id"]))

    async def events(request: Request, who: Caller[Any]) -> Response:
        asked = Events.model_validate(dict(request.query_params))
        last = request.headers.get("last-event-id")
        if last is not None:
            asked = Events.model_validate({**asked.model_dump(), "after": last})
        found = await do.events(who, request.path_params["run_id"], **asked.model_dump())
        return Response(status_code=204) if found is None else found.response()

    async def answer(request: Request, who: Caller[Any]) -> Response:
        given = GivenAnswer.model_validate(await _object(request))
        return _json(await do.answer(who, request.path_params["run_id"], given), 202)

    async def pause(request: Request, who: Caller[Any]) -> Response:
        await do.pause(who, request.path_params["run_id"])
        return JSONResponse(None, 202)

    async def cancel(request: Request, who: Caller[Any]) -> Response:
        await do.cancel(who, request.path_params["run_id"])
        return JSONResponse(None, 202)

    async def resume(request: Request, who: Caller[Any]) -> Response:
        return _json(await do.resume(who, request.path_params["run_id"]), 202)

    async def questions(request: Request, who: Caller[Any]) -> Response:
        asked = Listed.model_validate(dict(request.query_params))
        query = do.query(who, **asked.wanted())
        return _json(await do.questions(who, query, limit=asked.limit, after=asked.after))

    def route(path: str, method: str, endpoint: _Endpoint, query: type[BaseModel] | None = None) -> Route:
        async def respond(request: Request) -> Response:
            try:
                check_query(request, () if query is None else query.model_fields)
                who = Caller() if caller is None else caller(request)
                return await endpoint(limited(request, max_bytes), await who if isawaitable(who) else who)
            except HTTPException as error:
                return refused(error).response(request)
            except ValidationError as error:
                return invalid(error).response(request)
            except Exception as error:
                return answered(request, error)

        return Route(path, respond, methods=[method], name=endpoint.__name__)

    async def ready(request: Request) -> Response:
        try:
            await do.check_ready()
        except Exception as error:
            return answered(request, error)
        return Response(status_code=204)

    async def live(_: Request) -> Response:
        return Response(status_code=204)

    return [
        route("/runs", "POST", start, Wait),
        route("/runs", "GET", listed, Runs),
        route("/runs/{run_id}", "PUT", start, Wait),
        route("/runs/{run_id}", "GET", read, Wait),
        route("/runs/{run_id}/report", "GET", report),
        route("/runs/{run_id}/events", "GET", events, Events),
        route("/runs/{run_id}/answers", "POST", answer),
        route("/runs/{run_id}/pause", "POST", pause),
        route("/runs/{run_id}/cancel", "POST", cancel),
        route("/runs/{run_id}/resume", "POST", resume),
        route("/questions", "GET", questions, Listed),
        Route("/ready", ready),
        Route("/live", live),
        Route("/client.js", client_response),
        Route("/schema.json", schema_response),
    ]


async def _object(request: Request) -> dict[str, Any]:
    """Return the body, which must be a JSON object."""
    try:
        body = await request.json()
    except (ValueError, RecursionError):
        raise not_json() from None
    if not isinstance(body, dict):
        raise invalid_input([{"loc": (), "msg": "it should be a JSON object"}])
    return body


def _json(model: BaseModel, status: int = 200) -> Response:
    # As FastAPI does: a number that JSON has not, such as NaN, becomes null.
    return Response(model.model_dump_json(), status, media_type="application/json")
