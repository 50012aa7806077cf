"""One attempt at a request, from its admission to its end in the account."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from time import perf_counter
from typing import TYPE_CHECKING, Any, Literal

from pydantic_ai.exceptions import ModelAPIError, ModelHTTPError
from pydantic_ai.messages import ModelResponse
from pydantic_ai.models import StreamedResponse

from fastroai.agent.agent_run import AgentRun
from fastroai.agent.answer_checks import has_counts, is_cut, is_measured, tokens_of, uncounted
from fastroai.agent.one_time import load_response_types
from fastroai.agent.requests.request_terms import Terms
from fastroai.agent.requests.stated_cost import stated_cost
from fastroai.agent.requests.wire import (
    AttemptOnWire,
    listening,
    note_sight,
    tell_once,
    watch,
)
from fastroai.calls.response import tool_calls_in
from fastroai.errors import AnswerCutError, BudgetExceeded, UnmeteredRequestError
from fastroai.records import RequestRecord, Tokens
from fastroai.runtime import (
    NO_RETRIES_USED,
    BudgetView,
    Charge,
    CircuitBreaker,
    Reservation,
    RetriesUsed,
    Scope,
    admit,
    billing_of,
    record_spending,
)
from fastroai.runtime.budgets.stops import refused
from fastroai.tracing import AttributeValue, attributes, log_metrics
from fastroai.usage import base_url_of
from fastroai.usage.money import ExactUsd
from fastroai.usage.prices.request_cost import UNKNOWN_COST, RequestCost
from fastroai.usage.prices.tested_version import warn_if_untested

if TYPE_CHECKING:
    from fastroai.agent.requests.permits import RequestPermit
    from fastroai.agent.requests.recorded_requests import RequestOnRecord


class Outgrown(Exception):
    """Raised for a request that was held back, because it is larger than the one that was admitted."""


@dataclass(eq=False)
class RequestAttempt:
    """One attempt at a request, from its admission to its end in the account."""

    scope: Scope
    terms: Terms
    run: AgentRun | None
    used: RetriesUsed = NO_RETRIES_USED
    on_record: RequestOnRecord | None = None
    reservation: Reservation[Terms] = field(init=False)  # pyright: ignore[reportInvalidTypeArguments]
    """Set by `admit`. Nothing else is done with an attempt before."""
    wire: AttemptOnWire | None = None
    outgrown: Terms | None = None
    """The terms of the request as it is about to be sent, if it is larger than the one that was admitted."""
    stream: StreamedResponse | None = None
    charge: Charge | None = None
    permit: RequestPermit | None = None
    lowered_to: int | None = None
    """The `max_tokens` of the request, if budgets or spend limits could pay for no more."""
    held_back: bool = False
    """Whether a provider limit or a circuit breaker could hold the request back."""
    sent: bool = True
    """Whether the request may have been sent. In a batch it has not, until the batch is sent."""
    job: str | None = None
    """The provider's id of the work: of a background response, or of the request in its batch."""
    batch: object | None = None
    """The batch in which the request was sent."""
    on_end: Callable[[], None] | None = None
    """Called when the request ends. Set while the request is kept because its provider works on it."""
    backoff_ms: float = 0.0
    waited_ms: float = 0.0
    started_at: datetime | None = None
    """Time at which the request was admitted."""
    started: float = field(default_factory=perf_counter)

    async def send(self) -> ModelResponse:
        """Send the request, and follow it on the wire. Raises the errors of `on_the_wire`."""
        with self.on_the_wire():
            return await self.terms.send()

    @contextmanager
    def on_the_wire(self) -> Iterator[None]:
        """Follow what is sent here: it must not be more than was admitted, nor be sent again.

        If a gateway can state the cost in headers of the response, read them, too.

        Raises:
            Outgrown: the request was held back, as there is no room for what it has more.
            ModelAPIError: the SDK was about to repeat the request, which is for FastroAI to do.
            UnmeteredRequestError: under a limit, the model was about to send a second request.
        """
        names = self.terms.meter.calculator.cost_headers(base_url_of(self.terms.wrapped))
        wire = self.wire = AttemptOnWire(names, self.may_leave if self.reservation.is_limited else None)
        watch(self.terms.wrapped.provider)
        try:
            with listening(wire):
                yield
            self._note_sight(wire)
        except BaseException as error:
            if wire.held_back is not None and not isinstance(error, asyncio.CancelledError):
                raise self._why_held_back(wire) from None
            raise

    def _note_sight(self, wire: AttemptOnWire) -> None:
        """Note whether the request, which was answered, was seen before it left; tell if it was not."""
        provider = self.terms.wrapped.provider
        if provider is None or not self.reservation.is_limited:
            return
        note_sight(provider, was_seen=wire.was_seen)
        if not wire.was_seen:
            tell_once(
                (self.terms.provider, "unseen"),
                f"requests to {self.terms.provider}:{self.terms.model} cannot be seen before they leave, so "
                "budgets count a margin for text that PydanticAI may add to them.",
            )

    def may_leave(self, body: object) -> bool:
        """Return whether budgets and spend limits allow for a request with this decoded body.

        If the model has added input that was not counted, the reservation grows, if that is possible.
        """
        terms = self.terms.sending(body)
        if terms is self.terms:
            return True
        added = terms.besides - self.terms.besides
        tell_once(
            (terms.provider, terms.besides_in),
            f"{terms.provider}:{terms.model} sends input that FastroAI did not count beforehand "
            f"(in {', '.join(terms.besides_in)}): up to {added:,} tokens. It is reserved before the request "
            "leaves.",
        )
        on_record = self.on_record is not None and self.on_record.log.run is not None
        if on_record or not self.reservation.grow(terms):  # on record, its bound must be the larger one
            self.outgrown = terms
            return False
        self.terms = terms
        return True

    def _why_held_back(self, wire: AttemptOnWire) -> Exception:
        if wire.held_back == "refused":
            return Outgrown()
        name = self.terms.model
        if wire.held_back == "second":
            return UnmeteredRequestError(
                f"a second request, which the class of the model {self.terms.provider}:{name} sends by "
                "itself once the first is answered,",
                self.scope.path,
                "let the class send one request for each call, or run it without a Budget and a SpendLimit",
            )
        tell_once(
            (self.terms.provider, "repeats"),
            f"the SDK of {self.terms.provider!r} repeats failed requests by itself. FastroAI stops that, and "
            "repeats them instead, so that each is checked against budgets and charged.",
        )
        if wire.status is not None:
            return ModelHTTPError(wire.status, name)
        return ModelAPIError(name, "the request got no response: its connection failed, or took too long")

    async def admit(self) -> Reservation[Terms]:  # pyright: ignore[reportInvalidTypeArguments]
        """Wait until the request may be sent. Admission may have changed it to another request by then."""
        warn_if_untested()
        await load_response_types(self.terms.wrapped, streamed=self.terms.streamed)
        self.started = perf_counter()  # loading them is no wait for a provider or a budget
        breaker = None if self.run is None else self.run.circuit_breaker
        # Limits of providers per minute do not count batches: see usage/facts/billing.py.
        if self.terms.kind == "batch" or (breaker is None and not self.scope.bounds.provider_limits):
            self.reservation = await self._reserve(self.terms)
        else:
            self.reservation = await self._admit_in_turn(breaker)
        self.terms, self.reservation.describe = self.reservation.terms, self._unheard
        if self.reservation.short is not None and self.terms.settings is not None:
            self.lowered_to = self.terms.settings.get("max_tokens")
        admitted = perf_counter()
        self.waited_ms = (admitted - self.started) * 1000
        self.started_at, self.started = datetime.now(UTC), admitted
        if self.on_record is not None:
            await self._put_on_record(self.on_record)
        return self.reservation

    def _reserve(self, terms: Terms) -> Coroutine[Any, Any, Reservation[Terms]]:  # pyright: ignore[reportInvalidTypeArguments]
        admission = admit(self.scope, terms)  # pyright: ignore[reportArgumentType]
        if not self.scope.bounds.ceilings:
            return admission
        from fastroai.steps.spend_windows import or_wait  # late: few runs have a spend limit

        return or_wait(self.scope, admission, "request")

    async def _put_on_record(self, on_record: RequestOnRecord) -> None:
        """Put the request on record before it is sent, so that it counts even if this process dies."""
        try:
            record = self._unheard()
            if on_record.log.run is not None:
                await self.terms.prepare_bound()
                bound = self.terms.bound
                record = replace(record, bound_usd=bound.cost_usd, bound_tokens=bound.tokens)
            await on_record.sent(record)
        except BaseException as error:
            if self.permit is not None:
                self.permit.give_back()
            released = self._record("released", error=f"not sent: {attributes.error_summary(error)}")
            self.charge = self.reservation.release(released)
            on_record.ended_soon(released, None)  # a cancelled commit may have put it on record as sent
            raise

    def _unheard(self) -> RequestRecord:
        """Return the record that counts if nothing more is heard of the request."""
        return self._record("unmeasured", error="nothing more was heard of it")

    async def _admit_in_turn(self, breaker: CircuitBreaker | None) -> Reservation[Terms]:  # pyright: ignore[reportInvalidTypeArguments]
        """Wait for the provider, then for the budgets: no request holds money while it waits for a slot."""
        from fastroai.agent.requests.permits import RequestPermit  # late: few providers have limits

        terms = self.terms
        while True:
            permit = RequestPermit(self.scope, breaker, terms)
            await permit.wait()
            try:
                reservation = await self._reserve(terms)
            except BaseException:
                permit.give_back()
                raise
            wrapped = reservation.terms.wrapped
            if wrapped is terms.wrapped and permit.send():
                break
            if wrapped is not terms.wrapped:
                # A budget has stepped down to another model, for which this is no permit.
                terms = replace(terms, wrapped=wrapped, known_bound=None)
            reservation.give_back()
            permit.give_back()
        reservation.note_slot()
        self.permit, self.held_back = permit, True
        return reservation

    def _end_permit(self, response: ModelResponse | None, error: BaseException | None) -> None:
        """End the permit: let others go, and note whether the provider is well."""
        if self.on_end is not None:
            self.on_end()
        permit, self.permit = self.permit, None
        if permit is not None:
            measured = response is not None and self._is_measured(response)
            permit.end_with(response if measured else None, error)

    @property
    def may_go(self) -> bool:
        """Whether the request can still be sent: neither it nor its run has ended."""
        return self.charge is None and not self.reservation.interruption.is_set

    def open(self, stream: StreamedResponse) -> None:
        """Note that a stream is open: the provider answers."""
        self.stream = stream
        self.reservation.interruption.stop_by(stream.cancel)
        self.answered()

    def answered(self) -> None:
        """Note that the provider answers, though not yet with all of the response."""
        if self.permit is not None:
            self.permit.answered()

    def settle(self, response: ModelResponse) -> None:
        """Charge the usage of a response that arrived, or its bound if the usage is missing or was cut."""
        if self.permit is not None or self.on_end is not None:
            self._end_permit(response, None)
        measured = self._is_measured(response)
        cost = self._cost(response, measured=measured)
        if not measured or cost.contradiction is not None:
            record = self._record("unmeasured", response=response, cost=cost)
            self.charge = self.reservation.charge_unmeasured(replace(record, error=_why(record, cost)))
        else:
            if self.scope.step is not None:
                self.scope.note_answer()
            record = self._record("settled", response=response, cost=cost)
            if self.lowered_to is not None and self._is_beginning(record):
                record = replace(record, use="retried")
            if self.reservation.is_limited and self.terms.kind != "compaction":  # else it is not needed
                self.terms.learn(record)  # before others are let go, which can then do with less
            self.charge = self.reservation.settle(record)
            if self.run is not None and self.terms.kind != "compaction":
                self.run.last = self.charge
        self._tell_of(cost, response, measured=measured)
        if cost.cost_usd is not None:
            # PydanticAI would look up the list price once more, and not know our overrides.
            response.usage.cost = ExactUsd(cost.cost_usd)

    def _is_measured(self, response: ModelResponse) -> bool:
        if self.terms.kind == "compaction" and response.state == "complete":
            # OpenAI gives no reason for the end of a compaction, which comes as a whole or not at all.
            return has_counts(response)
        return is_measured(response, streamed=self.terms.streamed, system=self.terms.provider)

    def _cost(self, response: ModelResponse, *, measured: bool) -> RequestCost:
        stated_usd = stated_cost(response, None if self.wire is None else self.wire.body)
        if stated_usd is None and self.wire is not None:
            stated_usd = self.wire.usd
        if not measured:  # a price for a part of the usage would pass for the whole cost
            return UNKNOWN_COST if stated_usd is None else UNKNOWN_COST.billed(stated_usd)
        cost = self.terms.meter.calculator.cost_of(
            response,
            model=self.terms.model,
            provider=self.terms.provider,
            stated_usd=stated_usd,
            conditions=self.terms.conditions,
        )
        if stated_usd is None and cost.contradiction is None:
            gap = uncounted(response, system=self.terms.provider)
            return cost.beside(self.terms.unknown) if gap is None else RequestCost(contradiction=gap)
        return cost

    def _tell_of(self, cost: RequestCost, response: ModelResponse, *, measured: bool) -> None:
        """Warn of costs that the account leaves out. Called after charging, as warnings may be errors."""
        calculator, terms = self.terms.meter.calculator, self.terms
        calculator.warn_of_near_miss(response.provider_url)
        if cost.contradiction is not None or (measured and not cost.complete):
            calculator.warn_incomplete(cost, response.model_name or terms.model, terms.provider)
        if cost.stated_usd is not None:
            calculator.note_difference(cost, terms.model, terms.provider)

    def fail(self, error: BaseException) -> None:
        """Charge a request without a response: nothing if it surely was not billed, else its bound."""
        if isinstance(error, Outgrown):
            self.fail_unsent(
                "not sent: the request became larger after its budgets had approved it, so FastroAI asked "
                "them again for the larger one"
            )
            return
        self._end_permit(None, error)
        text = attributes.error_summary(error)
        was_answered = self.wire is not None and self.wire.held_back == "second"
        if billing_of(error) == "released" and not was_answered:
            self.charge = self.reservation.release(self._record("released", error=text))
        else:
            self.charge = self.reservation.charge_unmeasured(self._record("unmeasured", error=text))

    def fail_unsent(self, why: str) -> None:
        """Charge nothing for a request that was not sent, or that its provider says was not run."""
        self._end_permit(None, None)
        self.charge = self.reservation.release(self._record("released", error=why))

    async def leave(self) -> None:
        """End a request that its run no longer waits for: charge its bound if it was sent, else nothing."""
        if self.charge is not None:
            return
        if self.sent:
            self._end_permit(None, None)
            record = self._record("unmeasured", error="its run left it before it was answered")
            if self.is_collected_later:
                self.reservation.leave_claims()
            self.charge = self.reservation.charge_unmeasured(record)
        else:
            self.fail_unsent("not sent: its run ended while it waited for a batch")
        if not self.is_collected_later:
            self._note_end()
        await self.reservation.conclude()

    async def answered_later(self, pending: ModelResponse) -> None:
        """Put on record where the answer will be, so that a process that resumes the run collects it."""
        if self.on_record is not None:
            await self.on_record.answered_later(pending, self.reservation.claims)

    async def give_up(self) -> None:
        """Do `leave`, for good: nobody collects the answer."""
        if self.on_record is not None:
            self.on_record.is_pending = False
        await self.leave()

    @property
    def is_collected_later(self) -> bool:
        """Whether it is on record where the answer will be, so that a later process collects it."""
        return self.on_record is not None and self.on_record.is_collected_later

    def abandon(self, response: ModelResponse, error: BaseException | None) -> None:
        """Charge a stream that ended: its usage if that is complete, else its bound.

        An error comes too late to refuse the request, and may be an error of the code that read the stream.
        The answer is kept if its reader stopped it, whichever error followed from that.
        """
        if self.charge is not None:
            return  # charged when its scope ended
        self._end_permit(response, error)
        is_stopped = self.run is not None and self.run.is_stopped
        if error is None or is_stopped or is_measured(response, streamed=True, system=self.terms.provider):
            self.settle(response)
            return
        record = self._record("unmeasured", response=response, error=attributes.error_summary(error))
        self.charge = self.reservation.charge_unmeasured(record)

    async def abandon_forgotten(self) -> None:
        """Charge a stream that its reader has not closed when its scope ends."""
        assert self.stream is not None
        self.abandon(self.stream.get(), None)

    @property
    def is_asked_again(self) -> bool:
        """Whether the answer is only the beginning that budgets could pay for, and is asked for once more."""
        return self.charge is not None and self._is_beginning(self.charge.record)

    def _is_beginning(self, record: RequestRecord) -> bool:
        return record.was_cut_short and self.terms.is_asked_again

    async def check_paid(self, response: ModelResponse) -> None:
        """Raise the stop of a budget that could pay for only the beginning of an answer."""
        if (stop := self._stop_in(response)) is not None:
            await self.scope.emit(refused(self.scope, stop))
            raise stop

    async def check_whole(self, response: ModelResponse) -> None:
        """Raise if an answer is only a beginning: a budget paid for no more, or the answer broke off."""
        if self.reservation.short is not None:
            await self.check_paid(response)
        if self.charge is not None and self.charge.record.cut:
            self._check_cut(response)

    def check_whole_at_once(self, response: ModelResponse) -> None:
        """Do `check_whole` without waiting for listeners, who are told with the next event."""
        if (stop := self._stop_in(response)) is not None:
            self.scope.note(refused(self.scope, stop))
            raise stop
        self._check_cut(response)

    def _stop_in(self, response: ModelResponse) -> BudgetExceeded | None:
        stop = self.reservation.short
        if stop is None or response.finish_reason != "length":
            return None
        stop.partial_response = response
        return stop

    def _check_cut(self, response: ModelResponse) -> None:
        refused = self.run is not None and self.run.refuses_cut_answers
        if refused and self.charge is not None and self.charge.record.cut:
            cut = AnswerCutError(self.terms.model, self.terms.provider)
            cut.partial_response = response
            raise cut

    def _budget_attributes(self) -> dict[str, AttributeValue]:
        """Return the attributes about budgets for the span of the request."""
        return attributes.budget_attributes(
            reserved_usd=self.terms.bound.cost_usd,
            share=BudgetView(self.scope).share,
            waited_ms=self.waited_ms,
            lowered=self.reservation.short is not None,
        )

    async def conclude(
        self, trace_id: str, response: ModelResponse | None = None, *, error: BaseException | None = None
    ) -> None:
        """Note the end of the request on record and in its span, and tell listeners."""
        assert self.charge is not None
        has_time = error is None or isinstance(error, Exception)  # a cancelled task has no time
        if self.on_record is not None and has_time:
            await self.on_record.ended(self.charge.record, self._kept(response))  # before anybody uses it
        elif self.on_record is not None:
            self._note_end(response)
        tracer = self.scope.tracer
        if tracer is not None and trace_id:
            log_metrics(tracer, trace_id, attributes.response_attributes(self.charge.record))
            if self.held_back:
                log_metrics(tracer, trace_id, {attributes.LIMIT_WAITED_MS: self.waited_ms})
            if self.reservation.is_limited:
                log_metrics(tracer, trace_id, self._budget_attributes())
        self._charge_more()
        if has_time:  # else listeners are told with the next event
            await self.reservation.conclude()

    def _charge_more(self) -> None:
        """Charge the requests that the model has sent by itself besides this one, at its bound each."""
        for _ in range(1 if self.wire is None else self.wire.sent, 1, -1):
            tell_once(
                (self.terms.provider, "more"),
                f"{self.terms.provider}:{self.terms.model} sends several requests for one answer. All "
                "but one count at their bound, as PydanticAI does not pass on their usage.",
            )
            record = self._record("unmeasured", error="a request that the model has sent besides another one")
            record_spending(self.scope, self.reservation.bounded(record))

    def conclude_at_once(self, response: ModelResponse | None = None) -> None:
        """Do `conclude` without waiting. The scope waits for stores at its end."""
        self._note_end(response)
        self.scope.on_close(self.reservation.conclude)

    def _note_end(self, response: ModelResponse | None = None) -> None:
        assert self.charge is not None
        if self.on_record is not None:
            self.on_record.ended_soon(self.charge.record, self._kept(response))

    def _kept(self, response: ModelResponse | None) -> ModelResponse | None:
        """Return a response to keep on record. A resumed run asks again for an answer that was cut."""
        if response is None or (self.reservation.short is not None and response.finish_reason == "length"):
            return None
        was_cut = is_cut(response, streamed=self.terms.streamed, model=self.terms.wrapped)
        return None if was_cut else response

    def mark_retried(self) -> None:
        """Note that another attempt follows."""
        if self.charge is not None:
            with self.scope.tree.lock:
                self.charge.mark("retried")

    def _record(
        self,
        outcome: Literal["settled", "unmeasured", "released"],
        *,
        response: ModelResponse | None = None,
        cost: RequestCost = UNKNOWN_COST,
        error: str | None = None,
    ) -> RequestRecord:
        output_tools = self.run.output_tools if self.run is not None else ()
        believed = response is not None and cost.contradiction is None
        return RequestRecord(
            model=self.terms.model,
            provider=(response.provider_name if response else None) or self.terms.provider,
            outcome=outcome,
            tokens=tokens_of(response) if response is not None and believed else Tokens(),
            cost_usd=cost.cost_usd,
            cost_source=cost.source,
            stated_usd=cost.stated_usd,
            priced_usd=cost.priced_usd,
            unpriced_units=cost.unpriced_units,
            bound_usd=cost.most_usd,
            use="kept" if error is None else "failed",
            tools=self.terms.returned_tools(output_tools),
            tool_calls=0 if response is None else tool_calls_in(response, output_tools),
            response_model=response.model_name if response else None,
            response_id=response.provider_response_id if response else None,
            agent=self.scope.name if self.scope.kind == "agent" else None,
            step_id=self.scope.step_id,
            variant=self.scope.variant,
            tags=self.scope.bounds.labels.tags,
            tenant=self.scope.bounds.labels.tenant,
            attempt=self.used.attempt,
            backoff_ms=self.backoff_ms,
            waited_ms=self.waited_ms,
            streamed=self.terms.streamed,
            started_at=self.started_at,
            duration_ms=(perf_counter() - self.started) * 1000,
            finish_reason=response.finish_reason if response else None,
            cut=response is not None
            and is_cut(response, streamed=self.terms.streamed, model=self.terms.wrapped),
            lowered_to=self.lowered_to,
            error=error,
        )


def _why(unmeasured: RequestRecord, cost: RequestCost) -> str:
    """Return why the usage of an answer is not known."""
    if cost.contradiction is not None:
        return f"the usage that it reported contradicts itself: {cost.contradiction}"
    return "the answer ended early" if unmeasured.cut else "the answer did not report its usage"
