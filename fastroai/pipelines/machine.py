"""The pure state machine that decides which steps of a pipeline run next: `fact -> decisions`.

No clock, no I/O, no coroutine. The live run, its resume and any replay of its facts get the same decisions.
The machine changes only its own state. For each fact, it looks only at the steps that depend on it. So the
work for a run is linear in steps and dependencies.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Collection
from dataclasses import replace

from fastroai.pipelines.plan import Plan
from fastroai.runs.running.machine import Cancel, Decision, Told, why_paused
from fastroai.runtime import facts
from fastroai.runtime.fact_base import NOWHERE, FailureFacts, Part


class PipelineMachine:
    """The state of one run. `exempt` steps may fail without stopping the run."""

    def __init__(
        self,
        plan: Plan,
        *,
        exempt: Collection[str] = (),
        max_concurrency: int | None = None,
        part: Part = NOWHERE,
    ) -> None:
        """`part` is the part of the run to which the facts of this machine belong."""
        self.plan, self.exempt, self.part = plan, exempt, part
        self._max_concurrency = max_concurrency
        self.over: dict[str, bool] = {}
        """Steps that have ended or were skipped, in this order, and whether each has an output for others."""
        self._decisions: list[Decision] = []
        self._begin()

    def _begin(self) -> None:
        self._missing = dict(self.plan.missing)
        self._ready: deque[tuple[str, str, str | None]] = deque(self.plan.first)
        """Steps that wait for a place, each with the cause of its start and the step that it needed last."""
        self.running: dict[str, facts.StepStarted] = {}
        """Steps that have started and not ended, in the order in which they started."""
        self.halted: dict[str, tuple[facts.Wait, ...]] = {}
        """Steps that have halted, in this order, with their waits. A step has no waits if the run inside it
        was paused on request."""
        self._stop: facts.RunFinished | None = None
        """How the run ends, if it ends early."""
        self._failed = self._pausing = self._finished = False
        self._exempt_failures = 0

    def _begin_again(self) -> None:
        """Start anew, but keep finished steps whose dependencies have all finished, too.

        So a resumed run has forgotten failures, skips and requests to stop, and which steps have waited for a
        place.
        """
        done = [step_id for step_id, is_done in self.over.items() if is_done]
        order = {step_id: number for number, step_id in enumerate(done)}
        self.over.clear()
        self._begin()
        due: list[int] = []
        left: list[tuple[str, str, str | None]] = []
        while True:
            for one in self._ready:
                if one[0] in order:
                    heapq.heappush(due, order[one[0]])
                else:
                    left.append(one)
            self._ready.clear()
            if not due:
                break
            step_id = done[heapq.heappop(due)]
            self._on_success(step_id, True)
        self._ready.extend(left)

    def handle(self, fact: Told) -> list[Decision]:
        """Take in a fact, and return the decisions that follow from it."""
        match fact:
            case facts.StepFinished():
                self._on_success(fact.step_id, fact.conversation != "incomplete")
            case facts.RunStarted():
                pass  # steps without dependencies are ready from the beginning
            case facts.StepFailed():
                self._leave(fact.step_id, False)
                self._on_failure(fact)
            case facts.StepCancelled():
                self._leave(fact.step_id, False)
            case facts.StepHalted():
                self.halted[fact.step_id] = fact.waits
                self._leave(fact.step_id, False)
            case facts.RunResumed():
                self._begin_again()
            case facts.PauseRequested():
                self._pausing = True
            case facts.StopRequested():
                self._end(self._ending("cancelled", "cancelled", fact.reason))
            case _:
                raise TypeError(f"{type(fact).__name__} does not belong in the run of a pipeline")
        self._start_ready()
        if not self.running and not self._finished:
            self._finish()
        decisions, self._decisions = self._decisions, []
        return decisions

    # --- steps end ---

    def _leave(self, step_id: str, is_done: bool) -> None:
        """Note the end of a step, and tell the first step in line whose place it gets.

        There is a line only if all places were taken. The outputs that a forked run begins with are noted
        here, too, although their steps never ran in it, so that `RunResumed` finds them.
        """
        self.running.pop(step_id, None)
        self.over[step_id] = is_done
        if self._ready and self._max_concurrency is not None:
            first, cause, after = self._ready[0]
            if after != step_id:
                self._ready[0] = first, f"{cause}; it waited for a place until {step_id!r} ended", after

    def _on_success(self, step_id: str, is_done: bool) -> None:
        self._leave(step_id, is_done)
        if not is_done and self._stop is None:
            self._stop = self._ending("paused", "incomplete", f"{step_id!r} needs more from the user")
        missing, cause = self._missing, self.plan.causes[step_id]
        for after in self.plan.dependents[step_id]:
            missing[after] -= 1
            if not missing[after]:
                self._ready.append((after, cause, step_id))

    def _on_failure(self, fact: facts.StepFailed) -> None:
        """Stop the run, or skip what depends on an exempt step. A budget around the run always stops it."""
        if self._failed:
            return
        outer = fact.budget == "outer"
        if outer or fact.step_id not in self.exempt:
            self._failed = True
            self._stop = None  # also after an early stop, which would let running steps finish
            code: facts.ReasonCode = "budget_exceeded" if outer else "step_failed"
            reason = fact.failure.message if outer else f"{fact.step_id!r} failed"
            failed = "" if outer else fact.step_id
            ending = self._ending("failed", code, reason, failed, fact.failure, fact.raised)
            self._end(ending, is_for_budget=outer)
            return
        self._exempt_failures += 1
        waiting = [fact.step_id]
        while waiting:
            for after in self.plan.dependents[waiting.pop()]:
                if after not in self.over:
                    self._skip(after, f"it needs {fact.step_id!r}, which failed")
                    waiting.append(after)

    def _skip(self, step_id: str, cause: str) -> None:
        self.over[step_id] = False
        self._decisions.append(facts.StepSkipped(step_id, cause, part=self.part))

    # --- steps start ---

    def _start_ready(self) -> None:
        if self._stop is not None or self._pausing:
            return
        ready, running, limit, part = self._ready, self.running, self._max_concurrency, self.part
        while ready and (limit is None or len(running) < limit):
            step_id, cause, _ = ready.popleft()
            running[step_id] = started = facts.StepStarted(step_id, cause, part)
            self._decisions.append(started)

    # --- the end ---

    def _ending(
        self,
        status: facts.RunStatus,
        code: facts.ReasonCode,
        reason: str,
        step_id: str = "",
        failure: FailureFacts | None = None,
        raised: BaseException | None = None,
    ) -> facts.RunFinished:
        return facts.RunFinished(
            status=status,
            reason=reason,
            reason_code=code,
            step_id=step_id,
            failure=failure,
            raised=raised,
            part=self.part,
        )

    def _end(self, ending: facts.RunFinished, *, is_for_budget: bool = False) -> None:
        """End the run early: no step starts any more, and running steps are cancelled."""
        if self._stop is None or self._stop.status == "paused":
            self._stop = ending
            if self.running:
                units = [(step, 1) for step in self.running]
                self._decisions.append(Cancel(units, ending.reason, answers_first=is_for_budget))

    def _finish(self) -> None:
        """Decide the end of the run, when no step runs or will run. Skip steps that a stop has left out."""
        self._finished = True
        if self._stop is not None:
            for step_id in self.plan.dependencies:
                if step_id not in self.over:
                    self._skip(step_id, self._stop.reason)
            finish = replace(self._stop)  # it was decided before the running steps ended
        elif self.halted or self._ready:
            if self._pausing or not self.waits:
                finish = self._ending("paused", "pause_requested", "a pause was requested")
            else:
                waits = ((step_id, wait) for step_id, waits in self.halted.items() for wait in waits)
                finish = self._ending("paused", *why_paused(waits))
        else:
            every, failed = "every step has run", self._exempt_failures
            reason = f"every step that could run has run, and {failed} failed" if failed else every
            finish = self._ending("finished", "completed", reason)
        if finish.status == "paused":
            finish.waits = self.waits
        if finish.status != "finished":
            finish.resume_at = self.resume_at
        self._decisions.append(finish)

    @property
    def resume_at(self) -> tuple[str, ...]:
        """The steps with which a resumed run goes on: halted steps first, then others that are due."""
        over, needs = self.over, self.plan.dependencies
        due = (one for one in needs if not over.get(one) and all(over.get(need) for need in needs[one]))
        return tuple(dict.fromkeys((*self.halted, *due)))

    @property
    def waits(self) -> tuple[facts.Wait, ...]:
        """The waits of all halted steps."""
        return tuple(wait for waits in self.halted.values() for wait in waits)
