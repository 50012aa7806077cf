"""Workflows that FastroAI runs itself: agents, callables, gates and budgets, on a real server and stores."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from pydantic_ai.models import Model
from support.typed_functions import data_for, instructions_to, listed_costs

from fastroai import Budget, FastroAgent, PipelineConfig, SpendLimit, StepContext
from fastroai.errors import ConfigurationError, ContractViolation, RunExists
from fastroai.human import Inbox
from fastroai.store import EncryptingCodec, MemoryRunStore, RunHistory
from fastroai.testing import ModelServer, Reply, Usage
from fastroai.workflows import AuditAnswer, FlowList, Workflow, WorkflowResult, WorkflowRuns
from fastroai.workflows.errors import WorkflowValidationError

REVIEW = """
version: "0.2"
contracts:
  Draft:
    body: {type: string}
    score: {type: number}
  Count:
    words: {type: integer}
functions:
  write:
    mode: infer
    intent: Write a better version of the text
    input: {text: {type: string}}
    output: Draft
    ensure: ["result.score > 0.7"]
    retries: 2
  count:
    mode: compute
    intent: Count the words
    input: {text: {type: string}}
    output: Count
  approve:
    mode: gate
flows:
  review:
    input: {text: {type: string}}
    output: Draft
    max_rounds: 3
    steps:
      - id: draft
        function: write
        inputs: {text: $.input.text}
      - id: words
        function: count
        inputs: {text: $.input.text}
      - id: ok
        function: approve
        inputs: {words: $.steps.words.output.words}
        depends_on: [draft]
        on_approve: final
        on_revise: draft
        on_kill: cleanup
      - id: final
        function: write
        inputs: {text: $.steps.draft.output.body}
      - id: cleanup
        function: count
        inputs: {text: $.input.text}
