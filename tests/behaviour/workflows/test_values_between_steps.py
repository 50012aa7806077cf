"""Values between the steps of a workflow are copies: no step sees the changes that another makes in place."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic_ai.models import Model

from fastroai import StepContext
from fastroai.human import Inbox
from fastroai.store import MemoryRunStore
from fastroai.testing import ModelServer, Reply
from fastroai.workflows import ExecuteStep, FlowEnded, Workflow, WorkflowResult, WorkflowRuns

SHARED = """
version: "0.2"
contracts:
  List: {items: {type: array}}
functions:
  begin: {mode: compute, intent: Begin, input: {start: {type: array}}, output: List}
  add: {mode: compute, intent: Add, input: {items: {type: array}}, output: List}
  end: {mode: compute, intent: End, input: {first: {type: array}, same: {type: array}}, output: List}
flows:
  main:
    input: {start: {type: array, default: [1]}}
    output: List
    steps:
      - {id: a, function: begin, inputs: {start: $.input.start}}
      - {id: b, function: add, inputs: {items: $.steps.a.output.items}}
      - {id: c, function: add, inputs: {items: $.steps.a.output.items}, depends_on: [b]}
      - {id: d, function: end, depends_on: [c],
         inputs: {first: $.steps.a.output.items, same: $.steps.a.output.items}}
"""


def changing_in_place(fails: list[bool]) -> dict[str, Any]:
    """Functions that change all that they get, and what they have given back."""
    given: list[list[Any]] = []

    def begin(start: list[Any]) -> dict[str, Any]:
        start.append(2)
        given.append(start)
        return {"items": start}

    def add(ctx: StepContext[Any], items: list[Any]) -> dict[str, Any]:
        for one in given:
            one.append("later")
        ctx.get_input("items", list).append("context")
        items.append(9)
        return {"items": items}

    def end(first: list[Any], same: list[Any]) -> dict[str, Any]:
        first.append(8)
        if fails and fails.pop():
            raise RuntimeError("the disk is full")
        return {"items": [*first, *same]}

    return {"begin": begin, "add": add, "end": end}


OUTPUTS = {
    "a": {"items": [1, 2]},
    "b": {"items": [1, 2, 9]},
    "c": {"items": [1, 2, 9]},
    "d": {"items": [1, 2, 8, 1, 2]},
}


async def test_steps_that_get_the_same_list_do_not_see_what_others_append() -> None:
    workflow, start = Workflow.load(SHARED), [1]
    result = await workflow.run({"start": start}, functions=changing_in_place([]))
    assert (result.status, result.outputs) == ("complete", OUTPUTS)
    assert start == [1]
    for _ in range(2):  # the default belongs to the spec, and not to a run
        assert (await workflow.run(functions=changing_in_place([]))).outputs == OUTPUTS


async def test_a_resumed_run_ends_as_one_without_a_break() -> None:
    workflow, store, functions = Workflow.load(SHARED), MemoryRunStore(), changing_in_place([True])
    failed = await workflow.run(functions=functions, store=store, run_id="r")
    assert failed.status == "failed"
    resumed = await workflow.resume("r", functions=functions, store=store)
    assert (resumed.status, resumed.outputs) == ("complete", OUTPUTS)


LOOP = """
version: "0.2"
contracts:
  List: {items: {type: array}}
functions:
  add: {mode: compute, intent: Add, input: {items: {type: array}}, output: List}
flows:
  main:
    input: {start: {type: array}}
    steps:
      - {id: a, function: add, inputs: {items: $.input.start}, max_iterations: 3}
