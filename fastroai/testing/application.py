"""The Starlette application: it takes a request through rules and ledger to its answer."""

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Final
from uuid import uuid4

from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from fastroai.testing.batches import Batches
from fastroai.testing.delivery import Chunk, Delivery, body_chunks, garbled
from fastroai.testing.ledger import Ledger, LedgerEntry
from fastroai.testing.protocols import WIRES, BadRequestError, Wire
from fastroai.testing.replies import Reply, Usage, in_seconds
from fastroai.testing.requests import JsonObject
from fastroai.testing.rules import NoReplyError, Rules
from fastroai.testing.served_answers import Answer, make_answer

logger = logging.getLogger("fastroai.testing")


def make_application(
    rules: Rules,
    ledger: Ledger,
    *,
    latency: float,
    keep_alive: bool,
    hang_up: Callable[[Scope], None],
    holds_batches: Callable[[], bool],
) -> Starlette:
    """Return an application with endpoints for all protocols and batches. `hang_up` closes a connection."""
    endpoints = [_Endpoint(wire, rules, ledger, latency, keep_alive, hang_up) for wire in WIRES]
    of = {endpoint.wire.name: endpoint.batched for endpoint in endpoints}
    batches = Batches(of["openai-responses"], of["anthropic"], holds_batches)
    routes = [Route(endpoint.wire.path, endpoint, methods=["POST"]) for endpoint in endpoints]
    return Starlette(
        routes=[*routes, *batches.routes()],
        exception_handlers={404: _not_found},
    )


async def _not_found(request: Request, error: Exception) -> JSONResponse:
    known = ", ".join(f"POST {wire.path}" for wire in WIRES)
    message = f"the model server has no {request.method} {request.url.path}; it has {known}"
    return JSONResponse(
        {"error": {"message": message, "type": "not_found_error"}}, 404, {"connection": "close"}
    )


MOST_BYTES: Final = 64 * 1024 * 1024
"""Maximum number of bytes in the body of a request, which the server keeps in its ledger."""


async def _body(request: Request) -> bytes:
    """Return the body of a request. Stop reading when it is too large."""
    parts, size = [], 0
    async for part in request.stream():
        size += len(part)
        parts.append(part)
        if size > MOST_BYTES:
            break
    return b"".join(parts)


