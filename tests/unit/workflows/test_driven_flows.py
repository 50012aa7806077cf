"""Flows that are driven call by call: several processes at once, the inbox, codecs, the cost of a call."""

from __future__ import annotations

import asyncio
from contextlib import aclosing, suppress
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from support.counting_store import Counting
from support.faulty_store import FaultyStore, Write, gone
from support.fork_server import Program

from fastroai.errors import ContractViolation, RunStoreUnavailable
from fastroai.human import Inbox
from fastroai.pipelines import Pipeline, StepContext, step
from fastroai.runtime.facts import QuestionAsked
from fastroai.store import MemoryRunStore, RunHistory, SQLiteRunStore
from fastroai.store.record.headers import header_key, log_key, read_header
from fastroai.workflows.answers import (
    AuditAnswer,
    AwaitGate,
    ErrorAnswer,
    ExecuteStep,
    FlowEnded,
    FlowList,
    NextAnswer,
)
from fastroai.workflows.driven_flows import WorkflowRuns
from fastroai.workflows.stored_flows import MOST_KEPT
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
COMPUTED = """
version: "0.2"
contracts:
  N: {n: {type: integer}}
functions:
  work: {mode: compute, intent: Do it, input: {}, output: N}
flows:
  main:
    input: {}
    steps:
      - {id: one, function: work}
      - {id: two, function: work, depends_on: [one]}
"""
GATES = """
version: "0.2"
functions:
  ask: {mode: gate, intent: Is it good}
flows:
  main:
    input: {}
    steps:
      - {id: flagged, function: ask, policy: flag, on_approve: second, on_kill: null}
      - {id: second, function: ask, on_approve: third, on_kill: null, depends_on: [flagged]}
      - {id: third, function: ask, on_approve: null, on_kill: null, depends_on: [second]}
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
        workers = [Program("-m", "support.workflow_worker", path, flow_id, reports) for _ in range(2)]
        ends = [await asyncio.to_thread(worker.end) for worker in workers]
        assert [code for code, _, _ in ends] == [0, 0], ends
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


async def test_a_flow_that_somebody_paused_waits_at_no_gate() -> None:
    store = MemoryRunStore()

    async def pause() -> dict[str, int]:
        await bound.pause("f", store=store)
        return {"n": 1}

    bound = Workflow.load(COMPUTED).bind(functions={"work": pause})
    result = await bound.run({}, run_id="f", store=store)
    assert (result.status, result.questions) == ("paused", ())
    listed = await WorkflowRuns(store).list_flows()
    assert isinstance(listed, FlowList)
    assert [(flow.flow_id, flow.awaits) for flow in listed.flows] == [("f", False)]


async def test_a_trace_says_who_decided_at_a_gate() -> None:
    store = MemoryRunStore()
    runs, inbox = WorkflowRuns(store), Inbox(store)
    waits = await runs.plan(GATES, inputs={})
    assert isinstance(waits, AwaitGate), waits
    [asked] = await inbox.list()
    await runs.gate_resolve(waits.flow_id, "second", "approve", "it is short", "agent")
    given = (await inbox.get(asked.id)).answer
    assert given is not None
    assert (given.reviewer, given.rationale) == ("an agent", "it is short")
    await runs.gate_resolve(waits.flow_id, "third", "approve", "why not")

    told = (await RunHistory(store).trace(waits.flow_id)).explain()
    assert "flagged: the system has answered, because its policy is to approve it" in told
    assert "second: an agent has answered, because it is short" in told
    assert "third: a person has answered, because why not" in told
    assert "cancelled with it" not in told


@pytest.mark.parametrize("number", range(1, 4))
@pytest.mark.parametrize("after", [False, True])
async def test_a_process_that_dies_at_any_write_leaves_no_gate_that_is_not_found(
    number: int, after: bool
) -> None:
    inner = MemoryRunStore()
    flow_id = await begun(WorkflowRuns(inner), secret="s")
    dying = FaultyStore(inner)

    def gone_from(write: Write) -> None:
        if write.number >= number:
            raise gone()

    dying.before, dying.after = (None, gone_from) if after else (gone_from, None)
    with suppress(RunStoreUnavailable):
        await WorkflowRuns(dying).step_done(flow_id, "one", {"ok": True})
    is_asked = any(isinstance(fact, QuestionAsked) for fact in (await inner.trace(flow_id)).entries)
    expected = ["sure"] if is_asked else []
    assert [one.node for one in await Inbox(inner).list()] == expected
    await WorkflowRuns(inner).resume(flow_id)  # repairs the header
    assert [one.node for one in await Inbox(inner).list()] == expected


async def test_of_two_calls_at_once_only_the_gate_of_the_first_is_open() -> None:
    store = FaultyStore(MemoryRunStore())
    runs, other = WorkflowRuns(store), WorkflowRuns(store.inner)
    flow_id = await begun(runs, secret="s")

    async def other_goes_first(write: Write) -> None:
        if write.key.startswith("log:"):
            store.before = None
            await other.step_done(flow_id, "one", {"ok": False})

    store.before = other_goes_first
    assert error_of(await runs.step_done(flow_id, "one", {"ok": True})) == "conflict"
    assert await Inbox(store).list() == ()


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


# --- what answers say ---

TYPED = """
version: "0.2"
contracts:
  Found:
    verdict: {type: string, values: [good, bad], description: What you think of it.}
    why: {type: string, required: false}
