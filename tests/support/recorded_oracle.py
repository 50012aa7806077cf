"""What the recorded answers of providers cost, worked out without FastroAI.

Reads the bodies as the providers document them, takes the prices out of the data of genai-prices, and does
its own exact arithmetic. It imports nothing of FastroAI, and none of the code with which PydanticAI and
genai-prices read usage or price it: two programs that share no code seldom make the same mistake.

    python -m tests.support.recorded_oracle

rewrites `expected.jsonl`. Review the difference: each line says the sum that it comes from, and why.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Context, Decimal
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote

from genai_prices import data

FOLDER: Final = Path(__file__).parents[1] / "behaviour/accounting/recorded"
ANSWERS: Final = FOLDER / "responses.jsonl"
EXPECTED: Final = FOLDER / "expected.jsonl"

AT: Final = datetime(2026, 11, 22, 12, 0, tzinfo=UTC)
"""When the answers are served: some prices depend on the date, those of DeepSeek on the hour."""

_EXACT: Final = Context(prec=200)
Json = dict[str, Any]


# Usage, as each provider documents it.


@dataclass
class Reading:
    """What a body says of its usage: counts that do not overlap, by the price that each is billed at."""

    billed: dict[str, int] = field(default_factory=dict)
    tokens: dict[str, int] = field(default_factory=dict)
    advice: list[tuple[str, dict[str, int]]] = field(default_factory=list)
    """Other models that were consulted, and what is billed of each, by the price it is billed at."""
    unpriced: list[str] = field(default_factory=list)
    """Things that were used besides, and that the body gives no priceable count of."""
    stated: Decimal | None = None
    contradiction: str | None = None
    why: list[str] = field(default_factory=list)


def _count(usage: Json, *path: str) -> int:
    value: Any = usage
    for key in path:
        value = (value or {}).get(key)
    return value or 0


def _split(whole: int, *parts: int) -> int:
    return whole - sum(parts)


def openai_chat(body: Json) -> Reading:
    """`prompt_tokens` holds the cached, written and audio ones, `completion_tokens` the reasoning."""
    usage = body["usage"]
    cached = (
        _count(usage, "prompt_tokens_details", "cached_tokens")
        or _count(usage, "prompt_cache_hit_tokens")  # DeepSeek
        or _count(usage, "num_cached_tokens")  # Mistral
        or _count(usage, "cached_tokens")  # Together
    )
    return _openai(
        body,
        whole_input=usage["prompt_tokens"],
        whole_output=usage["completion_tokens"],
        cached=cached,
        written=_count(usage, "prompt_tokens_details", "cache_write_tokens"),
        audio_in=_count(usage, "prompt_tokens_details", "audio_tokens"),
        audio_out=_count(usage, "completion_tokens_details", "audio_tokens"),
        reasoning=_count(usage, "completion_tokens_details", "reasoning_tokens"),
    )


def openai_responses(body: Json) -> Reading:
    """As in Chat Completions, under other names; what server-side tools did is in the output."""
    usage = body["usage"]
    reading = _openai(
        body,
        whole_input=usage["input_tokens"],
        whole_output=usage["output_tokens"],
        cached=_count(usage, "input_tokens_details", "cached_tokens"),
        written=_count(usage, "input_tokens_details", "cache_write_tokens"),
        reasoning=_count(usage, "output_tokens_details", "reasoning_tokens"),
    )
    kinds = [item["type"] for item in body.get("output", [])]
    if searches := kinds.count("web_search_call"):
        reading.billed["web_searches_kcount"] = searches
    if "code_interpreter_call" in kinds:
        reading.unpriced.append("code_executions")
    if "mcp_call" in kinds:
        reading.why.append("Calls of MCP servers are billed by their tokens alone.")
    return reading


def _openai(
    body: Json,
    *,
    whole_input: int,
    whole_output: int,
    cached: int,
    written: int,
    reasoning: int,
    audio_in: int = 0,
    audio_out: int = 0,
) -> Reading:
    reading = Reading(
        billed={
            "input_mtok": _split(whole_input, cached, written, audio_in),
            "cache_read_mtok": cached,
            "cache_write_mtok": written,
            "input_audio_mtok": audio_in,
            "output_mtok": _split(whole_output, audio_out),
            "output_audio_mtok": audio_out,
        },
        tokens={
            "input_tokens": whole_input,
            "output_tokens": whole_output,
            "cache_read_tokens": cached,
            "cache_write_tokens": written,
            "input_audio_tokens": audio_in,
            "output_audio_tokens": audio_out,
            "reasoning_tokens": reasoning,
        },
    )
    hidden = body["usage"].get("total_tokens", 0) - whole_input - whole_output
    if hidden > 0:
        reading.unpriced.append("thinking tokens")
        reading.why.append(
            f"total_tokens has {hidden} more than prompt and completion together: thinking, which Google "
            "bills as output, and which this format does not break down."
        )
    if min(reading.billed.values()) < 0:
        reading.contradiction = "parts exceed their whole"
    return reading


def anthropic(body: Json) -> Reading:
    """`input_tokens` is without the cached ones; the iterations of an advisor are not in the sums."""
    usage = body["usage"]
    read = _count(usage, "cache_read_input_tokens")
    written = _count(usage, "cache_creation_input_tokens")
    written_1h = _count(usage, "cache_creation", "ephemeral_1h_input_tokens")
    reading = Reading(
        billed={
            "input_mtok": usage["input_tokens"],
            "cache_read_mtok": read,
            "cache_write_mtok": _split(written, written_1h),
            "cache_write_1h_mtok": written_1h,
            "output_mtok": usage["output_tokens"],
            "web_searches_kcount": _count(usage, "server_tool_use", "web_search_requests"),
        },
        tokens={
            "input_tokens": usage["input_tokens"] + read + written,
            "output_tokens": usage["output_tokens"],
            "cache_read_tokens": read,
            "cache_write_tokens": written,
            "reasoning_tokens": _count(usage, "output_tokens_details", "thinking_tokens"),
        },
    )
    for iteration in usage.get("iterations") or []:
        if iteration["type"] == "advisor_message":
            advised = {
                "input_mtok": iteration["input_tokens"],
                "cache_read_mtok": iteration["cache_read_input_tokens"],
                "output_mtok": iteration["output_tokens"],
            }
            reading.advice.append((iteration["model"], advised))
            reading.why.append(f"{iteration['model']} advised, and is billed at its own rates.")
        else:
            assert iteration["type"] == "message", "other kinds are not on record yet"
    tools = {
        block["name"] for block in body["content"] if block["type"] == "server_tool_use" and "name" in block
    }
    if _count(usage, "server_tool_use", "web_fetch_requests"):
        reading.why.append("Web fetch has no fee of its own: what it fetches is in the input tokens.")
    if any(block["type"].endswith("code_execution_tool_result") for block in body["content"]) or (
        tools & {"bash_code_execution", "code_execution", "text_editor_code_execution"}
    ):
        reading.unpriced.append("code_executions")
        reading.why.append(
            "Containers are billed by the hour beyond a free allowance, which no answer tells."
        )
    return reading


def google_cache(body: Json) -> Reading:
    """The size of a cache is not its bill."""
    return Reading(contradiction=f"{body['usageMetadata']['totalTokenCount']} tokens are kept by the hour")


def gemini(body: Json) -> Reading:
    """`candidatesTokenCount` is without the thoughts; modalities are broken down beside the totals."""
    usage = body["usageMetadata"]
    if "promptTokenCount" not in usage:
        return Reading(contradiction="no counts at all")
    audio = _modality(usage, "promptTokensDetails", "AUDIO")
    cached, cached_audio = (
        _count(usage, "cachedContentTokenCount"),
        _modality(usage, "cacheTokensDetails", "AUDIO"),
    )
    tool_use, thoughts = _count(usage, "toolUsePromptTokenCount"), _count(usage, "thoughtsTokenCount")
    whole_input = usage["promptTokenCount"] + tool_use
    whole_output = _count(usage, "candidatesTokenCount") + thoughts
    return Reading(
        billed={
            "input_mtok": _split(whole_input, cached, _split(audio, cached_audio)),
            "input_audio_mtok": _split(audio, cached_audio),
            "cache_read_mtok": _split(cached, cached_audio),
            "cache_audio_read_mtok": cached_audio,
            "output_mtok": whole_output,
        },
        tokens={
            "input_tokens": whole_input,
            "output_tokens": whole_output,
            "cache_read_tokens": cached,
            "input_audio_tokens": audio,
            "cache_audio_read_tokens": cached_audio,
            "reasoning_tokens": thoughts,
        },
    )


def _modality(usage: Json, details: str, name: str) -> int:
    return sum(part["tokenCount"] for part in usage.get(details) or [] if part["modality"] == name)


def converse(body: Json) -> Reading:
    """Bedrock: `inputTokens` is without the cached ones."""
    usage = body["usage"]
    read, written = _count(usage, "cacheReadInputTokens"), _count(usage, "cacheWriteInputTokens")
    return Reading(
        billed={
            "input_mtok": usage["inputTokens"],
            "cache_read_mtok": read,
            "cache_write_mtok": written,
            "output_mtok": usage["outputTokens"],
        },
        tokens={
            "input_tokens": usage["inputTokens"] + read + written,
            "output_tokens": usage["outputTokens"],
            "cache_read_tokens": read,
            "cache_write_tokens": written,
        },
    )


def cohere(body: Json) -> Reading:
    """Cohere bills `billed_units`; `tokens` is what the model read and wrote."""
    billed, tokens = body["usage"]["billed_units"], body["usage"]["tokens"]
    return Reading(
        billed={"input_mtok": billed["input_tokens"], "output_mtok": billed["output_tokens"]},
        tokens={
            "input_tokens": tokens["input_tokens"],
            "output_tokens": tokens["output_tokens"],
            "cache_read_tokens": _count(body["usage"], "cached_tokens"),
        },
        why=["Cohere bills the units under billed_units, which are fewer than the tokens."],
    )


def embeddings(body: Json) -> Reading:
    """Input alone."""
    usage = body.get("usage") or body["usageMetadata"]
    count = usage.get("prompt_tokens", usage.get("promptTokenCount", usage.get("total_tokens", 0)))
    if not count:
        return Reading(contradiction="no tokens for the texts")
    return Reading(billed={"input_mtok": count}, tokens={"input_tokens": count})


# Bills that providers and gateways state.


def stated(body: Json) -> Decimal | None:
    """US dollars: OpenRouter's `cost`, and the upstream's with a key of one's own; xAI's ticks; gateways'."""
    usage = body.get("usage") or body.get("usageMetadata") or {}
    for gateway, name in (("logfire_ai_gateway", "cost"), ("pydantic_ai_gateway", "cost_estimate")):
        if (told := (usage.get(gateway) or {}).get(name)) is not None:
            return Decimal(str(told))
    if (ticks := usage.get("cost_in_usd_ticks")) is not None:
        return Decimal(ticks).scaleb(-10)
    if (cost := usage.get("cost")) is None:
        return None
    own_key = (
        (usage.get("cost_details") or {}).get("upstream_inference_cost") if usage.get("is_byok") else None
    )
    return _EXACT.add(Decimal(str(cost)), Decimal(str(own_key or 0)))