"""


def count_words(text: str) -> dict[str, int]:
    return {"words": len(text.split())}


def draft(body: str, score: float = 0.9) -> Reply:
    return Reply(data={"body": body, "score": score}, usage=Usage(1_000, 100))


async def run(workflow: Workflow, model: Model, **options: Any) -> WorkflowResult:
    return await workflow.run(
        {"text": "one two three"}, functions={"count": count_words}, model=model, **options
    )


async def decide(store: MemoryRunStore, value: str, rationale: str = "") -> None:
    [question] = await Inbox(store).list()
    await Inbox(store).answer(question.id, value, reviewer="ada", rationale=rationale)


async def test_a_result_that_fails_its_checks_is_asked_for_again_with_what_was_wrong(
    server: ModelServer, model: Model
) -> None:
    workflow, store = Workflow.load(REVIEW), MemoryRunStore()
    server.script(draft("first", 0.5), draft("second"))

    result = await run(workflow, model, store=store, run_id="r")

    assert (result.status, result.reason_code) == ("paused", "question")
    assert result.outputs == {"draft": {"body": "second", "score": 0.9}, "words": {"words": 3}}
    first, second = server.ledger.entries
    assert data_for(first) == {"text": "one two three"}
    assert data_for(second) == {
        "text": "one two three",
        "previous_result": {"body": "first", "score": 0.5},
    }
    assert any("result.score (0.5) > 0.7 is false" in text for text in instructions_to(second))
    assert result.cost_usd == result.usage.cost_usd == listed_costs(server) > 0
    assert result.usage.by_step["draft"].cost_usd == result.usage.cost_usd


async def test_a_gate_asks_in_the_inbox_and_its_decision_says_where_the_run_goes_on(
    server: ModelServer, model: Model
) -> None:
    workflow, store = Workflow.load(REVIEW), MemoryRunStore()
    server.script(draft("one"), draft("two"), draft("three"))
    await run(workflow, model, store=store, run_id="r")
    options: dict[str, Any] = {"functions": {"count": count_words}, "model": model, "store": store}

    [question] = await Inbox(store).list()
    assert question.options == ("approve", "revise", "kill")
    assert question.question == {"gate": "ok", "intent": "", "inputs": {"words": 3}} | {
        "round": 0,
        "revisions_left": 3,
    }
    await decide(store, "revise", "shorter")
    revised = await workflow.resume("r", **options)
    assert (revised.status, revised.round) == ("paused", 1)

    await decide(store, "approve")
    result = await workflow.resume("r", **options)
    assert (result.status, result.round, result.ok) == ("complete", 1, True)
    assert result.output == result.trace.output == {"body": "three", "score": 0.9}
    assert workflow.replay(result.trace) is None
    assert len(server.ledger.entries) == 3
    assert (await RunHistory(store).state("r")).status == "finished"
    with pytest.raises(RunExists):
        await run(workflow, model, store=store, run_id="r")


async def test_a_gate_that_kills_runs_its_cleanup_and_nothing_brings_the_run_back(
    server: ModelServer, model: Model
) -> None:
    workflow, store = Workflow.load(REVIEW), MemoryRunStore()
    server.script(draft("one"))
    await run(workflow, model, store=store, run_id="r")
    await decide(store, "kill", "not wanted")
    options: dict[str, Any] = {"functions": {"count": count_words}, "model": model, "store": store}

    killed = await workflow.resume("r", **options)
    assert (killed.status, killed.reason_code) == ("killed", "killed")
    assert killed.outputs["cleanup"] == {"words": 3}
    assert "not wanted" in killed.reason
    assert (await workflow.resume("r", **options)).status == "killed"
    assert len(server.ledger.entries) == 1


async def test_without_attempts_left_the_flow_fails_and_says_why(server: ModelServer, model: Model) -> None:
    server.script(draft("one", 0.1), draft("two", 0.2))

    result = await run(Workflow.load(REVIEW), model)

    assert (result.status, result.reason_code) == ("failed", "step_failed")
    assert result.violations == {"draft": ("result.score (0.2) > 0.7 is false",)}
    assert result.outputs["draft"] == {"body": "two", "score": 0.2}
    assert result.usage.cost_usd == listed_costs(server)


async def test_an_answer_that_is_no_output_uses_up_an_attempt(server: ModelServer, model: Model) -> None:
    server.script(Reply("I would rather not."), draft("two"))
    result = await run(Workflow.load(REVIEW), model, store=MemoryRunStore())
    assert result.status == "paused"
    assert result.outputs["draft"] == {"body": "two", "score": 0.9}
    assert len(server.ledger.entries) == 2


async def test_everything_that_is_missing_is_told_before_anything_runs(server: ModelServer) -> None:
    workflow = Workflow.load(REVIEW)
    with pytest.raises(ConfigurationError) as caught:
        await workflow.run({"text": "x"}, functions={"cuont": count_words})
    told = str(caught.value)
    assert "functions={'count': ...}, a callable, as 'words' computes" in told
    assert "a model= for 'draft'" in told
    assert "functions= without 'cuont'" in told
    assert "Did you mean 'count'?" in told
    assert not server.ledger.entries


async def test_inputs_are_those_of_the_flow(model: Model) -> None:
    workflow = Workflow.load(REVIEW)
    with pytest.raises(ContractViolation, match="text"):
        await workflow.run({}, functions={"count": count_words}, model=model)
    with pytest.raises(ContractViolation, match="text"):
        await workflow.run({"text": 3}, functions={"count": count_words}, model=model)


async def test_a_gate_needs_a_store(server: ModelServer, model: Model) -> None:
    server.script(draft("one"))
    result = await run(Workflow.load(REVIEW), model)
    assert result.status == "failed"
    assert "a store that keeps the run" in str(result.error)


SIDE_BY_SIDE = """
version: "0.2"
contracts:
  Text: {text: {type: string}}
functions:
  left: {mode: compute, intent: One side, input: {}, output: Text}
  right: {mode: compute, intent: The other side, input: {}, output: Text}
  both: {mode: compute, intent: Both, input: {a: {type: string}, b: {type: string}}, output: Text}
flows:
  main:
    input: {}
    output: Text
    steps:
      - {id: a, function: left}
      - {id: b, function: right}
      - {id: c, function: both, inputs: {a: $.steps.a.output.text, b: $.steps.b.output.text}}
