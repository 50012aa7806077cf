"""OpenAI's address in this process: answers, compactions, background responses and batches, with a ledger.

It bills the published prices of gpt-4o-mini, worked out here and by nothing of FastroAI's.
"""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Final, Literal

import httpx2
from openai import AsyncOpenAI
from pydantic_ai.models.openai import OpenAIResponsesModel
from pydantic_ai.providers.openai import OpenAIProvider

MODEL: Final = "gpt-4o-mini"
# https://platform.openai.com/docs/pricing: US dollars per million tokens, and half of it in batches
INPUT, OUTPUT = Decimal("0.15"), Decimal("0.60")

Kind = Literal["answer", "compaction", "background", "batch"]
Json = dict[str, Any]


@dataclass
class Billed:
    """A request that was billed."""

    kind: Kind
    id: str
    input_tokens: int
    output_tokens: int

    @property
    def cost_usd(self) -> Decimal:
        """By the price page."""
        cost = (self.input_tokens * INPUT + self.output_tokens * OUTPUT) / 1_000_000
        return cost / 2 if self.kind == "batch" else cost


@dataclass
class JobProvider:
    """A provider that answers every request with `output_tokens`, or as many as the request allows."""

    output_tokens: int = 30
    input_tokens: int = 10
    polls: int = 2
    """How often a background response is asked for before it is there."""
    outcome: Callable[[Json], str] = lambda body: "succeeded"
    """Of the body of a request in a batch: `succeeded`, `expired`, or the HTTP status of its failure."""
    refuse_batches: int | None = None
    """The HTTP status with which batches are refused."""
    lose_results: int = 0
    """How many of the next results of batches are missing."""
    ledger: list[Billed] = field(default_factory=list)
    submitted: int = 0
    """Background responses that were asked for."""
    cancelled: list[str] = field(default_factory=list)
    batches: list[list[str]] = field(default_factory=list)
    """The bodies of each batch that arrived."""
    forgotten: list[str] = field(default_factory=list)
    """Background responses that cannot be asked for any more."""
    held: asyncio.Event | None = None
    """Set to let the results of batches and background responses be ready; they are at once without it."""
    _faults: int = 0
    _jobs: dict[str, Json] = field(default_factory=dict)
    _files: dict[str, list[Json]] = field(default_factory=dict)
    _results: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._numbers = itertools.count(1)

    @property
    def billed_usd(self) -> Decimal:
        """All that it has billed."""
        return sum((entry.cost_usd for entry in self.ledger), Decimal(0))

    def of(self, kind: Kind) -> list[Billed]:
        """What was billed of a kind."""
        return [entry for entry in self.ledger if entry.kind == kind]

    def fail_next(self, count: int) -> None:
        """Answer so many requests with status 503, unbilled."""
        self._faults += count

    def model(self, name: str = MODEL) -> OpenAIResponsesModel:
        """A model of OpenAI's at its own address, which is this provider."""
        http = httpx2.AsyncClient(transport=httpx2.MockTransport(self._serve))
        client = AsyncOpenAI(api_key="k", http_client=http, max_retries=0)
        return OpenAIResponsesModel(name, provider=OpenAIProvider(openai_client=client))

    async def _serve(self, request: httpx2.Request) -> httpx2.Response:
        await asyncio.sleep(0)
        if self._faults:
            self._faults -= 1
            return httpx2.Response(503, json={"error": {"message": "busy"}})
        path, post = request.url.path, request.method == "POST"
        if path == "/v1/responses/compact":
            return _json(self._compaction())
        if path == "/v1/responses":
            return self._respond(json.loads(request.content))
        if path.startswith("/v1/responses/") and post:
            return self._cancel(path.split("/")[3])
        if path.startswith("/v1/responses/"):
            return self._poll(path.split("/")[3], streamed=request.url.params.get("stream") == "true")
        if path == "/v1/files":
            return self._keep_file(request.content)
        if path.startswith("/v1/files/") and request.method == "DELETE":
            return _json({"id": "x", "object": "file", "deleted": True})
        if path.startswith("/v1/files/"):
            lines = self._files[path.split("/")[3]]
            return httpx2.Response(200, content="\n".join(json.dumps(line) for line in lines).encode())
        if path == "/v1/batches":
            return self._batch(json.loads(request.content))
        return self._batch_status(path.split("/")[3], cancel=path.endswith("/cancel"))

    # --- responses ---

    def _bill(self, kind: Kind, body: Json) -> Billed:
        limit = body.get("max_output_tokens")
        output = self.output_tokens if limit is None else min(limit, self.output_tokens)
        entry = Billed(kind, f"{kind}_{next(self._numbers)}", self.input_tokens, output)
        self.ledger.append(entry)
        return entry

    def _answered(self, entry: Billed, body: Json, **more: Any) -> Json:
        cut = body.get("max_output_tokens") is not None and self.output_tokens > body["max_output_tokens"]
        text = {"type": "output_text", "text": "answer", "annotations": []}
        message = {
            "type": "message",
            "id": "m",
            "role": "assistant",
            "status": "completed",
            "content": [text],
        }
        return {
            **_response(entry.id, body),
            "status": "incomplete" if cut else "completed",
            "incomplete_details": {"reason": "max_output_tokens"} if cut else None,
            "output": [message],
            "usage": _usage(entry),
            **more,
        }

    def _respond(self, body: Json) -> httpx2.Response:
        if not body.get("background"):
            return _json(self._answered(self._bill("answer", body), body))
        self.submitted += 1
        job = f"job_{next(self._numbers)}"
        self._jobs[job] = {"body": body, "polls": 0}
        queued = {**_response(job, body), "status": "queued", "background": True}
        return _events(("response.created", queued)) if body.get("stream") else _json(queued)

    def _poll(self, job: str, *, streamed: bool) -> httpx2.Response:
        if job in self.forgotten:
            return httpx2.Response(404, json={"error": {"message": "no such response"}})
        if job in self.cancelled:
            return self._cancelled(job)
        state = self._jobs[job]
        state["polls"] += 1
        body = state["body"]
        if state["polls"] <= self.polls or not self._is_ready:
            going = {**_response(job, body), "status": "in_progress", "background": True}
            return _events(("response.in_progress", going)) if streamed else _json(going)
        if "entry" not in state:
            state["entry"] = self._bill("background", body)
            state["entry"].id = job
        answer = self._answered(state["entry"], body, id=job, background=True)
        return _streamed(answer) if streamed else _json(answer)

    def _cancel(self, job: str) -> httpx2.Response:
        self.cancelled.append(job)
        return self._cancelled(job)

    def _cancelled(self, job: str) -> httpx2.Response:
        body = self._jobs[job]["body"]
        return _json({**_response(job, body), "status": "cancelled", "background": True})

    def _compaction(self) -> Json:
        entry = self._bill("compaction", {})
        item = {"type": "compaction", "id": "c", "encrypted_content": "AAAA"}
        return {
            "id": entry.id,
            "object": "response.compaction",
            "created_at": 1,
            "output": [item],
            "usage": _usage(entry),
        }

    @property
    def _is_ready(self) -> bool:
        return self.held is None or self.held.is_set()

    # --- batches ---

    def _keep_file(self, content: bytes) -> httpx2.Response:
        lines = [json.loads(line) for line in content.splitlines() if line.startswith(b'{"custom_id"')]
        name = f"file_{next(self._numbers)}"
        self._files[name] = lines
        return _json(
            {"id": name, "object": "file", "bytes": 1, "created_at": 1, "filename": "b", "purpose": "batch"}
        )

    def _batch(self, asked: Json) -> httpx2.Response:
        if self.refuse_batches is not None:
            return httpx2.Response(self.refuse_batches, json={"error": {"message": "no"}})
        batch, lines = f"batch_{next(self._numbers)}", self._files[asked["input_file_id"]]
        self.batches.append([line["body"] for line in lines])
        self._results[batch] = asked["input_file_id"]
        self._files[f"out_{batch}"] = [self._line(line) for line in lines]
        return _json(self._described(batch, "in_progress"))

    def _line(self, line: Json) -> Json:
        outcome, body = self.outcome(line["body"]), line["body"]
        result: Json = {"id": "x", "custom_id": line["custom_id"], "response": None, "error": None}
        if outcome == "succeeded":
            answer = self._answered(self._bill("batch", body), body)
            result["response"] = {"status_code": 200, "request_id": "r", "body": answer}
        elif outcome == "expired":
            result["error"] = {"code": "batch_expired", "message": "too late"}
        else:
            error = {"error": {"message": "no", "type": "x", "code": None}}
            result["response"] = {"status_code": int(outcome), "request_id": "r", "body": error}
        if self.lose_results:
            self.lose_results -= 1
            result["custom_id"] = "another"
        return result

    def _batch_status(self, batch: str, *, cancel: bool) -> httpx2.Response:
        if cancel:
            self.cancelled.append(batch)
        return _json(self._described(batch, "completed" if self._is_ready else "in_progress"))

    def _described(self, batch: str, status: str) -> Json:
        return {
            "id": batch,
            "object": "batch",
            "endpoint": "/v1/responses",
            "input_file_id": self._results[batch],
            "completion_window": "24h",
            "status": status,
            "created_at": 1,
            "output_file_id": f"out_{batch}" if status == "completed" else None,
        }


