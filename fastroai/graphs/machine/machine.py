"""What runs next in a graph: a pure state machine, `event -> commands`.

No clock, no I/O, no coroutine. The live run, its resume and any replay of its events get the same commands.
It changes its own state and touches only what depends on the event, so a visit costs the same in the first
and in the ten-thousandth turn of a loop.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Final, Literal, assert_never

from fastroai.errors import GraphStopped, MemoryConflict, VisitsExhausted
from fastroai.graphs.machine.branches import Branch, Fork, Forked, Joined
from fastroai.graphs.machine.events import Ending, Interrupted, Visit, decision_name
from fastroai.graphs.machine.merging import merge, merge_failures, salvage
from fastroai.graphs.machine.routing import Choice, NodeOutcome, Route, Unevaluated, routed
from fastroai.graphs.machine.sends import Send
from fastroai.graphs.shape.plan import GraphPlan
from fastroai.runs.decoding import value_of
from fastroai.runs.machine import Cancel, Changed, Decision, Told, Unit, why_paused
from fastroai.runtime import FailureClass, facts
from fastroai.steps.visits import NodeFailure
from fastroai.tracing.attributes import error_summary

_OVER: Final = ("arrived", "ended")


@dataclass(frozen=True, slots=True)
class Stopped:
    """What ends a run before its time."""

    ending: Ending
    code: facts.ReasonCode
    reason: str
    error: BaseException | None = None
    node: str = ""
    """The node that failed, if one did."""


class GraphMachine:
    """The state of one run."""

    def __init__(
        self, plan: GraphPlan, part: facts.Part = facts.NOWHERE, *, known: Mapping[Visit, bool] | None = None
    ) -> None:
        """`part` is that of its facts.

        Of a run that is on record, `known` are visits that it came to, and whether they were skipped. Limits
        may have changed since then, so they hold for other visits only; that of nodes at once, after
        `RunResumed`.
        """
        self.plan, self.part = plan, part
        self.ending: Ending | None = None
        """How the run ended, once it has."""
        self.events = 0
        """How many it was told."""
        self.root = Branch(plan.entry)
        self.visits: defaultdict[str, int] = defaultdict(int)
        """How often each node was started."""
        self.reached: dict[str, object] = {}
        """Outputs of the terminals that were reached, perhaps as they are on record."""
        self.failures: dict[str, BaseException] = {}
        """The latest failure of each node."""
        self.cancelled_for: dict[Visit, str] = {}
        """Why visits, or the decisions after them, were cancelled."""
        self.timeouts: list[BaseException] = []
        """Failures of branches that took too long."""
        self.stopped: Stopped | None = None
        """What ended the run before its time."""
        self._decided: list[Decision]
        self.decisions = {
            name: node for node in plan.asking if (name := decision_name(node)) not in plan.edges
        }
        """The nodes after which models decide, by the name of the decision."""
        self._todo: list[Callable[[], None]] = []
        self._numbers: defaultdict[str, int] = defaultdict(int)
        self._limited: defaultdict[str, int] = defaultdict(int)
        self._steps = 0
        self._wrote: defaultdict[str, set[str]] = defaultdict(set)
        self._known: Mapping[Visit, bool] = {} if known is None else known
        self._ready: deque[tuple[facts.StepStarted, Branch]] = deque()
        self.running: dict[Unit, Branch] = {}
        """The branches of visits that run, first started first."""
        self._at_once = plan.max_concurrency if known is None else None
        """How many nodes run at once, at most."""
        self._begun: dict[Visit, facts.StepStarted] | None = None if known is None else {}
        """What was started before this process has taken the run up."""
        self._deciding: dict[Unit, tuple[Branch, NodeOutcome, object]] = {}
        self._asking: dict[Unit, Branch] = {}
        self.questions: dict[Visit, facts.QuestionAsked] = {}
        """The questions of pause nodes that wait for a person, first asked first."""
        self._halted: dict[Unit, tuple[Branch, tuple[facts.Wait, ...]]] = {}
        """Visits that have halted, and what they wait for; nothing where a run inside was paused."""
        self._branches: dict[str, Branch] = {}
        self._unwinding: dict[Visit, list[tuple[set[Visit], Callable[[], None]]]] = {}
        self._dead_ends: dict[str, None] = {}
        self._lost: dict[Visit, str] = {}
        """Visits that failed with their branches, which have not come together, and the branches."""
        self._left: tuple[str, ...] = ()
        """The nodes with which a run goes on that was stopped."""
        self._pausing = self._finished = False

    def handle(self, fact: Told | Interrupted) -> list[Decision]:
        """Take in what happened; say what to do."""
        decided: list[Decision] = []
        self._decided = decided
        self.events += 1
        self._take_in(fact)
        if self._unwinding and isinstance(
            fact, facts.StepFinished | facts.StepFailed | facts.StepCancelled | facts.StepHalted
        ):
            self._unwound(self._visit_of(fact))
        while self._todo:
            self._todo.pop()()
        if self._ready:
            self._start_ready()
        if not self.running and not self._deciding and not self._finished:
            self._settle()
        return decided

    def _visit_of(self, fact: facts.StepFact) -> Visit:
        """The visit that a fact is about, or after which it was decided."""
        return Visit(self.decisions.get(fact.step_id, fact.step_id), fact.visit)

    def decided_after(self, fact: facts.StepFact) -> Visit | None:
        """The visit after which a model decides, if that is what a fact is about."""
        node = self.decisions.get(fact.step_id)
        return None if node is None else Visit(node, fact.visit)

    def output_of(self, visit: Visit) -> object:
        """What a visit gave after which a model decides. Raises `RunCorrupt` as `value_of`."""
        return value_of(self._deciding[visit][2])

    def read_what_decides(self) -> None:
        """Decode the values by which conditions and reducers go that are in memory, before anything runs.

        Raises:
            RunCorrupt: one cannot be decoded.
        """
        plan = self.plan
        names = {name for condition in plan.conditions.values() for name in condition.names}
        for branch in self.root.inside():
            for name in names.union(plan.reducers):
                branch.memory.get(name)

    def branch_of(self, visit: Unit) -> Branch | None:
        """The branch of a visit that has started, or waits for a decision or an answer; else `None`."""
        branch = self.running.get(visit)
        if branch is not None:
            return branch
        deciding = self._deciding.get(visit)
        return self._asking.get(visit) if deciding is None else deciding[0]

    def awaits(self, visit: Visit) -> Literal["outcome", "decision", "answer"] | None:
        """What has to come of a visit next; `None` where it has not started or is over."""
        if visit in self.running:
            return "outcome"
        if visit in self._deciding:
            return "decision"
        return "answer" if visit in self._asking else None

    @property
    def open_branches(self) -> Mapping[str, Branch]:
        """Branches of forks that go on, by what tells them from others.

        One that is around others comes before these; those of one fork are in the order of its edges.
        """
        return self._branches

    @property
    def unwanted(self) -> list[Visit]:
        """Visits and decisions that were cancelled, and have not said so yet."""
        return [branch.visit for branch in self._at_work() if not self._goes_on(branch)]

    # --- events ---

    def _take_in(self, fact: Told | Interrupted) -> None:
        match fact:
            case facts.StepFinished(step_id=step_id) if step_id in self.decisions:
                branch, outcome, output = self._deciding.pop(self._visit_of(fact))
                self._route(branch, outcome, output, fact.output)
            case facts.StepFinished(step_id=step_id, visit=number):
                self._succeed(self.running.pop((step_id, number)), fact.written, fact.output)
            case facts.RunStarted(inputs=inputs):
                self.root.memory.write_all(inputs, "", self.events)
                self._go_later(self.root, self.plan.entry, "it is the entry")
            case facts.QuestionAsked():
                self._on_question(self._visit_of(fact), fact)
            case facts.AnswerGiven(answer=answer, written=written):
                visit = self._visit_of(fact)
                del self.questions[visit]
                self._succeed(self._asking.pop(visit), written, answer)
            case facts.StepFailed():
                self._on_failure(self._visit_of(fact), fact)
            case facts.StepCancelled(written=written):
                visit = self._visit_of(fact)
                self._deciding.pop(visit, None)
                cancelled = self.running.pop(visit, None)
                if cancelled is not None:
                    self._keep(cancelled, visit.node, written)
            case facts.StepHalted():
                self._on_halt(self._visit_of(fact), fact)
            case facts.BranchTimedOut(branch=identity):
                timed_out = self._branches.get(identity)
                if timed_out is not None and self._goes_on(timed_out):
                    self._on_timeout(timed_out, fact.error, FailureClass(fact.failure.failure_class))
            case Interrupted(visit, written):
                self._keep(self.running[visit], visit.node, written)
            case facts.RunResumed():
                self._at_once = self.plan.max_concurrency
                self._put_back()
            case facts.PauseRequested():
                self._pausing = True
            case facts.StopRequested(reason=reason):
                self._stop(Stopped("cancelled", "cancelled", reason))
            case (
                facts.SkipRequested()
                | facts.IterationStarted()
                | facts.IterationReported()
                | facts.IterationAborted()
                | facts.CheckpointSet()
                | facts.CheckpointRestored()
            ):
                raise TypeError(f"a graph has no {type(fact).__name__}")
            case _:
                assert_never(fact)

    def _on_question(self, visit: Visit, fact: facts.QuestionAsked) -> None:
        branch = self.running.pop(visit)
        self._keep(branch, visit.node, fact.written)
        if self._goes_on(branch):
            self._asking[visit], self.questions[visit] = branch, fact

    def _on_halt(self, visit: Visit, fact: facts.StepHalted) -> None:
        branch = self.running.pop(visit)
        self._keep(branch, visit.node, fact.written)
        if self._goes_on(branch):
            self._halted[visit] = branch, fact.waits

    def wake(self) -> list[Visit]:
        """Let visits run that had halted, since another process has taken the run up; which."""
        woken = [branch.visit for branch, _ in self._halted.values()]
        self.running.update((branch.visit, branch) for branch, _ in self._halted.values())
        self._halted.clear()
        return woken

    @property
    def waits(self) -> tuple[facts.Wait, ...]:
        """What pause nodes, and then steps that have halted, wait for."""
        return tuple(wait for _, wait in self._waits())

    def _waits(self) -> Iterator[tuple[str, facts.Wait]]:
        for visit, asked in self.questions.items():
            yield visit.node, asked.wait
        for (node, _), (_, waits) in self._halted.items():
            yield from ((node, wait) for wait in waits)

    def _succeed(self, branch: Branch, written: Mapping[str, object], output: object) -> None:
        node = branch.node
        self._keep(branch, node, written)
        branch.outputs.write(node, output, node, self.events)
        if node in self.failures:
            branch.failures.clear(node)
        self._route(branch, "succeeded", output, None)

    def _on_failure(self, visit: Visit, fact: facts.StepFailed) -> None:
        """A budget around the graph ends it, whatever the edges say."""
        error, branch = fact.error, None
        if fact.step_id in self.decisions:
            del self._deciding[visit]
        else:
            branch = self.running.pop(visit)
            self._keep(branch, visit.node, fact.written)
            failed = NodeFailure(error, FailureClass(fact.failure.failure_class), fact.attempt)
            self._note_failure(branch, visit.node, failed)
        if branch is None or fact.budget == "outer":
            stopped = Stopped("failed", "step_failed", fact.failure.message, error)
            if fact.budget == "outer":
                stopped = replace(stopped, ending="budget_exceeded", code="budget_exceeded")
            self._stop(stopped, [visit])
        else:
            self._route(branch, "failed", None, None)

    @property
    def resume_at(self) -> tuple[str, ...]:
        """The nodes with which the run goes on when it is resumed; none if it would end in the same way."""
        if self.stopped is not None:
            return self._left
        return tuple(branch.node for branch in self._waiting())

    def _waiting(self) -> Iterator[Branch]:
        """The branches that go on when the run is resumed; those with questions before others that wait."""
        yield from self._at_work()
        yield from self._asking.values()
        yield from (branch for branch, questions in self._halted.values() if questions)
        yield from (branch for branch, questions in self._halted.values() if not questions)
        yield from (branch for _, branch in self._ready if branch.state == "open")

    def _on_timeout(self, branch: Branch, error: BaseException, failure_class: FailureClass) -> None:
        """What was cut short has failed of it, else the node that the branch did not get to."""
        self.timeouts.append(error)
        unwinding = self._cancel_inside(branch, f"branch {branch.identity!r} took too long")
        nodes = [visit.node for visit in unwinding] or [branch.target]
        for node in nodes:
            self._note_failure(branch, node, NodeFailure(error, failure_class, 0))
        self._fail(branch, error, nodes[0], unwinding)

    def _note_failure(self, branch: Branch, node: str, failure: NodeFailure) -> None:
        self.failures[node] = failure.error
        branch.failures.write(node, failure, node, self.events)

    def _keep(self, branch: Branch, node: str, written: Mapping[str, object]) -> None:
        if written:
            branch.memory.write_all(written, node, self.events)
            self._wrote[node].update(written)

    def _goes_on(self, branch: Branch) -> bool:
        return branch.state == "open" and self.stopped is None

    # --- from node to node ---

    def _route(self, branch: Branch, outcome: NodeOutcome, output: object, decision: Choice | None) -> None:
        """Go on after a visit, if its branch does."""
        if branch.state != "open" or self.stopped is not None:
            return
        node = branch.node
        route: Route | None = self.plan.fixed_routes.get((node, outcome))
        if route is None:
            if node in self.plan.asking and decision is None and outcome != "failed":
                self._ask_model(branch, outcome, output)
                return
            route = routed(self.plan, node, outcome, output, branch.memory, decision)
        if route.edges:
            resolved = facts.EdgesResolved(
                node, route.edges, visit=branch.number, branch=branch.identity, after=outcome, part=self.part
            )
            self._decided.append(resolved)
            if route.unevaluated:
                self._decided.append(Changed(Unevaluated(node, route.unevaluated)))
        branch.sources = (node,)
        found = route.targets
        if route.sends or len(found) > 1:
            self._fork(branch, route)
        elif found:
            self._go(branch, found[0], route.cause)
        elif outcome == "failed":
            self._fail(branch, branch.failures[node].error, node)
        elif node in self.plan.sending and (join := self.plan.join_of((), self.plan.sending[node])):
            self._go_later(branch, join, f"{node!r} has sent nothing")
        else:
            if node in self.plan.terminals:
                self.reached[node] = output
            else:
                self._dead_ends[node] = None
            self._end(branch, "ended")

    def _ask_model(self, branch: Branch, outcome: NodeOutcome, output: object) -> None:
        visit = branch.visit
        self._deciding[visit] = (branch, outcome, output)
        self._decided.append(
            facts.StepStarted(
                decision_name(visit.node),
                "its edges say llm_decide",
                visit=visit.number,
                branch=branch.identity,
                part=self.part,
            )
        )

    def _go_later(self, branch: Branch, node: str, cause: str) -> None:
        """Not at once: forks inside of forks are no reason to nest calls."""
        self._todo.append(lambda: self._go(branch, node, cause) if self._goes_on(branch) else None)

    def _go(self, branch: Branch, node: str, cause: str) -> None:
        if branch.fork is not None and node == branch.fork.join:
            self._end(branch, "arrived")
            return
        self._numbers[node] = number = self._numbers[node] + 1
        branch.node, branch.number = node, number
        limit = self.plan.max_visits.get(node)
        is_skipped = self._known.get(branch.visit) if self._known else None
        if is_skipped or (is_skipped is None and limit is not None and self._limited[node] >= limit):
            self._todo.append(partial(self._skip, branch, f"max_visits={limit} was reached"))
        elif is_skipped is None and self._steps >= self.plan.max_steps:
            reason = f"max_steps={self.plan.max_steps} visits were made before {node!r}"
            self._stop(Stopped("failed", "max_steps", reason), [branch.visit])
        else:
            self._steps += 1
            if limit is not None:
                self._limited[node] += 1
            if branch.skipped:
                branch.skipped.clear()
            if branch.fork is not None:
                branch.fork.has_run_nodes = True
            if number > 1:
                self._clear_stale(branch, node)
            started = facts.StepStarted(node, cause, visit=number, branch=branch.identity, part=self.part)
            self._ready.append((started, branch))

    def _skip(self, branch: Branch, cause: str) -> None:
        node = branch.node
        if node in branch.skipped:
            error = VisitsExhausted(tuple(sorted(branch.skipped)))
            if node not in branch.failures:  # whose failure says more
                self._note_failure(branch, node, NodeFailure(error, FailureClass.TERMINAL, 0))
            self._fail(branch, error, node)
            return
        branch.skipped.add(node)
        self._decided.append(
            facts.StepSkipped(node, cause, visit=branch.number, branch=branch.identity, part=self.part)
        )
        if node in branch.failures:  # its last visit failed
            self._route(branch, "failed", None, None)
        else:
            kept = branch.outputs.written(node)
            self._route(branch, "skipped", None if kept is None else kept.held, None)

    def _clear_stale(self, branch: Branch, node: str) -> None:
        """Forget what an earlier visit left, but for what the node declares to read."""
        branch.outputs.clear(node)
        kept = self.plan.reads.get(node, ())
        for key in self._wrote[node]:
            written = branch.memory.written(key)
            if written is not None and written.node == node and key not in kept:
                branch.memory.clear(key)

    def _start_ready(self) -> None:
        if self._pausing or self.stopped is not None:
            return
        while self._ready and (self._at_once is None or len(self.running) < self._at_once):
            started, branch = self._ready.popleft()
            if branch.state != "open":
                continue
            node = branch.node
            self.running[node, branch.number] = branch
            if self._begun is not None:
                self._begun[branch.visit] = started
            branch.path.append(node)
            self.visits[node] += 1
            self._decided.append(started)

    def _put_back(self) -> None:
        """Nothing runs yet: what had started waits in line again, in the order in which it had."""
        begun, self._begun = self._begun or {}, None
        for branch in reversed(self.running.values()):
            branch.path.pop()
            self.visits[branch.node] -= 1
            self._ready.appendleft((begun[branch.visit], branch))
        self.running.clear()

    # --- branches ---

    def _fork(self, branch: Branch, route: Route) -> None:
        node = branch.node
        sent_to = tuple(dict.fromkeys(send.target for send in route.sends))
        fork = Fork(branch, node, branch.number, self.plan.join_of(route.targets, sent_to))
        fork.branches = (*(Branch(target, fork) for target in route.targets), *_sent(route.sends, fork))
        fork.open = len(fork.branches)
        branch.forked = fork
        branch.path.append({one.name: one.path for one in fork.branches})
        self._decided.append(Changed(Forked(fork)))
        for one in fork.branches:
            one.sources = (node,)
            self._branches[one.identity] = one
        for one in reversed(fork.branches):  # what is noted last comes first: each goes as far as it can
            cause = route.cause if one.name == one.target else f"{node!r} has sent {one.name}"
            self._go_later(one, one.target, cause)

    def _end(self, branch: Branch, state: Literal["arrived", "ended"]) -> None:
        """A branch is over, and has not failed."""
        branch.state = state
        if branch.fork is not None:
            self._leave(branch, branch.fork)

    def _fail(self, branch: Branch, error: BaseException, node: str, unwinding: Iterable[Visit] = ()) -> None:
        """A branch has failed at a node, as nothing handles that; `unwinding` is what was cancelled in it."""
        self._lost |= dict.fromkeys(unwinding or [branch.visit], branch.identity)
        self._give_up(branch, error, node, unwinding)

    def _give_up(
        self, branch: Branch, error: BaseException, node: str, unwinding: Iterable[Visit] = ()
    ) -> None:
        """A branch has failed, itself or all that it forked into."""
        branch.state, branch.failure = "failed", (node, error)
        fork = branch.fork
        if fork is None or self.plan.on_branch_failure == "fail_all":
            reason = f"{node!r} failed: {error_summary(error)}"
            self._stop(Stopped("failed", self._code_of(error), reason, error, node), self._lost)
        else:
            self._branches.pop(branch.identity, None)
            self._when_unwound(unwinding, lambda: self._leave(branch, fork))

    def _code_of(self, error: BaseException) -> facts.ReasonCode:
        if isinstance(error, VisitsExhausted):
            return "max_visits"
        return "branch_timeout" if any(error is one for one in self.timeouts) else "step_failed"

    def _when_unwound(self, visits: Iterable[Visit], then: Callable[[], None]) -> None:
        """Go on when everything that was cancelled has ended: what it wrote counts, and nothing overlaps."""
        left = set(visits)
        for visit in left:
            self._unwinding.setdefault(visit, []).append((left, then))
        if not left:
            self._todo.append(then)

    def _unwound(self, visit: Visit) -> None:
        for left, then in self._unwinding.pop(visit, ()):
            left.discard(visit)
            if not left:
                self._todo.append(then)

    def _fail_around(self, fork: Fork, branch: Branch) -> None:
        around = fork.branch
        if self._goes_on(around):
            salvage(around, self.plan)
            assert branch.failure is not None
            node, error = branch.failure
            self._give_up(around, error, node)

    def _leave(self, branch: Branch, fork: Fork) -> None:
        self._branches.pop(branch.identity, None)
        salvage(branch, self.plan)
        fork.open -= 1
        if not fork.open:
            self._todo.append(lambda: self._close(fork))

    def _close(self, fork: Fork) -> None:
        """All branches of a fork are over: bring together what they know, and go on."""
        around = fork.branch
        if not self._goes_on(around):
            return
        failed = [branch for branch in fork.branches if branch.state == "failed"]
        waits_for_all = self.plan.on_branch_failure == "wait_all"
        takes_errors = waits_for_all and fork.join is not None and bool(failed)
        if len(failed) == len(fork.branches) and not takes_errors:
            self._fail_around(fork, failed[0])
            return
        kept = [branch for branch in fork.branches if waits_for_all or branch.state in _OVER]
        try:
            overwritten = merge(around, kept, self.plan)
        except MemoryConflict as error:
            merge(
                around, kept, self.plan, forgiving=True
            )  # what was left out stays so, though the run ends here
            around.forked = None
            self._stop(Stopped("failed", "memory_conflict", str(error), error))
            return
        self._leave_fork(fork, kept)
        if fork.join is not None and (takes_errors or any(one.state == "arrived" for one in kept)):
            cause = f"the branches of {fork.node!r} have come together"
            self._decided.append(Changed(Joined(fork, cause, overwritten)))
            self._go_later(around, fork.join, cause)
        else:
            cause = f"the branches of {fork.node!r} have ended"
            self._decided.append(Changed(Joined(fork, cause, overwritten)))
            self._end(around, "ended")

    def _leave_fork(self, fork: Fork, kept: list[Branch]) -> None:
        around = fork.branch
        around.forked = None
        if self._lost:
            inside = f"{fork.identity}/"
            self._lost = {visit: at for visit, at in self._lost.items() if not at.startswith(inside)}
        around.sources = tuple(
            dict.fromkeys(node for branch in kept if branch.state != "ended" for node in branch.sources)
        )
        merge_failures(around, fork.branches)
        if not fork.has_run_nodes:
            around.skipped.update(*(branch.skipped for branch in kept))
            return
        around.skipped.clear()
        if around.fork is not None:
            around.fork.has_run_nodes = True

    def _cancel_inside(self, branch: Branch, cause: str) -> list[Visit]:
        """Cancel what runs in a branch, first started first; what has to end before others go on."""
        inside = set(branch.inside())
        for one in inside:
            if one is not branch and one.state == "open":
                one.state = "cancelled"
                self._branches.pop(one.identity, None)
        for asks in [asks for asks in self._asking.values() if asks in inside]:
            del self._asking[asks.visit], self.questions[asks.visit]
        for halted in [halted for halted, _ in self._halted.values() if halted in inside]:
            del self._halted[halted.visit]
        running = [one.visit for one in self._at_work() if one in inside]
        self._cancel(running, cause)
        return running

    def _cancel(self, visits: Iterable[Visit], cause: str) -> None:
        """Each once: a second time would interrupt what it does to end."""
        units: list[Unit] = []
        for visit in visits:
            if visit not in self.cancelled_for:
                self.cancelled_for[visit] = cause
                name = decision_name(visit.node) if visit in self._deciding else visit.node
                units.append((name, visit.number))
        if units:
            answers_first = self.stopped is not None and self.stopped.ending == "budget_exceeded"
            self._decided.append(Cancel(units, cause, answers_first=answers_first))

    # --- the end ---

    def _stop(self, stopped: Stopped, failed: Iterable[Visit] = ()) -> None:
        """The run ends before its time. If it is resumed, visits that have `failed` are made again."""
        if self.stopped is None and not self._finished:
            self.stopped = stopped
            if stopped.code not in ("memory_conflict", "max_visits"):
                left = dict.fromkeys((*failed, *(branch.visit for branch in self._waiting())))
                self._left = tuple(visit.node for visit in left)
            self._cancel([branch.visit for branch in self._at_work()], stopped.reason)

    def _at_work(self) -> Iterator[Branch]:
        """The branches whose visits run, first started first, and then those after which a model decides."""
        yield from self.running.values()
        yield from (branch for branch, _, _ in self._deciding.values())

    def _settle(self) -> None:
        """Nothing runs any more: the run has ended, or waits."""
        if self.stopped is not None:
            salvage(self.root, self.plan)
            stopped = self.stopped
            self._finish(stopped.ending, stopped.code, stopped.reason, stopped.error, stopped.node)
        elif self.root.state == "ended" and self.reached:
            self._finish("finished", "completed", f"reached {', '.join(map(repr, self.reached))}")
        elif self.root.state == "ended":
            where = ", ".join(map(repr, self._dead_ends))
            reason = f"no terminal was reached: no edge was taken after {where}"
            self._finish("failed", "no_terminal", reason)
        else:
            if self._pausing or not self.waits:
                self._finish("paused", "pause_requested", "a pause was requested")
            else:
                self._finish("paused", *why_paused(self._waits()))

    def _finish(
        self,
        ending: Ending,
        code: facts.ReasonCode,
        reason: str,
        error: BaseException | None = None,
        failed: str = "",
    ) -> None:
        """Nothing is running and nothing will; of a paused run, until an answer takes it up again."""
        self.ending, self._finished = ending, ending != "paused"
        if error is None and ending in ("failed", "budget_exceeded"):
            error = GraphStopped(self.part.name, ending, reason)
        self._decided.append(
            facts.RunFinished(
                status="failed" if ending == "budget_exceeded" else ending,
                reason=reason,
                reason_code=code,
                resume_at=self.resume_at,
                waits=self.waits if ending == "paused" else (),
                step_id=failed,
                raised=error,
                part=self.part,
            )
        )


def _sent(sends: Iterable[Send], fork: Fork) -> Iterator[Branch]:
    """A branch for each, numbered by target."""
    numbers: defaultdict[str, int] = defaultdict(int)
    for send in sends:
        yield Branch(send.target, fork, name=f"{send.target}[{numbers[send.target]}]", inputs=send.inputs)
        numbers[send.target] += 1
