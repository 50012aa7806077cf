"""The rules of lines and circuits that processes share: with deaths, lost answers, and clocks set back."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from typing import Any, Final

from hypothesis import given, settings
from hypothesis import strategies as st
from support.examples import examples

from fastroai.runtime.providers.circuit import CircuitOptions, Pass
from fastroai.runtime.providers.provider_line import MINUTE
from fastroai.runtime.providers.shared_circuit import CircuitRow, OpenCircuit
from fastroai.runtime.providers.shared_line import Limits, LineRow, OpenLine, Seen, Told
from fastroai.store.row_codec import RowCodec

LEASE: Final = 30.0
ROUNDED: Final = 1e-6
LINES: Final = RowCodec(LineRow, 1)
CIRCUITS: Final = RowCodec(CircuitRow, 1)


@dataclass(eq=False)
class Request:
    tokens: int
    inside: bool
    state: str = "waiting"
    sent_at: float = 0.0
    used: int = 0


@dataclass(eq=False)
class Process:
    """A process as the line meets it. It tells all that is so, and knows what it was told."""

    name: str
    requests: dict[str, Request] = field(default_factory=dict)
    ended: dict[str, tuple[float | None, int]] = field(default_factory=dict)
    has_until: float = 0.0
    is_dead: bool = False

    def those(self, *states: str) -> list[tuple[str, Request]]:
        return [(key, each) for key, each in self.requests.items() if each.state in states]


@dataclass
class World:
    """What really happens, by a clock that nobody sets."""

    limits: Limits
    now: float = 1000.0
    ahead: float = 0.0
    """How far the clock of the store is ahead."""
    value: bytes | None = None
    processes: list[Process] = field(default_factory=lambda: [Process(name) for name in "abcd"])
    sent: list[Request] = field(default_factory=list)
    ids: Any = field(default_factory=itertools.count)

    def exchange(self, process: Process, *, is_heard: bool = True, held_back: float = 0.0) -> Seen:
        told = Told(
            holder=process.name,
            owner=f"process {process.name}",
            lease=LEASE,
            limits=self.limits,
            waiting=[(key, each.tokens, each.inside) for key, each in process.those("waiting")],
            sent={key: self.now - each.sent_at for key, each in process.those("sent")},
            ended={
                key: (None if at is None else self.now - at, tokens)
                for key, (at, tokens) in process.ended.items()
            },
            held_back_for=held_back,
            dead=[f"process {each.name}" for each in self.processes if each.is_dead and each.name == "a"],
        )
        before = self.value
        line = OpenLine(None if before is None else LINES.decode(before), self.now + self.ahead)
        seen = line.exchange(told)
        if line.is_changed:
            self.value = LINES.encode(line.row)
        elif before is not None:  # apart from the minutes that are over, it is as it was
            old = LINES.decode(before)
            assert (line.row.claims, line.row.held_until) == (old.claims, old.held_until)
            assert line.row.holders == old.holders
        if is_heard:
            self.hear(process, seen)
        return seen

    def hear(self, process: Process, seen: Seen) -> None:
        process.ended.clear()
        process.has_until = self.now + seen.lease_left
        order = [each for _, each in process.those("waiting") if not each.inside]
        granted = [each for key, each in process.those("waiting") if key in seen.granted]
        outer = [each for each in granted if not each.inside]
        assert outer == order[: len(outer)], "first come, first served in a process"
        for each in granted:
            each.state = "granted"
        for key, each in process.those("granted", "sent"):
            if key not in seen.granted:  # it was silent for too long
                each.state = "lapsed"
        self.check()

    def send(self, process: Process, request: Request) -> None:
        if self.now >= process.has_until:
            return
        request.state, request.sent_at, request.used = "sent", self.now, request.tokens
        self.sent.append(request)
        self.check()

    def end(self, process: Process, key: str, tokens: int | None) -> None:
        request = process.requests.pop(key)
        sent_at = request.sent_at if request.state == "sent" else None
        if tokens is None or sent_at is None:
            process.ended[key] = (None, 0)
            if request.state == "sent":  # it never reached the provider
                self.sent.remove(request)
            return
        request.used = min(tokens, request.tokens)  # nobody can hold against a longer answer
        process.ended[key] = (sent_at, request.used)

    def check(self) -> None:
        """Of what has left in any minute, and of what is on its way."""
        max_concurrency, requests, most_tokens = self.limits
        had = [each for each in self.processes if self.now < each.has_until]
        out = [each for process in had for _, each in process.those("granted", "sent")]
        granted = [each for each in out if each.state == "granted"]
        if max_concurrency is not None:
            assert sum(not each.inside for each in out) <= max_concurrency
        minute = [each for each in self.sent if each.sent_at + MINUTE > self.now + ROUNDED]
        if requests is not None:
            assert len(minute) + len(granted) <= requests
        if most_tokens is not None:
            amounts = [each.used or each.tokens for each in (*minute, *granted)]
            assert sum(amounts) <= most_tokens or len([each for each in amounts if each]) == 1

    def finish(self) -> None:
        """Let everybody go. Nobody of those who live waits for ever."""
        living = [each for each in self.processes if not each.is_dead]
        for _ in range(1000):
            for process in living:
                for _, request in process.those("granted"):
                    self.send(process, request)
                for key, request in process.those("sent", "lapsed", "granted"):
                    self.end(process, key, request.tokens)
                seen = self.exchange(process)
            if not any(each.requests or each.ended for each in living):
                break
            self.now += 0.5 if seen.next_in is None else max(0.5, min(seen.next_in, LEASE / 3))
        assert not any(each.requests for each in living)
        self.now += MINUTE + LEASE + 1
        for process in living:
            self.exchange(process)
        if self.value is not None and living:
            row = LINES.decode(self.value)
            assert not row.claims
            assert not row.holders


KINDS: Final = (
    *("ask", "ask", "go", "go", "go", "grant", "end", "end", "inside", "never", "lost", "die"),
    *("pass", "pass", "set back", "hold back"),
)
OPERATIONS = st.tuples(
    st.sampled_from(KINDS),
    st.integers(0, 1),
    st.integers(0, 9),
    st.integers(1, 12),
    st.sampled_from((0.1, 0.5, 7.0, 20.0, 29.0, 31.0, 59.0, 60.0)),
)
LIMITS = st.tuples(*(st.none() | st.integers(1, most) for most in (3, 5, 20)))


@settings(max_examples=examples(60))
@given(limits=LIMITS, operations=st.lists(OPERATIONS, min_size=10, max_size=60))
def test_a_shared_line_keeps_its_limits_whoever_dies_and_lets_everybody_go(
    limits: Limits, operations: list[tuple[str, int, int, int, float]]
) -> None:
    world = World(limits)
    for kind, who, which, tokens, seconds in operations:
        process = world.processes[who]
        if process.is_dead:  # another one takes its place
            process = world.processes[2 + who]
        if kind == "pass":
            world.now += seconds
        elif kind == "set back":
            world.ahead -= seconds * 10
        elif kind == "ask" or (kind == "inside" and process.those("sent")):
            for _ in range(1 + which % 3):
                process.requests[f"{process.name}{next(world.ids)}"] = Request(tokens, kind == "inside")
        elif kind in ("grant", "lost", "hold back"):
            held_back = seconds if kind == "hold back" else 0.0
            world.exchange(process, is_heard=kind != "lost", held_back=held_back)
        elif kind == "go":
            world.exchange(process)
            for _, request in process.those("granted"):
                world.send(process, request)
        elif kind == "end" and (sent := process.those("sent")):
            world.end(process, sent[which % len(sent)][0], tokens)
        elif kind == "never" and (there := process.those("waiting", "granted", "sent")):
            world.end(process, there[which % len(there)][0], None)
        elif kind == "die":
            process.is_dead = process in world.processes[:2]
        world.check()
    world.finish()


@settings(max_examples=examples(60))
@given(
    failures=st.integers(1, 3),
    probes=st.integers(1, 2),
    happens=st.lists(
        st.tuples(
            st.sampled_from(("enter", "enter", "well", "ill", "ill", "unknown", "lost", "die")),
            st.integers(0, 5),
            st.sampled_from((0.0, 1.0, 4.0, 10.0)),
        ),
        max_size=50,
    ),
)
def test_a_shared_circuit_counts_probes_together_and_forgets_those_that_die(
    failures: int, probes: int, happens: list[tuple[str, int, float]]
) -> None:
    options, now, value = CircuitOptions(failures, 10.0, 5.0, probes), 1000.0, None
    out, probing, opened_at, ids = list[tuple[str, Pass]](), dict[str, float](), None, itertools.count()

    def opened() -> OpenCircuit:
        return OpenCircuit(None if value is None else CIRCUITS.decode(value), now)

    for what, which, seconds in happens:
        now += seconds
        probing = {each: at for each, at in probing.items() if at + 5.0 > now}
        circuit = opened()
        if what in ("enter", "lost"):
            request = str(next(ids))
            taken = circuit.enter(options, request).taken
            half_open = opened_at is not None and now >= opened_at + 5.0
            assert (taken is not None) == (opened_at is None or (half_open and len(probing) < probes))
            if taken is not None and half_open:
                probing[request] = now
            if what == "lost":  # asked again, it has what it had
                value = CIRCUITS.encode(circuit.row) if circuit.is_changed else value
                circuit = opened()
                again = circuit.enter(options, request).taken
                assert (again is None) == (taken is None)
            if taken is not None:
                out.append((request, taken))
        elif out:
            request, taken = out.pop(which % len(out))
            if what != "die":
                seen = circuit.end(options, request, taken.period, what, "it failed")  # type: ignore[arg-type]
                if seen.has_turned:
                    assert what in ("well", "ill")
                    assert what == "ill" or request in probing
                    opened_at, probing = (now if what == "ill" else None), {}
                assert circuit.end(options, request, taken.period, what, "").has_turned is False  # type: ignore[arg-type]
                probing.pop(request, None)
        if circuit.is_changed:
            value = CIRCUITS.encode(circuit.row)
    now += 5.0
    assert opened().enter(options, "last").taken is not None, "somebody may try in the end"


def test_what_a_dead_process_may_have_sent_counts_for_a_minute_from_the_end_of_its_lease() -> None:
    world = World((None, 1, None))
    dies, lives = world.processes[:2]
    for process in (dies, lives):
        process.requests[f"{process.name}1"] = Request(1, inside=False)
    world.exchange(dies)
    for seconds, is_granted in ((1.0, False), (LEASE, False), (MINUTE - 2.0, False), (2.0, True)):
        world.now += seconds
        assert bool(world.exchange(lives).granted) is is_granted
