"""What a graph means: a plain and slow interpreter of it in virtual time, without anything of FastroAI's."""

from __future__ import annotations

import heapq
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Literal
from zlib import crc32

TIMED_OUT = "the branch took too long"
"""The failure of a node that was cut short with its branch."""
IN_A_CIRCLE = "the branch went in a circle"
"""The failure of a node that a branch came to again without having run anything since."""

# --- a graph, and what its nodes do ---


@dataclass(frozen=True)
class Way:
    """An edge."""

    source: str
    target: str
    when: str = "always"
    condition: str | None = None
    fallback: bool = False


@dataclass(frozen=True)
class Sent:
    """A branch that a node asks for."""

    target: str
    inputs: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Act:
    """What a node does in one visit."""

    seconds: float = 1.0
    """Of each attempt."""
    fails: int = 0
    """How many attempts fail before one succeeds."""
    output: Any = None
    kept: Mapping[str, Any] = field(default_factory=dict)
    """What each attempt gives to `ctx.write`, at its beginning."""
    cost: str = "0"
    """US dollars that each attempt spends, at its beginning."""
    asks: int = 0
    """Microcents that an agent costs which it asks, at its beginning. The reference knows of no budget."""
    is_terminal: bool = False
    """Whether its failures are of a kind that is not tried again."""
    sends: tuple[Sent, ...] | None = None
    """What it returns instead of an output, if it is a node that sends."""

    def gives(self) -> Any:
        """Its output, as far as it is compared."""
        return self.output if self.sends is None else [(one.target, one.inputs) for one in self.sends]


@dataclass(frozen=True)
class Part:
    """A node."""

    acts: tuple[Act, ...] = (Act(),)
    """By visit; the last one is repeated."""
    writes: tuple[str, ...] = ()
    reads: tuple[str, ...] | None = None
    max_visits: int | None = None
    attempts: int = 3

    def act(self, visit: int) -> Act:
        return self.acts[min(visit, len(self.acts)) - 1]

    def attempts_at(self, visit: int) -> int:
        """How many are made at most."""
        return 1 if self.act(visit).is_terminal else self.attempts


@dataclass(frozen=True)
class Decision:
    """What the decider says after a node: a target, or nothing that it could be."""

    target: str | None
    seconds: float = 1.0


@dataclass(frozen=True)
class Design:
    """A graph, with a script of what happens in it."""

    nodes: Mapping[str, Part]
    """In declaration order."""
    ways: tuple[Way, ...]
    entry: str
    terminals: tuple[str, ...]
    decisions: Mapping[str, Decision] = field(default_factory=dict)
    """By the node that has the edges."""
    inputs: Mapping[str, Any] = field(default_factory=dict)
    max_steps: int = 10_000
    on_branch_failure: Literal["fail_all", "continue_others", "wait_all"] = "fail_all"
    on_conflict: Literal["last_wins", "first_wins", "error"] = "last_wins"
    branch_timeout: float | None = None
    max_concurrency: int | None = None
    is_uneven: bool = False
    """Whether every visit takes a little longer than it says, each another little, so that none ties."""

    def seconds(self, node: str, visit: int) -> float:
        """Of an attempt; exact in binary, so that sums are."""
        return self.nodes[node].act(visit).seconds + self._little(f"{node}@{visit}")

    def seconds_to_decide(self, node: str, visit: int) -> float:
        return self.decisions[node].seconds + self._little(f"{node}@{visit}?")

    def _little(self, text: str) -> float:
        return crc32(text.encode()) % 4096 / 8192 if self.is_uneven else 0.0

    def ways_from(self, node: str) -> list[Way]:
        return [way for way in self.ways if way.source == node]


# --- what comes of it ---


@dataclass(frozen=True)
class Seen:
    """What a node could look up in a visit."""

    node: str
    visit: int
    memory: dict[str, Any]
    outputs: dict[str, Any]
    errors: dict[str, str]


@dataclass(frozen=True)
class Ending:
    """A visit that ended by itself, or the decision after it."""

    node: str
    visit: int
    at: float
    is_decision: bool = False
    """Whether it is what the decider said after it."""


