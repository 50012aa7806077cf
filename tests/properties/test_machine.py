"""The state machine, driven through random pipelines by a simulated clock."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st
from support.facts import cancelled, failed, finished, made_room
from support.schedules import Schedule, interpret, schedules

from fastroai.pipelines.machine import PipelineMachine
from fastroai.pipelines.plan import build_plan
from fastroai.runs.running.machine import Cancel, Decision, Told
from fastroai.runtime.facts import RunFinished, RunStarted, StepSkipped, StepStarted
from fastroai.steps import StepContext, step


@step
async def nothing(ctx: StepContext) -> None: ...


def machine_of(schedule: Schedule) -> PipelineMachine:
    plan = build_plan(
        "p", dict.fromkeys(schedule.needs, nothing), schedule.needs, next(iter(schedule.needs)), None
    )
    return PipelineMachine(plan, exempt=schedule.exempt, max_concurrency=schedule.limit)


@dataclass
class Simulation:
    """Performs a machine's decisions in simulated time, and notes what happened."""

    schedule: Schedule
    stubborn: frozenset[str] = frozenset()
    """Steps that swallow cancellation and succeed."""
    time: int = 0
    started: dict[str, int] = field(default_factory=dict)
    rooms: dict[str, str | None] = field(default_factory=dict)
    """Whose end each step waited for, where all places were taken."""
    finished: dict[str, int] = field(default_factory=dict)
    skipped: list[str] = field(default_factory=list)
    cancelled: list[str] = field(default_factory=list)
    ends: int = 0
    most: int = 0
    stopped: bool = False
    told: list[tuple[Told, list[Decision]]] = field(default_factory=list)

    def run(self, machine: PipelineMachine) -> Simulation:
        running: list[tuple[int, int, str]] = []
        events: list[Told] = [RunStarted()]
        order = 0
        while events or running:
            if not events:
                self.time, _, name = heapq.heappop(running)
                events.append(self._end_of(name))
            event = events.pop(0)
            decisions = machine.handle(event)
            self.told.append((event, decisions))
            for decision in decisions:
                assert not self.ends, "nothing comes after the end"
                if isinstance(decision, StepStarted):
                    assert not self.stopped, "nothing starts after a stop"
                    assert decision.step_id not in self.started, "a step runs at most once"
                    for before in self.schedule.needs[decision.step_id]:
                        assert self.finished[before] <= self.time, "what it needs has finished"
                        assert before not in self.schedule.failing
                    order += 1
                    self.started[decision.step_id] = self.time
                    self.rooms[decision.step_id] = made_room(decision)
                    end = self.time + self.schedule.seconds[decision.step_id]
                    heapq.heappush(running, (end, order, decision.step_id))
                    self.most = max(self.most, len(running) + len(events))
                elif isinstance(decision, StepSkipped):
                    self.skipped.append(decision.step_id)
                elif isinstance(decision, Cancel):
                    assert sorted(step_id for step_id, _ in decision.units) == sorted(
                        step_id for *_, step_id in running
                    )
                    events += self._cancel(sorted(running))
                    running.clear()
                else:
                    assert isinstance(decision, RunFinished)
                    assert not running
                    assert not events
                    self.ends += 1
        return self

    def _end_of(self, name: str) -> Told:
        self.finished[name] = self.time
        if name not in self.schedule.failing:
            return finished(name)
        self.stopped = self.stopped or name in self.schedule.stopping
        return failed(name)

    def _cancel(self, running: list[tuple[int, int, str]]) -> Iterator[Told]:
        for _, _, name in running:
            self.cancelled.append(name)
            if name in self.stubborn:
                self.finished[name] = self.time
                yield finished(name)
            else:
                yield cancelled(name)


