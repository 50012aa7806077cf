"""How much more is set aside for requests than they cost, and what it takes to tell.

The traffic is `support.traffic`. Its input is counted as OpenAI's cookbook does, which leaves out what
OpenAI adds to tools, and nothing is read from a cache. Claude has no public tokenizer: it is taken to have
1.2 times the tokens, and the prompt for tools that Anthropic documents.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from decimal import Decimal

from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse, UserPromptPart
from pydantic_ai.models import Model, ModelRequestParameters
from pydantic_ai.usage import RequestUsage
from support.bodies import chat_model, claude_model, responses_model
from support.traffic import KINDS, Exchange, openai_input_tokens, traffic

from benchmarks.measure import Row, medians
from benchmarks.startup import run_python
from fastroai.usage import CostCalculator, RequestBound, request_bound
from fastroai.usage.bounding import tokenizers
from fastroai.usage.bounding.bounds import prepare_bound

CALCULATOR = CostCalculator()
AIM = 1.6
CLAUDE_TOKENS, CLAUDE_TOOLS = 1.2, 346
"""Of Claude Sonnet 4.5: https://platform.claude.com/docs/en/agents-and-tools/tool-use/overview#pricing"""


@contextmanager
def no_tokenizer() -> Iterator[None]:
    load = tokenizers._load
    tokenizers._load = lambda name: None  # type: ignore[assignment]
    try:
        yield
    finally:
        tokenizers._load = load


def bound(model: Model, exchange: Exchange, tier: str | None = "default") -> RequestBound:
    settings = {"max_tokens": exchange.max_tokens, "service_tier": tier}
    messages = model.prepare_messages(exchange.messages, exchange.parameters)
    return request_bound(CALCULATOR, model, messages, settings, exchange.parameters)  # type: ignore[arg-type]


def spent(model: Model, input_tokens: int, output_tokens: int) -> Decimal:
    response = ModelResponse(
        parts=[],
        usage=RequestUsage(input_tokens=input_tokens, output_tokens=output_tokens),
        model_name=model.model_name,
        provider_name=model.system,
        provider_url=model.base_url,
    )
    return CALCULATOR.price(response) or Decimal("NaN")


def ratios(
    model: Model, exchanges: Sequence[Exchange], sizes: Sequence[int], tier: str | None = "default"
) -> Mapping[str, float]:
    """Reserved ÷ spent of each kind, and of "all"."""
    totals = {kind: [Decimal(0), Decimal(0)] for kind in (*KINDS, "all")}
    for exchange, size in zip(exchanges, sizes, strict=True):
        most = bound(model, exchange, tier)
        if most.cost_usd is None or most.input_tokens is None or most.input_tokens < size:
            raise RuntimeError(f"the bound does not hold: {most} of {size} tokens in {exchange}")
        for kind in (exchange.kind, "all"):
            totals[kind][0] += most.cost_usd
            totals[kind][1] += spent(model, size, exchange.output_tokens)
    return {kind: float(reserved / used) for kind, (reserved, used) in totals.items()}


async def reserved_over_spent() -> AsyncIterator[Row]:
    tokenizers.tokenizer_of("gpt-5-mini")  # loaded
    exchanges = traffic(runs=40)
    for model in (chat_model("gpt-4.1-mini"), responses_model("gpt-5-mini")):
        sizes = [await openai_input_tokens(model, exchange) for exchange in exchanges]
        found = ratios(model, exchanges, sizes)
        yield _row(f"reserved ÷ spent, {model.model_name}, with a tokenizer", found["all"], aim=True)
        for kind in KINDS:
            yield _row(f"  … {kind}", found[kind])
        yield _row("  … no service tier given", ratios(model, exchanges, sizes, None)["all"])
        with no_tokenizer():
            yield _row("  … without the tokenizer", ratios(model, exchanges, sizes)["all"])
    claude = claude_model()
    sizes = [_of_claude(exchange, size) for exchange, size in zip(exchanges, sizes, strict=True)]
    yield _row(f"reserved ÷ spent, {claude.model_name}", ratios(claude, exchanges, sizes)["all"])


