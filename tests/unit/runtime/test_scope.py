import asyncio
import contextvars
import threading
from decimal import Decimal

import pytest
from support.virtual_time import in_virtual_time, now

from fastroai.errors import TimeBudgetExceeded, usage_of
from fastroai.records import RequestRecord, Tokens
from fastroai.runtime import Charge, Clock, Scope, current_scope
from fastroai.runtime.budgets.in_flight import AgentCharges
from fastroai.runtime.events import Listener
from fastroai.runtime.fact_base import Part, RunEvent
from fastroai.runtime.facts import RunStarted
from fastroai.runtime.scope import ScopeKind, ToolCalls, current_tool_calls, make_current
from fastroai.steps.durability import step_place
from fastroai.tracing import NoOpTracer
from fastroai.usage import Budget
from fastroai.usage.limits import Limits


def record(cost: str = "0.01") -> RequestRecord:
    return RequestRecord(
        model="m", provider="p", outcome="settled", tokens=Tokens(input_tokens=5), cost_usd=Decimal(cost)
    )


def chain_of(*names: str) -> list[Scope]:
    """A run and scopes below it, outermost first."""
    scopes: list[Scope] = []
    for name in names:
        scopes.append(Scope("step", name, parent=scopes[-1] if scopes else None))
    return scopes


async def test_a_scope_is_current_inside_and_the_one_around_it_after() -> None:
    assert current_scope() is None
    async with Scope("pipeline", "p", parent=None) as outer:
        async with Scope("step", "s", parent=outer) as inner:
            assert current_scope() is inner
        assert current_scope() is outer
    assert current_scope() is None


async def test_the_current_scope_follows_into_tasks_and_threads() -> None:
    async with Scope("pipeline", "p", parent=None) as scope:

        async def look() -> Scope | None:
            return current_scope()

        assert await asyncio.create_task(look()) is scope
        assert await asyncio.to_thread(current_scope) is scope


def test_the_path_goes_from_the_outermost_scope_inwards() -> None:
    run, step, agent = chain_of("run", "step", "agent")
    assert agent.path == ("run", "step", "agent")
    assert list(agent.lineage()) == [agent, step, run]
    assert repr(agent) == "Scope(run / step / agent)"


def test_what_flows_down_is_inherited_unless_it_is_given() -> None:
    tracer, other = NoOpTracer(), NoOpTracer()

    async def listener(event: RunEvent) -> None: ...

    run = Scope("pipeline", "p", parent=None, tracer=tracer, run_id="run-1", listener=listener)
    step = Scope("step", "s", parent=run, limits=Limits((Budget(usd=1),)))
    agent = Scope("agent", "a", parent=step, tracer=other)
    assert (agent.run_id, agent.step_id, agent.listener) == ("run-1", "s", listener)
    assert (step.tracer, agent.tracer) == (tracer, other)
    assert [*agent.own_accounts] == [], "a budget bounds what is below; nobody inherits a copy"
    assert agent.root is run


def test_runs_have_ids_of_their_own() -> None:
    [one], [other] = chain_of("p"), chain_of("p")
    assert one.run_id != other.run_id
    assert one.run_id


def test_a_charge_counts_here_and_in_every_ancestor_but_not_beside() -> None:
    run, step, agent = chain_of("run", "step", "agent")
    sibling = Scope("step", "sibling", parent=run)
    charged = record()
    agent.charge(charged)
    for scope in (run, step, agent):
        assert scope.spending.records == [charged]
        assert scope.spending.usage.cost_usd == Decimal("0.01")
    assert sibling.spending.records == []
    assert sibling.spending.usage.request_count == 0


def test_a_charge_under_a_closed_scope_goes_to_the_nearest_open_ancestor() -> None:
    run, step, agent = chain_of("run", "step", "agent")
    agent.close()
    step.close()
    agent.charge(record())
    assert (
        agent.spending.usage.request_count,
        step.spending.usage.request_count,
        run.spending.usage.request_count,
    ) == (0, 0, 1)


def test_what_was_paid_for_after_the_end_of_the_run_is_still_counted() -> None:
    run, step = chain_of("run", "step")
    step.close()
    run.close()
    step.charge(record())
    assert (step.spending.usage.request_count, run.spending.usage.request_count) == (0, 1)


def test_agent_calls_count_at_every_level() -> None:
    run, step, agent = chain_of("run", "step", "agent")
    agent.count_agent_call()
    step.count_agent_call()
    assert [scope.spending.usage.agent_call_count for scope in (run, step, agent)] == [2, 2, 1]