"""


async def test_steps_that_do_not_need_each_other_run_side_by_side() -> None:
    reached = asyncio.Barrier(2)

    async def left() -> dict[str, str]:
        await reached.wait()
        return {"text": "l"}

    async def right() -> dict[str, str]:
        await reached.wait()
        return {"text": "r"}

    def both(ctx: StepContext[str], a: str, b: str) -> dict[str, str]:
        return {"text": f"{a}{b}{ctx.deps}"}

    workflow = Workflow.load(SIDE_BY_SIDE)
    functions: dict[str, Any] = {"left": left, "right": right, "both": both}
    result = await workflow.run(functions=functions, deps="!")
    assert (result.status, result.output) == ("complete", {"text": "lr!"})


async def test_one_after_the_other_with_max_concurrency() -> None:
    order: list[str] = []

    def noting(name: str) -> Any:
        def note(**inputs: str) -> dict[str, str]:
            order.append(name)
            return {"text": name}

        return note

    functions = {name: noting(name) for name in ("left", "right", "both")}
    workflow = Workflow.load(SIDE_BY_SIDE)
    result = await workflow.run(functions=functions, config=PipelineConfig(max_concurrency=1))
    assert order == ["left", "right", "both"]
    assert workflow.replay(result.trace) is None


def test_a_workflow_has_no_on_error() -> None:
    functions: dict[str, Any] = dict.fromkeys(("left", "right", "both"), lambda **inputs: inputs)
    with pytest.raises(ConfigurationError, match="the spec says what follows the failure of a step"):
        Workflow.load(SIDE_BY_SIDE).bind(functions=functions, config=PipelineConfig(on_error="continue"))


async def test_a_callable_that_raises_fails_the_run_which_goes_on_there_when_it_is_resumed() -> None:
    store, works = MemoryRunStore(), False
    calls: list[str] = []

    def left() -> dict[str, str]:
        calls.append("left")
        return {"text": "l"}

    def right() -> dict[str, str]:
        calls.append("right")
        if not works:
            raise RuntimeError("the disk is full")
        return {"text": "r"}

    def both(a: str, b: str) -> dict[str, str]:
        return {"text": a + b}

    workflow = Workflow.load(SIDE_BY_SIDE)
    functions: dict[str, Any] = {"left": left, "right": right, "both": both}
    config = PipelineConfig(max_concurrency=1)
    failed = await workflow.run(functions=functions, store=store, run_id="r", config=config)
    assert failed.status == "failed"
    assert "the disk is full" in str(failed.error)

    works = True
    result = await workflow.resume("r", functions=functions, store=store, config=config)
    assert (result.status, result.output) == ("complete", {"text": "lr"})
    assert calls == ["left", "right", "right"]


LOOP = """
version: "0.2"
contracts:
  Found:
    items: {type: array}
flows:
  main:
    input: {topic: {type: string}}
    output: Found
    steps:
      - id: search
        agent: claude
        intent: Find more
        output_contract: Found
        inputs: {topic: $.input.topic}
        max_iterations: 5
        accumulate: items
        exit_criterion: "dry_streak >= 1"
"""


async def test_a_step_is_repeated_until_its_criterion_holds_and_gathers_what_it_finds(
    server: ModelServer, model: Model
) -> None:
    server.script(
        Reply(data={"items": ["a", "b"]}), Reply(data={"items": ["b", "c"]}), Reply(data={"items": ["a"]})
    )
    agents: dict[str, FastroAgent[Any, Any]] = {"claude": FastroAgent(model, instructions="You search.")}
    workflow = Workflow.load(LOOP)

    result = await workflow.run({"topic": "tides"}, agents=agents)

    everything = ["a", "b", "c"]
    assert result.status == "complete"
    assert result.output == {"items": everything, "accumulated": everything, "accumulated_count": 3}
    assert workflow.replay(result.trace) is None
    second = server.ledger.entries[1]
    assert data_for(second) == {"topic": "tides", "previous_result": {"items": ["a", "b"]}}
    assert any("exit_criterion dry_streak >= 1 does not hold yet" in text for text in instructions_to(second))


NESTED = """
version: "0.2"
contracts:
  Text: {text: {type: string}}
