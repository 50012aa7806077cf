"""What makes a refused request as large as it is, and what to do about exactly that."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from decimal import ROUND_CEILING, Decimal
from typing import TYPE_CHECKING, Final

from fastroai.errors import BudgetExceeded, CostBudgetExceeded, RequestCause
from fastroai.records import EXACT, exact_sum, ratio, usd_to_microcents
from fastroai.runtime.budgets.terms import RequestTerms

if TYPE_CHECKING:
    from fastroai.usage import RequestBound
    from fastroai.usage.bounding.input_parts import AddedBy, InputPart


def explain(refusal: BudgetExceeded, terms: RequestTerms) -> None:
    """Note in a refusal what makes the request large, by share, and the least that it could have used."""
    if refusal.stopped != "request" or refusal.requested is None or refusal.causes:
        return
    parts = terms.input_parts
    if not parts:
        return
    bound, in_money = terms.bound, isinstance(refusal, CostBudgetExceeded)
    # A budget lowers the answer by itself, so it is a cause only as far as it cannot be lowered.
    answer = bound.output_tokens if bound.least_output_tokens is None else bound.least_output_tokens
    weighed = list(_weighed(bound, parts, answer or 0, in_money=in_money))
    total = exact_sum(weight for weight, _ in weighed)
    if not total:
        return
    causes = [cause._replace(share=float(ratio(weight, total))) for weight, cause in weighed]
    refusal.causes = tuple(sorted(causes, key=lambda cause: -cause.share))
    shortest = bound if bound.least_output_tokens is None else bound.shortened(bound.least_output_tokens)
    if in_money:
        refusal.at_least = (
            None if shortest.cost_usd is None else usd_to_microcents(shortest.cost_usd, ROUND_CEILING)
        )
    else:
        refusal.at_least = shortest.tokens


def _weighed(
    bound: RequestBound, parts: Sequence[InputPart], answer: int, *, in_money: bool
) -> Iterator[tuple[Decimal, RequestCause]]:
    """Yield the causes with their weights: tokens, or US dollars for a million of them."""
    prices = bound.prices if in_money else None
    per_input = Decimal(1) if prices is None else prices.input_per_mtok
    per_output = Decimal(1) if prices is None else prices.output_per_mtok
    known = sum(part.tokens or 0 for part in parts)
    rest = max((bound.input_tokens or 0) - known, 0)
    for part in parts:
        tokens = rest if part.tokens is None else part.tokens
        kind = part.kind if part.added_by is None else "added"
        if tokens:
            yield EXACT.multiply(tokens, per_input), RequestCause(kind, 0.0, *_named(part))
        rest = 0 if part.tokens is None else rest
    yield EXACT.multiply(answer, per_output), RequestCause("answer", 0.0, *_ANSWER)


_ADDED: Final[Mapping[AddedBy, tuple[str, str]]] = {
    "PydanticAI": (
        "what PydanticAI adds to it",
        "have it add less (framing_announcement='never' in the model's settings)",
    ),
    "SDK": ("what PydanticAI or the SDK adds to it", ""),
    "unseen client": (
        "what may be added to it out of sight",
        "send it by a client whose requests can be seen",
    ),
    "untested version": (
        "what this untested version of PydanticAI may add to it",
        "install a tested version",
    ),
    "host": ("what its host may add to it", "say what the host is (CostCalculator(endpoints=...))"),
    "provider": ("what the provider adds to it", ""),
}
_ANSWER: Final = ("the answer", "set a lower max_tokens, or let the model think less")


def _named(part: InputPart) -> tuple[str, str]:
    """Return the name of a part of the input, and what to do about it."""
    if part.added_by is not None:
        what, advice = _ADDED[part.added_by]
        return f"{what} (in {', '.join(part.places)})" if part.places else what, advice
    number, pages = part.number, part.pages
    if part.kind == "pdf":
        size = "" if pages is None else f" ({pages:,} {'page' if pages == 1 else 'pages'})"
        what = f"the PDF{size}" if number == 1 else f"{number} PDFs{size}"
        if part.by_url:
            return f"{what}, whose size is not known behind its URL", _AS_BINARY
        return what, "send fewer of its pages, or only its text"
    if part.kind in ("image", "file"):
        what = f"the {part.kind}" if number == 1 else f"{number} {part.kind}s"
        if part.by_url:
            return f"{what}, whose size is not known behind its URL", _AS_BINARY
        return what, "send a smaller image" if part.kind == "image" else "send its text"
    if part.kind == "tools":
        if not number:
            return "the definition of the output type", "give it fewer fields, or describe them more briefly"
        what = "the tool" if number == 1 else f"the {number} tools"
        return f"the definition of {what}", "offer fewer tools, or describe them more briefly"
    return _TEXTS[part.kind]


_AS_BINARY: Final = "pass the file itself, as BinaryContent"
_TEXTS: Final = {
    "history": ("the message history", "send less of the message history"),
    "instructions": ("the instructions", "shorten the instructions"),
    "prompt": ("the prompt", "shorten the prompt"),
    "results": ("the results of tools", "let the tools return less"),
    "searches": ("what the provider's searches may find", "search with a tool of your own"),
}