# Prices, out of the data of genai-prices.


@dataclass(frozen=True)
class Priced:
    """The price list of a model."""

    name: str
    prices: Mapping[str, Any]

    def of(self, unit: str, whole_input: int) -> Decimal | None:
        """US dollars for a million tokens, or a thousand other things; without a price, that of the whole."""
        for key in _FALLBACKS.get(unit, (unit,)):
            price = self.prices.get(key)
            if price is None:
                continue
            if isinstance(price, Decimal):
                return price
            steps = [tier.price for tier in price.tiers if whole_input > tier.start]
            return steps[-1] if steps else price.base
        return None


_FALLBACKS: Final = {
    "cache_read_mtok": ("cache_read_mtok", "input_mtok"),
    "cache_write_mtok": ("cache_write_5m_mtok", "cache_write_mtok", "input_mtok"),
    "cache_write_1h_mtok": ("cache_write_1h_mtok",),
    "cache_audio_read_mtok": ("cache_audio_read_mtok",),
}
_NAMES: Final = {
    "input_audio_mtok": "input_audio_tokens",
    "output_audio_mtok": "output_audio_tokens",
    "cache_audio_read_mtok": "cache_audio_read_tokens",
    "cache_write_1h_mtok": "cache_write_1h_tokens",
    "web_searches_kcount": "web_searches",
}