flows:
  main:
    input: {topic: {type: string}}
    output: Text
    steps:
      - id: inner
        flow: writing
        inputs: {topic: $.input.topic}
        ensure: ["len(result.text) > 2"]
        on_fail: short
      - id: short
        agent: claude
        intent: Say it is short
        output_contract: Text
  writing:
    input: {topic: {type: string}}
    output: Text
    budget: {usd: BUDGET}
    steps:
      - id: draft
        agent: claude
        intent: Draft
        output_contract: Text
        inputs: {topic: $.input.topic}
      - id: polish
        agent: claude
        intent: Polish
        output_contract: Text
        inputs: {text: $.steps.draft.output.text}
"""


async def test_the_output_of_an_inner_flow_is_checked_by_the_step_that_runs_it(
    server: ModelServer, model: Model
) -> None:
    server.script(*(Reply(data={"text": text}) for text in ("draft", "x", "it is short")))
    agents: dict[str, FastroAgent[Any, Any]] = {"claude": FastroAgent(model)}
    workflow = Workflow.load(NESTED.replace("BUDGET", "1"))

    result = await workflow.run({"topic": "tides"}, agents=agents)

    assert result.status == "complete"
    assert result.output == result.trace.output == {"text": "it is short"}
    assert result.outputs["inner.draft"] == {"text": "draft"}
    assert workflow.replay(result.trace) is None


async def test_the_budget_of_an_inner_flow_stops_before_it_is_crossed(
    server: ModelServer, model: Model
) -> None:
    server.script(Reply(data={"text": "short"}))
    agents: dict[str, FastroAgent[Any, Any]] = {"claude": FastroAgent(model)}
    workflow = Workflow.load(NESTED.replace("BUDGET", "0.000001"))

    result = await workflow.run({"topic": "tides"}, agents=agents)

    # The inner flow has failed, so the step that runs it has: its on_fail leads on.
    assert result.status == "complete"
    assert result.output == {"text": "short"}
    assert len(server.ledger.entries) == 1


@pytest.mark.parametrize(
    ("of_spec", "of_run", "of_config", "after"),
    [
        ("1", Budget(usd="0.00001"), None, "complete"),
        ("1", None, Budget(usd="0.00001"), "complete"),
        ("1", None, SpendLimit(usd="0.00001", key="little"), "complete"),
        ("0.00001", Budget(usd=1), None, "failed"),
    ],
)
async def test_a_run_that_its_own_budget_has_stopped_can_be_resumed_and_one_that_the_spec_has_stopped_not(
    of_spec: str,
    of_run: Budget | None,
    of_config: Budget | SpendLimit | None,
    after: str,
    server: ModelServer,
    model: Model,
) -> None:
    server.script(Reply(data={"text": "a text"}))
    spec = BUDGETED.replace("    input: {}", f"    input: {{}}\n    budget: {{usd: {of_spec}}}")
    workflow, store = Workflow.load(spec.replace("BUDGET", "1")), MemoryRunStore()
    agents: dict[str, FastroAgent[Any, Any]] = {"claude": FastroAgent(model)}

    stopped = await workflow.run(
        agents=agents, store=store, run_id="r", budget=of_run, config=PipelineConfig(budget=of_config)
    )
    assert (stopped.status, stopped.reason_code) == ("failed", "budget_exceeded")
    result = await workflow.resume("r", agents=agents, store=store, budget=Budget(usd=1))

    assert result.status == after
    assert len(server.ledger.entries) == (after == "complete")


async def test_checks_see_the_files_of_the_workspace(
    tmp_path: Path, server: ModelServer, model: Model
) -> None:
    spec = """
version: "0.2"
flows:
  main:
    input: {}
    steps:
      - {id: write, agent: claude, intent: Write notes, ensure: ["file_exists('notes.txt')"], retries: 2}
