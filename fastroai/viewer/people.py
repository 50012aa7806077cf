"""The inbox: the questions of runs to people, a form for each, and what one needs to see to decide."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from starlette.responses import Response

from fastroai.errors import AnswerRejected, QuestionClosed, RunInProgress
from fastroai.human import Question
from fastroai.store.reading.run_queries import RunQuery
from fastroai.store.reading.step_summaries import StepSummary
from fastroai.store.reading.trace import RunTrace
from fastroai.store.record.payloads import is_sealed
from fastroai.tracing.redaction import is_redacting, redacted, redacted_json
from fastroai.viewer.access import Refused, Visitor
from fastroai.viewer.forms import Given, blank, form_of
from fastroai.viewer.streams import live, version_of
from fastroai.viewer.visit import PageRoute, Visit

SIZE: Final = 50
"""Questions of a page."""
SEALED: Final = "Start the viewer with the codec of the run: --codec, or viewer(codec=...)."
_MOST_STEPS: Final = 40
"""Most steps whose outputs stand beside a question."""


async def show(visit: Visit) -> Response:
    """List the questions that wait for an answer."""
    rows, after = await _rows(visit, visit.visitor), visit.request.query_params.get("after")
    stream = visit.url("people_stream", {"after": after, "seen": version_of(rows)})
    return visit.page("people.html", rows=rows, stream=stream)


async def stream(visit: Visit) -> Response:
    """Send the list again, each time that it has changed."""
    return live(visit, lambda visitor: _rows(visit, visitor))


async def _rows(visit: Visit, visitor: Visitor) -> str:
    after = visit.request.query_params.get("after")
    query = RunQuery(tenants=visitor.tenants)
    page = await visit.site.inbox.page(query, limit=SIZE, after=after)
    return visit.render(
        "people_rows.html", rows=list(map(_redacted, page.items)), next=page.next, after=after
    )


async def ask(visit: Visit) -> Response:
    """Show a question, with a form for the answer."""
    return await _question(visit, await _asked(visit))


async def answer(visit: Visit) -> Response:
    """Put an answer on record; or show the form again, with what is wrong."""
    visit.check_may("answer")
    asked = await _asked(visit)
    if is_sealed(asked.question):
        raise Refused(409, "This question is encrypted", SEALED)
    form = await visit.request.form()
    given = Given({name: [str(one) for one in form.getlist(name)] for name in form})
    value = given.value(form_of(asked.answer_schema, asked.options))
    if given.problems:
        return await _question(visit, asked, given, status=422)
    try:
        can_go_on = await visit.site.inbox.answer(
            asked.id,
            value,
            reviewer=visit.known_name or given.first("reviewer").strip() or visit.visitor.name,
            rationale=given.first("rationale").strip(),
        )
    except AnswerRejected as error:
        return await _question(visit, asked, given, problem=error.reason, status=422)
    except (QuestionClosed, RunInProgress):  # somebody else was first: the page says who and what
        return await _question(visit, await _asked(visit), given, was_late=True, status=409)
    return visit.go("ask", {"answered": "on" if can_go_on else "more"}, question_id=asked.id)


async def _asked(visit: Visit) -> Question:
    """Return the question that the address names. Raises `RunNotFound` if it is not for this visitor."""
    question_id = visit.param("question_id")
    await visit.run(question_id.rpartition(":")[0])
    return await visit.site.inbox.get(question_id)


async def _question(
    visit: Visit,
    asked: Question,
    given: Given | None = None,
    *,
    problem: str = "",
    was_late: bool = False,
    status: int = 200,
) -> Response:
    trace = (await visit.site.history.trace(asked.run_id)).redacted()
    form = form_of(asked.answer_schema, asked.options)
    answered = visit.request.query_params.get("answered", "")
    return visit.page(
        "question.html",
        status=status,
        asked=_redacted(asked),
        form=form,
        given=given or blank(form),
        problem=problem,
        was_late=was_late,
        sealed=SEALED if is_sealed(asked.question) else "",
        may_answer="answer" in visit.visitor.actions,
        answered=answered,
        can_resume=answered == "on"
        and "resume" in visit.visitor.actions
        and asked.pipeline in visit.site.runs,
        trace=trace,
        steps=_before(asked, trace),
    )


def _redacted(asked: Question) -> Question:
    """Return a question as pages show it. The answers that can be given stay as they are: they are sent."""
    if not is_redacting():
        return asked
    given = asked.answer
    if given is not None:
        given = replace(
            given,
            value=redacted_json(given.value),
            reviewer=redacted(given.reviewer),
            rationale=redacted(given.rationale),
        )
    return replace(asked, question=redacted_json(asked.question), to=redacted(asked.to), answer=given)


def _before(asked: Question, trace: RunTrace) -> Sequence[StepSummary]:
    """Return the steps that have an output by now; first those that the asking step needs, newest first."""
    done = [one for one in reversed(trace.steps) if one.output is not None]
    needed = {need for one in trace.steps if one.step == asked.node for need in one.needs}
    return sorted(done, key=lambda one: one.step not in needed)[:_MOST_STEPS]


ROUTES: Final = (
    PageRoute("/people", show, "people"),
    PageRoute("/stream/people", stream, "people_stream"),
    PageRoute("/people/{question_id}", ask, "ask"),
    PageRoute("/people/{question_id}/answer", answer, "answer", ("POST",)),
)
