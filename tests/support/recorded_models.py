"""The providers' own models of PydanticAI, as a user builds them, with recorded answers for a network."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cache
from types import ModuleType
from typing import Any
from urllib.parse import unquote, urlsplit

import httpx
import httpx2
import pytest
from anthropic import AsyncAnthropicBedrock
from botocore.awsrequest import AWSResponse
from google.oauth2.credentials import Credentials
from pydantic_ai.capabilities import NativeTool
from pydantic_ai.models import Model, infer_model
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.models.bedrock import BedrockConverseModel
from pydantic_ai.models.bedrock_mantle import BedrockMantleChatModel, BedrockMantleResponsesModel
from pydantic_ai.models.cerebras import CerebrasModel
from pydantic_ai.models.cohere import CohereModel
from pydantic_ai.models.crusoe import CrusoeModel
from pydantic_ai.models.google import GoogleModel
from pydantic_ai.models.groq import GroqModel
from pydantic_ai.models.huggingface import HuggingFaceModel
from pydantic_ai.models.mistral import MistralModel
from pydantic_ai.models.ollama import OllamaModel
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.models.openrouter import OpenRouterModel
from pydantic_ai.models.snowflake import SnowflakeModel
from pydantic_ai.models.zai import ZaiModel
from pydantic_ai.native_tools import (
    AbstractNativeTool,
    AdvisorTool,
    CodeExecutionTool,
    MCPServerTool,
    WebFetchTool,
    WebSearchTool,
)
from pydantic_ai.providers.anthropic import AnthropicProvider
from pydantic_ai.providers.azure import AzureProvider
from pydantic_ai.providers.bedrock import BedrockProvider
from pydantic_ai.providers.bedrock_mantle import BedrockMantleProvider
from pydantic_ai.providers.cerebras import CerebrasProvider
from pydantic_ai.providers.cohere import CohereProvider
from pydantic_ai.providers.crusoe import CrusoeProvider
from pydantic_ai.providers.deepseek import DeepSeekProvider
from pydantic_ai.providers.gateway import gateway_provider
from pydantic_ai.providers.google import GoogleProvider
from pydantic_ai.providers.google_cloud import GoogleCloudProvider
from pydantic_ai.providers.groq import GroqProvider
from pydantic_ai.providers.heroku import HerokuProvider
from pydantic_ai.providers.huggingface import HuggingFaceProvider
from pydantic_ai.providers.mistral import MistralProvider
from pydantic_ai.providers.ollama import OllamaProvider
from pydantic_ai.providers.openai import OpenAIProvider
from pydantic_ai.providers.openrouter import OpenRouterProvider
from pydantic_ai.providers.snowflake import SnowflakeProvider
from pydantic_ai.providers.zai import ZaiProvider
from urllib3.exceptions import ProtocolError

from support.recorded_oracle import Json, asked_model


@dataclass
class Wire:
    """What comes back on the wire: the pieces of the first answer, then refusals, which nobody bills."""

    pieces: Iterable[bytes]
    media_type: str = "application/json"
    broken: bool = False
    """Whether the connection breaks after the last piece."""
    polled: bytes | None = None
    """What a GET gives, for requests that go on in the background."""
    requests: list[str] = field(default_factory=list)
    """URLs that were asked."""

    def answer(self, library: ModuleType, method: str, url: str) -> Any:
        """The answer to one request, as a response of `httpx` or `httpx2`."""
        self.requests.append(url)
        if method == "GET" and self.polled is not None:
            return library.Response(200, content=self.polled, headers={"content-type": "application/json"})
        if sum(1 for _ in self.requests) > 1:
            return library.Response(400, json={"error": {"message": "one answer only", "code": 400}})
        headers = {"content-type": self.media_type}
        return library.Response(200, content=self._stream(library), headers=headers)

    async def _stream(self, library: ModuleType) -> Any:
        for piece in self.pieces:
            yield piece
        if self.broken:
            raise library.ReadError("the connection broke")

    def client(self, library: ModuleType = httpx2) -> Any:
        """An HTTP client that asks nobody else."""

        def answer(request: Any) -> Any:
            return self.answer(library, request.method, str(request.url))

        return library.AsyncClient(transport=library.MockTransport(answer), timeout=60)

    def attach_to(self, client: Any) -> None:
        """Answer for a client of boto3, by the event that it emits before it sends."""
        sending = "before-send.bedrock-runtime.*"
        client.meta.events.unregister(sending, unique_id=__name__)  # a wire that had the client before
        client.meta.events.register(sending, self._answer_boto, unique_id=__name__)

    def _answer_boto(self, request: Any, **_: object) -> Any:
        self.requests.append(request.url)
        status = 200 if len(self.requests) == 1 else 400
        pieces = list(self.pieces) if status == 200 else [b'{"message": "one answer only"}']
        headers = {"content-type": self.media_type, "x-amzn-requestid": "x"}
        return AWSResponse(request.url, status, headers, _RawStream(pieces, self.broken))


class _RawStream:
    """What botocore reads an answer from."""

    def __init__(self, pieces: list[bytes], broken: bool) -> None:
        self._pieces, self._broken = pieces, broken

    def stream(self, *_: object, **__: object) -> Iterable[bytes]:
        yield from self._pieces
        if self._broken:
            raise ProtocolError("the connection broke")

    def close(self) -> None:
        pass


def build_model(answer: Json, wire: Wire, patch: pytest.MonkeyPatch) -> Model:
    """The model for the place that an answer came from."""
    host, path = answer["host"], unquote(answer["path"])
    name = asked_model(answer) or _model_of_tests(answer)
    build = next(build for form, build in _BUILDERS if re.match(form, f"{host}{path}"))
    return build(name, wire, patch, answer)


def _model_of_tests(answer: Json) -> str:
    told = answer["response"]["model"]
    assert isinstance(told, str)
    return told


Builder = Callable[[str, Wire, pytest.MonkeyPatch, Json], Model]


def _with(model: Any, provider: Any, library: ModuleType = httpx2, **options: Any) -> Builder:
    """A model class with a provider class, of which the client is given."""

    def build(name: str, wire: Wire, *_: object) -> Model:
        own = provider(http_client=wire.client(library), **({"api_key": "x"} | options))
        built: Model = model(name, provider=own)
        return built

    return build


def _anthropic_on_bedrock(name: str, wire: Wire, patch: object, answer: Json) -> Model:
    client = AsyncAnthropicBedrock(
        api_key="x", aws_region=_region(answer), http_client=wire.client(), max_retries=0
    )
    return AnthropicModel(name, provider=AnthropicProvider(anthropic_client=client))


def _region(answer: Json) -> str:
    """The region of AWS, as in `bedrock-runtime.us-east-1.amazonaws.com`."""
    region: str = answer["host"].split(".")[1]
    return region


def _vertex(name: str, wire: Wire, patch: object, answer: Json) -> Model:
    location = answer["path"].split("/locations/")[1].split("/")[0]
    credentials = Credentials("x")  # type: ignore[no-untyped-call]
    provider = GoogleCloudProvider(
        credentials=credentials, project="p", location=location, http_client=wire.client()
    )
    return GoogleModel(name, provider=provider)


def _converse(name: str, wire: Wire, patch: object, answer: Json) -> Model:
    provider = _bedrock(_region(answer))
    wire.attach_to(provider.client)
    return BedrockConverseModel(name, provider=provider)


@cache
def _bedrock(region: str) -> BedrockProvider:
    """One for each region: boto3 takes long to make a client."""
    return BedrockProvider(api_key="x", region_name=region)


def _mantle(name: str, wire: Wire, patch: object, answer: Json) -> Model:
    provider = BedrockMantleProvider(api_key="x", region_name=_region(answer), http_client=wire.client())
    if answer["path"].endswith("/responses"):
        return BedrockMantleResponsesModel(name, provider=provider)
    return BedrockMantleChatModel(name, provider=provider)


def _huggingface(name: str, wire: Wire, patch: pytest.MonkeyPatch, answer: Json) -> Model:
    # The one SDK that takes no client of the user: it makes one for each request, by this factory.
    patch.setattr("huggingface_hub.utils._http._GLOBAL_ASYNC_CLIENT_FACTORY", lambda: wire.client(httpx))
    base_url = f"https://router.huggingface.co/{answer['path'].split('/')[1]}/v1"
    return HuggingFaceModel(name, provider=HuggingFaceProvider(api_key="x", base_url=base_url))


def _gateway(kind: str, library: ModuleType | None = httpx2) -> Builder:
    """A model behind the Pydantic AI Gateway; without a library, one that has no HTTP client to give."""

    def build(name: str, wire: Wire, *_: object) -> Model:
        options = {} if library is None else {"http_client": wire.client(library)}
        provider: Any = gateway_provider(kind, api_key="x", base_url="https://localhost", **options)
        if library is None:
            wire.attach_to(provider.client)
        return infer_model(f"{kind}:{name}", provider_factory=lambda _: provider)

    return build


def _snowflake(*, api_key: str, http_client: Any) -> SnowflakeProvider:
    return SnowflakeProvider(account="resource", token=api_key, http_client=http_client)


_OPENAI_AT_GOOGLE = "https://generativelanguage.googleapis.com/v1beta/openai"
_AZURE = "https://resource.openai.azure.com"
_AZURE_CHAT = {"azure_endpoint": _AZURE, "api_version": "2025-04-01-preview"}
_AZURE_RESPONSES = {"azure_endpoint": f"{_AZURE}/openai/v1"}

_BUILDERS: list[tuple[str, Builder]] = [
    (r"api\.anthropic\.com", _with(AnthropicModel, AnthropicProvider)),
    (r"api\.cerebras\.ai", _with(CerebrasModel, CerebrasProvider)),
    (r"api\.cohere\.com", _with(CohereModel, CohereProvider, httpx)),
    (r"api\.deepseek\.com/chat", _with(OpenAIChatModel, DeepSeekProvider)),
    (r"api\.deepseek\.com/responses", _with(OpenAIResponsesModel, DeepSeekProvider)),
    (r"api\.groq\.com", _with(GroqModel, GroqProvider, httpx)),
    (r"api\.inference\.crusoecloud", _with(CrusoeModel, CrusoeProvider)),
    (r"api\.mistral\.ai", _with(MistralModel, MistralProvider)),
    (r"api\.openai\.com/v1/chat", _with(OpenAIChatModel, OpenAIProvider)),
    (r"api\.openai\.com/v1/responses", _with(OpenAIResponsesModel, OpenAIProvider)),
    (r"api\.z\.ai", _with(ZaiModel, ZaiProvider)),
    (r"bedrock-mantle", _mantle),
    (r"bedrock-runtime.*/invoke$", _anthropic_on_bedrock),
    (r"bedrock-runtime", _converse),
    (
        r"generativelanguage\.googleapis\.com/v1beta/openai",
        _with(OpenAIChatModel, OpenAIProvider, base_url=_OPENAI_AT_GOOGLE),
    ),
    (r"generativelanguage", _with(GoogleModel, GoogleProvider)),
    (r".*aiplatform\.googleapis\.com", _vertex),
    (r"localhost/anthropic", _gateway("anthropic")),
    (r"localhost/bedrock", _gateway("bedrock", None)),
    (r"localhost/google-vertex", _gateway("google-cloud")),
    (r"localhost/groq", _gateway("groq", httpx)),
    (r"localhost/openai", _gateway("openai-responses")),
    (r"localhost/v1", _with(OllamaModel, OllamaProvider, base_url="http://localhost/v1")),
    (r"ollama\.com", _with(OllamaModel, OllamaProvider, base_url="https://ollama.com/v1")),
    (r"openrouter\.ai/api/v1/chat", _with(OpenRouterModel, OpenRouterProvider)),
    (r"openrouter\.ai/api/v1/responses", _with(OpenAIResponsesModel, OpenRouterProvider)),
    (r"resource\.openai\.azure\.com/openai/dep", _with(OpenAIChatModel, AzureProvider, **_AZURE_CHAT)),
    (r"resource\.openai\.azure\.com", _with(OpenAIResponsesModel, AzureProvider, **_AZURE_RESPONSES)),
    (r"resource\.snowflakecomputing\.com", _with(SnowflakeModel, _snowflake)),
    (r"router\.huggingface\.co", _huggingface),
    (r"us\.inference\.heroku\.com", _with(OpenAIChatModel, HerokuProvider)),
]


def whole(answer: Json) -> Wire:
    """An answer in one piece; for a background request, the submission before it."""
    body = readable(answer["response"])
    if "/responses/resp_" not in answer["path"]:
        return Wire([json.dumps(body).encode()])
    body = body | {"id": answer["path"].rpartition("/")[2]}
    queued = body | {"status": "queued", "output": [], "usage": None, "completed_at": None}
    return Wire([json.dumps(queued).encode()], polled=json.dumps(body).encode())


_MASKED = {
    "thoughtSignature": "eA==",
    "redactedContent": "eA==",
    "embedding": "AAAAAA==",  # SDKs ask for vectors in base64, so masking left an invalid "x": this is [0.0]
}


def readable(body: Any) -> Any:
    """The body with what masking broke mended: bytes in base64, and the ids that lead calls to results."""
    if isinstance(body, list):
        calls = [each for each in body if isinstance(each, dict) and each.get("type") == "server_tool_use"]
        results = [each["tool_use_id"] for each in body if isinstance(each, dict) and "tool_use_id" in each]
        ids = {id(call): {"id": result} for call, result in zip(calls, results, strict=False)}
        return [readable(each | ids[id(each)] if id(each) in ids else each) for each in body]
    if isinstance(body, dict):
        return {
            key: _MASKED[key] if key in _MASKED and isinstance(value, str) else readable(value)
            for key, value in body.items()
        }
    return body


def settings_of(answer: Json) -> dict[str, Any]:
    """The settings of the request, as far as they shape the bill or the way of the answer."""
    request, body, path = answer["request"], answer["response"], answer["path"]
    settings: dict[str, Any] = {}
    if limit := request.get("max_tokens") or request.get("max_completion_tokens"):
        settings["max_tokens"] = limit
    if path.endswith("/converse"):
        settings["max_tokens"] = 4096  # without a limit, PydanticAI asks Claude for a stream
    if body.get("performanceConfig"):
        settings["bedrock_performance_configuration"] = body["performanceConfig"]
    if "/responses/resp_" in path:
        settings["openai_background"] = True
    return settings


_TOOLS: dict[str, AbstractNativeTool] = {
    "advisor": AdvisorTool(model="claude-opus-4-8"),
    "code_execution": CodeExecutionTool(),
    "mcp": MCPServerTool(id="x", url="https://mcp.example/mcp"),
    "openrouter:advisor": AdvisorTool(model="anthropic/claude-opus-4.8"),
    "openrouter:web_search": WebSearchTool(),
    "web_fetch": WebFetchTool(),
    "web_search": WebSearchTool(),
}


def tools_of(answer: Json) -> list[NativeTool[None]]:
    """The provider's own tools that the request had; a search model has its search."""
    names = [re.sub(r"_\d{8}$", "", name) for name in answer["request"].get("tool_types", ())]
    if "search-preview" in (asked_model(answer) or ""):
        names.append("web_search")
    return [NativeTool(_TOOLS[name]) for name in names if name in _TOOLS]


def assert_asked(wire: Wire, answer: Json) -> None:
    """A request went where the recorded one had gone, whatever version of Google's API the SDK asks."""
    asked = {_place(url.hostname or "", unquote(url.path)) for url in map(urlsplit, wire.requests)}
    assert _place(answer["host"], unquote(answer["path"])) in asked


def _place(host: str, path: str) -> str:
    path = re.sub(r"^(.*)/v1(beta1?)?/(?=cachedContents|models/|projects/|publishers/)", r"\1/v1/", path)
    return host + re.sub(r"/deployments/[^/]+/", "/deployments/d/", path)
