"""Flows that are driven call by call: several processes at once, the inbox, codecs, the cost of a call."""

from __future__ import annotations

import asyncio
import os
import sys
from contextlib import aclosing
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from support.counting_store import Counting

from fastroai.human import Inbox
from fastroai.pipelines import Pipeline, StepContext, step
from fastroai.runs.told import MOST_KEPT
from fastroai.store import MemoryRunStore, RunHistory, SQLiteRunStore
from fastroai.store.headers import header_key, log_key, read_header
from fastroai.workflows.answers import (
    AuditAnswer,
    AwaitGate,
    ErrorAnswer,
    ExecuteStep,
    FlowEnded,
    FlowList,
    NextAnswer,
)
from fastroai.workflows.flows import WorkflowRuns
from fastroai.workflows.workflow import Workflow

LOOP = """
version: "0.2"
flows:
  main:
    input: {}
    steps:
      - {id: one, intent: Count, max_iterations: 100000}
"""
GATED = """
version: "0.2"
functions:
  ask: {mode: gate, intent: Is it good, timeout: 3600}
flows:
  main:
    max_rounds: 500
    input: {secret: {type: string}}
    steps:
      - {id: one, intent: Look, inputs: {secret: $.input.secret}, ensure: ["result.ok"], retries: 2}
      - id: sure
        function: ask
        inputs: {of: $.steps.one.output}
        on_approve: two
        on_revise: one
        on_kill: null
      - {id: two, intent: Go on, depends_on: [sure]}
"""


async def begun(runs: WorkflowRuns, spec: str = GATED, **inputs: Any) -> str:
    answer = await runs.plan(spec, inputs=inputs)
    assert isinstance(answer, ExecuteStep), answer
    return answer.flow_id


def error_of(answer: object) -> str:
    assert isinstance(answer, ErrorAnswer), answer
    return answer.error_type


# --- several at once ---


async def test_of_two_calls_at_once_one_wins_and_the_other_is_told(tmp_path: Path) -> None:
    path = tmp_path / "flows.db"
    async with aclosing(SQLiteRunStore(path)) as mine, aclosing(SQLiteRunStore(path)) as theirs:
        one, other = WorkflowRuns(mine), WorkflowRuns(theirs)
        flow_id = await begun(one, LOOP)
        await one.iteration_start(flow_id, "one")
        lost = 0
        for number in range(20):
            answers = await asyncio.gather(
                one.iteration_report(flow_id, "one", {"n": number}),
                other.iteration_report(flow_id, "one", {"n": number}),
            )
            errors = [answer for answer in answers if isinstance(answer, ErrorAnswer)]
            assert {answer.error_type for answer in errors} <= {"conflict"}
            assert len(errors) < 2
            lost += len(errors)
        audit = await other.audit(flow_id)
        assert isinstance(audit, AuditAnswer)
        assert len(audit.iterations["one"]) == 40 - lost
        assert lost


async def test_processes_that_race_on_a_flow_lose_no_report(tmp_path: Path) -> None:
    path, reports = tmp_path / "flows.db", 25
    async with aclosing(SQLiteRunStore(path)) as store:
        runs = WorkflowRuns(store)
        flow_id = await begun(runs, LOOP)
        await runs.iteration_start(flow_id, "one")
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
        workers = [
            await asyncio.create_subprocess_exec(
                sys.executable,
                *("-m", "support.workflow_worker", str(path), flow_id, str(reports)),
                stdout=asyncio.subprocess.PIPE,
                env=environment,
            )
            for _ in range(2)
        ]
        ends = await asyncio.gather(*(worker.communicate() for worker in workers))
        assert [worker.returncode for worker in workers] == [0, 0], ends
        audit = await runs.audit(flow_id)
        assert isinstance(audit, AuditAnswer)
        assert [one.iteration for one in audit.iterations["one"]] == [*range(1, 2 * reports + 1)]


async def test_two_calls_at_once_of_one_object_do_not_share_what_was_read() -> None:
    runs = WorkflowRuns(MemoryRunStore())
    flow_id = await begun(runs, LOOP)
    await runs.iteration_start(flow_id, "one")
    answers = await asyncio.gather(*(runs.iteration_report(flow_id, "one", {}) for _ in range(3)))
    accepted = [answer for answer in answers if not isinstance(answer, ErrorAnswer)]
    audit = await WorkflowRuns(runs.store).audit(flow_id)
    assert isinstance(audit, AuditAnswer)
    assert len(audit.iterations["one"]) == len(accepted) >= 1
    assert await runs.resume(flow_id) == await WorkflowRuns(runs.store).resume(flow_id)


