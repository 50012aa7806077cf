"""Calls that are declared differently than their answers on record: what becomes of these answers."""

from __future__ import annotations

from fastroai.errors import CallChangedError
from fastroai.places import attempt_around, step_name
from fastroai.runtime import Scope
from fastroai.runtime.facts import CallChanged, CallLeftOver
from fastroai.store.record.log_of_scope import run_of
from fastroai.store.record.runs import DurableRun


def keeps_answer(
    run: DurableRun, scope: Scope, place: str, changed: tuple[str, ...], *, call: str = "", attempt: int
) -> bool:
    """Return whether the answer on record of a call that has changed is used, as `on_changed` says.

    Else the call is asked anew. The first process that decides so tells it, and puts it on record. `call` and
    `attempt` are those on record.

    Raises:
        CallChangedError: with `on_changed="fail"`.
    """
    if run.on_changed == "fail":
        raise call_changed(run, place, call, changed)
    keeps = run.on_changed == "keep"
    fact = CallChanged(
        part=scope.part,
        place=place,
        call=call,
        attempt=attempt,
        changed=changed,
        answer="kept" if keeps else "asked_anew",
    )
    if run.recorded.note_change(fact):
        run.journal.note(fact)
        scope.note(fact)
    return keeps


def call_changed(
    run: DurableRun, place: str, call: str, changed: tuple[str, ...], misfit: str | None = None
) -> CallChangedError:
    """Return the error for a call that has changed. `misfit` says why the answer on record cannot be kept."""
    step = step_name(place if call else attempt_around(place) or place)
    what = f"agent call {call}" if call else f"{step_name(place)!r}"
    return CallChangedError(run.run_id, step, what, changed, misfit)


def tell_left_over(scope: Scope) -> None:
    """Tell which calls of a step that has ended are on record and were not made again.

    Only if an answer in the step was asked anew: that can change which calls come after it.
    """
    run = run_of(scope)
    if run is None or not run.recorded.asked_anew:
        return
    attempt = run.place(scope)
    if run.recorded.has_asked_anew(attempt):
        for place, call in run.recorded.take_left_over(attempt):
            fact = CallLeftOver(part=scope.part, place=place, call=call)
            run.journal.note(fact)
            scope.note(fact)
