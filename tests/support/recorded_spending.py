"""What is bought from providers besides the requests of agents, with recorded answers for a network."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from google.oauth2.credentials import Credentials
from pydantic_ai.embeddings import Embedder, EmbeddingModel
from pydantic_ai.embeddings.google import GoogleEmbeddingModel
from pydantic_ai.embeddings.openai import OpenAIEmbeddingModel
from pydantic_ai.providers.google import GoogleProvider
from pydantic_ai.providers.google_cloud import GoogleCloudProvider
from pydantic_ai.providers.openai import OpenAIProvider

from fastroai import Metered, spend
from support.recorded_models import Wire
from support.recorded_oracle import Json, asked_model, provider_of


async def embed(answer: Json, wire: Wire) -> None:
    """Ask the provider's own embedding model, with a meter, for as many vectors as the answer has."""
    body = answer["response"]
    vectors = body.get("data") or body.get("embeddings") or [body["embedding"]]
    async with _embedding_model(answer, wire) as model:
        result = await Embedder(Metered().embedding_model(model)).embed_documents(["x"] * len(vectors))
    assert len(result.embeddings) == len(vectors)


async def make_cache(answer: Json, wire: Wire) -> None:
    """Make a cache with Google's own client, as PydanticAI has no model that does, inside of `spend`."""
    name = str(asked_model(answer))
    google: Any = GoogleProvider(api_key="x", http_client=wire.client()).client
    async with spend("0.01", model=name, provider="google"):
        made = await google.aio.caches.create(model=name, config={"contents": "x", "ttl": "120s"})
    assert made.name == answer["response"]["name"]


@asynccontextmanager
async def _embedding_model(answer: Json, wire: Wire) -> AsyncGenerator[EmbeddingModel]:
    name = str(asked_model(answer))
    if answer["host"] == "aiplatform.googleapis.com":
        credentials = Credentials("x")  # type: ignore[no-untyped-call]
        yield GoogleEmbeddingModel(
            name,
            provider=GoogleCloudProvider(
                credentials=credentials, project="p", location="global", http_client=wire.client()
            ),
        )
        return
    match provider_of(answer["host"], answer["path"]):
        case "google":
            google = GoogleProvider(api_key="x", http_client=wire.client())
            yield GoogleEmbeddingModel(name, provider=google)
        case "openai":
            openai = OpenAIProvider(api_key="x", http_client=wire.client())
            yield OpenAIEmbeddingModel(name, provider=openai)
        case "voyageai":
            async with _voyage(name, wire) as model:
                yield model
        case other:
            raise AssertionError(other)


@asynccontextmanager
async def _voyage(name: str, wire: Wire) -> AsyncGenerator[EmbeddingModel]:
    """Voyage's SDK takes no HTTP client, so a server of this machine answers it."""
    pytest.importorskip("voyageai", reason="not installed: PydanticAI has it below Python 3.14 only")
    from aiohttp import web
    from aiohttp.test_utils import RawTestServer
    from pydantic_ai.embeddings.voyageai import VoyageAIEmbeddingModel
    from pydantic_ai.providers.voyageai import VoyageAIProvider
    from voyageai.client_async import AsyncClient

    async def reply(request: web.BaseRequest) -> web.Response:
        wire.requests.append(f"https://api.voyageai.com{request.path}")
        return web.Response(body=b"".join(wire.pieces), content_type=wire.media_type)

    async with RawTestServer(reply) as server:
        client = AsyncClient(api_key="x", base_url=str(server.make_url("/v1")))
        yield VoyageAIEmbeddingModel(name, provider=VoyageAIProvider(voyageai_client=client))