def price_list(provider: str, model: str, context: Mapping[str, str], at: datetime) -> Priced | None:
    """The prices of a model of a provider at a time; `None` if there is none, or it lists nothing."""
    for candidate in _with_fallbacks(provider):
        for info in candidate.models:
            if not _matches(info.match, model.lower()):
                continue
            prices = dict(_at(info.prices, at))
            if candidate.id == provider:
                for variant in reversed(info.price_variants or []):
                    if _active(variant.constraint, at) and variant.when.items() <= context.items():
                        prices |= vars(variant.prices)
            prices = {key: value for key, value in prices.items() if value is not None}
            if not prices and not model.endswith(":free"):
                return (
                    None  # an entry that is kept for its name: its price is no longer known, it is not free
                )
            return Priced(f"{candidate.id}/{info.id}", prices)
    return None


def _with_fallbacks(provider: str) -> Iterator[Any]:
    by_id = {entry.id: entry for entry in data.providers}
    if provider in by_id:
        yield by_id[provider]
        for other in by_id[provider].fallback_model_providers or []:
            yield by_id[other]


def _at(prices: Any, at: datetime) -> Mapping[str, Any]:
    if not isinstance(prices, list):
        return vars(prices)
    active = [entry for entry in prices if _active(entry.constraint, at)]
    return vars((active or prices[:1])[-1].prices)