"""
    server.script(Reply("done"), Reply("done"))
    agents: dict[str, FastroAgent[Any, Any]] = {"claude": FastroAgent(model)}
    failed = await Workflow.load(spec).run(agents=agents, workspace=tmp_path)
    assert failed.status == "failed"
    (tmp_path / "notes.txt").write_text("tides")
    server.script(Reply("done"))
    result = await Workflow.load(spec).run(agents=agents, workspace=tmp_path)
    assert (result.status, result.output) == ("complete", "done")


async def test_a_spec_that_is_none_is_refused_with_every_problem() -> None:
    with pytest.raises(WorkflowValidationError, match="version"):
        Workflow.load("flows: {}")
    with pytest.raises(ConfigurationError, match="Did you mean 'review'"):
        Workflow.load(REVIEW, flow="reviev")
    with pytest.raises(ConfigurationError, match=r"Workflow\.load\(\.\.\.\)"):
        Workflow(REVIEW)  # type: ignore[arg-type]


BUDGETED = """
version: "0.2"
contracts:
  Text: {text: {type: string}}
flows:
  main:
    input: {}
    output: Text
    steps:
      - id: write
        agent: claude
        intent: Write
        output_contract: Text
        ensure: ["len(result.text) > 3"]
        retries: 9
        budget: {usd: BUDGET}
"""


async def test_the_budget_of_a_step_bounds_all_its_attempts_together(
    server: ModelServer, model: Model
) -> None:
    server.rule(None, Reply(data={"text": "no"}, usage=Usage(1_000, 1_000)))
    agents: dict[str, FastroAgent[Any, Any]] = {"claude": FastroAgent(model, max_tokens=1_000)}
    one = await Workflow.load(BUDGETED.replace("retries: 9", "retries: 1").replace("BUDGET", "1")).run(
        agents=agents
    )
    budget = one.usage.cost_usd * 3

    result = await Workflow.load(BUDGETED.replace("BUDGET", str(budget))).run(agents=agents)

    assert result.status == "failed"
    assert result.reason_code == "budget_exceeded"
    assert 0 < result.usage.cost_usd <= budget
    assert len(server.ledger.entries) < 10


async def test_a_gate_whose_time_is_over_kills_the_run_when_it_wakes(
    server: ModelServer, model: Model
) -> None:
    spec = REVIEW.replace("    mode: gate\n", "    mode: gate\n    timeout: 0.05\n")
    workflow, store = Workflow.load(spec), MemoryRunStore()
    server.script(draft("one"))
    await run(workflow, model, store=store, run_id="r")
    await asyncio.sleep(0.1)
    bound = workflow.bind(functions={"count": count_words}, model=model)

    outcomes = await bound.wake(store=store)

    killed = outcomes["r"]
    assert isinstance(killed, WorkflowResult)
    assert killed.status == "killed"
    assert "its time was over" in killed.reason
    assert killed.outputs["cleanup"] == {"words": 3}


async def test_with_a_codec_nothing_of_a_run_can_be_read_in_its_store(
    server: ModelServer, model: Model
) -> None:
    workflow, store = Workflow.load(REVIEW), MemoryRunStore()
    codec = EncryptingCodec({"k": bytes(32)})
    server.script(draft("canary-one", 0.1), draft("canary-two"))
    config = PipelineConfig(codec=codec)
    await run(workflow, model, store=store, run_id="r", config=config)

    keys = await store.list("", limit=1_000)
    stored = b"".join([b"".join((await store.read(one.key)).values) for one in keys])
    assert stored
    for readable in (b"canary", b"one two three", b"previous_result", b"result.score"):
        assert readable not in stored
    trace = await RunHistory(store, codec=codec).trace("r")
    assert workflow.replay(trace) is None


def test_a_workflow_is_drawn_with_all_its_ways() -> None:
    workflow = Workflow.load(REVIEW)
    for word in ("draft", "words", "ok", "final", "cleanup", "revise"):
        assert word in workflow.to_mermaid()
    assert workflow.to_svg().startswith("<svg")


async def test_a_run_is_among_the_flows_that_are_listed_and_audited(
    server: ModelServer, model: Model
) -> None:
    workflow, store = Workflow.load(REVIEW), MemoryRunStore()
    server.script(draft("first", 0.5), draft("second"))
    await run(workflow, model, store=store, run_id="r", tags=["mine"])

    runs = WorkflowRuns(store)
    listed = await runs.list_flows()
    assert isinstance(listed, FlowList)
    assert [flow.flow_id for flow in listed.flows] == ["r"]
    assert (await RunHistory(store).summary("r")).tags == ("workflow", "mine")
    audit = await runs.audit("r")
    assert isinstance(audit, AuditAnswer)
    [written] = [record for record in audit.trace if record.step_id == "draft"]
    assert (written.outcome, written.attempts) == ("succeeded", 2)


# --- a run that others go on with, call by call ---

LATE = """
version: "0.2"
functions:
  approve: {mode: gate, timeout: 3600}