def _of_claude(exchange: Exchange, size: int) -> int:
    parameters = exchange.parameters
    has_tools = bool(parameters.function_tools or parameters.output_tools)
    return int(size * CLAUDE_TOKENS) + CLAUDE_TOOLS * has_tools


def _row(what: str, ratio: float, aim: bool = False) -> Row:
    return Row(what, "", "", ratio, f"≤ {AIM}" if aim else "", ratio <= AIM if aim else None)


async def time_of_bounds() -> AsyncIterator[Row]:
    tokenizers.tokenizer_of("gpt-5-mini")  # loaded
    exchanges = traffic()
    loops = [exchange for exchange in exchanges if exchange.kind == "tool loops"]
    loop = max(loops, key=lambda exchange: len(exchange.messages))
    short = next(exchange for exchange in exchanges if exchange.kind == "short chats")
    text = "".join(str(exchange.messages) for exchange in exchanges)
    gpt, claude = responses_model(), claude_model()
    fresh = iter(range(10**9))

    async def known(model: Model, exchange: Exchange) -> None:
        for _ in range(20):
            bound(model, exchange)

    async def bare(exchange: Exchange) -> None:
        for _ in range(20):
            gpt.prepare_messages(exchange.messages, exchange.parameters)
            gpt.prepare_request({"max_tokens": exchange.max_tokens}, exchange.parameters)

    async def new_text(letters: int) -> None:
        bound(gpt, Exchange("RAG", _prompt(f"{next(fresh)}{text[:letters]}"), 100, 100))

    async def long_text() -> None:
        await prepare_bound(
            CALCULATOR, gpt, _prompt(f"{next(fresh)}{text[:500_000]}"), ModelRequestParameters()
        )

    took = await medians(
        {
            "short": lambda: known(gpt, short),
            "short, bare": lambda: bare(short),
            "loop": lambda: known(gpt, loop),
            "loop, bare": lambda: bare(loop),
            "Claude": lambda: known(claude, loop),
            "new": lambda: new_text(2_000),
            "new and long": lambda: new_text(60_000),
            "in a thread": long_text,
        },
        rounds=20,
    )
    of_loop = f"{len(loop.messages)} messages with {len(loop.parameters.function_tools)} tools"
    yield _time(
        "bound of a short chat; bare: PydanticAI's own part", took["short"] / 20, took["short, bare"] / 20
    )
    yield _time(f"bound of {of_loop}, seen before", took["loop"] / 20, took["loop, bare"] / 20)
    yield _time("  … of Claude, in bytes", took["Claude"] / 20)
    yield _time("bound of a new text of 2,000 letters", took["new"])
    yield _time("  … of 60,000 letters", took["new and long"])
    yield _time("tokens of 500,000 letters, in a thread", took["in a thread"])
    yield _time("loading a tokenizer, once, in a thread", await _loading())


def _prompt(text: str) -> list[ModelMessage]:
    return [ModelRequest(parts=[UserPromptPart(text)])]


def _time(what: str, seconds: float, bare: float | None = None) -> Row:
    return Row(what, _shown(seconds), "" if bare is None else _shown(bare))


def _shown(seconds: float) -> str:
    return f"{seconds * 1e6:.0f} µs" if seconds < 0.01 else f"{seconds * 1e3:.0f} ms"


async def _loading() -> float:
    start = "from fastroai.usage.bounding.tokenizers import tokenizer_of"
    took = await medians(
        {
            "without": lambda: run_python(start),
            "with": lambda: run_python(f"{start}; tokenizer_of('gpt-4o')"),
        },
        rounds=3,
        warm_up=1,
    )
    return took["with"] - took["without"]


BENCHMARKS = (reserved_over_spent, time_of_bounds)