def _response(id: str, body: Json) -> Json:
    return {
        "id": id,
        "object": "response",
        "created_at": 1_790_000_000,
        "model": body["model"],
        "output": [],
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "usage": None,
        "error": None,
        "incomplete_details": None,
    }


def _usage(entry: Billed) -> Json:
    return {
        "input_tokens": entry.input_tokens,
        "output_tokens": entry.output_tokens,
        "total_tokens": entry.input_tokens + entry.output_tokens,
        "input_tokens_details": {"cached_tokens": 0},
        "output_tokens_details": {"reasoning_tokens": 0},
    }


def _streamed(answer: Json) -> httpx2.Response:
    message = answer["output"][0]
    place = {"item_id": "m", "output_index": 0}
    return _events(
        ("response.output_item.added", {"output_index": 0, "item": {**message, "content": []}}),
        (
            "response.content_part.added",
            {**place, "content_index": 0, "part": {**message["content"][0], "text": ""}},
        ),
        ("response.output_text.delta", {**place, "content_index": 0, "delta": "answer", "logprobs": []}),
        ("response.output_item.done", {"output_index": 0, "item": message}),
        ("response.completed", answer),
    )


def _events(*events: tuple[str, Json]) -> httpx2.Response:
    lines = []
    for number, (kind, data) in enumerate(events):
        payload = {"response": data} if data.get("object") == "response" else data
        event = {"type": kind, "sequence_number": number, **payload}
        lines.append(f"event: {kind}\ndata: {json.dumps(event)}\n\n")
    return httpx2.Response(200, content="".join(lines), headers={"content-type": "text/event-stream"})


def _json(data: Json) -> httpx2.Response:
    return httpx2.Response(200, json=data)
