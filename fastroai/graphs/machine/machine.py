"""The pure state machine that decides which nodes of a graph run next: `fact -> decisions`.

No clock, no I/O, no coroutine. The live run, its resume and any replay of its facts get the same decisions.
The machine changes only its own state, and only the part that depends on the fact. So a visit costs the same
in the first and in the ten-thousandth turn of a loop.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal, TypeAlias

from fastroai.graphs.errors import GraphStopped, MemoryConflict, VisitsExhausted
from fastroai.graphs.facts import BranchTimedOut, EdgesResolved
from fastroai.graphs.machine.branches import Branch, Fork, Joined
from fastroai.graphs.machine.events import Ending, Visit, decision_name
from fastroai.graphs.machine.memory import Written
from fastroai.graphs.machine.merging import merge, merge_failures, salvage, when_written
from fastroai.graphs.machine.routing import Choice, NodeOutcome, Route, Unevaluated, routed
from fastroai.graphs.machine.sends import Send
from fastroai.graphs.shape.plan import GraphPlan
from fastroai.runs.decoding import value_of
from fastroai.runs.running.machine import Cancel, Changed, Decision, Told, Unit, why_paused
from fastroai.runtime import FailureClass, facts
from fastroai.runtime.fact_base import NOWHERE, Part
from fastroai.steps.visits import NodeFailure
from fastroai.tracing.attributes import error_summary

_OVER: Final = ("arrived", "ended")

_FAILED: Final = ("step_failed", "branch_timeout")


@dataclass(frozen=True, slots=True)
class Stopped:
    """How and why a run ends."""

    ending: Ending
    code: facts.ReasonCode
    reason: str
    error: BaseException | None = None
    node: str = ""
    """The node that failed, if one did."""
    is_final: bool = False
    """Whether the run would end in the same way if it were resumed."""


_Left: TypeAlias = facts.QuestionAsked | tuple[facts.Wait, ...] | None
"""The question of a pause node, or the waits of a halted visit: none if a run inside it was paused. `None`:
the visit failed, was cancelled, or could not start."""

_Outcome: TypeAlias = tuple[Branch, NodeOutcome, object, Choice | None]
"""The last visit of a branch is over: its outcome and output, and the decision after it."""


class GraphMachine:
    """The state of one run. All of it is plain data, but for the `plan`."""

    def __init__(
        self, plan: GraphPlan, part: Part = NOWHERE, *, known: Mapping[Unit, bool] | None = None
    ) -> None:
        """`part` is the part of the run to which the facts of this machine belong.

        For a run on record, `known` has the visits on record, and whether each was skipped. Limits may have
        changed since then, so they apply only to other visits.
        """
        self.plan, self.part = plan, part
        self.ending: Ending | None = None
        """How the run ended; `None` before its end."""
        self.events = 0
        """Number of facts that the machine has taken in."""
        self.root = Branch(plan.entry)
        self.visits: defaultdict[str, int] = defaultdict(int)
        """Number of visits that were started, by node."""
        self.reached: dict[str, object] = {}
        """Outputs of the terminals that were reached. Those on record may not be decoded yet."""
        self._failures: dict[str, Written[NodeFailure]] = {}
        """The latest failure of each node, besides those that nothing has handled yet."""
        self.timeouts: dict[str, BaseException] = {}
        """Failures of branches that took too long, by identity."""
        self.stopped: Stopped | None = None
        """How and why the run ends early; `None` if it does not."""
        self._decided: list[Decision] = []
        self.decisions = {
            name: node for node in plan.asking if (name := decision_name(node)) not in plan.edges
        }
        """The nodes after which models decide, by the name of the decision."""
        self._todo: list[tuple[Branch, str, str] | Fork] = []
        """Branches that go to a node, with the cause, and forks that are over, the next one last.

        They wait while the run is stopped.
        """
        self._numbers: defaultdict[str, int] = defaultdict(int)
        self._limited: defaultdict[str, int] = defaultdict(int)
        self._steps = self._starts = 0
        self._wrote: defaultdict[str, set[str]] = defaultdict(set)
        self._known: Mapping[Unit, bool] = {} if known is None else known
        self.ready: deque[Branch] = deque()
        """Branches whose visits wait for a place."""
        self.running: dict[Unit, Branch] = {}
        """The branches of visits that run, in the order in which these started."""
        self._deciding: dict[Unit, tuple[Branch, NodeOutcome, object]] = {}
        self._left: dict[Unit, tuple[Branch, _Left]] = {}
        """Visits that run no more and are not over. If their branches go on when the run is resumed, those
        without an open question start anew."""
        self._undecided: list[tuple[Branch, tuple[facts.Wait, ...]]] = []
        """The branches in which a decision waits, which are held, with the waits."""
        self._held: list[_Outcome] = []
        """Outcomes of branches that did not go on. Edges are followed if they go on when the run is resumed.
        """
        self._branches: dict[str, Branch] = {}
        """Branches of forks that have not come together, by identity; outer ones before those inside."""
        self._unwinding: dict[Unit, list[Branch]] = {}
        """Cancelled visits that have not ended, with the failed branches that wait for them."""
        self._dead_ends: dict[str, None] = {}
        self._pausing = self._finished = False

    def handle(self, fact: Told) -> list[Decision]:
        """Take in a fact, and return the decisions that follow from it."""
        self.events += 1
        self._take_in(fact)
        if self._unwinding and isinstance(
            fact, facts.StepFinished | facts.StepFailed | facts.StepCancelled | facts.StepHalted
        ):
            self._unwound(self.visit_of(fact))
        if self._todo:
            self._go_on()
        if self.ready and not self._pausing and self.stopped is None:
            self._start_ready(self.plan.max_concurrency)
        if not self.running and not self._deciding and not self._finished:
            self._settle()
        decided, self._decided = self._decided, []
        return decided

    def visit_of(self, fact: facts.StepFact) -> Visit:
        """Return the visit that a fact is about; for a decision, the visit before it."""
        return Visit(self.decisions.get(fact.step_id, fact.step_id), fact.visit)

    def output_of(self, visit: Visit) -> object:
        """Return the output of a visit that waits for a decision. Raises `RunCorrupt` as `value_of`."""
        return value_of(self._deciding[visit][2])

    def read_what_decides(self) -> None:
        """Decode the values in memory that conditions and reducers can read, before any node runs.

        Raises:
            RunCorrupt: a value cannot be decoded.
        """
        plan = self.plan
        names = {name for condition in plan.conditions.values() for name in condition.names}
        for branch in self.root.inside():
            for name in names.union(plan.reducers):
                branch.memory.get(name)

    def branch_of(self, fact: facts.StepFact) -> Branch | None:
        """Return the branch of a visit or decision that runs, or that an answer is for; else `None`."""
        visit = self.visit_of(fact)
        if fact.step_id in self.decisions:
            return self._deciding[visit][0] if visit in self._deciding else None
        if isinstance(fact, facts.AnswerGiven):
            branch, left = self._left.get(visit, (None, None))
            return branch if isinstance(left, facts.QuestionAsked) else None
        return self.running.get(visit)

    @property
    def _all(self) -> Sequence[Branch]:
        return self.root, *self._branches.values()

    @property
    def open_branches(self) -> Mapping[str, Branch]:
        """Branches of forks that go on, by identity.

        An outer branch comes before the branches inside it. Branches of one fork are in the order of edges.
        """
        return {name: branch for name, branch in self._branches.items() if branch.state == "open"}

    @property
    def failures(self) -> Mapping[str, BaseException]:
        """The latest failure of each node."""
        unhandled = (written for branch in self._all for written in branch.unhandled.values())
        in_order = sorted((*self._failures.values(), *unhandled), key=when_written)
        return {written.node: written.value.error for written in in_order}

    @property
    def questions(self) -> Mapping[Visit, facts.QuestionAsked]:
        """Open questions of pause nodes, in the order in which they were asked."""
        return {
            branch.visit: left
            for branch, left in self._left.values()
            if isinstance(left, facts.QuestionAsked) and branch.state == "open"
        }

    # --- events ---

    def _take_in(self, fact: Told) -> None:
        match fact:
            case facts.StepFinished(step_id=step_id) if step_id in self.decisions:
                branch, outcome, output = self._deciding.pop(self.visit_of(fact))
                self._route(branch, outcome, output, fact.output)
            case facts.StepFinished(step_id=step_id, visit=number):
                self._succeed(self.running.pop((step_id, number)), fact.written, fact.output)
            case facts.RunStarted(inputs=inputs):
                self.root.memory.write_all(inputs, "", self.events)
                self._todo.append((self.root, self.plan.entry, "it is the entry"))
            case facts.QuestionAsked():
                self._leave_running(fact, fact)
            case facts.AnswerGiven(answer=answer, written=written):
                self._succeed(self._left.pop(self.visit_of(fact))[0], written, answer)
            case facts.StepFailed():
                self._on_failure(self.visit_of(fact), fact)
            case facts.StepCancelled() | facts.StepHalted() if fact.step_id in self.decisions:
                held = self._deciding.pop(self.visit_of(fact))
                self._held.append((*held, None))
                if isinstance(fact, facts.StepHalted):
                    self._undecided.append((held[0], fact.waits))
            case facts.StepCancelled():
                self._leave_running(fact, None)
            case facts.StepHalted():
                self._leave_running(fact, fact.waits)
            case BranchTimedOut(branch=identity):
                timed_out = self._branches.get(identity)
                if timed_out is not None and timed_out.state == "open" and self.stopped is None:
                    self._on_timeout(timed_out, fact.error, FailureClass(fact.failure.failure_class))
            case facts.RunResumed(inputs=inputs):
                self._resume()
                self.root.memory.write_all(inputs, "", self.events)
            case facts.PauseRequested():
                self._pausing = True
            case facts.StopRequested(reason=reason):
                self._stop(Stopped("cancelled", "cancelled", reason))
            case _:
                raise TypeError(f"{type(fact).__name__} does not belong in the run of a graph")

    def _leave_running(
        self,
        fact: facts.StepFailed | facts.StepCancelled | facts.StepHalted | facts.QuestionAsked,
        left: _Left,
    ) -> Branch:
        """Return the branch of a visit that no longer runs. The values that the visit wrote are kept."""
        unit = fact.step_id, fact.visit
        branch = self.running.pop(unit)
        self._left[unit] = branch, left
        self._keep(branch, fact.step_id, fact.written)
        return branch

    @property
    def waits(self) -> tuple[facts.Wait, ...]:
        """The waits of pause nodes, then those of halted steps."""
        return tuple(wait for _, wait in self._waits())

    def _waits(self) -> Iterator[tuple[str, facts.Wait]]:
        yield from ((visit.node, asked.wait) for visit, asked in self.questions.items())
        for branch, left in self._left.values():
            if isinstance(left, tuple) and branch.state == "open":
                yield from ((branch.node, wait) for wait in left)
        for branch, waits in self._undecided:
            if branch.state == "open":
                yield from ((branch.node, wait) for wait in waits)

    def _succeed(self, branch: Branch, written: Mapping[str, object], output: object) -> None:
        node = branch.node
        self._keep(branch, node, written)
        branch.outputs.write(node, output, node, self.events)
        if node in self._failures:
            branch.failures.clear(node)
        self._route(branch, "succeeded", output, None)

    def _on_failure(self, visit: Visit, fact: facts.StepFailed) -> None:
        """Follow the edges after a failure. A budget around the graph always ends the run."""
        error, is_outer = fact.error, fact.budget == "outer"
        if fact.step_id in self.decisions:
            self._held.append((*self._deciding.pop(visit), None))
        else:
            branch = self._leave_running(fact, None)
            failed = NodeFailure(error, FailureClass(fact.failure.failure_class), fact.attempt)
            branch.unhandled[visit.node] = Written(failed, visit.node, self.events)
            if not is_outer:
                if branch.state == "open" and not self._has_failed:
                    self._route(branch, "failed", None, None)
                return
        stopped = Stopped("failed", "step_failed", fact.failure.message, error)
        if is_outer:
            stopped = replace(stopped, ending="budget_exceeded", code="budget_exceeded")
        self._stop(stopped)

    @property
    def resume_at(self) -> tuple[str, ...]:
        """The nodes with which a resumed run goes on; empty if it would end in the same way."""
        if self.stopped is not None and self.stopped.is_final:
            return ()
        todo = (move[1] for move in reversed(self._todo) if not isinstance(move, Fork))
        waiting = (branch.node for branch in self._waiting() if branch.state == "open" or self._has_failed)
        return (*todo, *waiting)

    @property
    def _has_failed(self) -> bool:
        """Whether a failure has ended the run that is tried again when the run is resumed."""
        stopped = self.stopped
        return stopped is not None and stopped.code in _FAILED and not stopped.is_final

    def _waiting(self) -> Iterator[Branch]:
        """Yield the branches that go on when the run is resumed; those with questions before other waits."""
        left = [*self._left.values()]
        yield from (branch for branch, waits in left if waits is None)
        for branch, outcome, _, decision in self._held:
            if branch.node in self.plan.asking and decision is None and outcome != "failed":
                yield branch
        yield from self._at_work()
        yield from (branch for branch, waits in left if isinstance(waits, facts.QuestionAsked))
        yield from (branch for branch, waits in left if isinstance(waits, tuple) and waits)
        yield from (branch for branch, waits in left if waits == ())
        yield from self.ready

    def _on_timeout(self, branch: Branch, error: BaseException, failure_class: FailureClass) -> None:
        """Fail a branch and the visits that this cuts short, or else the node that it did not get to."""
        self.timeouts[branch.identity] = error
        unwinding = self._cancel_inside(branch, f"branch {branch.identity!r} took too long")
        visits = unwinding or [Visit(branch.target, 0)]
        failed = NodeFailure(error, failure_class, 0)
        branch.unhandled |= {visit.node: Written(failed, visit.node, self.events) for visit in visits}
        self._fail(branch, error, visits[0].node, unwinding)

    def _note_failures(self, branches: Sequence[Branch]) -> None:
        """Note failures for good: edges have handled them, or the branches have come together."""
        unhandled = [(failure, branch) for branch in branches for failure in branch.unhandled.values()]
        for failure, branch in sorted(unhandled, key=lambda each: each[0].sequence):
            branch.failures.take(failure.node, failure)
            before = self._failures.get(failure.node)
            if before is None or before.sequence < failure.sequence:
                self._failures[failure.node] = failure
        for branch in branches:
            branch.unhandled.clear()

    def _keep(self, branch: Branch, node: str, written: Mapping[str, object]) -> None:
        if written:
            branch.memory.write_all(written, node, self.events)
            self._wrote[node].update(written)

    # --- from node to node ---

    def _route(self, branch: Branch, outcome: NodeOutcome, output: object, decision: Choice | None) -> None:
        """Follow the edges after a visit, if its branch goes on."""
        if branch.state != "open" or self.stopped is not None:
            self._held.append((branch, outcome, output, decision))
            return
        node = branch.node
        route: Route | None = self.plan.fixed_routes.get((node, outcome))
        if route is None:
            if node in self.plan.asking and decision is None and outcome != "failed":
                self._ask_model(branch, outcome, output)
                return
            route = routed(self.plan, node, outcome, output, branch.memory, decision)
        if route.edges:
            resolved = EdgesResolved(
                node, route.edges, visit=branch.number, branch=branch.identity, after=outcome, part=self.part
            )
            self._decided.append(resolved)
            if route.unevaluated:
                self._decided.append(Changed(Unevaluated(node, route.unevaluated)))
        branch.sources = (node,)
        targets = route.targets
        if targets and outcome == "failed":
            self._left.pop(branch.visit, None)
            self._note_failures([branch])
        if route.sends or len(targets) > 1:
            self._fork(branch, route)
        elif targets and outcome == "succeeded":
            self._go(branch, targets[0], route.cause)
        elif targets:  # later, as calls for a chain of skipped nodes would nest
            self._todo.append((branch, targets[0], route.cause))
        elif outcome == "failed":
            failed = branch.unhandled.get(node) or branch.failures.written(node)
            assert failed is not None
            self._fail(branch, failed.value.error, node)
        elif node in self.plan.sending and (join := self.plan.join_of((), self.plan.sending[node])):
            self._todo.append((branch, join, f"{node!r} has sent nothing"))
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

    def _go_on(self) -> None:
        """Go to nodes and close forks. What comes of that goes on from here, so that calls do not nest."""
        todo = self._todo
        while todo and self.stopped is None:
            following = todo.pop()
            if isinstance(following, Fork):
                fork, around = following, following.branch
                if not fork.open and around.forked is fork and around.state == "open":
                    self._close(fork)
            elif following[0].state == "open":
                self._go(*following)

    def _go(self, branch: Branch, node: str, cause: str) -> None:
        if branch.fork is not None and node == branch.fork.join:
            self._end(branch, "arrived")
            return
        number = self._numbers[node] + 1
        limit = self.plan.max_visits.get(node)
        is_skipped = self._known.get((node, number)) if self._known else None
        if is_skipped is None:
            is_skipped = limit is not None and self._limited[node] >= limit
            if not is_skipped and self._steps >= self.plan.max_steps:
                self._todo.append((branch, node, cause))
                # Reasons are on record, and replays compare them: their words do not change.
                reason = f"max_steps={self.plan.max_steps} visits were made before {node!r}"
                self._stop(Stopped("failed", "max_steps", reason))
                return
        self._numbers[node] = number
        branch.node, branch.number, branch.cause, branch.started = node, number, cause, 0
        if is_skipped:
            self._skip(branch, f"max_visits={limit} was reached")
            return
        self._steps += 1
        if limit is not None:
            self._limited[node] += 1
        if branch.skipped:
            branch.skipped.clear()
        if branch.fork is not None:
            branch.fork.has_run_nodes = True
        if number > 1:
            self._clear_stale(branch, node)
        self.ready.append(branch)

    def _skip(self, branch: Branch, cause: str) -> None:
        node = branch.node
        if node in branch.skipped:
            error = VisitsExhausted(tuple(sorted(branch.skipped)))
            if node not in branch.failures:  # its own failure says more
                failure = NodeFailure(error, FailureClass.TERMINAL, 0)
                self._failures[node] = failed = Written(failure, node, self.events)
                branch.failures.take(node, failed)
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
        """Clear the output and the values of an earlier visit, except for the keys that the node reads."""
        branch.outputs.clear(node)
        kept = self.plan.reads.get(node, ())
        for key in self._wrote[node]:
            written = branch.memory.written(key)
            if written is not None and written.node == node and key not in kept:
                branch.memory.clear(key)

    def _start_ready(self, at_once: int | None) -> None:
        while self.ready and (at_once is None or len(self.running) < at_once):
            branch = self.ready.popleft()
            if branch.state != "open":
                if branch.identity in self._branches:
                    self._left[branch.visit] = branch, None
                continue
            node, number = branch.node, branch.number
            self.running[node, number] = branch
            branch.path.append(node)
            self._starts = branch.started = self._starts + 1
            self.visits[node] += 1
            self._decided.append(facts.StepStarted(node, branch.cause, self.part, number, branch.identity))

    # --- from process to process ---

    def may_start(self, visit: Unit) -> bool:
        """Return whether a visit waits here that may have started in the run, as limits were others then."""
        waiting = (branch for branch, left in self._left.values() if left is None)
        return any(branch.visit == visit for branch in (*waiting, *self.ready))

    def started(self, visit: Unit) -> list[Decision]:
        """Take in that a visit started which may start. Return the decision."""
        branch, _ = self._left.pop(visit, (None, None))
        if branch is None:
            branch = next(branch for branch in self.ready if branch.visit == visit)
            self.ready.remove(branch)
        self._put_back(branch)
        self._start_ready(len(self.running) + 1)
        decided, self._decided = self._decided, []
        return decided

    def _resume(self) -> None:
        """Start everything anew that had started and is not over, unless the run has ended by its rules.

        If a failure that nothing handled has ended the run, its branch goes on as if it had not failed.
        """
        self._pausing = self._finished = False
        if self.stopped is not None and self.stopped.is_final:
            return
        while True:
            if self._has_failed:
                self._reopen()
            self.stopped = None
            self._go_on()
            held, self._held = self._held, []
            self._undecided.clear()
            for visited in held:
                self._route(*visited)
            self._go_on()
            if not self._has_failed:
                break
        if self.stopped is not None:
            return  # it ends as before
        for branch in self._all:
            if branch.state == "open":
                branch.unhandled.clear()
        left = [branch for branch, why in self._left.values() if not isinstance(why, facts.QuestionAsked)]
        for branch in sorted((*left, *self.running.values()), key=lambda each: each.started, reverse=True):
            if branch.state == "open":
                self._left.pop(branch.visit, None)
                self.running.pop(branch.visit, None)
                self._put_back(branch)

    def _reopen(self) -> None:
        """Let branches go on that failed or were cancelled, and have not come together since."""
        for branch in reversed(self._all):
            inner = branch.forked
            if inner is not None:
                inner.open = sum(inner_branch.state == "open" for inner_branch in inner.branches)
            has_failed = branch.unhandled or (inner is not None and inner.open)
            if branch.state == "cancelled" or (branch.state == "failed" and has_failed):
                branch.state, branch.failure = "open", None
                self.timeouts.pop(branch.identity, None)

    def _put_back(self, branch: Branch) -> None:
        """Put the visit of a branch in line, before those that wait for a place, as if it had not started."""
        self.ready.appendleft(branch)
        if branch.started:
            branch.started = 0
            branch.path.pop()
            self.visits[branch.node] -= 1

    # --- branches ---

    def _fork(self, branch: Branch, route: Route) -> None:
        node = branch.node
        sent_to = tuple(dict.fromkeys(send.target for send in route.sends))
        fork = Fork(branch, node, branch.number, self.plan.join_of(route.targets, sent_to))
        fork.branches = (*(Branch(target, fork) for target in route.targets), *_sent(route.sends, fork))
        fork.open = len(fork.branches)
        branch.forked = fork
        branch.path.append({new.name: new.path for new in fork.branches})
        self._decided.append(Changed(fork))
        for new in fork.branches:
            new.sources = (node,)
            self._branches[new.identity] = new
        for new in reversed(fork.branches):  # `_todo` is a stack: the first branch goes first
            cause = route.cause if new.name == new.target else f"{node!r} has sent {new.name}"
            self._todo.append((new, new.target, cause))

    def _end(self, branch: Branch, state: Literal["arrived", "ended"]) -> None:
        """End a branch that has not failed."""
        branch.state = state
        if branch.fork is not None:
            self._leave(branch.fork)

    def _fail(self, branch: Branch, error: BaseException, node: str, unwinding: Sequence[Visit] = ()) -> None:
        """Fail a branch at a node, as nothing handles that.

        Its fork waits until the visits in `unwinding`, which were cancelled, have ended: their values count,
        and none overlaps with what comes next.
        """
        branch.state, branch.failure = "failed", (node, error)
        if branch.fork is None or self.plan.on_branch_failure == "fail_all":
            reason = f"{node!r} failed: {error_summary(error)}"
            code = self._code_of(error)
            is_final = code == "max_visits" or not any(each.unhandled for each in self._all)
            self._stop(Stopped("failed", code, reason, error, node, is_final))
            return
        branch.unwinding = len(unwinding)
        for visit in unwinding:
            self._unwinding.setdefault(visit, []).append(branch)
        if not unwinding:
            self._leave(branch.fork)

    def _code_of(self, error: BaseException) -> facts.ReasonCode:
        if isinstance(error, VisitsExhausted):
            return "max_visits"
        timed_out = any(error is timeout for timeout in self.timeouts.values())
        return "branch_timeout" if timed_out else "step_failed"

    def _unwound(self, visit: Visit) -> None:
        for branch in self._unwinding.pop(visit, ()):
            branch.unwinding -= 1
            if not branch.unwinding and branch.fork is not None:
                self._leave(branch.fork)

    def _leave(self, fork: Fork) -> None:
        """Note that one more branch of a fork is over."""
        fork.open -= 1
        if not fork.open:
            self._todo.append(fork)

    def _close(self, fork: Fork) -> None:
        """Merge the branches of a fork that is over, and go on."""
        around = fork.branch
        failed = [branch for branch in fork.branches if branch.state == "failed"]
        waits_for_all = self.plan.on_branch_failure == "wait_all"
        takes_errors = waits_for_all and fork.join is not None and bool(failed)
        if len(failed) == len(fork.branches) and not takes_errors:
            assert failed[0].failure is not None
            node, error = failed[0].failure
            self._fail(around, error, node)
            return
        self._drop_inside(fork)
        for branch in failed:
            salvage(branch, self.plan)
        kept = [branch for branch in fork.branches if waits_for_all or branch.state in _OVER]
        try:
            overwritten = merge(around, kept, self.plan)
        except MemoryConflict as error:
            # Branches that were left out stay so, though the run ends here.
            merge(around, kept, self.plan, forgiving=True)
            around.forked = None
            self._stop(Stopped("failed", "memory_conflict", str(error), error, is_final=True))
            return
        self._leave_fork(fork, kept)
        join = fork.join if takes_errors or any(branch.state == "arrived" for branch in kept) else None
        self._decided.append(Changed(Joined(fork, overwritten)))
        if join is None:
            self._end(around, "ended")
        else:
            self._todo.append((around, join, f"the branches of {fork.node!r} have come together"))

    def _leave_fork(self, fork: Fork, kept: list[Branch]) -> None:
        around = fork.branch
        around.forked = None
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

    def _drop_inside(self, fork: Fork) -> None:
        """Forget what would start anew in the branches of a fork, as they have come together."""
        left = [inner for branch in fork.branches for inner in branch.inside()]
        for branch in left:
            del self._branches[branch.identity]
        if all(branch.state in _OVER for branch in left):
            return
        self._note_failures(left)
        inside = set(left)
        self._left = {visit: waits for visit, waits in self._left.items() if waits[0] not in inside}
        self._held = [visited for visited in self._held if visited[0] not in inside]

    def _cancel_inside(self, branch: Branch, cause: str) -> list[Visit]:
        """Cancel the visits inside a branch, in the order in which they started, and return them."""
        inside = set(branch.inside())
        running = [inner for inner in self._at_work() if inner in inside]
        self._cancel(running, cause)
        for inner in inside:
            if inner is not branch and inner.state == "open":
                inner.state = "cancelled"
        return [inner.visit for inner in running]

    def _cancel(self, branches: Iterable[Branch], cause: str) -> None:
        """Cancel the visits of branches that go on. A second time would interrupt the clean-up of a step."""
        visits = [branch.visit for branch in branches if branch.state == "open"]
        if visits:
            units = [
                (decision_name(visit.node) if visit in self._deciding else visit.node, visit.number)
                for visit in visits
            ]
            answers_first = self.stopped is not None and self.stopped.ending == "budget_exceeded"
            self._decided.append(Cancel(units, cause, answers_first=answers_first))

    # --- the end ---

    def _stop(self, stopped: Stopped) -> None:
        """End the run early."""
        if self.stopped is None and not self._finished:
            self.stopped = stopped
            self._cancel(self._at_work(), stopped.reason)

    def _at_work(self) -> Iterator[Branch]:
        """Yield the branches of running visits, in the order of their start, then those with a decision."""
        yield from self.running.values()
        yield from (branch for branch, _, _ in self._deciding.values())

    def _settle(self) -> None:
        """Decide how the run ends, or that it is paused, as nothing runs any more."""
        end = self._end_of_run()
        self.ending, self._finished = end.ending, end.ending != "paused"
        error = end.error
        if error is None and end.ending in ("failed", "budget_exceeded"):
            error = GraphStopped(self.part.name, end.ending, end.reason)
        self._decided.append(
            facts.RunFinished(
                status="failed" if end.ending == "budget_exceeded" else end.ending,
                reason=end.reason,
                reason_code=end.code,
                resume_at=self.resume_at,
                waits=() if self._finished else self.waits,
                step_id=end.node,
                raised=error,
                part=self.part,
            )
        )

    def _end_of_run(self) -> Stopped:
        if self.stopped is not None:
            return self.stopped
        if self.root.state == "ended" and self.reached:
            return Stopped("finished", "completed", f"reached {', '.join(map(repr, self.reached))}")
        if self.root.state == "ended":
            where = ", ".join(map(repr, self._dead_ends))
            reason = f"no terminal was reached: no edge was taken after {where}"
            return Stopped("failed", "no_terminal", reason)
        if self._pausing or not self.waits:
            return Stopped("paused", "pause_requested", "a pause was requested")
        return Stopped("paused", *why_paused(self._waits()))


def _sent(sends: Iterable[Send], fork: Fork) -> Iterator[Branch]:
    """Yield a branch for each send, numbered by target."""
    numbers: defaultdict[str, int] = defaultdict(int)
    for send in sends:
        yield Branch(send.target, fork, name=f"{send.target}[{numbers[send.target]}]", inputs=send.inputs)
        numbers[send.target] += 1