@dataclass
class Outcome:
    """A run that is over."""

    status: str = ""
    quality: str = ""
    reason: str = ""
    """`""`, `node`, `no terminal`, `max_steps`, `cycle`, `conflict`."""
    conflicts: set[tuple[str, str, str]] = field(default_factory=set)
    """Keys with their two writers, of which an error may name any."""
    output: Any = None
    path: list[Any] = field(default_factory=list)
    memory: dict[str, Any] = field(default_factory=dict)
    visits: dict[str, int] = field(default_factory=dict)
    attempts: dict[str, int] = field(default_factory=dict)
    errors: dict[str, str] = field(default_factory=dict)
    seen: list[Seen] = field(default_factory=list)
    """In the order in which visits began."""
    endings: list[Ending] = field(default_factory=list)
    cost: Decimal = Decimal(0)
    at: float = 0.0
    is_tied: bool = False
    """Whether two things happened at the same moment, so that another order would be as good."""
    has_cut: bool = False
    """Whether something was cancelled that ran."""


# --- where paths meet ---


def join_of(design: Design, targets: list[str], sent_to: list[str]) -> str | None:
    """The nearest node that every path to the end passes from every target; `None` is the end itself.

    Where something was sent to, it has begun already: the path leads on from there.
    """
    common = [
        node
        for node in design.nodes
        if all(target == node or not _reaches_end(design, target, without=node) for target in targets)
        and all(target != node and not _reaches_end(design, target, without=node) for target in sent_to)
    ]
    for node in common:
        if all(other == node or not _reaches_end(design, node, without=other) for other in common):
            return node
    return None


def _reaches_end(design: Design, start: str, *, without: str) -> bool:
    """Whether a path over edges other than `on_failure` leads from a node out of the graph.

    A path may pass over a node that is sent to, as if it was not there.
    """
    found, todo = {start}, [start]
    while todo:
        node = todo.pop()
        onward = _onward(design, node)
        over = [_onward(design, way.target) for way in design.ways_from(node) if way.when == "send"]
        if not all([onward, *over]):
            return True
        onward += [target for targets in over for target in targets]
        new = [node for node in onward if node not in found and node != without]
        found.update(new)
        todo += new
    return False


def _onward(design: Design, node: str) -> list[str]:
    return [way.target for way in design.ways_from(node) if way.when != "on_failure"]


def holds(condition: str, data: Mapping[str, Any]) -> bool:
    """Whether a condition of the tests is true; one that comes to a missing name is not."""
    text = re.sub(r"has\((\w+)\)", lambda match: repr(match[1] in data), condition)
    try:
        return bool(eval(text, {"__builtins__": {}}, dict(data)))
    except NameError:
        return False


# --- branches ---


@dataclass(frozen=True)
class Value:
    """Something that was written, or `is_cleared` away."""

    value: Any
    by: str
    order: int
    is_cleared: bool = False


class Sheet:
    """What a branch knows by name, and what of that is its own doing."""

    def __init__(self, known: Mapping[str, Value]) -> None:
        self.known = dict(known)
        self.own: dict[str, Value] = {}

    def put(self, name: str, value: Value) -> None:
        self.own[name] = value
        if value.is_cleared:
            self.known.pop(name, None)
        else:
            self.known[name] = value

    def values(self) -> dict[str, Any]:
        return {name: value.value for name, value in self.known.items()}


@dataclass
class Fork:
    owner: Branch
    join: str | None
    branches: list[Branch] = field(default_factory=list)
    is_over: bool = False


class Branch:
    """One way through the graph, alone until it forks."""

    def __init__(self, fork: Fork | None, target: str, name: str = "", sent: Sent | None = None) -> None:
        above = fork.owner if fork else None
        self.fork, self.target, self.name = fork, target, name or target
        given = {} if sent is None else {key: Value(value, "", 0) for key, value in sent.inputs.items()}
        self.memory: Sheet = Sheet({**(above.memory.known if above else {}), **given})
        self.outputs: Sheet = Sheet(above.outputs.known if above else {})
        self.errors: Sheet = Sheet(above.errors.known if above else {})
        self.skipped: set[str] = set(above.skipped) if above else set()
        """Since the last visit that was executed."""
        self.has_worked = False
        """Whether a visit was executed in it, or in branches of it."""
        self.path: list[Any] = []
        self.state: Literal["going", "arrived", "ended", "failed", "cancelled"] = "going"
        self.inner: Fork | None = None
        self.visit: Visit | None = None
        self.reason = "node"
        """Why it failed, if it did."""
        self.time_left = 0.0
        """Of the time that it may work."""
        self.works_since: float | None = None
        self.alarms = 0
        """How often it was set when its time will be up; only the last one counts."""


@dataclass
class Visit:
    branch: Branch
    node: str
    number: int
    is_running: bool = False
    is_deciding: bool = False
    attempt: int = 0
    sends: tuple[Sent, ...] = ()


