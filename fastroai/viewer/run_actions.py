"""Resuming and forking runs from their pages. Both run the code of their pipeline, in this process."""

from __future__ import annotations

import asyncio
import json
import logging
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from decimal import Decimal
from functools import partial
from typing import Any, Final

from pydantic import JsonValue
from starlette.datastructures import FormData
from starlette.responses import Response

from fastroai.errors import ConfigurationError, FastroAIError, RunNotFound, nearest_hint
from fastroai.runtime import facts
from fastroai.runtime.scope import make_current
from fastroai.store.reading.history import RunSummary
from fastroai.store.reading.trace import RunTrace
from fastroai.store.reading.trace_diff import same_json
from fastroai.usage import Budget, Quote, format_cost
from fastroai.viewer.access import Action, Refused
from fastroai.viewer.visit import Visit

LONGEST: Final = 100_000
"""Most characters of a value that a form offers to change."""
BEGINS_WITHIN: Final = 10.0
"""Seconds for which an action waits until its run has begun, or has refused to."""
_RESUMABLE: Final = ("failed", "cancelled", "paused", "interrupted")
logger: Final = logging.getLogger("fastroai.viewer")

_working: Final[set[asyncio.Task[Any]]] = set()
"""The runs that pages have started. The event loop alone would forget them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """What a visitor can do with a run, and what it may cost."""

    why_not: Mapping[Action, str]
    """The reasons why actions are not possible, by action. Others are."""
    cost: str
    """What a new run may cost, for people."""
    spent: str
    """What the run has cost so far."""
    budget: str
    """The money that whoever started it has given it; empty if that is not limited."""
    inputs: str
    """The inputs of the run, as JSON for a form; empty if they are too long to be changed there."""


async def offer_of(visit: Visit, run: RunSummary, trace: RunTrace) -> Offer:
    """Return what the visitor can do with a run."""
    why_not: dict[Action, str] = {}
    for action in ("resume", "fork"):
        if (reason := _why_not(visit, run, action)) is not None:
            why_not[action] = reason
    budgets = _budgets(trace)
    quote = None if len(why_not) == 2 else await _quote(visit.site.runs.get(run.pipeline or ""), trace.inputs)
    return Offer(
        why_not=why_not,
        cost=_said(None if quote is None else quote.within(*budgets), trace.usage.cost_usd),
        spent=format_cost(trace.usage),
        budget=" and ".join(format_cost(one.usd) for one in budgets),
        inputs=editable(trace.inputs),
    )


def _why_not(visit: Visit, run: RunSummary, action: Action) -> str | None:
    if action not in visit.visitor.actions:
        return f"You may not {action} runs here."
    if run.pipeline not in visit.site.runs:
        return (
            f"This runs code, and the viewer has none of {run.pipeline!r}: start it with "
            "fastroai view --import package.module, or give viewer(runs=[...])."
        )
    if action == "resume" and run.status not in _RESUMABLE:
        return "A process runs it." if run.status == "running" else "It has finished."
    return None


async def _quote(target: Any, inputs: Mapping[str, JsonValue]) -> Quote | None:
    try:
        found: Quote = await target.estimate(inputs)
    except Exception as error:  # a step of the user estimates its own cost, and may fail in any way
        logger.info("the cost of %r could not be estimated", target, exc_info=error)
        return None
    return found


def _budgets(trace: RunTrace) -> Sequence[Budget]:
    """Return the budgets of money that the last call which gave some has given a run."""
    given = (
        one.budgets for one in reversed(trace.entries) if isinstance(one, facts.RunStarted | facts.RunResumed)
    )
    last = next((budgets for budgets in given if budgets is not None), [])
    amounts = (one.get("usd") for one in last if isinstance(one, dict))
    return [Budget(usd=amount) for amount in amounts if isinstance(amount, str)]


def _said(quote: Quote | None, spent: Decimal) -> str:
    if quote is None:
        return "its cost cannot be estimated."
    expected = "" if quote.expected_usd <= spent else f"probably about {format_cost(quote.expected_usd)}"
    if quote.upper_usd is None:
        return f"{expected or 'an unknown amount'}, without an upper limit."
    most = f"at most {format_cost(quote.upper_usd)}"
    return f"{most}, {expected}." if expected else f"{most}."


def editable(value: JsonValue, *, as_text: bool = False) -> str:
    """Return a value as JSON or text for a form; empty if it is too long to be changed there."""
    text = value if as_text and isinstance(value, str) else json.dumps(value, indent=2, ensure_ascii=False)
    return text if len(text) <= LONGEST else ""


class NotTaken(Exception):
    """What somebody wrote into the form of a run could not be taken. The page shows it again."""

    def __init__(self, problem: str, form: FormData) -> None:
        super().__init__(problem)
        self.problem, self._form = problem, form

    def text(self, name: str) -> str:
        """What a field had: `step` and `what` say which form it is."""
        return _text(self._form, name)


async def resume(visit: Visit) -> Response:
    """Resume a run in this process, with the inputs of the form. Raises `NotTaken`."""
    run, target, form = await _begin(visit, "resume")
    with _taking(form):
        options = _read_options(form)
        await _keep_what_differs(visit, run, options, is_fork=False)
        work = target.resume(run.run_id, store=visit.site.store, **options)
        await _start(visit, work, run.run_id, after=run)
    return visit.go("run", run_id=run.run_id)


async def fork(visit: Visit) -> Response:
    """Begin a new run with the work of this one up to a step, with the inputs or the output of the form.

    Raises `NotTaken`.
    """
    run, target, form = await _begin(visit, "fork")
    step, new_id = _text(form, "step"), f"{run.run_id[:180]}-fork-{secrets.token_hex(4)}"
    with _taking(form):
        what = _text(form, "what")
        has_output = what in ("output", "text")
        read = partial(_text if what == "text" else _json, form, "output") if has_output else str
        output, options = _all_of(read, lambda: _read_options(form))
        options |= {"outputs": {step: output}} if has_output else {"at": step}
        await _keep_what_differs(visit, run, options, is_fork=True)
        work = target.fork(run.run_id, new_run_id=new_id, store=visit.site.store, **options)
        await _start(visit, work, new_id, after=None)
    return visit.go("run", run_id=new_id)


@contextmanager
def _taking(form: FormData) -> Iterator[None]:
    """Turn what is wrong with a form, or with a run that begins as it says, into `NotTaken`."""
    try:
        yield
    except FastroAIError as error:
        raise NotTaken(str(error), form) from error
    except Refused as error:
        raise NotTaken(f"{error.title}: {error.reason}", form) from error


def _read_options(form: FormData) -> dict[str, Any]:
    """Return the options of a resumed or forked run that the form says."""
    inputs, budget = _all_of(lambda: _object(form, "inputs"), lambda: _budget(form))
    return {"inputs": inputs, **({} if budget is None else {"budget": budget})}


def _budget(form: FormData) -> Budget | None:
    if not (budget := _text(form, "budget").strip()):
        return None
    try:
        return Budget(usd=budget.removeprefix("$").strip())
    except ConfigurationError:
        expected = f"{budget!r} is not an amount. A budget is a number of dollars, such as 0.05."
        raise Refused(400, "The budget cannot be read", expected) from None


def _all_of(*reads: Callable[[], Any]) -> list[Any]:
    """Return what these functions read of a form. Raises `Refused`, which says everything that is wrong."""
    found: list[Any] = []
    wrong: list[Refused] = []
    for read in reads:
        try:
            found.append(read())
        except Refused as error:
            wrong.append(error)
    if wrong:
        first, *more = wrong
        told = "".join(f" {one.title}: {one.reason}" for one in more)
        raise Refused(first.status, first.title, f"{first.reason}{told}")
    return found


async def _keep_what_differs(
    visit: Visit, run: RunSummary, options: dict[str, Any], *, is_fork: bool
) -> None:
    """Leave only new inputs in the options: those with a codec or of another form stay as they are.

    Raises:
        Refused: a fork is given an input that the run does not have. A resumed run may lack one.
    """
    inputs: Mapping[str, JsonValue] = options.pop("inputs")
    known = (await visit.site.history.trace(run.run_id)).redacted().inputs  # as the form had them
    unknown = next((name for name in inputs if name not in known), None)
    if is_fork and unknown is not None:
        has = ", ".join(map(repr, known)) or "none"
        near = nearest_hint(unknown, known)
        raise Refused(400, "The inputs do not fit", f"The run has no input {unknown!r}; it has {has}.{near}")
    if changed := {name: value for name, value in inputs.items() if not same_json(known.get(name), value)}:
        options["inputs"] = changed


async def _begin(visit: Visit, action: Action) -> tuple[RunSummary, Any, FormData]:
    """Return the run, what runs it, and the form. Raises `Refused` if the action is not possible."""
    visit.check_may(action)
    run = await visit.run(visit.param("run_id"))
    if (reason := _why_not(visit, run, action)) is not None:
        raise Refused(409, "Not possible", reason)
    return run, visit.site.runs[run.pipeline or ""], await visit.request.form()


async def _start(visit: Visit, work: Any, run_id: str, *, after: RunSummary | None) -> None:
    """Start a run, and wait until it has begun. Raises what it raises before that.

    What happens to it later is on record, and its page shows it.
    """

    async def go_on() -> None:
        make_current(None)  # the run goes on when the request has ended, and a budget around it with it
        await work

    task = asyncio.create_task(go_on())
    _working.add(task)
    task.add_done_callback(_forget)
    deadline = asyncio.get_running_loop().time() + BEGINS_WITHIN
    while not task.done() and asyncio.get_running_loop().time() < deadline:
        if await _has_begun(visit, run_id, after):
            return
        await asyncio.wait({task}, timeout=0.02)
    if task.done() and (error := task.exception()) is not None and not await _has_begun(visit, run_id, after):
        raise error if isinstance(error, FastroAIError) else Refused(409, "It did not begin", str(error))


async def _has_begun(visit: Visit, run_id: str, after: RunSummary | None) -> bool:
    try:
        found = await visit.site.history.summary(run_id)
    except RunNotFound:
        return False
    return after is None or found.status == "running" or found.updated_at != after.updated_at


def _forget(task: asyncio.Task[Any]) -> None:
    _working.discard(task)
    if not task.cancelled() and (error := task.exception()) is not None:
        logger.info("a run that a page has started ended with %s", type(error).__name__)


def _text(form: FormData, name: str) -> str:
    value = form.get(name)
    return value.replace("\r\n", "\n") if isinstance(value, str) else ""


def _json(form: FormData, name: str) -> JsonValue:
    text = _text(form, name)
    try:
        found: JsonValue = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise Refused(
            400, f"The {name} cannot be read", f"It is not JSON: {error}. A text is in quotes."
        ) from None
    return found


def _object(form: FormData, name: str) -> Mapping[str, JsonValue]:
    """Return the JSON object of a field; empty if the field is."""
    if not _text(form, name).strip():
        return {}
    found = _json(form, name)
    if not isinstance(found, dict):
        raise Refused(400, f"The {name} cannot be read", 'They are a JSON object, such as {"text": "..."}.')
    return found
