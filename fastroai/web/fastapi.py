"""`runs_router`: the runs of a pipeline as an `APIRouter` of FastAPI."""

# pyright: reportInvalidTypeForm=false
# Without `from __future__ import annotations`, as FastAPI reads annotations that are made in a function.

from collections.abc import Callable, Coroutine
from typing import Annotated, Any, Final, TypeAlias

from pydantic import JsonValue
from starlette.exceptions import HTTPException

from fastroai.errors import MissingExtraError
from fastroai.runs.door import FrontDoor
from fastroai.web.caller import Caller, DepsT, anybody
from fastroai.web.client import client_response, schema_response
from fastroai.web.events import Show, shown_to_clients
from fastroai.web.host import RunsHost
from fastroai.web.models import GivenAnswer, ProblemDetails, QuestionPage, Report, RunPage, RunState
from fastroai.web.operations import RunOperations
from fastroai.web.problems import MEDIA_TYPE, Problem, answered, invalid_input, not_json, refused
from fastroai.web.requests import MOST_BYTES, Events, Listed, Runs, Wait, check_query, limited

try:
    from fastapi import APIRouter, Body, Depends, Header, Path, Query, Request, Response
    from fastapi.exceptions import RequestValidationError
    from fastapi.routing import APIRoute
except ImportError as error:
    raise MissingExtraError("runs_router", "web", "fastapi") from error

_Handler: TypeAlias = Callable[[Request], Coroutine[Any, Any, Response]]

RunId = Annotated[str, Path(min_length=1, max_length=200)]
LastEventId = Annotated[int | None, Header(ge=0)]


def runs_router(
    runs: RunsHost[DepsT] | FrontDoor[DepsT, Any, Any],
    *,
    caller: Callable[..., Any] = anybody,
    show: Show = shown_to_clients,
    max_bytes: int = MOST_BYTES,
) -> APIRouter:
    """Return routes for FastAPI that start, list, read, follow, answer, pause, cancel and resume runs.

        app.include_router(runs_router(pipeline, caller=signed_in_caller), prefix="/letters")

    The runs are executed in this process, unless a `RunsHost` with workers is given. The lifespan of the
    router serves them: meanwhile, it also resumes runs whose processes died, and wakes paused ones. FastAPI
    joins it with the lifespan of the application.

    `POST /runs` starts a run, and `GET /runs/{run_id}` reads it; the routes are in the OpenAPI schema. Errors
    are answered as problem details (RFC 9457).

    Args:
        runs: The pipeline, graph, router, flow or bound workflow, whose config has a store; or a `RunsHost`
            of it, which has more options.
        caller: A dependency of FastAPI that returns a `Caller`: who asks, and what they may do. Without one,
            everybody may do everything, so pass `dependencies` to `include_router`.
        show: Function that returns a fact as clients see it in the events, or `None` to hide it.
        max_bytes: Most bytes of the body of a request, by default 1,000,000; a larger one is refused (413).

    Raises:
        ConfigurationError: there is no store that keeps the runs.
    """
    host = runs if isinstance(runs, RunsHost) else RunsHost(runs)
    do = RunOperations(host, show=show)
    door = host.door
    router = APIRouter(
        route_class=_problem_route(max_bytes),
        lifespan=host.lifespan,
        tags=[door.name],
        responses={"4XX": _PROBLEM, "5XX": _PROBLEM},
    )
    Who = Annotated[Caller[Any], Depends(caller)]  # noqa: N806  # a type
    Inputs: Any = Annotated[door.input_type or dict[str, JsonValue], Body()]  # noqa: N806

    @router.post("/runs", status_code=202, responses=_ENDED)
    async def start_run(
        inputs: Inputs, request: Request, response: Response, who: Who, asked: Annotated[Wait, Query()]
    ) -> RunState:
        """Begin a run with an id of the server."""
        return _started(response, *await do.start(who, await request.json(), wait=asked.wait))

    @router.put("/runs/{run_id}", status_code=202, responses=_ENDED)
    async def start_run_with_id(
        run_id: RunId,
        inputs: Inputs,
        request: Request,
        response: Response,
        who: Who,
        asked: Annotated[Wait, Query()],
    ) -> RunState:
        """Begin a run with an id of the client. To repeat the request is safe: it begins once."""
        return _started(response, *await do.start(who, await request.json(), run_id=run_id, wait=asked.wait))

    @router.get("/runs")
    async def list_runs(who: Who, asked: Annotated[Runs, Query()]) -> RunPage:
        """List runs, newest first unless `sort` says otherwise."""
        query = do.query(who, **asked.wanted())
        return await do.list(who, query, limit=asked.limit, after=asked.after)

    @router.get("/runs/{run_id}")
    async def read_run(run_id: RunId, who: Who, asked: Annotated[Wait, Query()]) -> RunState:
        """Return the state of a run, with its output when it has finished."""
        return await do.read(who, run_id, wait=asked.wait)

    @router.get("/runs/{run_id}/report")
    async def report_run(run_id: RunId, who: Who) -> Report:
        """Return what a run has cost so far, by step, agent, model and so on."""
        return await do.report(who, run_id)

    @router.get("/runs/{run_id}/events", response_class=Response, responses=_STREAM)
    async def follow_run(
        run_id: RunId, who: Who, asked: Annotated[Events, Query()], last_event_id: LastEventId = None
    ) -> Response:
        """Stream what happens in a run as server-sent events, from its beginning or after an event."""
        after = asked.after if last_event_id is None else last_event_id
        found = await do.events(who, run_id, after=after, cancel_on_disconnect=asked.cancel_on_disconnect)
        return Response(status_code=204) if found is None else found.response()

    @router.post("/runs/{run_id}/answers", status_code=202)
    async def answer_question(run_id: RunId, given: GivenAnswer, who: Who) -> RunState:
        """Answer a question of a run, which then goes on."""
        return await do.answer(who, run_id, given)

    @router.post("/runs/{run_id}/pause", status_code=202)
    async def pause_run(run_id: RunId, who: Who) -> None:
        """Let the steps that are running finish, and halt the run."""
        await do.pause(who, run_id)

    @router.post("/runs/{run_id}/cancel", status_code=202)
    async def cancel_run(run_id: RunId, who: Who) -> None:
        """Stop a run at once. Results that were paid for stay stored."""
        await do.cancel(who, run_id)

    @router.post("/runs/{run_id}/resume", status_code=202)
    async def resume_run(run_id: RunId, who: Who) -> RunState:
        """Continue a run that is paused, has failed, was interrupted, or was cancelled."""
        return await do.resume(who, run_id)

    @router.get("/questions")
    async def list_questions(who: Who, asked: Annotated[Listed, Query()]) -> QuestionPage:
        """List the questions that wait for an answer."""
        query = do.query(who, **asked.wanted())
        return await do.questions(who, query, limit=asked.limit, after=asked.after)

    # Not in the schema: a prefix with parameters, as in "/customers/{customer}", has them in no probe.

    @router.get("/ready", status_code=204, include_in_schema=False)
    async def ready() -> None:
        """Answer when this process can carry out runs."""
        await do.check_ready()

    @router.get("/live", status_code=204, include_in_schema=False)
    async def live() -> None:
        """Answer while this process lives."""

    router.add_api_route("/client.js", client_response, include_in_schema=False)
    router.add_api_route("/schema.json", schema_response, include_in_schema=False)
    return router