class Over(Exception):
    """The run has ended."""


# --- the interpreter ---


class Interpreter:
    def __init__(self, design: Design) -> None:
        self.design = design
        self.outcome = Outcome()
        self.now = 0.0
        self.order = 0
        """Of events."""
        self.timers: list[tuple[float, int, str, Any]] = []
        self.timer_count = 0
        self.queue: list[Visit] = []
        self.running: list[Visit] = []
        self.deciding: list[Visit] = []
        self.numbers: Counter[str] = Counter()
        self.counted: Counter[str] = Counter()
        """Visits that are to be executed, as limits see them."""
        self.executed: Counter[str] = Counter()
        """Those that were started."""
        self.failed_somewhere = False
        self.reached: dict[str, Any] = {}
        """Outputs of terminals."""

    def run(self) -> Outcome:
        root = Branch(None, self.design.entry)
        for name, value in self.design.inputs.items():
            root.memory.known[name] = Value(value, "", 0)
        try:
            self.go(root, self.design.entry)
            while True:
                self.fill_places()
                self.set_alarms(root)
                self.next_event()
        except Over:
            pass
        self.gather(root)
        outcome = self.outcome
        outcome.at = self.now
        outcome.path = root.path
        outcome.memory = root.memory.values()
        outcome.visits = dict(self.executed)
        if outcome.status == "finished":
            outcome.quality = "degraded" if self.failed_somewhere else "clean"
            first = next(name for name in self.design.terminals if name in self.reached)
            outcome.output = self.reached[first]
        else:
            outcome.quality = "failed"
        return outcome

    def stop(self, status: str, reason: str = "") -> None:
        self.outcome.status, self.outcome.reason = status, reason
        self.cancel(list(self.running))
        raise Over

    # --- time ---

    def after(self, seconds: float, kind: str, about: Any) -> None:
        self.timer_count += 1
        heapq.heappush(self.timers, (self.now + seconds, self.timer_count, kind, about))

    def next_event(self) -> None:
        while True:
            at, _, kind, about = heapq.heappop(self.timers)
            if self.matters(kind, about):
                break
        if at == self.now and self.order:
            self.outcome.is_tied = True
        self.now = at
        self.order += 1
        getattr(self, kind)(about)

    def matters(self, kind: str, about: Any) -> bool:
        """Not what was cancelled."""
        if kind == "time_is_up":
            branch, alarm = about
            return bool(branch.state == "going" and branch.alarms == alarm)
        return bool(about.branch.visit is about)

    def set_alarms(self, branch: Branch) -> None:
        """The time of a branch passes while something runs in it, or is decided."""
        for inner in branch.inner.branches if branch.inner is not None else ():
            if inner.state == "going":
                self.set_alarm(inner)
                self.set_alarms(inner)

    def set_alarm(self, branch: Branch) -> None:
        if self.design.branch_timeout is None:
            return
        works = any(is_inside(visit.branch, branch) for visit in (*self.running, *self.deciding))
        if works == (branch.works_since is not None):
            return
        branch.alarms += 1
        if works:
            branch.works_since = self.now
            self.after(branch.time_left, "time_is_up", (branch, branch.alarms))
        else:
            assert branch.works_since is not None
            branch.time_left -= self.now - branch.works_since
            branch.works_since = None

    # --- visits ---

    def go(self, branch: Branch, node: str) -> None:
        if branch.fork is not None and node == branch.fork.join:
            self.settle(branch, "arrived")
            return
        limit = self.design.nodes[node].max_visits
        if limit is not None and self.counted[node] >= limit:
            self.skip(branch, node)
        else:
            self.visit(branch, node)

    def skip(self, branch: Branch, node: str) -> None:
        if node in branch.skipped:
            self.failed_somewhere = True
            branch.reason = "cycle"
            if node not in branch.errors.known:
                self.note_failure(branch, node, IN_A_CIRCLE)
            self.settle(branch, "failed")
            return
        branch.skipped.add(node)
        self.numbers[node] += 1
        visit = branch.visit = Visit(branch, node, self.numbers[node])
        if node in branch.errors.known:
            self.route_failure(visit)
            return
        latest = branch.outputs.known.get(node)
        self.route(visit, None if latest is None else latest.value)

    def visit(self, branch: Branch, node: str) -> None:
        if sum(self.counted.values()) >= self.design.max_steps:
            self.stop("failed", "max_steps")
        self.numbers[node] += 1
        self.counted[node] += 1
        branch.skipped.clear()
        branch.has_worked = True
        self.clear_stale(branch, node)
        branch.visit = Visit(branch, node, self.numbers[node])
        self.queue.append(branch.visit)

    def clear_stale(self, branch: Branch, node: str) -> None:
        reads = self.design.nodes[node].reads or ()
        if node in branch.outputs.known:
            branch.outputs.put(node, Value(None, node, self.order, is_cleared=True))
        for name, value in list(branch.memory.known.items()):
            if value.by == node and name not in reads:
                branch.memory.put(name, Value(None, node, self.order, is_cleared=True))

    def fill_places(self) -> None:
        while self.queue and len(self.running) < (self.design.max_concurrency or len(self.queue) + 100):
            visit = self.queue.pop(0)
            branch, part = visit.branch, self.design.nodes[visit.node]
            branch.path.append(visit.node)
            self.executed[visit.node] += 1
            memory = branch.memory.values()
            if part.reads is not None:
                memory = {name: value for name, value in memory.items() if name in part.reads}
            self.outcome.seen.append(
                Seen(visit.node, visit.number, memory, branch.outputs.values(), branch.errors.values())
            )
            visit.is_running = True
            self.running.append(visit)
            self.attempt(visit)

    def attempt(self, visit: Visit) -> None:
        visit.attempt += 1
        key = f"{visit.node}@{visit.number}"
        self.outcome.attempts[key] = visit.attempt
        self.outcome.cost += Decimal(self.act_of(visit).cost)
        self.after(self.design.seconds(visit.node, visit.number), "attempt_ended", visit)

    def act_of(self, visit: Visit) -> Act:
        return self.design.nodes[visit.node].act(visit.number)

    def attempt_ended(self, visit: Visit) -> None:
        act, part = self.act_of(visit), self.design.nodes[visit.node]
        if visit.attempt > act.fails:
            written = writes_of(part, visit.node, act)
            if written is not None:
                self.succeeded(visit, written)
            else:
                self.failed(visit, VIOLATION)
        elif visit.attempt < part.attempts_at(visit.number):
            self.attempt(visit)
        else:
            self.failed(visit, error_text(visit.node, visit.number))

    def ended(self, visit: Visit, written: Mapping[str, Any]) -> None:
        self.running.remove(visit)
        self.outcome.endings.append(Ending(visit.node, visit.number, self.now))
        self.write(visit, written)

    def write(self, visit: Visit, written: Mapping[str, Any]) -> None:
        for name, value in written.items():
            visit.branch.memory.put(name, Value(value, visit.node, self.order))

    def succeeded(self, visit: Visit, written: Mapping[str, Any]) -> None:
        self.ended(visit, written)
        act = self.act_of(visit)
        output, visit.sends = act.gives(), act.sends or ()
        visit.branch.outputs.put(visit.node, Value(output, visit.node, self.order))
        if visit.node in visit.branch.errors.known:
            visit.branch.errors.put(visit.node, Value(None, visit.node, self.order, is_cleared=True))
        self.route(visit, output)

    def failed(self, visit: Visit, error: str) -> None:
        self.ended(visit, self.act_of(visit).kept)
        self.failed_somewhere = True
        self.note_failure(visit.branch, visit.node, error)
        self.route_failure(visit)

    def note_failure(self, branch: Branch, node: str, error: str) -> None:
        self.outcome.errors[node] = error
        branch.errors.put(node, Value(error, node, self.order))

    def route_failure(self, visit: Visit) -> None:
        ways = [way for way in self.design.ways_from(visit.node) if way.when in ("on_failure", "always")]
        self.proceed(visit, ways, is_success=False)

    # --- what comes after a node ---

    def route(self, visit: Visit, output: Any) -> None:
        """After a success, or after skipping."""
        visit.is_deciding = any(way.when == "llm_decide" for way in self.design.ways_from(visit.node))
        if visit.is_deciding:
            self.deciding.append(visit)
            self.after(self.design.seconds_to_decide(visit.node, visit.number), "decided", visit)
        else:
            self.proceed(visit, self.ways_after(visit, output, None), is_success=True)

    def decided(self, visit: Visit) -> None:
        self.deciding.remove(visit)
        self.outcome.endings.append(Ending(visit.node, visit.number, self.now, is_decision=True))
        latest = visit.branch.outputs.known.get(visit.node)
        output = None if latest is None else latest.value
        candidates = [way for way in self.design.ways_from(visit.node) if way.when == "llm_decide"]
        said = self.design.decisions[visit.node].target
        chosen = [way for way in candidates if way.target == said]
        chosen = chosen or [way for way in candidates if way.fallback]
        self.proceed(visit, self.ways_after(visit, output, chosen[0]), is_success=True)

    def ways_after(self, visit: Visit, output: Any, chosen: Way | None) -> list[Way]:
        ways = self.design.ways_from(visit.node)
        data = visit.branch.memory.values() | (output if isinstance(output, dict) else {})
        holding = [way for way in ways if way.when == "conditional" and holds(way.condition or "", data)][:1]
        return [
            way
            for way in ways
            if way.when == "on_success"
            or way in holding
            or way == chosen
            or (way.when == "always" and not holding and not visit.sends)
        ]

    def proceed(self, visit: Visit, ways: list[Way], *, is_success: bool) -> None:
        branch = visit.branch
        branch.visit = None
        targets = list(dict.fromkeys(way.target for way in ways))
        sends = visit.sends if is_success else ()
        sent_to = [way.target for way in self.design.ways_from(visit.node) if way.when == "send"]
        if sends or len(targets) > 1:
            self.fork(branch, targets, sends)
        elif targets:
            self.go(branch, targets[0])
        elif is_success and sent_to and (join := join_of(self.design, [], sent_to)) is not None:
            self.go(branch, join)
        elif is_success:
            if visit.node in self.design.terminals:
                latest = branch.outputs.known.get(visit.node)
                self.reached[visit.node] = None if latest is None else latest.value
            self.settle(branch, "ended")
        else:
            self.settle(branch, "failed")

    # --- forks ---

    def fork(self, branch: Branch, targets: list[str], sends: tuple[Sent, ...]) -> None:
        fork = branch.inner = Fork(branch, join_of(self.design, targets, [one.target for one in sends]))
        fork.branches = [Branch(fork, target) for target in targets]
        for number, sent in enumerate(sends):
            before = [one for one in sends[:number] if one.target == sent.target]
            fork.branches.append(Branch(fork, sent.target, f"{sent.target}[{len(before)}]", sent))
        branch.path.append({inner.name: inner.path for inner in fork.branches})
        for inner in fork.branches:
            inner.time_left = self.design.branch_timeout or 0.0
        for inner in fork.branches:
            self.go(inner, inner.target)

    def time_is_up(self, about: tuple[Branch, int]) -> None:
        branch, _ = about
        self.failed_somewhere = True
        under_way = [visit.node for visit in self.running if is_inside(visit.branch, branch)]
        under_way += [visit.node for visit in self.deciding if is_inside(visit.branch, branch)]
        self.cut(branch)
        for node in under_way or [branch.target]:
            self.note_failure(branch, node, TIMED_OUT)
        self.settle(branch, "failed")

    def cut(self, branch: Branch) -> None:
        """Cancel what goes on in a branch, and gather what is left of its own branches."""
        self.cancel([visit for visit in self.running if is_inside(visit.branch, branch)])
        self.forget(branch)

    def cancel(self, visits: list[Visit]) -> None:
        """In the order in which they were started, which is that of what they have written."""
        for visit in visits:
            self.order += 1
            self.outcome.has_cut = True
            self.running.remove(visit)
            self.write(visit, self.act_of(visit).kept)

    def forget(self, branch: Branch) -> None:
        """What would go on in a branch."""
        visit, branch.visit = branch.visit, None
        for waiting in (self.queue, self.deciding):
            if visit is not None and visit in waiting:
                waiting.remove(visit)
        if branch.inner is not None:
            for inner in branch.inner.branches:
                self.forget(inner)
                if inner.state == "going":
                    inner.state = "cancelled"
        self.gather(branch)

    def settle(self, branch: Branch, state: Literal["arrived", "ended", "failed"]) -> None:
        branch.state = state
        if branch.fork is None:
            self.root_is_over(branch)
        elif state == "failed" and self.design.on_branch_failure == "fail_all":
            self.cut(branch.fork.owner)
            branch.fork.owner.reason = branch.reason
            self.settle(branch.fork.owner, "failed")
        elif all(other.state != "going" for other in branch.fork.branches):
            self.fork_is_over(branch.fork)

    def root_is_over(self, root: Branch) -> None:
        if root.state == "failed":
            self.stop("failed", root.reason)
        elif self.reached:
            self.stop("finished")
        else:
            self.stop("failed", "no terminal")

    def fork_is_over(self, fork: Fork) -> None:
        owner, waits = fork.owner, self.design.on_branch_failure == "wait_all" and fork.join is not None
        kept = [branch for branch in fork.branches if branch.state != "failed"]
        some_failed = len(kept) < len(fork.branches)
        if not kept and not waits:
            self.gather(owner)
            owner.reason = fork.branches[0].reason
            self.settle(owner, "failed")
            return
        merged = fork.branches if self.design.on_branch_failure == "wait_all" else kept
        self.merge(owner, fork, merged)
        if any(branch.state == "arrived" for branch in kept) or (waits and some_failed):
            assert fork.join is not None
            self.go(owner, fork.join)
        else:
            self.settle(owner, "ended")

    def merge(self, owner: Branch, fork: Fork, branches: list[Branch]) -> None:
        owner.inner = None
        if any(branch.has_worked for branch in fork.branches):
            owner.has_worked = True
            owner.skipped.clear()
        else:
            owner.skipped.update(*(branch.skipped for branch in fork.branches))
        self.look_for_conflicts(owner, branches)
        put_together(owner.memory, [branch.memory for branch in branches], self.design.on_conflict)
        put_together(owner.outputs, [branch.outputs for branch in branches], "last_wins")
        put_together(owner.errors, [branch.errors for branch in fork.branches], "last_wins")

    def look_for_conflicts(self, owner: Branch, branches: list[Branch]) -> None:
        if self.design.on_conflict != "error":
            return
        for name in {name for branch in branches for name in branch.memory.own}:
            values = [branch.memory.own[name] for branch in branches if name in branch.memory.own]
            writers = [value.by for value in values if not value.is_cleared]
            if len(writers) > 1:
                self.outcome.conflicts.add((name, writers[0], writers[1]))
        if self.outcome.conflicts:
            self.gather_from(owner, branches)
            self.stop("failed", "conflict")

    def gather(self, branch: Branch) -> None:
        """Nothing that was written is lost, where a fork is given up."""
        fork, branch.inner = branch.inner, None
        if fork is None:
            return
        for inner in fork.branches:
            self.gather(inner)
        self.gather_from(branch, fork.branches)

    def gather_from(self, owner: Branch, branches: list[Branch]) -> None:
        policy = "first_wins" if self.design.on_conflict == "first_wins" else "last_wins"
        put_together(owner.memory, [branch.memory for branch in branches], policy)
        put_together(owner.outputs, [branch.outputs for branch in branches], "last_wins")
        put_together(owner.errors, [branch.errors for branch in branches], "last_wins")