# --- gates and the inbox ---


async def test_a_gate_is_in_the_inbox_and_is_answered_there() -> None:
    store = MemoryRunStore()
    runs, inbox = WorkflowRuns(store), Inbox(store)
    flow_id = await begun(runs, secret="s")
    await runs.step_done(flow_id, "one", {"ok": True})
    [question] = await inbox.list()
    assert (question.run_id, question.node, question.options) == (
        flow_id,
        "sure",
        ("approve", "revise", "kill"),
    )
    assert question.question["inputs"] == {"of": {"ok": True}}
    await inbox.answer(question.id, "revise", reviewer="ada", rationale="not yet")
    answer = await runs.resume(flow_id)
    assert isinstance(answer, ExecuteStep)
    assert (answer.step_id, answer.round, answer.routed_from) == ("one", 1, "sure")
    assert await inbox.list() == ()
    audit = await runs.audit(flow_id)
    assert isinstance(audit, AuditAnswer)
    gate = audit.rounds[0].steps[-1]
    assert (gate.outcome, gate.resolved_by, gate.rationale) == ("revise", "human", "not yet")


async def test_a_gate_that_was_resolved_by_a_call_is_not_in_the_inbox() -> None:
    store = MemoryRunStore()
    runs = WorkflowRuns(store)
    flow_id = await begun(runs, secret="s")
    answer = await runs.step_done(flow_id, "one", {"ok": True})
    assert isinstance(answer, AwaitGate)
    assert answer.expires_at is not None
    listed = await runs.list_flows()
    assert isinstance(listed, FlowList)
    assert [(one.flow_id, one.status, one.awaits) for one in listed.flows] == [(flow_id, "in_progress", True)]
    await runs.gate_resolve(flow_id, "sure", "kill", "no")
    assert await Inbox(store).list() == ()
    listed = await runs.list_flows()
    assert isinstance(listed, FlowList)
    assert [(one.status, one.awaits) for one in listed.flows] == [("killed", False)]


# --- what can go wrong ---


async def test_runs_of_pipelines_are_no_flows_and_are_not_listed() -> None:
    @step
    async def one(ctx: StepContext[Any]) -> int:
        return 1

    store = MemoryRunStore()
    await Pipeline("p", {"one": one}).execute({}, run_id="r", store=store)
    runs = WorkflowRuns(store)
    assert error_of(await runs.resume("r")) == "not_a_workflow"
    assert (await runs.list_flows()).to_json() == {"status": "ok", "flows": []}


async def test_what_is_no_result_is_refused() -> None:
    runs = WorkflowRuns(MemoryRunStore())
    flow_id = await begun(runs, secret="s")
    deep: Any = []
    for _ in range(200):
        deep = [deep]
    for result in ({"big": "x" * 1_000_001}, deep, {"no": object()}, {1, 2}):
        assert error_of(await runs.step_done(flow_id, "one", result)) == "invalid_result"  # type: ignore[arg-type]
    assert error_of(await runs.skip_step(flow_id, "one", "x" * 10_001)) == "invalid_input"
    answer = await runs.resume(flow_id)
    assert isinstance(answer, ExecuteStep)
    assert answer.attempt == 1


async def test_a_spec_with_problems_is_answered_with_all_of_them() -> None:
    runs = WorkflowRuns(MemoryRunStore())
    answer = await runs.plan(
        'version: "0.2"\nflows:\n  main:\n    input: {}\n    steps:\n      - {id: a, function: b}\n'
    )
    assert isinstance(answer, ErrorAnswer)
    assert answer.error_type == "invalid_spec"
    assert answer.problems[0].line == 6
    assert error_of(await runs.plan(GATED, "mian")) == "unknown_flow"
    assert error_of(await runs.plan(GATED, inputs={"secret": "s"}, run_id="a/b")) == "invalid_input"
    assert error_of(await runs.plan(GATED, inputs={"secret": "s"}, run_id="")) == "invalid_input"
    await runs.plan(GATED, inputs={"secret": "s"}, run_id="mine")
    assert error_of(await runs.plan(GATED, inputs={"secret": "s"}, run_id="mine")) == "flow_exists"


