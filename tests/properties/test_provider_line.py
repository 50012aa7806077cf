"""Circuits and lines before providers alone: requests that come, wait, go, end and fail in any order."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Literal

from hypothesis import given
from hypothesis import strategies as st

from fastroai.runtime.providers.circuit import Circuit, CircuitOptions, Pass
from fastroai.runtime.providers.provider_line import MINUTE, ProviderLine, Ticket

Kind = Literal["ask", "ask inside", "send", "end", "cancel", "hold back", "wait"]


@dataclass(frozen=True)
class Operation:
    kind: Kind
    which: int
    tokens: int
    seconds: float


operations = st.lists(
    st.builds(
        Operation,
        kind=st.sampled_from(
            ("ask", "ask", "ask", "send", "send", "end", "ask inside", "cancel", "hold back", "wait", "wait")
        ),
        which=st.integers(0, 9),
        tokens=st.integers(1, 12),
        seconds=st.sampled_from((0.0, 0.5, 7.0, 30.0, 60.0)),
    ),
    max_size=60,
)
limits = st.tuples(*(st.none() | st.integers(1, most) for most in (3, 5, 20)))


@dataclass
class Traffic:
    """A line, and what really happened before it, kept in another way."""

    line: ProviderLine
    now: float = 0.0
    waiting: deque[Ticket] = field(default_factory=deque)
    granted: list[Ticket] = field(default_factory=list)
    on_the_way: list[Ticket] = field(default_factory=list)
    sent: list[tuple[float, Ticket]] = field(default_factory=list)
    used: dict[Ticket, int] = field(default_factory=dict)

    def do(self, operation: Operation) -> None:
        """Something happens, if it can, and then what must be true is."""
        if operation.kind in ("ask", "ask inside"):
            inside = operation.kind == "ask inside" and bool(self.on_the_way)
            ticket = Ticket(operation.tokens, inside=inside)
            self.used[ticket] = operation.tokens
            self.let_go(self.line.ask(ticket, self.now))
            if ticket.is_granted:
                assert ticket.inside or not any(not other.inside for other in self.waiting), "overtaken"
                self.granted.append(ticket)
            else:
                self.waiting.append(ticket)
        elif operation.kind == "send" and self.granted:
            self.send(self.granted[operation.which % len(self.granted)])
        elif operation.kind == "end" and self.on_the_way:
            self.end(self.on_the_way[operation.which % len(self.on_the_way)], operation.tokens)
        elif operation.kind == "cancel" and (choice := [*self.waiting, *self.granted]):
            self.cancel(choice[operation.which % len(choice)])
        elif operation.kind == "hold back":
            self.line.hold_back(self.now + operation.seconds)
        elif operation.kind == "wait":
            self.now += operation.seconds
            self.let_go(self.line.review(self.now))
        self.check()

    def send(self, ticket: Ticket) -> None:
        self.granted.remove(ticket)
        self.line.send(ticket, self.now)
        self.on_the_way.append(ticket)
        self.sent.append((self.now, ticket))

    def end(self, ticket: Ticket, tokens: int) -> None:
        self.on_the_way.remove(ticket)
        if self.line.tokens is not None and tokens > ticket.tokens:
            tokens = ticket.tokens  # nobody can hold against an answer that is longer than expected
        self.used[ticket] = tokens
        self.let_go(self.line.end(ticket, self.now, tokens=tokens))

    def cancel(self, ticket: Ticket) -> None:
        if ticket in self.granted:
            self.granted.remove(ticket)
            self.let_go(self.line.give_back(ticket, self.now))
        else:
            self.waiting.remove(ticket)
            self.let_go(self.line.leave(ticket, self.now))

    def let_go(self, granted: list[Ticket]) -> None:
        """They went in the order in which they came, those inside of others before all others."""
        for ticket in granted:
            first = next((other for other in self.waiting if other.inside), self.waiting[0])
            assert ticket is first, "first come, first served"
            self.waiting.remove(ticket)
            self.granted.append(ticket)

    def check(self) -> None:
        line = self.line
        places = [ticket for ticket in (*self.granted, *self.on_the_way) if not ticket.inside]
        assert line.in_flight == len(places)
        assert line.waiting == len(self.waiting)
        if line.max_concurrency is not None:
            assert len(places) <= line.max_concurrency
        self.check_minute()
        if self.waiting and not self.granted and not self.on_the_way:
            at = line.next_at(self.now)
            assert at is not None, "nobody else is there: time alone must let it go"

    def check_minute(self) -> None:
        """Of what has left in any minute up to now, and what may leave now."""
        minute = [ticket for at, ticket in self.sent if at + MINUTE > self.now]
        if self.line.requests is not None:
            assert len(minute) + len(self.granted) <= self.line.requests.limit
        if self.line.tokens is not None:
            amounts = [self.used[ticket] for ticket in (*minute, *self.granted)]
            alone = len([amount for amount in amounts if amount]) == 1
            assert sum(amounts) <= self.line.tokens.limit or alone

    def finish(self) -> None:
        """Let everybody go whose turn it is, as their runner would, until nobody is left."""
        for _ in range(1_000):
            for ticket in list(self.granted):
                self.send(ticket)
            for ticket in list(self.on_the_way):
                self.end(ticket, ticket.tokens)
            if not self.waiting and not self.granted:
                break
            if not self.granted:
                at = self.line.next_at(self.now)
                assert at is not None
                self.now = max(self.now, at)
                self.let_go(self.line.review(self.now))
                assert self.granted, "it was said that somebody may go now"
            self.check()


@given(limits=limits, operations=operations)
def test_a_line_keeps_its_limits_and_its_order_and_lets_everybody_go(
    limits: tuple[int | None, int | None, int | None], operations: list[Operation]
) -> None:
    traffic = Traffic(ProviderLine(*limits))
    for operation in operations:
        traffic.do(operation)
    traffic.finish()
    assert not traffic.waiting
    assert not traffic.line.in_flight
    traffic.line.review(traffic.now + MINUTE)
    for window in (traffic.line.requests, traffic.line.tokens):
        if window is not None:
            window.expire(traffic.now + MINUTE)
            assert window.used == 0, "all of it was given back"


@given(
    failures=st.integers(1, 3),
    probes=st.integers(1, 2),
    happens=st.lists(
        st.tuples(
            st.sampled_from(("enter", "enter", "succeed", "fail", "fail", "give back")),
            st.integers(0, 5),
            st.sampled_from((0.0, 1.0, 4.0, 10.0)),
        ),
        max_size=50,
    ),
)
def test_a_circuit_lets_all_through_or_a_few_probes_or_none(
    failures: int, probes: int, happens: list[tuple[str, int, float]]
) -> None:
    circuit, now, out, opened_at = (
        Circuit(CircuitOptions(failures, 10.0, 5.0, probes)),
        0.0,
        list[Pass](),
        None,
    )
    probing: set[Pass] = set()
    for what, which, seconds in happens:
        now += seconds
        state = circuit.state(now)
        assert (state == "closed") == (opened_at is None)
        assert opened_at is None or (state == "open") == (now < opened_at + 5.0)
        if what == "enter":
            full = state == "half-open" and len(probing) == probes
            assert (circuit.refuses_for(now) == 0.0) == full
            taken = circuit.enter(now)
            expected = state == "closed" or (state == "half-open" and len(probing) < probes)
            assert (taken is not None) == expected
            if taken is not None:
                out.append(taken)
                if state == "half-open":
                    probing.add(taken)
        elif out:
            taken = out.pop(which % len(out))
            if what == "succeed" and circuit.succeed(taken):
                assert taken in probing
                opened_at, probing = None, set()
            elif what == "fail" and circuit.fail(taken, now, "it failed"):
                assert state == "closed" or taken in probing
                assert circuit.memory.last_failure == "it failed"
                opened_at, probing = now, set()
            elif what == "give back":
                circuit.give_back(taken)
            probing.discard(taken)
    if opened_at is not None and not probing:
        assert circuit.enter(opened_at + 5.0) or now > opened_at + 5.0, "somebody may try in the end"