_UNREADABLE: Final = "There was an error parsing the body"
"""What FastAPI says of a body that Python's JSON cannot read, beside errors of syntax."""
_PROBLEM: dict[str, Any] = {
    "description": "A problem",
    "content": {MEDIA_TYPE: {"schema": ProblemDetails.model_json_schema()}},
}
_ENDED: dict[int | str, dict[str, Any]] = {
    200: {"model": RunState, "description": "The run was begun before"}
}
_STREAM: dict[int | str, dict[str, Any]] = {
    200: {"description": "Events", "content": {"text/event-stream": {"schema": {"type": "string"}}}},
    204: {"description": "The run has ended, and the client has all of its events"},
}


def _started(response: Response, begins: bool, state: RunState) -> RunState:
    if not begins or state.has_ended:
        response.status_code = 200
    return state


def _problem_route(max_bytes: int) -> type[APIRoute]:
    """Return the class of routes that answer with problem details, and read no body above a size."""

    class ProblemRoute(APIRoute):
        def get_route_handler(self) -> _Handler:
            handle = super().get_route_handler()
            models = [one.field_info.annotation for one in self.dependant.query_params]
            known = {name for model in models for name in getattr(model, "model_fields", ())}

            async def handle_or_explain(request: Request) -> Response:
                try:
                    check_query(request, known)
                    return await handle(limited(request, max_bytes))
                except HTTPException as error:
                    if isinstance(error.__cause__, Problem):  # raised while FastAPI read the body
                        return error.__cause__.response(request)
                    if error.detail == _UNREADABLE:
                        return not_json().response(request)
                    return refused(error).response(request)
                except RequestValidationError as error:
                    return _invalid(error).response(request)
                except Exception as error:
                    return answered(request, error)

            return handle_or_explain

    return ProblemRoute


def _invalid(error: RequestValidationError) -> Problem:
    """Return what FastAPI refuses as a problem. Fields of the body are named from its root."""
    errors = error.errors()
    if any(one["type"] == "json_invalid" for one in errors):
        return not_json()
    return invalid_input([{**one, "loc": _without_body(one["loc"])} for one in errors])


def _without_body(place: tuple[Any, ...]) -> tuple[Any, ...]:
    return place[1:] if place and place[0] == "body" else place