async def test_a_damaged_log_is_told() -> None:
    store = MemoryRunStore()
    runs = WorkflowRuns(store)
    flow_id = await begun(runs, secret="s")
    found = await read_header(store, flow_id)
    await store.append(log_key(found.header), [b"no entry"], revision=2)
    assert error_of(await runs.resume(flow_id)) == "flow_unreadable"


class Shift:
    """A codec that hides text."""

    def encode(self, data: bytes) -> bytes:
        return bytes(255 - one for one in data)

    def decode(self, data: bytes) -> bytes:
        return bytes(255 - one for one in data)


async def test_a_codec_seals_all_that_users_have_in_a_flow() -> None:
    store, codec = MemoryRunStore(), Shift()
    runs = WorkflowRuns(store, codec=codec)
    word = "hush"
    flow_id = await begun(runs, GATED.replace("Look", word), secret=word)
    await runs.commit(flow_id, word)
    await runs.step_done(flow_id, "one", {"ok": False, "why": word})
    await runs.revert(flow_id, word)
    await runs.step_done(flow_id, "one", {"ok": True, "why": word})
    await runs.gate_resolve(flow_id, "sure", "revise", word)
    await runs.skip_step(flow_id, "one", word)
    found = await read_header(store, flow_id)
    log = b"".join((await store.read(log_key(found.header))).values)
    assert word.encode() not in log
    answer = await WorkflowRuns(store, codec=Shift()).gate_resolve(flow_id, "sure", "approve")
    assert isinstance(answer, ExecuteStep)
    assert (answer.step_id, answer.flow) == ("two", "main")
    assert error_of(await WorkflowRuns(store).resume(flow_id)) == "flow_unreadable"


# --- what a call costs ---


@pytest.mark.parametrize("spec", [LOOP, GATED])
async def test_a_call_does_not_cost_its_history(spec: str) -> None:
    store = Counting()
    runs = WorkflowRuns(store)
    flow_id = await begun(runs, spec, **({} if spec is LOOP else {"secret": "s"}))
    if spec is LOOP:
        await runs.iteration_start(flow_id, "one")

    async def call() -> NextAnswer | object:
        if spec is LOOP:
            return await runs.iteration_report(flow_id, "one", {})
        await runs.step_done(flow_id, "one", {"ok": True})
        return await runs.gate_resolve(flow_id, "sure", "revise")

    for _ in range(3):
        await call()
    store.values.clear()
    await call()
    early = store.values["log"]
    for _ in range(100):
        await call()
    store.values.clear()
    await call()
    assert store.values["log"] == early == 0


async def test_a_flow_that_nobody_knows_here_is_read_once() -> None:
    store = Counting()
    runs, other = WorkflowRuns(store), WorkflowRuns(store)
    flow_id = await begun(runs, LOOP)
    await runs.iteration_start(flow_id, "one")
    for _ in range(50):
        await runs.iteration_report(flow_id, "one", {})
    await other.resume(flow_id)
    for _ in range(3):
        await runs.iteration_report(flow_id, "one", {})
    store.values.clear()
    await other.iteration_report(flow_id, "one", {})
    assert store.values["log"] == 3


async def test_a_flow_is_found_by_its_tags_and_traced() -> None:
    store = MemoryRunStore()
    runs = WorkflowRuns(store)
    answer = await runs.plan(GATED, inputs={"secret": "s"}, tags=["mine"], tenant="ada")
    assert isinstance(answer, ExecuteStep)
    [run] = await RunHistory(store).list(tag="mine", tenant="ada")
    assert run.run_id == answer.flow_id
    trace = await RunHistory(store).trace(answer.flow_id)
    assert trace.kind == "workflow"
    assert "of workflow 'main'" in trace.explain()
    ended = await runs.step_done(answer.flow_id, "one", {})
    assert not isinstance(ended, FlowEnded)


async def test_a_header_that_a_killed_process_has_left_behind_is_repaired() -> None:
    store = MemoryRunStore()
    runs = WorkflowRuns(store)
    flow_id = await begun(runs, secret="s")
    before = await store.read(header_key(flow_id))
    await runs.step_done(flow_id, "one", {"ok": True})
    await runs.gate_resolve(flow_id, "sure", "kill")
    now = await store.read(header_key(flow_id))
    await store.compare_and_set(header_key(flow_id), before.values[-1], revision=now.revision)
    assert (await RunHistory(store).summary(flow_id)).status == "running"
    assert isinstance(await WorkflowRuns(store).resume(flow_id), FlowEnded)
    assert (await RunHistory(store).summary(flow_id)).status == "cancelled"


