"""The batches of the model server: those of OpenAI Responses, with their files, and of Anthropic Messages."""

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email import message_from_bytes
from typing import Any, Final, Literal, TypeAlias
from uuid import uuid4

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from fastroai.testing.requests import JsonObject

AnswerBatched: TypeAlias = Callable[[Mapping[str, str], bytes, str], tuple[int, JsonObject | str] | None]
"""Function that answers a request in the batch with an id: its status and body; `None` if it never runs.

A body that is not JSON is a text."""

_COUNTED: Final = ("processing", "succeeded", "errored", "canceled", "expired")
_NOT_FOUND: Final = {"error": {"message": "no such file or batch", "type": "not_found_error"}}


@dataclass
class _Batch:
    requests: Sequence[JsonObject]
    results: Sequence[JsonObject]
    """The lines of its results, in the format of the provider."""
    input_file: str = ""
    is_cancelled: bool = False
    """Whether it was cancelled before it had ended."""
    created: datetime = field(default_factory=lambda: datetime.now(UTC))


@dataclass
class Batches:
    """The files and batches that clients have created.

    A batch is answered as it comes, so a cancelled one has all of its results.
    """

    responses: AnswerBatched
    messages: AnswerBatched
    are_held: Callable[[], bool]
    """Function that returns whether batches go on, so that their results cannot be read yet."""
    files: dict[str, bytes] = field(default_factory=dict)
    batches: dict[str, _Batch] = field(default_factory=dict)

    def routes(self) -> list[Route]:
        """Return the routes of both providers."""
        openai, anthropic = "/v1/batches", "/v1/messages/batches"
        return [
            Route("/v1/files", self._upload, methods=["POST"]),
            Route("/v1/files/{id}", self._delete, methods=["DELETE"]),
            Route("/v1/files/{id}/content", self._content, methods=["GET"]),
            Route(openai, self._create_openai, methods=["POST"]),
            Route(anthropic, self._create_anthropic, methods=["POST"]),
            Route(f"{anthropic}/{{id}}/results", self._results, methods=["GET"]),
            *(Route(f"{path}/{{id}}", self._read, methods=["GET"]) for path in (openai, anthropic)),
            *(Route(f"{path}/{{id}}/cancel", self._cancel, methods=["POST"]) for path in (openai, anthropic)),
        ]

    # --- OpenAI ---

    async def _upload(self, request: Request) -> Response:
        """Keep a file: the part named `file` of a form."""
        head = f"content-type: {request.headers['content-type']}\r\n\r\n".encode()
        form: Any = message_from_bytes(head + await request.body())
        parts = {part.get_param("name", header="content-disposition"): part for part in form.get_payload()}
        name = f"file-{uuid4().hex}"
        self.files[name] = content = parts["file"].get_payload(decode=True)
        described = {"id": name, "object": "file", "bytes": len(content), "created_at": 1}
        return _json({**described, "filename": "batch.jsonl", "purpose": "batch", "status": "processed"})

    async def _delete(self, request: Request) -> Response:
        self.files.pop(request.path_params["id"], None)
        return _json({"id": request.path_params["id"], "object": "file", "deleted": True})

    async def _content(self, request: Request) -> Response:
        content = self.files.get(request.path_params["id"])
        return _json(_NOT_FOUND, 404) if content is None else _bytes(content)

    async def _create_openai(self, request: Request) -> Response:
        asked = await request.json()
        batch, name = f"batch_{uuid4().hex}", asked["input_file_id"]
        if name not in self.files:
            return _json(_NOT_FOUND, 404)
        lines = [json.loads(line) for line in self.files[name].splitlines()]
        results = [self._line(request, batch, line) for line in lines]
        self.files[f"{batch}-output"] = b"\n".join(json.dumps(line).encode() for line in results)
        self.batches[batch] = _Batch(lines, results, name)
        return _json(self._described(request, batch))

    def _line(self, request: Request, batch: str, line: JsonObject) -> JsonObject:
        answered = self.responses(dict(request.headers), json.dumps(line["body"]).encode(), batch)
        result: JsonObject = {"id": uuid4().hex, "custom_id": line["custom_id"], "response": None}
        if answered is None:
            return {**result, "error": {"code": "batch_expired", "message": "it could not be run in time"}}
        status, body = answered
        return {**result, "error": None, "response": {"status_code": status, "request_id": "r", "body": body}}

    # --- Anthropic ---

    async def _create_anthropic(self, request: Request) -> Response:
        asked, batch = (await request.json())["requests"], f"msgbatch_{uuid4().hex}"
        results = [
            {"custom_id": one["custom_id"], "result": self._result(request, batch, one["params"])}
            for one in asked
        ]
        self.batches[batch] = _Batch(asked, results)
        return _json(self._described(request, batch))

    def _result(self, request: Request, batch: str, params: JsonObject) -> JsonObject:
        answered = self.messages(dict(request.headers), json.dumps(params).encode(), batch)
        if answered is None:
            return {"type": "expired"}
        status, body = answered
        return {"type": "succeeded", "message": body} if status < 400 else {"type": "errored", "error": body}

    async def _results(self, request: Request) -> Response:
        batch = self.batches.get(request.path_params["id"])
        if batch is None or self._status(batch) != "ended":
            return _json(_NOT_FOUND, 404)
        return _bytes(b"\n".join(json.dumps(line).encode() for line in batch.results))

    # --- both ---

    async def _read(self, request: Request) -> Response:
        batch = request.path_params["id"]
        return _json(self._described(request, batch)) if batch in self.batches else _json(_NOT_FOUND, 404)

    async def _cancel(self, request: Request) -> Response:
        batch = request.path_params["id"]
        if batch not in self.batches:
            return _json(_NOT_FOUND, 404)
        self.batches[batch].is_cancelled |= self._status(self.batches[batch]) == "in_progress"
        return _json(self._described(request, batch))

    def _status(self, batch: _Batch) -> Literal["in_progress", "ended"]:
        return "in_progress" if self.are_held() and not batch.is_cancelled else "ended"

    def _described(self, request: Request, name: str) -> JsonObject:
        batch = self.batches[name]
        has_ended, created = self._status(batch) == "ended", batch.created.isoformat()
        if batch.input_file:
            return {
                "id": name,
                "object": "batch",
                "endpoint": "/v1/responses",
                "input_file_id": batch.input_file,
                "output_file_id": f"{name}-output" if has_ended else None,
                "completion_window": "24h",
                "status": "cancelled" if batch.is_cancelled else "completed" if has_ended else "in_progress",
                "created_at": int(batch.created.timestamp()),
            }
        ends = Counter(line["result"]["type"] if has_ended else "processing" for line in batch.results)
        return {
            "id": name,
            "type": "message_batch",
            "processing_status": "ended" if has_ended else "in_progress",
            "request_counts": {of: ends[of] for of in _COUNTED},
            "created_at": created,
            "expires_at": created,
            "ended_at": created if has_ended else None,
            "archived_at": None,
            "cancel_initiated_at": created if batch.is_cancelled else None,
            "results_url": f"{request.base_url}v1/messages/batches/{name}/results" if has_ended else None,
        }


def _json(body: JsonObject, status: int = 200) -> Response:
    return JSONResponse(body, status, {"connection": "close"})


def _bytes(content: bytes) -> Response:
    return Response(content, headers={"connection": "close"})