flows:
  main:
    steps:
      - {id: ok, function: approve, on_approve: null, on_kill: null}
"""


async def test_a_decision_in_the_inbox_holds_for_calls_that_drive_a_native_run() -> None:
    store = MemoryRunStore()
    await Workflow.load(LATE).run(store=store, run_id="r")
    await decide(store, "kill", "too risky")
    runs = WorkflowRuns(store)
    ended = await runs.resume("r")
    assert (ended.status, await Inbox(store).list()) == ("killed", ())
    [gate] = (await runs.audit("r")).to_json()["trace"]
    assert (gate["outcome"], gate["resolved_by"], gate["rationale"]) == ("kill", "human", "too risky")


async def test_a_call_resolves_the_gate_of_a_native_run_which_is_asked_once() -> None:
    store = MemoryRunStore()
    await Workflow.load(LATE).run(store=store, run_id="r")
    runs, asked = WorkflowRuns(store), await Inbox(store).list()
    first, second = await runs.resume("r"), await runs.resume("r")
    assert first == second
    assert first.status == "await_gate"
    assert (first.expires_at, await Inbox(store).list()) == (asked[0].deadline, asked)
    assert (await runs.gate_resolve("r", "ok", "approve")).status == "complete"
    assert await Inbox(store).list() == ()


async def test_what_is_due_in_a_native_run_is_told_without_taking_it_up() -> None:
    store = MemoryRunStore()
    await Workflow.load(LATE).run(store=store, run_id="r")
    runs, before = WorkflowRuns(store), await RunHistory(store).trace("r")
    assert (await runs.due("r")).status == "await_gate"
    assert await RunHistory(store).trace("r") == before
    await decide(store, "kill")
    answered = await RunHistory(store).trace("r")
    assert (await runs.due("r")).status == "killed"
    assert await RunHistory(store).trace("r") == answered


async def test_a_gate_of_a_native_run_that_has_run_out_of_time_kills_it_at_any_call() -> None:
    store = MemoryRunStore()
    waiting = await Workflow.load(LATE).run(store=store, run_id="r")
    [wait] = waiting.waits
    assert wait.deadline is not None
    now = wait.deadline - 1
    runs = WorkflowRuns(store, clock=lambda: now)
    left = await runs.check_timeouts("r")
    assert (left.status, left.to_json()["remaining_seconds"]) == ("no_timeout", 1.0)
    now = wait.deadline
    assert (await runs.check_timeouts("r")).status == "killed"


@pytest.mark.parametrize("value", ["bad", "good"])
async def test_both_ways_of_running_put_the_same_reasons_on_record(value: str) -> None:
    spec = """
version: "0.2"
functions:
  work: {mode: compute, intent: Do it, output: Out, ensure: ["result.v != 'bad'"], retries: 1}
  ask: {mode: gate}
contracts:
  Out: {v: {type: string}}
flows:
  main:
    steps:
      - {id: one, function: work}
      - {id: ok, function: ask, depends_on: [one], policy: flag, on_approve: null, on_kill: null}
"""
    native, driven = WorkflowRuns(MemoryRunStore()), WorkflowRuns(MemoryRunStore())
    await Workflow.load(spec).run(functions={"work": lambda: {"v": value}}, store=native.store, run_id="r")
    await driven.plan(spec, run_id="r")
    await driven.step_done("r", "one", {"v": value})
    first, second = (await native.audit("r")).to_json(), (await driven.audit("r")).to_json()
    assert (first["status"], first["reason"]) == (second["status"], second["reason"])
    told = [[(one["outcome"], one.get("rationale")) for one in audit["trace"]] for audit in (first, second)]
    assert told[0] == told[1]