def _active(constraint: Any, at: datetime) -> bool:
    if constraint is None:
        return True
    if hasattr(constraint, "start_date"):
        return bool(at.date() >= constraint.start_date)
    begin, end, now = constraint.start_time, constraint.end_time, at.timetz()
    return bool(begin <= now < end if begin <= end else now >= begin or now < end)


def _matches(clause: Any, model: str) -> bool:
    match next(iter(vars(clause).items())):
        case "equals", text:
            return model == text.lower()
        case "starts_with", text:
            return model.startswith(text.lower())
        case "ends_with", text:
            return model.endswith(text.lower())
        case "contains", text:
            return text.lower() in model
        case "regex", text:
            return re.search(text, model) is not None
        case "or_", clauses:
            return any(_matches(each, model) for each in clauses)
        case "and_", clauses:
            return all(_matches(each, model) for each in clauses)
        case unknown:
            raise AssertionError(unknown)


# Who answered, in which format.

Format = Callable[[Json], Reading]
_PRICED_AS: Final = {
    "api.anthropic.com": "anthropic",
    "api.cerebras.ai": "cerebras",
    "api.cohere.com": "cohere",
    "api.deepseek.com": "deepseek",
    "api.groq.com": "groq",
    "api.mistral.ai": "mistral",
    "api.openai.com": "openai",
    "api.voyageai.com": "voyageai",
    "api.z.ai": "zai",
    "openrouter.ai": "openrouter",
    "resource.openai.azure.com": "azure",
    "router.huggingface.co/nebius": "huggingface_nebius",
    "router.huggingface.co/together": "huggingface_together",
    "localhost/anthropic": "anthropic",
    "localhost/bedrock": "aws",
    "localhost/google-vertex": "google",
    "localhost/groq": "groq",
    "localhost/openai": "openai",
}
_FORMATS: Final[list[tuple[str, str, Format]]] = [
    (r"embed", "embedding", embeddings),
    (r"/cachedContents$", "cache", google_cache),
    (r":generateContent$", "request", gemini),
    (r"/converse$", "request", converse),
    (r"/v1/messages$|/invoke$", "request", anthropic),
    (r"/v2/chat$", "request", cohere),
    (r"/chat/completions$", "request", openai_chat),
    (r"/responses/compact$", "compaction", openai_responses),
    (r"/responses/resp_\w+$", "background", openai_responses),
    (r"/responses$", "request", openai_responses),
]
_USUAL_TIERS: Final = {None, "", "default", "auto", "standard", "on_demand"}
_DROPS_GATEWAY_COST: Final = {"aws": "boto3", "google": "google-genai"}