functions:
  judge: {mode: infer, intent: Judge it, input: {n: {type: integer}}, output: Found, retries: 3}
flows:
  main:
    input:
      n: {type: integer}
      tone: {type: string, required: false, values: [warm, dry]}
      size: {type: number, default: 1}
    steps:
      - {id: look, function: judge, inputs: {n: $.input.n}}
      - {id: hunt, intent: More, max_iterations: 2, depends_on: [look], ensure: [result.found], retries: 2}
"""


async def test_a_step_is_dispatched_with_its_contract_and_its_attempts() -> None:
    runs = WorkflowRuns(MemoryRunStore())
    flow_id = await begun(runs, TYPED, n=1)
    for attempt in (1, 2):
        due = (await runs.resume(flow_id)).to_json()
        assert due["contract"] == {
            "verdict": {
                "type": "string",
                "required": True,
                "values": ["good", "bad"],
                "description": "What you think of it.",
            },
            "why": {"type": "string", "required": False},
        }
        assert due["output_fields"] == {"verdict": "string", "why": "string"}
        assert (due["attempt"], due["max_attempts"], due["retries_remaining"]) == (attempt, 3, 4 - attempt)
        again = await runs.step_done(flow_id, "look", {"verdict": "great"})
        assert isinstance(again, ExecuteStep)
        assert again.contract["verdict"].values == ("good", "bad")


async def test_a_step_says_which_call_is_due_so_that_no_loop_is_overlooked() -> None:
    runs = WorkflowRuns(MemoryRunStore())
    flow_id = await begun(runs, TYPED, n=1)

    async def due() -> str:
        answer = await runs.resume(flow_id)
        assert isinstance(answer, ExecuteStep)
        return answer.next_call

    assert await due() == "step_done"
    await runs.step_done(flow_id, "look", {"verdict": "good"})
    for found in (False, True):
        assert await due() == "iteration_start"
        await runs.iteration_start(flow_id, "hunt")
        assert await due() == "iteration_report"
        await runs.iteration_report(flow_id, "hunt", {"found": found})
        assert await due() == "iteration_report"
        await runs.iteration_report(flow_id, "hunt", {"found": found})
        assert await due() == "step_done"
        ended = await runs.step_done(flow_id, "hunt", {"found": found})
    assert ended.status == "complete"


async def test_an_error_at_a_step_that_is_over_names_the_gate_that_is_due() -> None:
    runs = WorkflowRuns(MemoryRunStore())
    flow_id = await begun(runs, secret="s")
    early = await runs.step_done(flow_id, "two", {})
    assert isinstance(early, ErrorAnswer)
    assert early.message == "Step 'two' is not due. Due: 'one'."
    await runs.step_done(flow_id, "one", {"ok": True})
    late = await runs.step_done(flow_id, "one", {"ok": True})
    assert isinstance(late, ErrorAnswer)
    assert (late.error_type, late.available) == ("step_not_due", ("sure",))
    assert late.message == (
        "Step 'one' is over. Due: gate 'sure', where a person decides: resolve it with gate_resolve."
    )


async def test_a_skip_leaves_a_record_beside_that_of_the_attempts() -> None:
    runs = WorkflowRuns(MemoryRunStore())
    flow_id = await begun(runs, secret="s")
    usage = {"model": "openai:gpt-4o-mini", "input_tokens": 1_000_000}
    await runs.step_done(flow_id, "one", {"ok": False}, usage)
    await runs.skip_step(flow_id, "one", "nobody needs it")
    audit = await runs.audit(flow_id)
    assert isinstance(audit, AuditAnswer)
    attempts, skip, gate = audit.trace
    assert (attempts.type, attempts.outcome, attempts.attempts) == ("step", "skipped", 2)
    assert attempts.violations == ("result.ok (False) is false",)
    assert (attempts.cost_usd, attempts.tokens) == (audit.cost_usd, 1_000_000)
    assert (skip.type, skip.outcome, skip.skip_reason) == ("skip", "skipped", "nobody needs it")
    assert (skip.attempts, skip.tokens, gate.step_id, audit.steps_completed) == (0, 0, "sure", 1)
    assert await WorkflowRuns(runs.store).audit(flow_id) == audit


async def test_a_decision_on_another_round_than_the_one_that_was_seen_is_a_conflict() -> None:
    runs = WorkflowRuns(MemoryRunStore())
    flow_id = await begun(runs, secret="s")
    seen = await runs.step_done(flow_id, "one", {"ok": 1})
    assert isinstance(seen, AwaitGate)
    await runs.gate_resolve(flow_id, "sure", "revise")
    await runs.step_done(flow_id, "one", {"ok": 2})
    assert error_of(await runs.gate_resolve(flow_id, "sure", "approve", seen=seen)) == "conflict"
    now = await runs.resume(flow_id)
    assert isinstance(now, AwaitGate)
    assert (await runs.gate_resolve(flow_id, "sure", "approve", seen=now)).status == "execute_step"


WRONG_INPUTS: list[tuple[dict[str, Any], str]] = [
    ({}, "input 'n' is missing: a value of type integer"),
    ({"n": "3"}, "input 'n': expected a value of type integer"),
    ({"n": True}, "input 'n': expected a value of type integer"),
    ({"n": None}, "input 'n': expected a value of type integer"),
    ({"n": 1, "tone": "loud"}, "input 'tone': expected one of 'warm', 'dry'"),
    ({"n": 1, "tne": "dry"}, "there is no input 'tne'. Did you mean 'tone'?"),
    ({"n": 1, "size": b"1"}, "input 'size': expected a value of type number, as JSON data, and not bytes"),
    ({"n": 1, "tone": "x" * 1_100_000}, "input 'tone': too large: it has more than 1,000,000 characters"),
    ({"n": "3", "tone": 4}, "input 'n': expected a value of type integer; input 'tone': expected one of"),
]


@pytest.mark.parametrize(("inputs", "problem"), WRONG_INPUTS)
async def test_a_flow_that_is_driven_and_one_that_is_run_refuse_the_same_inputs(
    inputs: dict[str, Any], problem: str
) -> None:
    planned = await WorkflowRuns(MemoryRunStore()).plan(TYPED, inputs=inputs)
    assert isinstance(planned, ErrorAnswer)
    with pytest.raises(ContractViolation) as caught:
        await Workflow.load(TYPED).run(inputs, model="test")
    assert problem in planned.message
    assert problem.replace("\n", " ") in str(caught.value)


@pytest.mark.parametrize("inputs", [{"n": 1}, {"n": 3.0, "tone": None}, {"n": 1, "tone": "dry", "size": 2}])
async def test_a_flow_that_is_driven_and_one_that_is_run_take_the_same_inputs(inputs: dict[str, Any]) -> None:
    planned = await WorkflowRuns(MemoryRunStore()).plan(TYPED, inputs=inputs)
    assert isinstance(planned, ExecuteStep)
    assert planned.inputs == {"n": inputs["n"]}
    store = MemoryRunStore()
    result = await Workflow.load(TYPED).run(inputs, model="test", store=store)
    trace = await RunHistory(store).trace(result.run_id)
    assert trace.inputs == inputs


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
