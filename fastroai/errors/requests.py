"""Requests that are refused, that break off, or that belong to no run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from fastroai.errors.base import FastroAIError

if TYPE_CHECKING:
    from pydantic_ai.messages import ModelResponse


class AnswerCutError(FastroAIError):
    """An answer broke off: its stream ended without the finish reason that the provider gives.

    `run` raises it if its events are watched, for example by an `event_stream_handler`: only then does it
    stream. A stream that you read yourself ends as usual, and `stream.response.is_cut` is true.

    `usage` has the cost of the answer, at its bound if the provider did not report it.

    What to do: Ask again. The partial answer is on the error, as `partial_response`.
    """

    retryable = True

    def __init__(self, model: str, provider: str) -> None:
        super().__init__(model, provider)
        self.model, self.provider = model, provider
        self.partial_response: ModelResponse | None = None
        """The part of the answer that arrived."""

    def __str__(self) -> str:
        return (
            f"the answer of {self.provider}:{self.model} is incomplete: its stream ended without a finish "
            "reason. The part that arrived is in error.partial_response"
        )


class DispatchSkippedError(FastroAIError):
    """Raised by a hook to say that an agent call must not be made: it fails at once and is not retried.

    What to do: Look at the hook that raised it: the call is made only when the hook allows it.
    """

    def __init__(self, reason: str = "") -> None:
        super().__init__(reason)
        self.reason = reason

    def __str__(self) -> str:
        return f"agent call skipped: {self.reason}" if self.reason else "agent call skipped"


class CircuitOpenError(FastroAIError):
    """A circuit breaker is open: the provider has failed too often, and the request was not sent.

    The error that is raised is also a PydanticAI `ModelAPIError`, so a `FallbackModel` moves on to its next
    candidate.

    What to do: Try again after `retry_after` seconds (`None` while a request tests whether the provider is
    well), or give the agent a fallback model.
    """

    retryable = True

    def __init__(
        self, provider: str, opens_in: float, last_failure: str = "", agent: str | None = None
    ) -> None:
        # Not super(): the error that is raised is a ModelAPIError as well, which takes other arguments.
        Exception.__init__(self, provider, opens_in, last_failure, agent)
        self.provider = provider
        self.opens_in = opens_in
        """Seconds until a request may test whether the provider is well; 0 while one is testing it."""
        self.last_failure = last_failure
        self.agent = agent
        """The agent that has the breaker; `None` for the breaker of a `ProviderLimit`."""
        self.retry_after: float | None = opens_in or None

    def __str__(self) -> str:
        whose = f" of agent {self.agent!r}" if self.agent is not None else ""
        when = f"the next try is in {self.opens_in:.1f} s" if self.opens_in else "a test request is running"
        last = f"; the last failure: {self.last_failure}" if self.last_failure else ""
        return (
            f"no request was sent to {self.provider!r}: it keeps failing, so the circuit breaker{whose} is "
            f"open; {when}{last}. Retry later, or put another model behind this one in a FallbackModel"
        )


class UnpricedModelError(FastroAIError):
    """No price is known for a model where one is needed, as under a budget of money.

    What to do: Add a price with `CostCalculator(pricing_overrides=...)`, or set `on_unpriced="allow"` on the
    budget.
    """

    def __init__(
        self,
        model: str,
        provider: str,
        needed_for: Literal["request", "spend", "record", "price"] = "request",
        near: str | None = None,
        override: str | None = None,
    ) -> None:
        super().__init__(model, provider, needed_for, near, override)
        self.model, self.provider = model, provider
        self.needed_for = needed_for
        """The use of the price: a request, spending or a record under a budget of money, or the caller."""
        self.near = near
        """The known model of the same provider that has nearly this name."""
        self.override = override
        """The override that matches the model and has no prices of its own, such as a discount."""

    def __str__(self) -> str:
        key = f"{self.provider}:{self.model}" if self.provider else self.model
        hint = f". Did you mean {self.near!r}?" if self.near else ""
        return f"no price is known for model {key!r}{self._remedy(key)}{hint}"

    def _remedy(self, key: str) -> str:
        if self.override is not None:
            return (
                f": {self.override} matches, but there is no list price to take a discount from; "
                "add input_per_mtok and output_per_mtok"
            )
        per_mtok = "{'input_per_mtok': ..., 'output_per_mtok': ...}"
        prices = f"CostCalculator(pricing_overrides={{{key!r}: {per_mtok}}})"
        if self.needed_for == "price":
            return f"; add one: {prices}"
        needed = ", and a budget in dollars needs one; "
        allow = "or set on_unpriced='allow' on the Budget or SpendLimit"
        if self.needed_for == "spend":
            return (
                f"{needed}give the price of a unit: spend(units=..., price_usd=...), or, for images, "
                "the most that a call can cost: image_model(..., most_usd=...); "
                f"or, for tokens, add one: {prices} as cost_calculator= of spend, {allow}"
            )
        if self.needed_for == "record":
            return (
                f"{needed}the recorded usage counts as an unknown cost. Pass cost_usd= to record_usage, "
                f"or add a price: {prices} as cost_calculator= of record_usage, {allow}"
            )
        return f"{needed}add one: {prices} as cost_calculator= of the agent, {allow}"


class UnboundedRequestError(FastroAIError):
    """A budget or spend limit counts cost or tokens, and a request has no upper limit of them.

    What to do: Set `max_tokens`, say what the server is with `CostCalculator(endpoints=...)`, or set
    `on_unbounded="allow"` on the `Budget` or `SpendLimit`.
    """

    def __init__(self, model: str, provider: str, why: str | None = None) -> None:
        super().__init__(model, provider, why)
        self.model, self.provider = model, provider
        self.why = why
        """The part of the request that is not bounded, and what helps; `None` if that is not known."""

    def __str__(self) -> str:
        return (
            f"a request to {self.provider}:{self.model} has no upper limit, so a budget does not allow it: "
            f"{self.why or 'set max_tokens on the agent'}. To send it anyway, set "
            "on_unbounded='allow' on the Budget or SpendLimit"
        )


class UnmeteredRequestError(FastroAIError):
    """Inside a run, a request was refused because FastroAI could not count its cost.

    What to do: Use the way to call the model that the message names.
    """

    def __init__(self, call: str, scope_path: tuple[str, ...], instead: str) -> None:
        super().__init__(call, scope_path, instead)
        self.call, self.scope_path, self.instead = call, scope_path, instead

    def __str__(self) -> str:
        path = " / ".join(self.scope_path)
        return f"{self.call} cannot be counted in {path}, so it was not sent; {self.instead}"


class PriceUpdateError(FastroAIError):
    """Newer prices could not be downloaded; those in use stay in use.

    What to do: Check the network and try again. Runs continue with the prices in use.
    """

    retryable = True

    def __init__(self, url: str, reason: str) -> None:
        super().__init__(url, reason)
        self.url, self.reason = url, reason

    def __str__(self) -> str:
        return (
            f"newer prices could not be read from {self.url}: {self.reason}; the present prices stay in use"
        )


class ScopeClosedError(FastroAIError):
    """A request was made after the run that it belongs to had ended, or was in flight when it ended.

    What to do: Await the call inside the run, or start a run of its own for it.
    """

    def __init__(self, scope_path: tuple[str, ...], in_flight: bool = False) -> None:
        super().__init__(scope_path, in_flight)
        self.scope_path = scope_path
        self.in_flight = in_flight
        """Whether the request had been sent. Then it was ended with the run, and may have been billed."""

    def __str__(self) -> str:
        what = f"a request of {' / '.join(self.scope_path)} was made after that run had ended"
        if self.in_flight:
            what = f"a request of {' / '.join(self.scope_path)} was cancelled, because its run ended first"
        return f"{what}; await everything that a step starts before it returns"


class ForkedScopeError(FastroAIError):
    """Code tried to spend in a process that was forked inside of a budget, or of a run on record.

    A budget counts in the process that opened it. In copies of that process each copy could spend all of it.

    What to do: Start the child process before the run, or with the `spawn` method, and open a budget of its
    own there.
    """

    def __init__(
        self, left: Literal["budget", "run"], scope_path: tuple[str, ...], opened_in: int, process: int
    ) -> None:
        super().__init__(left, scope_path, opened_in, process)
        self.left = left
        """The part that stays in the other process: a budget, or the only writer of a run on record."""
        self.scope_path = scope_path
        """The path to the scope that has the budget, outermost first; else to the scope that was forked."""
        self.opened_in = opened_in
        """The id of the process that has the budget, or writes the run."""
        self.process = process
        """The id of the process in which code tried to spend."""

    def __str__(self) -> str:
        where = " / ".join(self.scope_path)
        if self.left == "run":
            return (
                f"process {self.process} cannot work on the run of {where}: it was forked from process "
                f"{self.opened_in}, which writes that run. Call models in threads or tasks of the run, or "
                "start "
                "the process with the method 'spawn', and give it its own budgets"
            )
        return (
            f"process {self.process} cannot spend the budget of {where}: it was forked from process "
            f"{self.opened_in}, and each of them could spend all of it. Open a budget in this process (with "
            "budget_scope(...)), or share one limit: SpendLimit(usd=..., store=SQLiteSpendStore(...))"
        )