def provider_of(host: str, path: str) -> str | None:
    """Whose price list counts, as genai-prices names it."""
    if "bedrock" in host:
        return "aws"
    if host.endswith("googleapis.com"):
        return "google"
    return _PRICED_AS.get(host) or _PRICED_AS.get(f"{host}/{path.split('/')[1]}")


def asked_model(answer: Json) -> str | None:
    """The model that the request was for: in its body, or in its path."""
    if model := answer["request"].get("model"):
        return str(model)
    found = re.search(r"/models?/(.+?)(?::\w*[cC]ontents?|/converse|/invoke)?$", unquote(answer["path"]))
    return found[1] if found else None


def answering_model(answer: Json) -> str | None:
    """The model that answered; where the body does not say, the one that was asked."""
    told = answer["response"].get("model") or answer["response"].get("modelVersion")
    if isinstance(told, str):
        return told.removeprefix("models/")  # Google's resource names
    return asked_model(answer)


# The expectations.


def expectation(answer: Json, at: datetime = AT) -> dict[str, Any]:
    """What the account must say of one answer."""
    kind, read = next((kind, read) for form, kind, read in _FORMATS if re.search(form, answer["path"]))
    entry: dict[str, Any] = {"source": answer["source"], "kind": kind}
    reading = read(answer["response"])
    reading.stated = stated(answer["response"])
    provider, model = provider_of(answer["host"], answer["path"]), answering_model(answer)
    _explain(reading, answer, kind, provider)
    tokens = {name: count for name, count in reading.tokens.items() if count}
    entry |= {"requests": 0 if kind in ("embedding", "cache") else 1, "tokens": tokens}
    if reading.contradiction and reading.stated is None:
        return entry | _unmeasured(reading)
    prices = None if provider is None or model is None else _prices(provider, model, answer, at)
    advice = [(billed, _prices(provider or "", advisor, answer, at)) for advisor, billed in reading.advice]
    return entry | _settled(reading, prices, provider, model, advice)


def _prices(provider: str, model: str, answer: Json, at: datetime) -> Priced | None:
    tier = answer["response"].get("service_tier")
    context = {"service_tier": tier} if tier else {}
    return price_list(provider, model, context, at)


def _unmeasured(reading: Reading) -> dict[str, Any]:
    return {
        "outcome": "unmeasured",
        "cost_usd": None,
        "cost_source": "unknown",
        "complete": False,
        "unpriced_units": [],
        "why": " ".join([f"The usage cannot be charged: {reading.contradiction}.", *reading.why]),
    }


def _settled(
    reading: Reading,
    prices: Priced | None,
    provider: str | None,
    model: str | None,
    advice: list[tuple[dict[str, int], Priced | None]],
) -> dict[str, Any]:
    if reading.stated is not None:
        return {
            "outcome": "settled",
            "cost_usd": format(reading.stated, "f"),
            "cost_source": "stated",
            "complete": True,
            "unpriced_units": [],
            "why": " ".join(["The bill is stated.", *reading.why]),
        }
    if prices is None:
        return {
            "outcome": "settled",
            "cost_usd": None,
            "cost_source": "unknown",
            "complete": False,
            "unpriced_units": [],
            "why": " ".join(
                [f"No price is known for {model} of {provider or 'this provider'}.", *reading.why]
            ),
        }
    cost, sums, unpriced = Decimal(0), [], list(reading.unpriced)
    bills = [(reading.billed, prices, reading.tokens["input_tokens"])]
    for billed, listed in advice:
        assert listed is not None, "an advisor is a model with a list price"
        bills.append((billed, listed, billed["input_mtok"] + billed["cache_read_mtok"]))
    for billed, listed, whole_input in bills:
        for unit, count in billed.items():
            if not count:
                continue
            price = Decimal(0) if not listed.prices else listed.of(unit, whole_input)
            if price is None:
                unpriced.append(_NAMES[unit])
                continue
            per = 3 if unit.endswith("_kcount") else 6
            cost = _EXACT.add(cost, _EXACT.multiply(price, Decimal(count)).scaleb(-per, _EXACT))
            sums.append(f"{count} {unit} × {price}")
    return {
        "outcome": "settled",
        "cost_usd": format(cost.normalize(_EXACT), "f"),
        "cost_source": "priced",
        "complete": not unpriced,
        "unpriced_units": unpriced,
        "prices": prices.name,
        "sum": " + ".join(sums),
        **({"why": " ".join(reading.why)} if reading.why else {}),
    }


