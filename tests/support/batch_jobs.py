"""The batches of Anthropic and of the Gemini API in this process, for their own SDKs, with a ledger.

They bill half of the published prices, worked out here and by nothing of FastroAI's.
"""

from __future__ import annotations

import asyncio
import itertools
import json
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, ClassVar, Final, Literal

import httpx2
from anthropic import AsyncAnthropic
from pydantic_ai.models import Model
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.models.google import GoogleModel
from pydantic_ai.providers.anthropic import AnthropicProvider
from pydantic_ai.providers.google import GoogleProvider

Json = dict[str, Any]
Outcome = Literal["succeeded", "errored", "canceled", "expired", "missing"]
End = Literal["done", "failed", "canceled", "expired"]
INPUT_TOKENS: Final = 10
CREATED: Final = "2026-11-01T00:00:00Z"


@dataclass
class BatchJobs(ABC):
    """A provider that runs every request of a batch, as long as `outcome` does not say otherwise."""

    output_tokens: int = 30
    outcome: Callable[[str], Outcome] = lambda body: "succeeded"
    """What becomes of a request, by its body."""
    refuse: int | None = None
    """The HTTP status with which batches are refused."""
    breaks: bool = False
    """Whether the connection breaks before it is answered that a batch was taken."""
    ends: tuple[End, ...] = ("done",)
    """What becomes of one batch after the other, of all further ones as of the last. Only `done` ones run."""
    held: asyncio.Event | None = None
    """Set to let batches end; they do at once without it."""
    billed: list[int] = field(default_factory=list)
    """The output tokens of each request that was run."""
    batches: list[list[Json]] = field(default_factory=list)
    """The requests of each batch that arrived."""
    cancelled: list[str] = field(default_factory=list)

    # US dollars per million tokens of input and output, in batches
    prices: ClassVar[tuple[Decimal, Decimal]]

    def __post_init__(self) -> None:
        self._numbers = itertools.count(1)
        self._results: dict[str, list[Json]] = {}
        self._end: dict[str, End] = {}

    @property
    def billed_usd(self) -> Decimal:
        """By the price page."""
        asked, answered = self.prices
        return (asked * INPUT_TOKENS * len(self.billed) + answered * sum(self.billed)) / 1_000_000

    @abstractmethod
    def model(self) -> Model:
        """A model of the provider at its own address, which is this one."""

    def client(self) -> httpx2.AsyncClient:
        """What the provider's own SDK sends with."""
        return httpx2.AsyncClient(transport=httpx2.MockTransport(self._serve), timeout=60)

    @abstractmethod
    def _answer(self, request: httpx2.Request) -> httpx2.Response: ...

    async def _serve(self, request: httpx2.Request) -> httpx2.Response:
        await asyncio.sleep(0)
        await request.aread()
        return self._answer(request)

    def _run(self, limit: int | None) -> int:
        tokens = self.output_tokens if limit is None else min(limit, self.output_tokens)
        self.billed.append(tokens)
        return tokens

    def _begin(self, batch: str, requests: list[Json]) -> End:
        self.batches.append(requests)
        self._end[batch] = self.ends[min(len(self.batches), len(self.ends)) - 1]
        return self._end[batch]

    def _is_ended(self, batch: str) -> bool:
        return self.held is None or self.held.is_set() or self._end[batch] != "done"


class AnthropicJobs(BatchJobs):
    """https://platform.claude.com/docs/en/api/creating-message-batches"""

    prices = (Decimal("0.5"), Decimal("2.5"))

    def model(self) -> AnthropicModel:
        """Claude Haiku 4.5."""
        client = AsyncAnthropic(api_key="k", http_client=self.client(), max_retries=0)
        return AnthropicModel("claude-haiku-4-5", provider=AnthropicProvider(anthropic_client=client))

    def _answer(self, request: httpx2.Request) -> httpx2.Response:
        _, batch, call = (request.url.path.removeprefix("/v1/messages/batches") + "//").split("/")[:3]
        if not batch:
            return self._create(json.loads(request.content)["requests"])
        if call == "results":
            lines = "\n".join(map(json.dumps, self._results[batch]))
            return httpx2.Response(200, content=lines.encode())
        if call == "cancel":
            self.cancelled.append(batch)
        return self._described(batch)

    def _create(self, requests: list[Json]) -> httpx2.Response:
        if self.breaks:
            raise httpx2.ReadError("the connection broke")
        if self.refuse is not None:
            error = {"type": "error", "error": {"type": "rate_limit_error", "message": "no"}}
            return httpx2.Response(self.refuse, json=error)
        batch = f"msgbatch_{next(self._numbers)}"
        end = self._begin(batch, requests)
        self._results[batch] = [
            {"custom_id": each["custom_id"], "result": self._result(each["params"], outcome)}
            for each in requests
            if (outcome := self._outcome(each["params"], end)) != "missing"
        ]
        return self._described(batch)

    def _outcome(self, params: Json, end: End) -> Outcome:
        if end == "canceled" or end == "expired":
            return end
        return self.outcome(json.dumps(params))

    def _result(self, params: Json, outcome: Outcome) -> Json:
        if outcome == "errored":
            error = {
                "type": "error",
                "error": {"type": "overloaded_error", "message": "no"},
                "request_id": "r",
            }
            return {"type": "errored", "error": error}
        if outcome != "succeeded":
            return {"type": outcome}
        tokens = self._run(params["max_tokens"])
        cut = tokens == params["max_tokens"]
        message = {
            "id": f"msg_{next(self._numbers)}",
            "type": "message",
            "role": "assistant",
            "model": params["model"],
            "content": [{"type": "text", "text": "answer"}],
            "stop_reason": "max_tokens" if cut else "end_turn",
            "stop_sequence": None,
            "usage": {"input_tokens": INPUT_TOKENS, "output_tokens": tokens, "service_tier": "batch"},
        }
        return {"type": "succeeded", "message": message}

    def _described(self, batch: str) -> httpx2.Response:
        ended = self._is_ended(batch)
        counts = {"processing": 0, "succeeded": 0, "errored": 0, "canceled": 0, "expired": 0}
        return httpx2.Response(
            200,
            json={
                "id": batch,
                "type": "message_batch",
                "processing_status": "ended" if ended else "in_progress",
                "request_counts": counts | {"processing": len(self._results[batch])},
                "created_at": CREATED,
                "expires_at": "2026-11-02T00:00:00Z",
                "ended_at": CREATED if ended else None,
                "archived_at": None,
                "cancel_initiated_at": None,
                "results_url": f"https://api.anthropic.com/v1/messages/batches/{batch}/results"
                if ended
                else None,
            },
        )


