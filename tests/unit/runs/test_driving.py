"""Runs that are driven from outside, call by call, are runs like others: resumed, followed, replayed."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pytest
from support.counting_store import Counting
from support.patience import PATIENCE
from support.run_logs import Log
from support.run_stores import KINDS, OpenStore, run_stores

from fastroai.errors import (
    ConfigurationError,
    ContractViolation,
    RunConflict,
    RunDefinitionChanged,
    RunExists,
    RunInProgress,
    RunNotFound,
    RunStatusConflict,
)
from fastroai.graphs import Edge, Graph
from fastroai.graphs.facts import EdgesResolved
from fastroai.pipelines import Pipeline, PipelineConfig, StepContext, step
from fastroai.runs.driving import DrivenRuns, DrivenState
from fastroai.runtime.facts import (
    AnswerGiven,
    AnyFact,
    FailureFacts,
    QuestionAsked,
    RunFinished,
    RunResumed,
    RunStarted,
    StepCancelled,
    StepFailed,
    StepFinished,
    StepSkipped,
    StepStarted,
    StopRequested,
)
from fastroai.store import MemoryRunStore, RunHistory


@pytest.fixture(params=KINDS)
def open_store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[OpenStore]:
    with run_stores(request.param, request, tmp_path) as opens:
        yield opens


async def closed(*stores: Any) -> None:
    for store in stores:
        if aclose := getattr(store, "aclose", None):
            await aclose()


def diamond(**config: Any) -> Pipeline[Any, Any]:
    @step
    async def listed(ctx: StepContext[Any]) -> list[str]:
        return ["live", *ctx.dependencies]

    needs = {"b": ["a"], "c": ["a"], "d": ["b", "c"]}
    return Pipeline("p", dict.fromkeys("abcd", listed), needs, config=PipelineConfig(**config))


def asking() -> Graph[Any, Any]:
    @step
    async def number(ctx: StepContext[Any]) -> int:
        return 1

    @step
    async def questions(ctx: StepContext[Any]) -> str:
        return "sure?"

    nodes = {"a": number, "ask": questions, "end": number}
    edges = [Edge("a", "ask"), Edge("ask", "end")]
    return Graph("g", nodes=nodes, edges=edges, entry="a", pause_nodes=["ask"])


FAILURE = FailureFacts(error_type="ValueError", message="no", failure_class="terminal")


def told(fact: AnyFact) -> object:
    """What two runs that did the same have in common: no ids, no times."""
    match fact:
        case RunStarted() | RunResumed():
            return fact.kind, fact.inputs
        case StepStarted() | StepSkipped():
            return fact.kind, fact.place, fact.branch, fact.cause
        case StepFinished():
            return fact.kind, fact.place, fact.branch, fact.output, fact.conversation
        case StepFailed():
            return fact.kind, fact.place, fact.branch, fact.failure.message
        case StepCancelled():
            return fact.kind, fact.place, fact.branch
        case QuestionAsked():
            return fact.kind, fact.place, fact.question
        case AnswerGiven():
            return fact.kind, fact.place, fact.answer
        case EdgesResolved():
            return fact.kind, fact.place, fact.branch, fact.edges
        case RunFinished():
            return fact.kind, fact.status
        case _:
            return None


async def history_of(store: Any, run_id: str) -> list[object]:
    return [one for fact in (await RunHistory(store).trace(run_id)).entries if (one := told(fact))]


# --- from call to call ---


async def test_a_run_is_driven_to_its_end_by_calls_of_any_client(open_store: OpenStore) -> None:
    mine, theirs = open_store(), open_store()
    one, other = diamond().driven(store=mine), diamond().driven(store=theirs)
    state = await one.begin({"n": 1}, run_id="r", tags=["new"], tenant="ada")
    [run] = await RunHistory(mine).list(tag="new", tenant="ada")
    assert (run.run_id, run.tags, run.tenant) == ("r", ("new",), "ada")
    assert [due.step_id for due in state.due] == ["a"]
    assert (state.due[0].inputs, state.due[0].needs) == ({"n": 1}, {})
    assert await other.state("r") == replace(state, decided=())

    state = await other.report("r", StepFinished("a", ["A"]), expecting=state.revision)
    assert [type(fact) for fact in state.decided] == [StepStarted, StepStarted]
    assert [(due.step_id, due.needs) for due in state.due] == [("b", {"a": ["A"]}), ("c", {"a": ["A"]})]

    state = await one.report("r", StepFinished("c", ["C"]), expecting=state.revision)
    state = await other.report("r", StepFinished("b", ["B"]), expecting=state.revision)
    assert [(due.step_id, due.needs) for due in state.due] == [("d", {"b": ["B"], "c": ["C"]})]
    assert (await RunHistory(mine).summary("r")).status == "running"

    state = await one.report("r", StepFinished("d", ["D"]), expecting=state.revision)
    assert state.due == ()
    assert state.finish is not None
    assert state.finish.status == "finished"
    trace = await RunHistory(theirs).trace("r")
    assert diamond().replay(trace) is None
    assert [run.run_id for run in await RunHistory(mine).list(status="finished", limit=1)] == ["r"]
    assert await RunHistory(mine).list(status="running", limit=1) == ()
    await closed(mine, theirs)


async def test_a_question_of_a_graph_is_answered(open_store: OpenStore) -> None:
    store, graph = open_store(), asking()
    runs = graph.driven(store=store)
    state = await runs.begin({"x": 0}, run_id="r")
    assert state.due[0].inputs == {"x": 0}
    state = await runs.report("r", StepFinished("a", 7), expecting=state.revision)
    assert (state.due[0].inputs, state.due[0].needs) == ({"x": 0, "a": 7}, {"a": 7})
    with pytest.raises(ConfigurationError, match="a QuestionAsked"):
        await runs.report("r", StepFinished("ask", "sure?"), expecting=state.revision)
    state = await runs.report("r", QuestionAsked("ask", "sure?"), expecting=state.revision)
    assert state.questions == {("ask", 1): "sure?"}
    assert state.finish is not None
    assert state.finish.status == "paused"
    assert [one.question for one in await graph.questions("r", store=store)] == ["sure?"]
    with pytest.raises(ConfigurationError, match="the answer to a question"):
        await runs.report("r", AnswerGiven("a", "yes"), expecting=state.revision)
    state = await runs.report("r", AnswerGiven("ask", "yes"), expecting=state.revision)
    assert [due.step_id for due in state.due] == ["end"]
    state = await runs.report("r", StepFinished("end", 2), expecting=state.revision)
    assert state.finish is not None
    assert state.finish.status == "finished"
    trace = await RunHistory(store).trace("r")
    assert graph.replay(trace) is None
    await graph.run({"x": 0}, run_id="live", store=store)
    await graph.resume("live", input="yes", store=store)
    assert (
        [one[:2] for one in await history_of(store, "live")]
        == [  # type: ignore[index]
            one[:2]
            for one in await history_of(store, "r")  # type: ignore[index]
        ]
    )
    await closed(store)


@pytest.mark.parametrize("make", [diamond, asking])
async def test_of_two_that_report_at_one_revision_one_wins(make: Any, open_store: OpenStore) -> None:
    mine, theirs = open_store(), open_store()
    one, other = make().driven(store=mine), make().driven(store=theirs)
    state = await one.begin(run_id="r")

    async def report(runs: DrivenRuns, output: object) -> DrivenState | None:
        try:
            return await runs.report("r", StepFinished("a", output), expecting=state.revision)
        except RunConflict:
            return None

    outputs: Sequence[object] = [["one"], ["other"]] if make is diamond else [1, 2]
    rivals = zip((one, other), outputs, strict=True)
    outcomes = await asyncio.gather(*(report(runs, output) for runs, output in rivals))
    winners = [found for found in outcomes if found is not None]
    assert len(winners) == 1
    assert await one.state("r") == replace(winners[0], decided=())
    trace = await RunHistory(mine).trace("r")
    assert sum(isinstance(fact, StepFinished) for fact in trace.entries) == 1
    await closed(mine, theirs)


# --- live and driven ---


async def test_a_process_takes_over_and_gives_back() -> None:
    store, pipeline = MemoryRunStore(), diamond()
    runs = pipeline.driven(store=store)
    state = await runs.begin(run_id="r")
    state = await runs.report("r", StepFinished("a", ["A"]), expecting=state.revision)
    result = await pipeline.resume("r", store=store)
    assert result.step_outputs == {
        "a": ["A"],
        "b": ["live", "a"],
        "c": ["live", "a"],
        "d": ["live", "b", "c"],
    }
    with pytest.raises(RunConflict):
        await runs.report("r", StepFinished("b", ["B"]), expecting=state.revision)
    state = await runs.state("r")
    assert state.finish is not None
    assert state.finish.status == "finished"
    assert pipeline.replay(await RunHistory(store).trace("r")) is None


async def test_a_run_that_failed_in_its_process_is_driven_on() -> None:
    @step
    async def fails(ctx: StepContext[Any]) -> str:
        raise ValueError("no")

    @step
    async def works(ctx: StepContext[Any]) -> str:
        return "yes"

    store = MemoryRunStore()
    pipeline = Pipeline("p", {"a": works, "b": fails}, {"b": ["a"]})
    with pytest.raises(Exception, match="'b' failed"):
        await pipeline.execute({"n": 1}, run_id="r", store=store)
    runs = pipeline.driven(store=store)
    state = await runs.state("r")
    assert state.due == ()
    with pytest.raises(ConfigurationError, match="resume it"):
        await runs.report("r", StepFinished("b", "yes"), expecting=state.revision)
    state = await runs.resume("r", {"n": 2}, expecting=state.revision)
    assert [(due.step_id, due.inputs, due.needs) for due in state.due] == [("b", {"n": 2}, {"a": "yes"})]
    state = await runs.report("r", StepFinished("b", "at last"), expecting=state.revision)
    assert state.finish is not None
    assert state.finish.status == "finished"
    assert pipeline.replay(await RunHistory(store).trace("r")) is None


async def test_a_graph_that_has_failed_is_driven_on_by_every_driver_that_knew_it() -> None:
    store = MemoryRunStore()

    @step
    async def work(ctx: StepContext[Any]) -> str:
        return "yes"

    nodes = dict.fromkeys(("top", "a", "b", "end"), work)
    edges = [Edge("top", "a"), Edge("top", "b"), Edge("a", "end"), Edge("b", "end")]
    graph = Graph[Any, Any]("g", nodes=nodes, edges=edges)
    one, other = graph.driven(store=store), graph.driven(store=store)
    state = await one.begin({"n": 1}, run_id="r")
    state = await one.report("r", StepFinished("top", "yes"), expecting=state.revision)
    state = await one.report("r", replace(failed(), step_id="a"), expecting=state.revision)
    state = await one.report("r", StepCancelled("b", ""), expecting=state.revision)
    assert (await other.state("r")).finish == state.finish
    state = await one.resume("r", {"n": 2}, expecting=state.revision)
    assert [(due.step_id, due.inputs["n"]) for due in state.due] == [("a", 2), ("b", 2)]
    for runs in (other, graph.driven(store=store)):
        assert (await runs.state("r")).due == state.due
    for name in ("b", "a", "end"):
        state = await other.report("r", StepFinished(name, "yes"), expecting=state.revision)
    assert state.finish is not None
    assert state.finish.status == "finished"
    assert graph.replay(await RunHistory(store).trace("r")) is None


async def test_a_look_at_a_run_whose_process_died_does_not_take_it_up() -> None:
    store, pipeline = MemoryRunStore(), diamond()
    definition = pipeline.definition
    await Log(definition, pipeline="p").start("a").write(store)
    runs = pipeline.driven(store=store)
    state = await runs.state("r1")
    assert [due.step_id for due in state.due] == ["a"]
    assert (await RunHistory(store).summary("r1")).status == "interrupted"
    state = await runs.report("r1", StepFinished("a", ["A"]), expecting=state.revision)
    assert [due.step_id for due in state.due] == ["b", "c"]
    assert (await RunHistory(store).summary("r1")).status == "running"


async def test_a_fork_whose_process_died_is_driven_on() -> None:
    """Its log begins with the outputs that it has of the other run."""
    store, pipeline = MemoryRunStore(), diamond()
    log = Log(pipeline.definition, pipeline="p", forked_from="r0").output("a", ["A"])
    await log.start("b", "a").start("c", "a").write(store)
    runs = pipeline.driven(store=store)
    state = await runs.state("r1")
    assert [(due.step_id, due.needs) for due in state.due] == [("b", {"a": ["A"]}), ("c", {"a": ["A"]})]
    for step_id in ("b", "c", "d"):
        state = await runs.report("r1", StepFinished(step_id, [step_id]), expecting=state.revision)
    assert state.finish is not None
    assert state.finish.status == "finished"
    assert pipeline.replay(await RunHistory(store).trace("r1")) is None


async def test_every_report_counts_as_something_that_happened(open_store: OpenStore) -> None:
    """A purge forgets runs in which nothing has happened for long."""
    store = open_store()
    runs = diamond().driven(store=store)
    state = await runs.begin(run_id="r")
    before = await RunHistory(store).summary("r")
    await runs.report("r", StepFinished("a", ["A"]), expecting=state.revision)
    after = await RunHistory(store).summary("r")
    assert before.updated_at is not None
    assert after.updated_at is not None
    assert after.updated_at > before.updated_at
    assert after.started_at == before.started_at
    await closed(store)


async def test_nobody_drives_a_run_that_a_process_has() -> None:
    reached, go_on = asyncio.Event(), asyncio.Event()

    @step
    async def waits(ctx: StepContext[Any]) -> str:
        reached.set()
        await go_on.wait()
        return "done"

    store = MemoryRunStore()
    pipeline = Pipeline("p", {"a": waits})
    running = asyncio.create_task(pipeline.execute(run_id="r", store=store))
    async with asyncio.timeout(PATIENCE):
        await reached.wait()
        with pytest.raises(RunInProgress):
            await pipeline.driven(store=store).state("r")
        go_on.set()
        await running


async def test_a_driven_run_is_followed_from_call_to_call() -> None:
    store = MemoryRunStore()
    runs = diamond().driven(store=store)
    state = await runs.begin(run_id="r")
    followed = RunHistory(store).follow("r")
    facts = [(await anext(followed))[1] for _ in range(state.revision)]
    waits = asyncio.ensure_future(followed.__anext__())
    await runs.report("r", StepFailed("a", FAILURE), expecting=state.revision)
    async with asyncio.timeout(PATIENCE):
        facts.append((await waits)[1])
        facts += [fact async for _, fact in followed]
    assert isinstance(facts[-1], RunFinished)
    assert [told(fact) for fact in facts if told(fact)] == await history_of(store, "r")
    assert (await RunHistory(store).summary("r")).error == "ValueError: no"


async def test_an_output_may_be_given_as_json() -> None:
    @step
    async def due(ctx: StepContext[Any]) -> date:
        return date(2026, 1, 2)

    @step
    async def late(ctx: StepContext[Any]) -> bool:
        return ctx.get_dependency("due", date) < date(2026, 1, 3)

    store = MemoryRunStore()
    pipeline = Pipeline("p", {"due": due, "late": late}, {"late": ["due"]})
    runs = pipeline.driven(store=store)
    state = await runs.begin(run_id="r")
    state = await runs.report("r", StepFinished("due", "2026-01-02"), expecting=state.revision)
    assert state.due[0].needs == {"due": date(2026, 1, 2)}
    assert (await pipeline.resume("r", store=store)).output is True


# --- what is refused ---


async def test_what_nobody_waits_for_is_refused_and_not_on_record() -> None:
    store = MemoryRunStore()
    runs = diamond().driven(store=store)
    state = await runs.begin(run_id="r")
    for fact, why in (
        (StepFinished("b", ["B"]), "the outcome of something that is due"),
        (StepFinished("a", ["A"], visit=2), "the outcome of something that is due"),
        (StepFinished("nothing", ["A"]), "'a' \\(visit 1\\)"),
        (AnswerGiven("a", 1), "the answer to a question"),
        (QuestionAsked("a", 1), "no pause nodes"),
    ):
        with pytest.raises(ConfigurationError, match=why):
            await runs.report("r", fact, expecting=state.revision)
    with pytest.raises(ConfigurationError, match="what step 'a' gives"):
        await runs.report("r", StepFinished("a", 7), expecting=state.revision)
    with pytest.raises(RunConflict, match="Read it again") as conflict:
        await runs.report("r", StepFinished("a", ["A"]), expecting=state.revision + 1)
    assert conflict.value.expecting == state.revision + 1
    with pytest.raises(RunNotFound):
        await runs.state("other")
    with pytest.raises(RunExists):
        await runs.begin(run_id="r")
    with pytest.raises(RunDefinitionChanged):
        await Pipeline("p", {"a": diamond().steps["a"]}).driven(store=store).state("r")
    assert await runs.state("r") == replace(state, decided=())
    with pytest.raises(ContractViolation):
        await (
            Pipeline("p", {"a": diamond().steps["a"]}, accepts={"n": int})
            .driven(store=store)
            .begin({"n": "x"})
        )


@pytest.mark.parametrize("make", [diamond, asking])
async def test_a_stopped_run_ends_when_all_that_ran_was_reported(make: Any) -> None:
    store = MemoryRunStore()
    runs = make().driven(store=store)
    state = await runs.begin(run_id="r")
    state = await runs.report("r", StopRequested(reason="enough"), expecting=state.revision)
    assert [due.step_id for due in state.due] == ["a"]
    state = await runs.report("r", StepCancelled("a", "enough"), expecting=state.revision)
    assert state.finish is not None
    assert state.finish.status == "cancelled"
    assert (await RunHistory(store).summary("r")).status == "cancelled"


@pytest.mark.parametrize("make", [diamond, asking])
async def test_what_nothing_has_cancelled_is_not_reported_as_cancelled(make: Any) -> None:
    runs = make().driven(store=MemoryRunStore())
    state = await runs.begin(run_id="r")
    with pytest.raises(ConfigurationError, match="nothing has cancelled 'a'.*StopRequested"):
        await runs.report("r", StepCancelled("a", "enough"), expecting=state.revision)
    assert await runs.state("r") == replace(state, decided=())


@pytest.mark.parametrize("expecting", ["4", None, -1, 1.0, True])
async def test_what_is_no_revision_is_told_from_a_conflict(expecting: Any) -> None:
    runs = diamond().driven(store=MemoryRunStore())
    await runs.begin(run_id="r")
    with pytest.raises(ConfigurationError, match="expecting=.*state.revision"):
        await runs.report("r", StepFinished("a", ["x"]), expecting=expecting)
    with pytest.raises(ConfigurationError, match="expecting=.*state.revision"):
        await runs.resume("r", expecting=expecting)


def failed(**given: Any) -> StepFailed:
    facts = {"error_type": "ValueError", "message": "no", "failure_class": "ambiguous"}
    return StepFailed("a", FailureFacts(**facts | given))


@pytest.mark.parametrize(
    ("fact", "told"),
    [
        ("a", "one of StepFinished, .*StopRequested"),
        ({"step_id": "a"}, "one of StepFinished"),
        (StepFinished, "one of StepFinished"),
        (StepStarted("a", "because"), "one of StepFinished"),
        (StepFailed("a", "boom"), r"failure='boom': expected .*FailureFacts\("),  # type: ignore[arg-type]
        (StepFailed("a", ValueError()), r"FailureFacts\("),  # type: ignore[arg-type]
        (failed(error_type=3), "failure.error_type=3: expected text"),
        (failed(message=None), "failure.message=None: expected text"),
        (failed(failure_class="bogus"), "'recoverable', 'terminal', 'ambiguous'"),
    ],
)
async def test_what_is_no_fact_is_refused(fact: Any, told: str) -> None:
    runs = diamond().driven(store=MemoryRunStore())
    state = await runs.begin(run_id="r")
    with pytest.raises(ConfigurationError, match=told):
        await runs.report("r", fact, expecting=state.revision)


async def test_a_misspelt_step_and_a_question_that_waits_are_named() -> None:
    runs = asking().driven(store=MemoryRunStore())
    state = await runs.begin(run_id="r")
    with pytest.raises(ConfigurationError, match="'a' \\(visit 1\\)"):
        await runs.report("r", StepFinished("b", 1), expecting=state.revision)
    state = await runs.report("r", StepFinished("a", 1), expecting=state.revision)
    with pytest.raises(ConfigurationError, match="outcome of something that is due.*Did you mean 'ask'"):
        await runs.report("r", QuestionAsked("aks", "sure?"), expecting=state.revision)
    state = await runs.report("r", QuestionAsked("ask", "sure?"), expecting=state.revision)
    with pytest.raises(ConfigurationError, match="an AnswerGiven: run 'r' waits for answers to 'ask'"):
        await runs.report("r", StepFinished("ask", "yes"), expecting=state.revision)


async def test_a_finished_run_stays_as_it_is_when_it_is_resumed() -> None:
    @step
    async def works(ctx: StepContext[Any]) -> int:
        return 1

    runs = Pipeline("p", {"works": works}).driven(store=MemoryRunStore())
    state = await runs.begin(run_id="r")
    state = await runs.report("r", StepFinished("works", 1), expecting=state.revision)
    assert await runs.resume("r", expecting=state.revision) == replace(state, decided=())


async def test_values_go_through_the_codec() -> None:
    class Backwards:
        def encode(self, payload: bytes) -> bytes:
            return payload[::-1]

        decode = encode

    store = MemoryRunStore()
    runs = diamond(codec=Backwards()).driven(store=store)
    state = await runs.begin({"n": "secret"}, run_id="r")
    state = await runs.report("r", StepFinished("a", ["hidden"]), expecting=state.revision)
    assert state.due[0].needs == {"a": ["hidden"]}
    failure = replace(FAILURE, message="private")
    await runs.report("r", StepFailed("b", failure), expecting=state.revision)
    held = str(store._held)
    assert not any(word in held for word in ("secret", "hidden", "private"))


async def test_a_driven_run_is_running_until_its_log_says_how_it_ended() -> None:
    store, graph = MemoryRunStore(), asking()
    history, runs = RunHistory(store), graph.driven(store=store)
    state = await runs.begin({"x": 0}, run_id="r")
    assert (await history.summary("r")).status == (await history.trace("r")).status == "running"
    with pytest.raises(RunStatusConflict, match="is driven from outside: report PauseRequested"):
        await graph.pause("r", store=store)
    assert await history.list(status="interrupted") == ()
    state = await runs.report("r", StepFinished("a", 7), expecting=state.revision)
    await runs.report("r", QuestionAsked("ask", "sure?"), expecting=state.revision)
    assert (await history.summary("r")).status == (await history.trace("r")).status == "paused"
    await runs.begin({"x": 0}, run_id="left")
    assert set(await history.purge(timedelta(0))) == {"r", "left"}


async def test_a_call_reads_what_is_new_in_the_log_and_not_its_history() -> None:
    store = Counting()
    mine, theirs = diamond().driven(store=store), diamond().driven(store=store)
    state = await mine.begin(run_id="r")
    for name in "ab":
        state = await mine.report("r", StepFinished(name, [name]), expecting=state.revision)
    store.values.clear()
    state = await mine.report("r", StepFinished("c", ["c"]), expecting=state.revision)
    assert store.values["log"] == 0
    await theirs.state("r")
    state = await mine.report("r", StepFinished("d", ["d"]), expecting=state.revision)
    store.values.clear()
    assert (await theirs.state("r")).finish == state.finish
    assert store.values["log"] == 2


async def test_a_report_that_is_refused_leaves_nothing_behind_for_the_next_call() -> None:
    store = Counting()
    runs = diamond().driven(store=store)
    state = await runs.begin(run_id="r")
    with pytest.raises(ConfigurationError):
        await runs.report("r", StepFinished("d", ["d"]), expecting=state.revision)
    store.values.clear()
    assert await runs.state("r") == replace(state, decided=())
    assert store.values["log"] == 0