async def test_flows_in_flows_are_audited_with_what_they_cost() -> None:
    depth = 12
    flows = "".join(
        f"  f{number}:\n    input: {{}}\n    steps:\n      - {{id: s, flow: f{number + 1}}}\n"
        for number in range(depth)
    )
    last = f"  f{depth}:\n    input: {{}}\n    steps:\n      - {{id: s, intent: Do}}\n"
    spec = f'version: "0.2"\nflows:\n{flows}{last}'
    runs = WorkflowRuns(MemoryRunStore())
    answer = await runs.plan(spec, "f0")
    usage = {"model": "openai:gpt-4o", "input_tokens": 1000}
    ended = await runs.step_done(str(answer.to_json()["flow_id"]), ".".join("s" * (depth + 1)), 1, usage)
    assert isinstance(ended, FlowEnded), ended
    assert [(one.cost_usd, one.tokens) for one in ended.trace] == [(Decimal("0.0025"), 1000)]
    audit = await runs.audit(ended.flow_id)
    for _ in range(depth):
        assert isinstance(audit, AuditAnswer)
        assert (audit.status, audit.cost_usd, audit.output) == ("complete", Decimal("0.0025"), 1)
        [audit] = audit.child_audits["s"]


async def test_a_flow_that_was_forgotten_is_read_anew() -> None:
    store = Counting()
    runs = WorkflowRuns(store)
    flow_id = await begun(runs, LOOP)
    await runs.iteration_start(flow_id, "one")
    others = [await begun(runs, LOOP) for _ in range(MOST_KEPT)]
    await runs.resume(flow_id)
    store.values.clear()
    await runs.resume(flow_id)
    assert store.values["log"] == 0
    for other in others:
        await runs.resume(other)
    store.values.clear()
    answer = await runs.iteration_report(flow_id, "one", {})
    assert answer.to_json()["iteration"] == 1
    assert store.values["log"] == 3


# --- runs that FastroAI has begun itself ---

NATIVE = """
version: "0.2"
contracts:
  N:
    n: {type: integer}
functions:
  count: {mode: compute, intent: Count, input: {}, output: N}
  ask: {mode: gate}
flows:
  main:
    input: {}
    output: N
    steps:
      - {id: one, function: count}
      - {id: other, function: count}
      - {id: sure, function: ask, on_approve: two, on_revise: one, on_kill: null, depends_on: [one]}
      - {id: two, function: count, depends_on: [sure]}
"""


@pytest.mark.parametrize("resumes_first", [True, False])
async def test_a_run_of_fastroai_goes_on_call_by_call_and_back_again(resumes_first: bool) -> None:
    store, counted = MemoryRunStore(), 0

    def count() -> dict[str, int]:
        nonlocal counted
        counted += 1
        return {"n": counted}

    workflow = Workflow.load(NATIVE)
    functions = {"count": count}
    result = await workflow.run({}, functions=functions, store=store, run_id="r")
    assert result.status == "paused"
    runs = WorkflowRuns(store)
    audit = await runs.audit("r")
    assert isinstance(audit, AuditAnswer)
    assert [(one.step_id, one.outcome) for one in audit.trace] == [
        ("one", "succeeded"),
        ("other", "succeeded"),
        ("sure", "open"),
    ]
    if resumes_first:
        assert isinstance(await runs.resume("r"), AwaitGate)
    answer = await runs.gate_resolve("r", "sure", "revise", "again")
    assert isinstance(answer, ExecuteStep)
    assert (answer.step_id, answer.round) == ("one", 1)
    answer = await runs.step_done("r", "one", {"n": 50})
    assert isinstance(answer, ExecuteStep)
    answer = await runs.step_done("r", "other", {"n": 51})
    assert isinstance(answer, AwaitGate)
    answer = await runs.gate_resolve("r", "sure", "approve")
    assert isinstance(answer, ExecuteStep)
    assert answer.step_id == "two"
    result = await workflow.resume("r", functions=functions, store=store)
    assert (result.status, result.output) == ("complete", {"n": 3})
    assert workflow.replay(await RunHistory(store).trace("r")) is None
    ended = await runs.resume("r")
    assert isinstance(ended, FlowEnded)
    assert (ended.status, ended.output) == ("complete", {"n": 3})
