"""Budgets and spend limits that stop a run."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, ClassVar, Final, Literal, NamedTuple

from fastroai.errors.base import FastroAIError
from fastroai.records import dollars, microcents_to_usd

if TYPE_CHECKING:
    from pydantic_ai.messages import ModelMessage, ModelResponse


@dataclass(frozen=True, slots=True)
class StoppedRun:
    """An agent run that a budget stopped, with the messages that are needed to continue.

    `agent` is the name of the agent. `messages` are those so far, with the request that was not sent: pass
    them as `message_history=`. `BudgetExceeded.stopped_runs` has one for each agent run that was stopped.
    """

    agent: str
    messages: list[ModelMessage]
    """Its messages so far, the request that was not sent included: pass them as `message_history=`."""


class RequestCause(NamedTuple):
    """One of the things that make a refused request as large as it is."""

    kind: str
    """`instructions`, `tools`, `history`, `prompt`, `results` (of tools), `image`, `pdf`, `file`, `searches`
    (what those of the provider find), `added` (by PydanticAI, the host or the provider), or `answer`."""
    share: float
    """Its share of the least that the request could have used, from 0 to 1."""
    what: str
    """Its name, with its size."""
    advice: str
    """What to do about exactly that; empty if nothing can be done."""


class BudgetExceeded(FastroAIError):
    """A budget stopped the run.

    `messages` are those of the agent run that the budget stopped. To continue without paying again:

        try:
            response = await agent.run("...", budget=Budget(usd="0.10"))
        except BudgetExceeded as stop:
            response = await agent.run(message_history=stop.messages, budget=Budget(usd="0.20"))

    What to do: Raise the budget, or use a cheaper model or a lower `max_tokens`. The error has what was
    spent.
    """

    unit: ClassVar[str] = ""
    _verb: ClassVar[str] = "use"

    def __init__(
        self,
        limit: int,
        committed: int,
        step_id: str | None = None,
        requested: int | None = None,
        scope_path: tuple[str, ...] = (),
    ) -> None:
        super().__init__(limit, committed, step_id, requested, scope_path)
        self.limit = limit
        self.committed = committed
        """Amount of the budget that was used: known use, and bounds of unmeasured requests."""
        self.uncertain = 0
        """The part of `committed` that is the most that requests can have used whose use is not known, such
        as those that were cut off."""
        self.step_id = step_id
        self.requested = requested
        """The most that the refused request could have used; `None` if that is not known."""
        self.scope_path = scope_path
        """The path to the scope that has the budget, outermost scope first."""
        self.reserved = 0
        """Amount reserved for requests in flight that the request could not wait for, such as open streams;
        if a run was stopped, for all requests in flight."""
        self.stopped: Literal["request", "spend", "run", "step", "recorded"] = "request"
        """The thing that was stopped. `request`: a model request, before it was sent. `spend`: a purchase of
        `spend`, before it was made. `run`: a run that was to reserve its quote, before it began. `step`: a
        step or node, before it began, as the budget was crossed already. `recorded`: code that recorded more
        spending after the budget was crossed; it is charged, as it had happened already."""
        self.why: str | None = None
        """Why the requested amount is far above the likely use of the request; `None` if it is not."""
        self.causes: tuple[RequestCause, ...] = ()
        """What makes the refused request large, largest first; empty if that is not known."""
        self.at_least: int | None = None
        """The least that the refused request could have been lowered to, with the shortest answer; `None` if
        that is not known."""
        self.answer_limit = "max_tokens"
        """The setting with which the code that asked can ask for a shorter answer."""
        self.partial_response: ModelResponse | None = None
        """The answer that was cut, if the budget paid for the beginning of one."""
        self.stopped_runs: list[StoppedRun] = []
        """The agent runs that the budget stopped, innermost first: an agent called by a tool, its caller."""
        self.may_wait = False
        """Whether a run that a store keeps waits instead of failing: `SpendLimit(on_limit="wait")`."""

    @property
    def messages(self) -> list[ModelMessage]:
        """Messages of the outermost agent run that the budget stopped; empty if it stopped none.

        They include the request that was not sent: pass them as `message_history=` to continue.
        """
        return self.stopped_runs[-1].messages if self.stopped_runs else []

    def __str__(self) -> str:
        reserved = f", {self._amount(self.reserved)} reserved"
        by = "" if self.stopped == "run" else " by requests in flight"
        in_flight = f"{reserved}{by}" if self.reserved else ""
        came = "has too little left" if self.stopped == "run" else "reached"
        beginning = f"{self._name} {came}{self._place}: {self._used}{in_flight}"
        if self._is_too_small:
            beginning = f"{self._name} is too small{self._place}: its limit is {self._limit}"
        why = "" if self.why is None else f" ({self.why})"
        return f"{beginning}{self._stopped}. {self._advice}{why}"

    @property
    def _is_too_small(self) -> bool:
        """Whether nothing is used of the budget, and it cannot pay for the request even so."""
        refused = self.stopped == "request" and self.requested is not None and self.partial_response is None
        return refused and not self.committed and not self.reserved

    @property
    def _limit(self) -> str:
        return f"{self._amount(self.limit)}{f' {self.unit}' if self.unit else ''}"

    def _amount(self, number: int) -> str:
        return f"{number:,}"

    @property
    def _name(self) -> str:
        return f"budget{self._whose}"

    @property
    def _whose(self) -> str:
        return f" of {' / '.join(self.scope_path)!r}" if self.scope_path else ""

    @property
    def _place(self) -> str:
        return f" in step {self.step_id!r}" if self.step_id else ""

    @property
    def _used(self) -> str:
        unit = f" {self.unit}" if self.unit else ""
        return f"{self.committed:,} of {self.limit:,}{unit} {'is' if self.committed == 1 else 'are'} used"

    @property
    def _stopped(self) -> str:
        if self.partial_response is not None:
            return "; it paid for the beginning of the last answer (error.partial_response)"
        if self.stopped == "recorded":
            return " (the last charge is included, although the budget was already crossed)"
        if self.stopped == "step":
            return ", so the step was not started"
        if self.stopped == "run":
            left = self._amount(max(0, self.limit - self.committed - self.reserved))
            quote = self._amount(self.requested or 0)
            return f", so {left} is left. By its quote, the run could cost {quote}, so it was not started"
        what, end = ("next request", "sent") if self.stopped == "request" else ("purchase", "made")
        if self.requested is None:
            return f", so the {what} was not {end}"
        least = self.requested if self.at_least is None else self.at_least
        shortest = " even with the shortest answer" if least < self.requested else ""
        mostly = f", {self.causes[0].share:.0%} of it for {self.causes[0].what}" if self.causes else ""
        could = f"could {self._verb} {self._amount(least)}{shortest}{mostly}"
        return f", and the {what} {could}, so it was not {end}"

    @property
    def _advice(self) -> str:
        if self._is_held_by_others:
            return f"{_AFTER_OTHERS}, or raise the budget"
        return _sentence(f"{self._lower}raise the budget")

    @property
    def _is_held_by_others(self) -> bool:
        """Whether only reservations of others stand against a run, which end with these."""
        would_fit = self.committed + (self.requested or 0) <= self.limit
        return self.stopped == "run" and self.reserved > 0 and would_fit

    @property
    def _lower(self) -> str:
        if self.causes and self.causes[0].kind != "answer":
            advice = self.causes[0].advice
            return f"{advice}, or " if advice else ""
        asks_for_less = self.stopped == "request" and self.requested is not None
        return f"set a lower {self.answer_limit} or " if asks_for_less else ""


_AFTER_OTHERS: Final = "Try again when the runs that reserved it have ended"


class CostBudgetExceeded(BudgetExceeded):
    """A budget of money stopped the run. Amounts are microcents ($1 = 1,000,000).

    What to do: Raise the budget, lower `max_tokens`, or take a cheaper model. `usage` has what was spent.
    """

    unit = "microcents"
    _verb = "cost"

    def __init__(
        self,
        limit: int = 0,
        committed: int = 0,
        step_id: str | None = None,
        requested: int | None = None,
        scope_path: tuple[str, ...] = (),
        *,
        budget: int | None = None,
        actual: int | None = None,
    ) -> None:
        """In your own tests, `budget` and `actual` may stand for `limit` and `committed`."""
        limit, committed = limit if budget is None else budget, committed if actual is None else actual
        super().__init__(limit, committed, step_id, requested, scope_path)

    @property
    def budget_microcents(self) -> int:
        """The limit of the budget, in microcents ($1 = 1,000,000)."""
        return self.limit

    @property
    def actual_microcents(self) -> int:
        """The amount of the budget that was used, in microcents ($1 = 1,000,000).

        It is the known cost, and for requests whose usage is unknown, the most that they can have cost.
        """
        return self.committed

    @property
    def requested_microcents(self) -> int | None:
        """The most that the refused request, purchase or run could have cost, in microcents ($1 = 1,000,000).

        It is rounded up. `None` if that is not known.
        """
        return self.requested

    @property
    def budget_usd(self) -> Decimal:
        """The limit of the budget, in US dollars, rounded to six decimals."""
        return microcents_to_usd(self.limit)

    @property
    def actual_usd(self) -> Decimal:
        """The amount of the budget that was used, in US dollars, rounded to six decimals.

        It is the known cost, and for requests whose usage is unknown, the most that they can have cost.
        """
        return microcents_to_usd(self.committed)

    @property
    def requested_usd(self) -> Decimal | None:
        """The most that the refused request, purchase or run could have cost, in US dollars.

        It is rounded up to six decimals. `None` if that is not known.
        """
        return None if self.requested is None else microcents_to_usd(self.requested)

    @property
    def _limit(self) -> str:
        return self._amount(self.limit)

    def _amount(self, number: int) -> str:
        return dollars(microcents_to_usd(number))

    @property
    def _used(self) -> str:
        used = f"{self._amount(self.committed)} of {self._amount(self.limit)}"
        if not self.uncertain:
            return f"{used} is spent"
        which = "all" if self.uncertain >= self.committed else self._amount(self.uncertain)
        return f"{used} counts as spent, {which} of it for requests whose cost is not known"

    @property
    def _advice(self) -> str:
        if self.stopped in ("recorded", "step"):
            return "Raise the budget, or reserve before you spend: ctx.spend(...)"
        return super()._advice


CostBudgetExceededError = CostBudgetExceeded


class SpendLimitExceeded(CostBudgetExceeded):
    """A `SpendLimit`, which runs and processes share, stopped the run.

    Amounts are microcents ($1 = 1,000,000).

    What to do: Wait until the window resets (`resets_at`), raise the limit, or set `on_limit="wait"`.
    """

    key: str = ""
    """The key of the limit: the name under which spending counts."""
    window: str = ""
    resets_at: datetime | None = None
    """Time at which the next window starts from zero; `None` for a total."""
    resets_in: timedelta | None = None
    """Time until then, by the clock of the store."""
    deadline: timedelta | None = None
    """The longest that a run waits for it: that of the `SpendLimit`."""

    @property
    def _name(self) -> str:
        return f"spend limit {self.key!r} ({self.window})"

    @property
    def _advice(self) -> str:
        too_much = self.requested is not None and self.requested > self.limit
        by_hand = " in code, or for the current window alone with SpendBook.set_limit or `fastroai spend set`"
        if self._is_held_by_others:
            return f"{_AFTER_OTHERS}, or raise the limit{by_hand}"
        if too_much or self.resets_at is None:
            return _sentence(f"{self._lower}raise the limit") + by_hand
        return f"Wait until {self.resets_at:%Y-%m-%d %H:%M} UTC, or {self._lower}raise the limit{by_hand}"


class TokenBudgetExceeded(BudgetExceeded):
    """A budget of tokens stopped the run.

    What to do: Raise `tokens` of the budget, or lower `max_tokens`.
    """

    unit = "tokens"


class RequestBudgetExceeded(BudgetExceeded):
    """A budget of requests stopped the run.

    What to do: Raise the budget of requests, or find out why the agent needs so many.
    """

    unit = "requests"


class TimeBudgetExceeded(BudgetExceeded):
    """A budget of time stopped the run: it was cancelled when its milliseconds had passed.

    What to do: Raise `ms` of the budget, or make the work shorter.
    """

    unit = "milliseconds"

    def __str__(self) -> str:
        return (
            f"time budget of {self.limit:,} ms{self._whose} is used up{self._place}; "
            "running work was cancelled. Raise the budget"
        )


def _sentence(text: str) -> str:
    return text[0].upper() + text[1:]