def test_charges_from_many_threads_are_all_counted() -> None:
    run, step = chain_of("run", "step")

    def charge() -> None:
        for _ in range(200):
            step.charge(record("0.000001"))

    threads = [threading.Thread(target=charge) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert run.spending.usage.request_count == len(run.spending.records) == 1600
    assert run.spending.usage.cost_usd == Decimal("0.0016")


def test_a_snapshot_of_what_was_spent_does_not_change() -> None:
    [run] = chain_of("run")
    before = run.spent()
    run.charge(record())
    assert before.request_count == 0
    assert run.spent().request_count == 1


@in_virtual_time
async def test_the_nearest_deadline_above_counts() -> None:
    run, step = chain_of("run", "step")
    assert run.time.deadline is None
    async with run.time.bounded(Clock(10, "run")):
        assert step.time.deadline == (10, "run")
        async with step.time.bounded(Clock(3, "step")) as inner:
            assert (step.time.deadline, run.time.deadline) == ((3, "step"), (10, "run"))
            with inner.paused():
                assert step.time.deadline == (10, "run")
        assert step.time.deadline == (10, "run")
    assert step.time.deadline is None


async def test_events_reach_the_listener_of_the_run() -> None:
    heard: list[RunEvent] = []

    async def listener(event: RunEvent) -> None:
        heard.append(event)

    event = RunStarted(part=Part("r", "p", ("p",)))
    run = Scope("pipeline", "p", parent=None, listener=listener)
    await Scope("step", "s", parent=run).emit(event)
    await Scope("pipeline", "q", parent=None).emit(event)
    assert heard == [event]


async def test_leaving_ends_what_open_inside_last_first() -> None:
    ended: list[tuple[str, bool]] = []

    async def first() -> None:
        ended.append(("first", scope.closed))

    async def gone() -> None:
        ended.append(("gone", scope.closed))

    async def last() -> None:
        ended.append(("last", scope.closed))

    async with Scope("step", "s", parent=None) as scope:
        for closer in (first, gone, last):
            scope.on_close(closer)
        scope.forget_closer(gone)
        assert scope.open_inside
    assert ended == [("last", False), ("first", False)]
    assert scope.closed
    assert not scope.open_inside
    scope.forget_closer(gone)


async def test_a_cancellation_while_closing_leaves_nothing_open() -> None:
    ended: list[int] = []
    closing = asyncio.Event()

    async def slow() -> None:
        closing.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(2)

    async def quick() -> None:
        ended.append(1)

    async def work() -> None:
        async with scope:
            scope.on_close(quick)
            scope.on_close(slow)

    scope = Scope("step", "s", parent=None)
    task = asyncio.create_task(work())
    await closing.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ended == [2, 1]
    assert scope.closed


@in_virtual_time
async def test_time_that_runs_out_while_closing_is_a_stop_of_the_budget() -> None:
    async def never_ends() -> None:
        await asyncio.Event().wait()

    async def work() -> None:
        async with Scope("step", "s", parent=None, limits=Limits((Budget(ms=2_000),))) as scope:
            scope.on_close(never_ends)

    with pytest.raises(TimeBudgetExceeded) as caught:
        await work()
    assert (caught.value.limit, caught.value.scope_path) == (2_000, ("s",))
    assert now() == 2
    assert current_scope() is None


async def test_what_was_noted_is_told_before_what_happens_next_and_to_whoever_listens_there() -> None:
    outside: list[str] = []
    inside: list[str] = []

    def listener(heard: list[str]) -> Listener:
        async def listen(event: RunEvent) -> None:
            heard.append(event.run_id)

        return listen

    def event(name: str) -> RunEvent:
        return RunEvent(part=Part(name, "p", ("p",)))

    run = Scope("pipeline", "p", parent=None, listener=listener(outside))
    step = Scope("step", "s", parent=run, listener=listener(inside))
    step.note(event("noted inside"))
    run.note(event("noted outside"))
    await run.emit(event("emitted outside"))
    assert outside == ["noted inside", "noted outside", "emitted outside"]
    assert inside == ["noted inside"]


async def test_an_error_that_leaves_has_what_was_spent() -> None:
    error = ValueError("x")

    async def work() -> None:
        async with Scope("step", "s", parent=None) as scope:
            scope.charge(record())
            raise error

    with pytest.raises(ValueError, match="x"):
        await work()
    spent = usage_of(error)
    assert spent is not None
    assert spent.cost_usd == Decimal("0.01")


async def test_a_scope_can_be_made_current_for_a_context_that_ends_with_it() -> None:
    [run] = chain_of("run")
    context = contextvars.copy_context()
    context.run(make_current, run)
    assert context.run(current_scope) is run
    assert current_scope() is None


async def test_a_run_knows_its_loop_and_a_script_has_none() -> None:
    assert Scope("pipeline", "p", parent=None).tree.loop is asyncio.get_running_loop()
    made = await asyncio.to_thread(Scope, "pipeline", "p", parent=None)
    assert made.tree.loop is None


@pytest.mark.parametrize("kind", ["pipeline", "graph"])
async def test_what_runs_steps_is_part_of_places_counted_and_named_by_events(kind: ScopeKind) -> None:
    outer = Scope(kind, "outer", parent=None)
    step = Scope("step", "ask", parent=outer)
    step.attempt = 2
    agent = Scope("agent", "bot", parent=step)
    first, second = (Scope(kind, "inner", parent=agent) for _ in range(2))
    inside = Scope("step", "check", parent=second, ordinal=3)
    assert first.place_within(outer) == "ask@2/inner"
    assert inside.place_within(outer) == "ask@2/inner#2/check#3@1"
    assert step_place(inside) == "ask@2/inner#2/check#3"
    assert inside.part == second.part
    assert (inside.part.run_id, inside.part.name, inside.part.path) == (outer.run_id, "inner", ("inner",))
    token = current_tool_calls.set(ToolCalls("tool1"))
    in_tool = Scope(kind, "inner", parent=agent)
    current_tool_calls.reset(token)
    assert in_tool.own_place == "inner#tool1"


@pytest.mark.parametrize("kind", ["pipeline", "graph"])
def test_what_is_counted_again_stops_at_what_runs_steps(kind: ScopeKind) -> None:
    run = Scope(kind, "p", parent=None)
    router = Scope("router", "r", parent=run)
    router.recount([Charge(record())], [AgentCharges("a")])
    assert (router.spending.usage.agent_call_count, run.spending.usage.agent_call_count) == (1, 0)
    assert (len(router.spending.charges), len(run.spending.charges)) == (1, 0)