def is_inside(branch: Branch, other: Branch) -> bool:
    """Whether a branch is another, or a branch of its branches."""
    return branch is other or (branch.fork is not None and is_inside(branch.fork.owner, other))


def put_together(into: Sheet, sheets: list[Sheet], policy: str) -> None:
    for name in dict.fromkeys(name for sheet in sheets for name in sheet.own):
        values = [sheet.own[name] for sheet in sheets if name in sheet.own]
        written = [value for value in values if not value.is_cleared] or values
        into.put(name, (min if policy == "first_wins" else max)(written, key=lambda value: value.order))


def writes_of(part: Part, node: str, act: Act) -> dict[str, Any] | None:
    """What a successful attempt writes; `None` where its output does not fit."""
    output, kept = act.output, dict(act.kept)
    if act.sends is not None:
        return kept if all(name in kept for name in part.writes) else None
    if not part.writes:
        return kept | {node: output}
    if isinstance(output, dict):
        given = {name: output[name] for name in part.writes if name in output}
        return kept | given if all(name in kept or name in given for name in part.writes) else None
    left = [name for name in part.writes if name not in kept]
    if output is None and not left:
        return kept
    if len(part.writes) == 1:
        return {part.writes[0]: output}
    return kept | {left[0]: output} if len(left) == 1 else None


VIOLATION = "violation"
"""What stands for the error of an output that does not fit."""


def error_text(node: str, visit: int) -> str:
    """What the error of a visit says, as far as it is compared."""
    return f"{node}@{visit}"


def interpret(design: Design) -> Outcome:
    """What comes of a run of this graph."""
    return Interpreter(design).run()


def paths(path: list[Any]) -> Iterator[str]:
    """The nodes in a path, with those in its branches."""
    for each in path:
        if isinstance(each, dict):
            for branch in each.values():
                yield from paths(branch)
        else:
            yield each
