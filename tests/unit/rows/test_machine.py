"""The machine of rows: which rows it asks, in any order of their ends, and how the run ends."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from support.examples import examples

from fastroai.rows.facts import RowEnded
from fastroai.rows.machine import AskRow, GiveBack, RowCut, RowMachine, RowsEnded
from fastroai.rows.source import ReadRow
from fastroai.runtime.fact_base import FailureFacts
from fastroai.runtime.facts import PauseRequested, RunFinished, RunResumed, RunStarted, StopRequested

FAILURE = FailureFacts(error_type="ValueError", message="no", failure_class="terminal")


def row(number: int, key: str, *, is_keyed: bool = False) -> ReadRow:
    return ReadRow(number, key, is_keyed, inputs={}, shown={}, asked="x")


def definition(declared: str) -> dict[str, object]:
    return {"name": "classify", "kind": "rows", "declares": {"intent": declared}}


@st.composite
def histories(draw: st.DrawFn) -> list[tuple[str, str, str, bool]]:
    """Ends of rows in an earlier process: key, inputs, declaration, and whether it failed."""
    keys = st.sampled_from("abcdef")
    return draw(
        st.lists(st.tuples(keys, st.sampled_from("xy"), st.sampled_from("12"), st.booleans()), max_size=12)
    )


@settings(max_examples=examples(100))
@given(histories(), st.permutations(range(6)))
def test_each_row_is_asked_unless_its_answer_to_this_question_is_on_record(
    past: list[tuple[str, str, str, bool]], order: list[int]
) -> None:
    machine, declared, last = RowMachine(), "1", dict[str, tuple[str, str, bool]]()
    machine.handle(RunStarted(definition=definition(declared)))  # type: ignore[arg-type]
    for number, (key, asked, declares, failed) in enumerate(past):
        if declares != declared:
            declared = declares
            machine.handle(RunResumed(definition=definition(declared)))  # type: ignore[arg-type]
        failure = FAILURE if failed else None
        machine.handle(RowEnded(number=number, key=key, asked=asked, failure=failure))
        last[key] = asked, declared, failed
    machine.handle(RunResumed(definition=definition("1")))  # type: ignore[arg-type]
    open_rows = []
    for number, key in enumerate("abcdef"):
        decision = machine.read(row(number, key, is_keyed=True))
        known = last.get(key)
        assert isinstance(decision, GiveBack if known == ("x", "1", False) else AskRow)
        open_rows += [] if isinstance(decision, GiveBack) else [number]
    decisions = [*machine.handle(RowsEnded())]
    for number in order:
        if number in open_rows:
            assert not decisions
            decisions += machine.handle(RowEnded(number=number, key="abcdef"[number], asked="x"))
    [finish] = decisions
    assert isinstance(finish, RunFinished)
    assert finish.status == "finished"
    resumption = machine.resumption()
    assert resumption is not None
    counted = resumption.finished + resumption.failed + resumption.new + sum(resumption.changed.values())
    assert (counted, resumption.gone) == (6, 0)


def test_a_pause_lets_rows_end_and_a_stop_cancels_them() -> None:
    for request, status in ((PauseRequested(), "paused"), (StopRequested(reason="enough"), "cancelled")):
        machine = RowMachine()
        machine.handle(RunStarted(definition=definition("1")))  # type: ignore[arg-type]
        machine.read(row(0, "a"))
        names = [type(one).__name__ for one in machine.handle(request)]
        assert names == (["StopReading"] if status == "paused" else ["StopReading", "CancelRows"])
        [finish] = machine.handle(RowCut(0, "a", "cancelled"))
        assert isinstance(finish, RunFinished)
        assert finish.status == status


def test_a_budget_lets_the_other_rows_end_and_then_ends_the_run() -> None:
    machine = RowMachine()
    machine.handle(RunStarted(definition=definition("1")))  # type: ignore[arg-type]
    for number in range(2):
        machine.read(row(number, str(number)))
    assert [type(one).__name__ for one in machine.handle(RowCut(0, "0", "budget"))] == ["StopReading"]
    [finish] = machine.handle(RowEnded(number=1, key="1"))
    assert isinstance(finish, RunFinished)
    assert (finish.status, finish.reason_code) == ("failed", "budget_exceeded")


def test_a_machine_keeps_nothing_of_the_rows_of_a_new_run() -> None:
    machine = RowMachine()
    machine.handle(RunStarted(definition=definition("1")))  # type: ignore[arg-type]
    before = vars(machine) | {"_rows_read": 1_000}
    for number in range(1_000):
        machine.read(row(number, str(number)))
        machine.handle(RowEnded(number=number, key=str(number)))
    assert vars(machine) == before