class GoogleJobs(BatchJobs):
    """https://ai.google.dev/gemini-api/docs/batch-mode, with files for input and results."""

    prices = (Decimal("0.15"), Decimal("1.25"))
    _STATES: Final = {
        "done": "BATCH_STATE_SUCCEEDED",
        "failed": "BATCH_STATE_FAILED",
        "canceled": "BATCH_STATE_CANCELLED",
        "expired": "BATCH_STATE_EXPIRED",
    }

    def model(self) -> GoogleModel:
        """Gemini 2.5 Flash."""
        return GoogleModel(
            "gemini-2.5-flash", provider=GoogleProvider(api_key="k", http_client=self.client())
        )

    partial = False
    """Whether a batch that ends without being done has run some requests."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._files: dict[str, list[Json]] = {}

    def _answer(self, request: httpx2.Request) -> httpx2.Response:
        path = request.url.path
        if path.startswith("/upload/") and path.endswith("/here"):
            return self._keep(request.content)
        if path.startswith("/upload/"):
            return httpx2.Response(200, headers={"X-Goog-Upload-URL": f"{request.url}/here"}, json={})
        if path.endswith(":batchGenerateContent"):
            return self._create(json.loads(request.content))
        if path.endswith(":download"):
            lines = self._results[path.removesuffix(":download").rsplit("/", 1)[-1]]
            return httpx2.Response(200, content="\n".join(map(json.dumps, lines)).encode())
        if request.method == "DELETE":
            del self._files["files/" + path.rpartition("/")[2]]
            return httpx2.Response(200, json={})
        batch = path.rsplit("/", 1)[-1]
        if batch.endswith(":cancel"):
            self.cancelled.append(batch.removesuffix(":cancel"))
            return httpx2.Response(200, json={})
        return self._described(batch)

    def _keep(self, content: bytes) -> httpx2.Response:
        name = f"files/in{next(self._numbers)}"
        self._files[name] = [json.loads(line) for line in content.splitlines()]
        return httpx2.Response(
            200, headers={"X-Goog-Upload-Status": "final"}, json={"file": {"name": name, "state": "ACTIVE"}}
        )

    def _create(self, asked: Json) -> httpx2.Response:
        if self.breaks:
            raise httpx2.ReadError("the connection broke")
        if self.refuse is not None:
            error = {"code": self.refuse, "message": "no", "status": "RESOURCE_EXHAUSTED"}
            return httpx2.Response(self.refuse, json={"error": error})
        requests = self._files[asked["batch"]["inputConfig"]["fileName"]]
        batch = f"job{next(self._numbers)}"
        run = self._begin(batch, requests) == "done" or self.partial
        self._results[batch] = [
            {"key": each["key"], **self._result(each["request"], outcome)}
            for each in (requests if run else [])
            if (outcome := self.outcome(json.dumps(each["request"]))) != "missing"
        ]
        return self._described(batch)

    def _result(self, body: Json, outcome: Outcome) -> Json:
        if outcome == "errored":
            return {"error": {"code": 14, "message": "no"}}
        if outcome in ("canceled", "expired"):
            return {"error": {"code": 1 if outcome == "canceled" else 4, "message": outcome}}
        limit = body.get("generationConfig", {}).get("maxOutputTokens")
        tokens = self._run(limit)
        response = {
            "candidates": [
                {
                    "content": {"role": "model", "parts": [{"text": "answer"}]},
                    "finishReason": "MAX_TOKENS" if tokens == limit else "STOP",
                }
            ],
            "usageMetadata": {
                "promptTokenCount": INPUT_TOKENS,
                "candidatesTokenCount": tokens,
                "totalTokenCount": INPUT_TOKENS + tokens,
            },
            "modelVersion": "gemini-2.5-flash",
            "responseId": f"r{next(self._numbers)}",
        }
        return {"response": response}

    def _described(self, batch: str) -> httpx2.Response:
        ended, end = self._is_ended(batch), self._end[batch]
        metadata: Json = {
            "state": self._STATES[end] if ended else "BATCH_STATE_RUNNING",
            "createTime": CREATED,
        }
        if ended and (end == "done" or self.partial):
            metadata["output"] = {"responsesFile": f"files/{batch}"}
        return httpx2.Response(200, json={"name": f"batches/{batch}", "metadata": metadata})