"""


async def test_each_iteration_gets_the_inputs_as_they_were() -> None:
    seen: list[list[int]] = []

    async def add(items: list[int]) -> dict[str, Any]:
        seen.append([*items])
        items.append(9)
        return {"items": items}

    result = await Workflow.load(LOOP).run({"start": [1]}, functions={"add": add})
    assert (seen, result.output) == ([[1], [1], [1]], {"items": [1, 9]})


async def test_answers_and_results_of_calls_are_copies_too() -> None:
    runs = WorkflowRuns(MemoryRunStore())
    first = await runs.plan(SHARED)
    assert isinstance(first, ExecuteStep)
    first.inputs["start"].append(7)  # type: ignore[union-attr]
    reported: dict[str, Any] = {"items": [1, 2]}
    second = await runs.step_done(first.flow_id, "a", reported)
    reported["items"].append(7)
    assert isinstance(second, ExecuteStep)
    second.inputs["items"].append(7)  # type: ignore[union-attr]
    third = await runs.step_done(first.flow_id, "b", {"items": []})
    assert isinstance(third, ExecuteStep)
    assert third.inputs == {"items": [1, 2]}
    again = await runs.plan(SHARED)
    assert isinstance(again, ExecuteStep)
    assert again.inputs == {"start": [1]}


REVISED = """
version: "0.2"
functions:
  look: {mode: compute, intent: Look, output: Seen}
  ask: {mode: gate, intent: Is it good}
contracts:
  Seen: {round: {type: integer}}
flows:
  main:
    max_rounds: 2
    steps:
      - {id: a, function: look}
      - {id: sure, function: ask, depends_on: [a], on_approve: null, on_revise: a, on_kill: null}
"""


async def test_two_revisions_are_three_rounds_and_then_none_is_offered() -> None:
    store, workflow, calls = MemoryRunStore(), Workflow.load(REVISED), 0

    def look() -> dict[str, int]:
        nonlocal calls
        calls += 1
        return {"round": calls}

    async def decided(decision: str) -> WorkflowResult:
        [question] = await Inbox(store).list()
        await Inbox(store).answer(question.id, decision)
        return await workflow.resume("r", functions={"look": look}, store=store)

    await workflow.run(functions={"look": look}, store=store, run_id="r")
    offered = []
    for decision in ("revise", "revise", "approve"):
        [question] = await Inbox(store).list()
        asked: Any = question.question
        offered.append((asked["round"], asked["revisions_left"], question.options))
        result = await decided(decision)
    assert offered == [
        (0, 2, ("approve", "revise", "kill")),
        (1, 1, ("approve", "revise", "kill")),
        (2, 0, ("approve", "kill")),
    ]
    assert (result.status, result.round, result.output, calls) == ("complete", 2, {"round": 3}, 3)
    assert workflow.replay(result.trace) is None


READ = """
version: "0.2"
flows:
  inner:
    steps:
      - {id: judge, intent: Judge it}
  main:
    steps:
      - {id: kind, intent: What is it?}
      - {id: sub, flow: inner, depends_on: [kind]}
      - {id: last, intent: Go on, skip_if: steps.kind.output.name == 'x', inputs: {ok: $.steps.sub.output.ok}}
"""


async def test_a_result_whose_fields_others_read_is_asked_for_as_an_object(
    server: ModelServer, model: Model
) -> None:
    server.script(Reply(data={"name": "x"}), Reply(data={"ok": True}))
    result = await Workflow.load(READ).run(model=model)
    assert (result.status, result.outputs["sub"], result.outputs["last"]) == ("complete", {"ok": True}, None)


@pytest.mark.parametrize(
    ("field", "why"),
    [
        ("typo", "there is no field 'typo'; the fields are: 'round'"),
        ("round.deep", "looked up in no container"),
    ],
)
async def test_a_reference_without_a_value_fails_its_step_and_says_why(field: str, why: str) -> None:
    text = f"""
version: "0.2"
flows:
  inner:
    steps:
      - {{id: a, intent: x, output_schema: {{type: object}}}}
  main:
    steps:
      - {{id: look, flow: inner}}
      - {{id: next, intent: y, inputs: {{it: $.steps.look.output.{field}}}}}
"""
    runs = WorkflowRuns(MemoryRunStore())
    begun = await runs.plan(text)
    assert begun.status == "execute_flow"
    ended = await runs.step_done(begun.flow_id, "look.a", {"round": 1})
    assert isinstance(ended, FlowEnded)
    assert (ended.status, ended.step_id) == ("failed", "next")
    assert why in ended.reason