@dataclass(frozen=True, eq=False)
class _Endpoint:
    """The endpoint of one protocol: an ASGI application."""

    wire: Wire
    rules: Rules
    ledger: Ledger
    latency: float
    keep_alive: bool
    hang_up: Callable[[Scope], None]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        try:
            raw_body = await _body(request)
        except ClientDisconnect:
            return  # the request never arrived
        await self._answer(dict(request.headers), raw_body)(scope, receive, send)

    def batched(
        self, headers: Mapping[str, str], raw_body: bytes, batch: str
    ) -> tuple[int, JsonObject | str] | None:
        """Answer a request in a batch: its status and body. `None` if its fault is to give no answer."""
        delivery = self._answer(headers, raw_body, batch)
        delivery.on_end(True, False)
        fault, body = delivery.fault, b"".join(chunk.data for chunk in delivery.chunks)
        if fault is not None and fault.silent:
            return None
        is_text = fault is not None and fault.kind == "malformed"
        return delivery.status, body.decode(errors="replace") if is_text else json.loads(body)

    def _answer(self, headers: Mapping[str, str], raw_body: bytes, batch: str | None = None) -> Delivery:
        """Decide what to send, and put that into the ledger before the first byte is sent."""
        entry = LedgerEntry(
            protocol=self.wire.name,
            request_id=f"req_{uuid4().hex}",
            headers=headers,
            raw_body=raw_body,
            batch=batch,
            started=datetime.now(UTC),
        )
        if len(raw_body) > MOST_BYTES:
            message = f"the body has more than {MOST_BYTES:,} bytes"
            return self._refuse(replace(entry, raw_body=b""), 413, message)
        try:
            request = self.wire.parse(headers, raw_body)
        except BadRequestError as error:
            return self._refuse(entry, 400, str(error))
        entry = replace(entry, model=request.model, streamed=request.stream, body=request.body)
        try:
            reply = self.rules.reply_to(request)
            if reply.fault and reply.fault.code:
                fault = reply.fault
                message = fault.message or f"the model server was told to fail: {fault.name}"
                again = {"retry-after": fault.retry_after} if fault.retry_after else {}
                return self._refuse(replace(entry, fault=fault.name), reply.fault.code, message, again)
            return self._deliver(entry, reply, make_answer(request, reply))
        except NoReplyError as error:
            if error.__cause__:
                logger.warning("%s", error, exc_info=error.__cause__)
            # SDKs repeat a 500 by default. This error would come again, and the wait would hide its message.
            return self._refuse(entry, 500, str(error), {"x-should-retry": "false"})

    def _deliver(self, entry: LedgerEntry, reply: Reply, answer: Answer) -> Delivery:
        fault = reply.fault
        has_expired = entry.batch is not None and fault is not None and fault.silent
        is_billed = fault is None or (fault.billed and not has_expired)
        entry = replace(
            entry,
            model=answer.model,
            status=None if fault and fault.silent else 200,
            billed=is_billed,
            usage=answer.usage if is_billed else Usage(),
            fault=fault.name if fault else None,
            response_id=f"{self.wire.id_prefix}{answer.id}",
        )
        if not entry.streamed:
            body = json.dumps(self.wire.body(answer)).encode()
            body = body[: len(body) // 2] if fault and fault.kind == "malformed" else body
            length = {"content-length": str(len(body))}
            return self._delivery(entry, body_chunks(body), length, replace(reply, chunk_delay=0.0))
        chunks = [Chunk(event.encode(), event.content) for event in self.wire.events(answer)]
        if fault and fault.kind == "malformed":
            chunks = garbled(chunks, fault.after or 0)
        return self._delivery(entry, chunks, {"content-type": "text/event-stream; charset=utf-8"}, reply)

    def _refuse(
        self, entry: LedgerEntry, status: int, message: str, headers: Mapping[str, str] | None = None
    ) -> Delivery:
        entry = replace(entry, status=status, error=message)
        body = json.dumps(self.wire.error(status, message, entry.request_id)).encode()
        headers = {"content-length": str(len(body))} | dict(headers or {})
        return self._delivery(entry, [Chunk(body)], headers, Reply())

    def _delivery(
        self, entry: LedgerEntry, chunks: Sequence[Chunk], headers: Mapping[str, str], reply: Reply
    ) -> Delivery:
        recorded = self.ledger.record(entry)

        def end(completed: bool, client_left: bool) -> None:
            _log(self.ledger.finish(recorded, completed=completed, client_disconnected=client_left))

        basic = {
            "content-type": "application/json",
            self.wire.request_id_header: entry.request_id,
            "connection": "keep-alive" if self.keep_alive else "close",
        }
        return Delivery(
            status=entry.status or 200,
            headers=basic | dict(headers) | dict(reply.headers),
            chunks=chunks,
            on_end=end,
            hang_up=self.hang_up,
            fault=reply.fault,
            latency=self.latency + in_seconds(reply.latency),
            chunk_delay=in_seconds(reply.chunk_delay),
        )


def _log(entry: LedgerEntry) -> None:
    """Log one line about a request that has ended."""
    usage = entry.usage
    ended = entry.ended or entry.started
    logger.info(
        "#%d %s %s%s: %s; input %d (%d cached), output %d%s; %d ms%s",
        entry.ordinal,
        entry.protocol,
        entry.model or "?",
        " stream" if entry.streamed else "",
        entry.fault or entry.status,
        usage.input_tokens,
        usage.cache_read_tokens,
        usage.output_tokens,
        "" if entry.billed else ", not billed",
        (ended - entry.started).total_seconds() * 1000,
        ", the client left" if entry.client_disconnected else "",
    )