def _explain(reading: Reading, answer: Json, kind: str, provider: str | None) -> None:
    """What the body alone does not say, or what is not obvious: found by reading the answers."""
    body, path, host = answer["response"], unquote(answer["path"]), answer["host"]
    asked, told = asked_model(answer), body.get("model") or body.get("modelVersion")
    why = reading.why
    if kind == "embedding":
        why.append("No request of an agent: Metered().embedding_model(...) charges it, like other spending.")
    if kind == "embedding" and host == "generativelanguage.googleapis.com":
        reading.contradiction = "PydanticAI drops the usage of embeddings of the Gemini API"
        reading.tokens = {}
    if kind == "cache":
        why.append(
            "No model of PydanticAI makes a cache. The user makes it with Google's own client, inside of "
            "spend. Google bills it as long as it lives, and neither the answer nor genai-prices has a price "
            "for that."
        )
    if kind == "compaction":
        why.append("OpenAICompaction sends it; the answer does not name the model, so it is the one asked.")
    if kind == "background":
        why.append("The polls of one background request are that request, with the usage of its last answer.")
    if reading.contradiction and reading.stated is not None:
        why.append("What Gemini wrote to its cache and read from it counts twice; the bill leaves no doubt.")
    if host == "localhost" and provider in _DROPS_GATEWAY_COST and reading.stated is not None:
        why.append(
            f"{_DROPS_GATEWAY_COST[provider]} drops the gateway's cost from the body: no program sees it."
        )
        reading.stated = None
    if "search-preview" in (asked or ""):
        reading.unpriced.append("web_searches")
        why.append("Each request to a search model costs a search, for which no price is listed.")
    if (body.get("performanceConfig") or {}).get("latency") == "optimized":
        reading.unpriced.append("latency=optimized")
        why.append("Latency-optimized inference has rates of its own, which are not listed.")
    if re.match(r"([a-z]+-[a-z]+\d)-aiplatform", host):
        why.append("Regions of Vertex cost more for Gemini 3 and later alone.")
    if "/openai/deployments/" in path or host.endswith("azure.com"):
        reading.unpriced.append(f"regional pricing of {host}")
        why.append("Data zones cost more than global deployments, and the answer does not tell which it was.")
    if host == "bedrock-runtime.us-east-2.amazonaws.com":
        reading.unpriced.append(f"regional pricing of {host}")
        why.append("Bedrock's prices differ by region, and those of us-east-1 are listed.")
    if told == "models/gemini-2.5-pro":
        why.append("models/ is Google's form of a name, not another model.")
    elif isinstance(told, str) and asked and not told.startswith(asked) and provider is not None:
        why.append(f"{asked} was asked, {told} answered, and counts.")
    if body.get("status") == "complete":
        why.append(
            "The whole body is there, with its usage, though its status is not one that OpenAI documents."
        )
    finish = [choice.get("finish_reason") for choice in body.get("choices") or []]
    if finish == [""]:
        why.append("Snowflake gives an empty finish reason; the body and its usage are whole.")
    if body.get("promptFeedback"):
        why.append("The prompt was blocked, and nothing says what that costs.")
    if provider == "aws" and reading.billed.get("cache_write_mtok") and "nova" in path:
        why.append("No price for cache writes is listed: they cost what other input costs.")
    if _count(body.get("usage") or {}, "num_cached_tokens"):
        why.append("No price for cached input is listed: it costs what other input costs.")


def answers() -> list[dict[str, Any]]:
    """The recorded answers, in their order."""
    return [json.loads(line) for line in ANSWERS.read_text().splitlines()]


def expectations() -> list[dict[str, Any]]:
    """The reviewed expectations, in the order of the answers."""
    return [json.loads(line) for line in EXPECTED.read_text().splitlines()]


if __name__ == "__main__":
    lines = [json.dumps(expectation(answer), ensure_ascii=False) for answer in answers()]
    EXPECTED.write_text("\n".join(lines) + "\n")
