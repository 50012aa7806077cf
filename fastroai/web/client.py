"""What clients in other languages get from a service: a client in JavaScript, and the JSON Schema."""

from __future__ import annotations

from importlib.resources import files

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from fastroai.web.schema import api_schema


async def client_response(request: Request) -> Response:
    """Return the client for browsers, a module without dependencies."""
    source = (files("fastroai.web") / "client.js").read_bytes()
    return Response(source, media_type="text/javascript", headers={"Cache-Control": "no-cache"})


async def schema_response(request: Request) -> Response:
    """Return the JSON Schema of what the service sends."""
    return JSONResponse(api_schema(), media_type="application/schema+json")
