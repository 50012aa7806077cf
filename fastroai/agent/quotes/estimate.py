"""The cost of an agent call, estimated before it is made: `FastroAgent.estimate`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

from fastroai.agent.models import leaves, retries_of
from fastroai.agent.quotes.probe import FirstRequest, first_request
from fastroai.agent.requests.candidate import Candidate, own_wrappers
from fastroai.errors import ScopeClosedError
from fastroai.records import EXACT, exact_sum
from fastroai.steps.estimating import budgets_around, nothing_paid
from fastroai.usage import Quote, format_cost
from fastroai.usage.limits import NO_LIMITS, together

if TYPE_CHECKING:
    from fastroai.agent.dispatch import Dispatcher
    from fastroai.agent.quotes.learned import UsualCall
    from fastroai.calls.call import AgentCall

ASSUMED_OUTPUT_TOKENS: Final = 500
"""Tokens assumed for an answer while no call of the agent is known; less if `max_tokens` is less."""
ASSUMED_PROMPT_TOKENS: Final = 1_000
"""Tokens assumed for a prompt that is not known, while no call of the agent is known."""

_ZERO: Final = Decimal(0)


async def estimate_call(
    dispatcher: Dispatcher[Any, Any], call: AgentCall, unknown_prompt: str | None = None
) -> Quote:
    """Estimate one attempt at a call; for any prompt, if `unknown_prompt` says why it is not known."""
    if unknown_prompt is not None:
        call = replace(call, prompt="?")
    limits = together(call.limits, dispatcher.limits)
    async with nothing_paid(limits):
        try:
            first = await first_request(dispatcher.agent, call, dispatcher.arguments(call))
        except ScopeClosedError:
            first = "code that prepares its first request calls a model"
        if isinstance(first, str):
            quote = Quote.unknown(first, name=dispatcher.name)
        else:
            quote = (await _plan(dispatcher, call, first, unknown_prompt)).quote(dispatcher)
    return quote.within(*(limits or NO_LIMITS).budgets)


async def _plan(
    dispatcher: Dispatcher[Any, Any], call: AgentCall, first: FirstRequest, unknown_prompt: str | None
) -> _Plan:
    calculator = dispatcher.meter.calculator
    asked = leaves(first.model)
    cheaper = [
        model
        for budget in budgets_around()
        if budget.fallback is not None
        for model in leaves(dispatcher.meter.fallback_model(budget.fallback))
    ]
    retries = dispatcher.config.request_retries if call.request_retries is None else call.request_retries
    return _Plan(
        first=first,
        asked=[await Candidate.of(model, first, calculator, prepare=len(asked) > 1) for model in asked],
        cheaper=[await Candidate.of(model, first, calculator) for model in cheaper],
        attempts=1 + max(retries_of(model, first.settings, retries) for model in (*asked, *cheaper)),
        unknown_prompt=unknown_prompt,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Plan:
    """All requests that a call may send."""

    first: FirstRequest
    asked: list[Candidate]
    """The models that a request goes to, one after the other until one answers."""
    cheaper: list[Candidate]
    """The models that budgets may step down to instead."""
    attempts: int
    """The most attempts at one request."""
    unknown_prompt: str | None

    def quote(self, dispatcher: Dispatcher[Any, Any]) -> Quote:
        lower, lower_reason = self._lower()
        upper, upper_reasons = self._upper()
        expected, expected_reasons = self._expected(dispatcher.learned.usual(self.asked[0].name))
        if upper is not None:
            lower, expected = min(lower, upper), min(expected, upper)
        return Quote(
            name=dispatcher.name,
            lower_usd=lower,
            expected_usd=max(lower, expected),
            upper_usd=upper,
            lower_reasons=(lower_reason,),
            expected_reasons=tuple(expected_reasons),
            upper_reasons=tuple(upper_reasons),
        )

    # --- at least ---

    def _lower(self) -> tuple[Decimal, str]:
        """Return the cost of one request to the cheapest candidate, with cached input and a short answer."""
        costs = []
        for candidate in (*self.asked, *self.cheaper):
            least = candidate.tokens.least if self._is_sent_whole else 1
            costs.append((candidate.least_usd(least), least, candidate))
            if not candidate.priced:
                return _ZERO, candidate.why_unpriced
        usd, least, cheapest = min(costs, key=lambda cost: cost[0])
        tokens = f"{least:,} input and {self.first.shortest_answer} output tokens"
        return usd, f"1 request to {cheapest.name} of no less than {tokens}, at its lowest prices"

    @property
    def _is_sent_whole(self) -> bool:
        return self.unknown_prompt is None and "openai_truncation" not in (self.first.settings or {})

    # --- at most ---

    def _upper(self) -> tuple[Decimal | None, list[str]]:
        """Return the cost of every attempt at every request that there can be, each at its bound."""
        reasons = list(self._unbounded())
        if reasons:
            return None, reasons
        total = self._most(self._first_usd)
        reasons = [self._about_first(candidate) for candidate in self.asked]
        if len(self.asked) > 1:
            reasons.append("each candidate of the fallback model may be billed")
        if self.attempts > 1:
            attempts = (
                f"up to {self.attempts} attempts at each request, as request_retries={self.attempts - 1}"
            )
            reasons.append(f"{attempts}: one that fails late may be billed")
        if (more := (self.first.most_answers or 1) - 1) > 0:
            each = self._most(lambda candidate: candidate.full_window_usd)
            total = EXACT.add(total, EXACT.multiply(more, each))
            cost = f"{format_cost(each)} each, as its input may have grown to the whole context window"
            reasons.append(f"{more} more, {self.first.why_more}: {cost}")
        return total, reasons

    def _unbounded(self) -> Iterator[str]:
        """Yield the reasons why nothing bounds the call; none if it is bounded."""
        first, repeats = self.first, self.first.most_answers != 1
        if first.code:
            yield f"{' and '.join(first.code)}: code of your own, which may call models"
        for name in own_wrappers(first.model):
            yield f"model wrapper {name}: code of your own, which may send any number of requests"
        if first.most_answers is None:
            yield f"{first.why_more}: without end, as request_limit=None"
        if repeats and first.settings_vary:
            yield "its model settings are a function, which may let later answers be longer"
        for candidate in (*self.asked, *self.cheaper):
            if candidate.bound.cost_usd is None:
                yield candidate.why_unbounded
            elif candidate.full_window_usd is None and (repeats or self.unknown_prompt is not None):
                yield f"the input of {candidate.name} has no known limit: its context window is unknown"

    def _first_usd(self, candidate: Candidate) -> Decimal | None:
        return candidate.bound.cost_usd if self.unknown_prompt is None else candidate.full_window_usd

    def _most(self, cost: Callable[[Candidate], Decimal | None]) -> Decimal:
        """Return the most that all attempts at one request cost, at every candidate or its cheaper models."""
        cheaper = exact_sum(cost(candidate) or _ZERO for candidate in self.cheaper)
        once = exact_sum(max(cost(candidate) or _ZERO, cheaper) for candidate in self.asked)
        return EXACT.multiply(self.attempts, once)

    def _about_first(self, candidate: Candidate) -> str:
        usd = self._first_usd(candidate) or _ZERO
        if not usd:
            return f"{candidate.name} is free"
        request, cost, bound = f"1 request to {candidate.name}", format_cost(usd), candidate.bound
        if self.unknown_prompt is not None:
            return f"{request} that fills its context window, as {self.unknown_prompt}: {cost}"
        tokens = f"{bound.input_tokens or 0:,} input and {bound.output_tokens or 0:,} output tokens"
        limit = "" if "max_tokens" in (self.first.settings or {}) else "; max_tokens makes it less"
        return f"{request} of at most {tokens}: {cost}{limit}"

    # --- expected ---

    def _expected(self, usual: UsualCall | None) -> tuple[Decimal, list[str]]:
        candidate = self.asked[0]
        if not candidate.priced:
            return _ZERO, [f"counted as $0.00: {candidate.why_unpriced}"]
        return self._as_assumed(candidate) if usual is None else self._as_usual(candidate, usual)

    def _as_usual(self, candidate: Candidate, usual: UsualCall) -> tuple[Decimal, list[str]]:
        """Return the mean cost of the last calls, corrected for the input of this one."""
        last = "last call" if usual.calls == 1 else f"mean of the last {usual.calls} calls"
        tokens = (
            f"{usual.requests:.3g} x {usual.input_tokens:,} input and {usual.output_tokens:,} output tokens"
        )
        reason = f"the {last}: {tokens}, {format_cost(usual.cost_usd)}"
        if self.unknown_prompt is not None:
            return usual.cost_usd, [reason]
        likely = candidate.tokens.likely
        more = EXACT.subtract(candidate.usd(likely, 0), candidate.usd(usual.input_tokens, 0))
        input_now = f"with an input of about {likely:,} tokens instead"
        cost = EXACT.add(usual.cost_usd, EXACT.multiply(usual.requests, more))
        return max(_ZERO, cost), [reason, *([input_now] if more else [])]

    def _as_assumed(self, candidate: Candidate) -> tuple[Decimal, list[str]]:
        """Return the cost of a short answer, after one round of tools if there are any."""
        input_tokens = candidate.tokens.likely + (0 if self.unknown_prompt is None else ASSUMED_PROMPT_TOKENS)
        answer = min(ASSUMED_OUTPUT_TOKENS, candidate.bound.output_tokens or ASSUMED_OUTPUT_TOKENS)
        cost, requests = candidate.usd(input_tokens, answer), "1 request"
        if self.first.parameters.function_tools:
            cost = EXACT.add(cost, candidate.usd(input_tokens + answer, answer))
            requests = "2 requests, as it has tools,"
        tokens = f"about {input_tokens:,} input and {answer:,} output tokens"
        return cost, [f"{requests} of {tokens}: an assumption, as no call has been answered yet"]