@given(schedules(stops=False, limited=False))
def test_unlimited_it_does_at_every_moment_what_the_reference_says(schedule: Schedule) -> None:
    run, expected = Simulation(schedule).run(machine_of(schedule)), interpret(schedule)
    assert run.started == expected.started
    assert run.finished == expected.finished
    assert max(run.finished.values(), default=0) == expected.makespan
    assert sorted(run.skipped) == sorted(expected.skipped), "once each"
    assert run.ends == 1


@given(schedules(stops=False))
def test_limited_the_same_steps_run_never_too_many_at_once(schedule: Schedule) -> None:
    run, expected = Simulation(schedule).run(machine_of(schedule)), interpret(schedule)
    assert run.started.keys() == expected.started.keys()
    assert set(run.skipped) == expected.skipped
    assert run.most <= (schedule.limit or len(schedule.needs))
    assert run.ends == 1


@given(schedules(stops=False, shortest=1))
def test_no_place_is_left_empty_while_a_step_is_ready(schedule: Schedule) -> None:
    run = Simulation(schedule).run(machine_of(schedule))
    limit = schedule.limit or len(schedule.needs)
    for name, begins in run.started.items():
        ready = max((run.finished[before] for before in schedule.needs[name]), default=0)
        for moment in range(ready, begins):
            busy = sum(run.started[other] <= moment < run.finished[other] for other in run.started)
            assert busy == limit, f"{name} was ready at {ready} and could have started at {moment}"
        room = run.rooms[name]
        assert (room is not None) or begins == ready, f"{name} waited from {ready} to {begins}"
        assert room is None or run.finished[room] == begins


@given(schedules(), st.data())
def test_whatever_fails_a_run_ends_once_and_starts_nothing_after_a_stop(
    schedule: Schedule, data: st.DataObject
) -> None:
    stubborn = data.draw(st.frozensets(st.sampled_from(sorted(schedule.needs))))
    run = Simulation(schedule, stubborn=stubborn).run(machine_of(schedule))
    assert run.ends == 1
    assert run.most <= (schedule.limit or len(schedule.needs))
    assert not set(run.started) & set(run.skipped)
    assert bool(run.cancelled) <= run.stopped
    assert run.started.keys() | set(run.skipped) == schedule.needs.keys(), (
        "of each it is told what became of it"
    )


@given(schedules(limited=False, shortest=1))
def test_a_stop_comes_at_the_first_failure_and_loses_nothing_before_it(schedule: Schedule) -> None:
    run, expected = Simulation(schedule).run(machine_of(schedule)), interpret(schedule)
    stops = [expected.finished[name] for name in schedule.stopping if name in expected.finished]
    assert run.stopped == bool(stops)
    if stops:
        before = {name for name, end in expected.finished.items() if end < min(stops)}
        after = {name for name, begin in expected.started.items() if begin > min(stops)}
        assert before <= run.finished.keys()
        assert not after & run.started.keys()
        assert run.time == min(stops)


@given(schedules())
def test_the_facts_of_a_run_lead_to_the_same_decisions_again(schedule: Schedule) -> None:
    first, again = machine_of(schedule), machine_of(schedule)
    told = Simulation(schedule).run(first).told
    assert [again.handle(event) for event, _ in told] == [decisions for _, decisions in told]


@given(st.integers(1, 300), st.integers(1, 5))
def test_work_grows_no_faster_than_steps_and_dependencies(length: int, width: int) -> None:
    """Every decision is about one step, and there is one for each step and one for the end."""
    names = [[f"{level}.{number}" for number in range(width)] for level in range(length)]
    schedule = Schedule(
        needs={
            name: tuple(names[level - 1]) if level else () for level, row in enumerate(names) for name in row
        },
        seconds=dict.fromkeys((name for row in names for name in row), 1),
        failing=frozenset(),
        exempt=frozenset(),
        limit=None,
    )
    machine = machine_of(schedule)
    run = Simulation(schedule).run(machine)
    assert run.time == length
    assert sum(len(decisions) for _, decisions in run.told) == length * width + 1
