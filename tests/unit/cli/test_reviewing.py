"""`fastroai review`: the inbox from a shell."""

from __future__ import annotations

import asyncio
import json
import time
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel
from support.run_logs import Log, definition, write
from typer.testing import CliRunner, Result

from fastroai import Pipeline, SQLiteRunStore, StepContext, step
from fastroai.cli.app import app
from fastroai.runtime.facts import QuestionAsked
from fastroai.store.record.entries import Routing
from fastroai.store.record.headers import read_header
from fastroai.store.record.runs import change_header

SHAPE = definition({"a": []})


class Refund(BaseModel):
    approved: bool


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SQLiteRunStore:
    path = tmp_path / "runs.db"
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FASTROAI_STORE", str(path))
    monkeypatch.setenv("COLUMNS", "200")
    return SQLiteRunStore(path)


def call(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["review", *arguments], prog_name="fastroai")


def json_of(*arguments: str) -> Any:
    result = call(*arguments, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def paused(run_id: str, question: Any, visit: int = 1) -> Log:
    asked = QuestionAsked("a", question, visit=visit, id=f"{visit}", to="finance")
    return Log(SHAPE, run_id=run_id).start("a").add(asked).end("paused")


def ask(store: SQLiteRunStore, answer_type: Any, **options: Any) -> str:
    """A run that asks; the id of the question."""

    @step
    async def asks(ctx: StepContext[Any]) -> str:
        return repr(await ctx.ask("Which?", answer_type, **options))

    async def run() -> str:
        result = await Pipeline("p", {"asks": asks}).execute(run_id="r", store=store)
        await store.aclose()
        return result.questions[0].id

    return asyncio.run(run())


def test_list_shows_what_waits_for_an_answer(store: SQLiteRunStore) -> None:
    write(store, paused("r1", "May we\x1b[31m\npay?"), paused("r2", {"amount": 3}, 2), questions=(3,))
    lines = [line.rstrip() for line in call("list").stdout.splitlines()]
    assert lines[0].split() == ["id", "pipeline", "step", "to", "asked", "question"]
    assert lines[1].split()[:4] == ["r1:1", "desk", "a", "finance"]
    assert lines[1].endswith("May we\\x1b[31m pay?")
    assert lines[2].split()[:4] == ["r2:2", "desk", "a#2", "finance"]
    assert lines[2].endswith('{"amount": 3}')
    assert "... these are 1" in call("list", "--limit", "1").stdout
    assert "no questions found in /" in call("list", "--pipeline", "nope").stdout
    refused = call("list", "--limit", "0")
    assert (refused.exit_code, "limit" in refused.stderr) == (2, True)


def test_list_prints_json_for_programs(store: SQLiteRunStore) -> None:
    write(store, paused("r1", {"amount": 3}), questions=(3,), tags=("eu",), tenant="acme")
    assert json_of("list") == [
        {
            "id": "r1:1",
            "run_id": "r1",
            "pipeline": "desk",
            "node": "a",
            "visit": 1,
            "question": {"amount": 3},
            "answer_schema": None,
            "options": None,
            "to": "finance",
            "asked_at": "2026-03-01T12:00:01+00:00",
            "deadline": None,
            "tags": ["eu"],
            "tenant": "acme",
            "given": None,
            "closed": "",
        }
    ]


def test_show_tells_all_of_a_question(store: SQLiteRunStore) -> None:
    question = ask(store, str, options=["left", "right"], to="Mia", timeout=60)
    lines = dict(line.split(maxsplit=1) for line in call("show", question).stdout.splitlines())
    assert lines["question"] == "Which?"
    assert lines["options"] == "left, right"
    assert lines["to"] == "Mia"
    assert {"asked", "until", "answer"} <= lines.keys()
    assert json_of("show", question)["id"] == question


def test_show_tells_who_has_answered_and_why(store: SQLiteRunStore) -> None:
    question = ask(store, bool)
    assert (
        call("answer", question, "true", "--reviewer", "Mia", "--rationale", "they are right").exit_code == 0
    )
    lines = dict(line.split(maxsplit=1) for line in call("show", question).stdout.splitlines())
    assert lines["answered"].startswith("true by Mia at 20")
    assert lines["because"] == "they are right"
    given = json_of("show", question)["given"]
    assert (given["answer"], given["reviewer"], given["rationale"]) == (True, "Mia", "they are right")


def test_show_tells_why_a_question_takes_no_answer(store: SQLiteRunStore) -> None:
    question = ask(store, bool, timeout=1e-9)
    deadline = datetime.fromisoformat(json_of("show", question)["deadline"])
    while datetime.now(UTC) < deadline:  # by the clock of the run, which can be ahead of that of the store
        time.sleep(0.001)
    assert "closed    its deadline was" in call("show", question).stdout
    assert json_of("show", question)["closed"].startswith("its deadline was")


@pytest.mark.parametrize(
    ("answer_type", "options", "text", "value"),
    [
        (bool, {}, "true", True),
        (int, {}, "42", 42),
        (str, {}, "42", "42"),
        (str, {}, "@somewhere", "@somewhere"),
        (str, {"options": ["1", "2"]}, "2", "2"),
        (int, {"options": [1, 2]}, "2", 2),
        (Refund, {}, '{"approved": true}', {"approved": True}),
        (int | str, {}, "soon", "soon"),
    ],
)
def test_an_answer_is_text_or_json_as_the_question_wants_it(
    store: SQLiteRunStore, answer_type: Any, options: dict[str, Any], text: str, value: object
) -> None:
    question = ask(store, answer_type, **options)
    answered = json_of("answer", question, text, "--reviewer", "Mia", "--rationale", "why not")
    assert answered == {"question_id": question, "answer": value, "waits": False}
    trace = asyncio.run(store.trace("r"))
    asyncio.run(store.aclose())
    assert "Mia has answered, because why not" in trace.explain()


def test_an_answer_can_be_in_a_file(store: SQLiteRunStore, tmp_path: Path) -> None:
    question = ask(store, Refund)
    (tmp_path / "answer.json").write_text('{"approved": false}')
    assert call("answer", question, "@missing.json").exit_code == 2
    assert "answered; run r waits for no other" in call("answer", question, "@answer.json").stdout


def test_a_run_of_workers_needs_nobody_to_resume_it(store: SQLiteRunStore) -> None:
    question = ask(store, str)

    async def hand_over() -> None:
        found = await read_header(store, "r")
        routing = Routing(app="desk", queue="mail", definition="")
        await change_header(store, found, replace(found.header, routing=routing))
        await store.aclose()

    asyncio.run(hand_over())
    told = call("answer", question, "yes")
    assert "no other answer: the workers of queue mail continue it" in told.stdout


def test_a_question_that_is_not_there_names_the_command_that_lists_them(store: SQLiteRunStore) -> None:
    write(store, paused("r1", "Pay?"), questions=(3,))
    assert "`fastroai review list`" in call("answer", "r1:2", "yes").stderr


def test_what_is_not_taken_says_why(store: SQLiteRunStore) -> None:
    question = ask(store, bool)
    refused = call("answer", question, "perhaps")
    assert (refused.exit_code, "of the type string, not boolean" in refused.stderr) == (2, True)
    assert call("answer", question, "true").exit_code == 0
    late = call("answer", question, "false")
    assert (late.exit_code, "it was answered" in late.stderr) == (4, True)
    assert call("answer", "unknown:1", "1").exit_code == 3
    assert call("show", "unknown").exit_code == 2


# --- messages ---


def receiver(store: SQLiteRunStore, value_type: Any = Any) -> Pipeline[Any, Any]:
    """A run that waits for a message."""

    @step
    async def receive(ctx: StepContext[Any]) -> Any:
        return await ctx.receive("paid", value_type, timeout=3600)

    pipeline = Pipeline("p", {"receive": receive})

    async def run() -> None:
        await pipeline.execute(run_id="r", store=store)
        await store.aclose()

    asyncio.run(run())
    return pipeline


def runs(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["runs", *arguments], prog_name="fastroai")


@pytest.mark.parametrize(
    ("arguments", "received"),
    [(('{"amount": 120}',), {"amount": 120}), (("plain text",), "plain text"), ((), None)],
)
def test_a_message_is_sent_and_received(
    store: SQLiteRunStore, arguments: tuple[str, ...], received: Any
) -> None:
    pipeline = receiver(store)
    sent = runs("send", "r", "paid", *arguments)
    assert (sent.exit_code, sent.stdout) == (0, "sent paid to run r\n"), sent.output

    async def wake() -> Any:
        outcomes = await pipeline.wake(store=store)
        await store.aclose()
        return outcomes["r"]

    assert asyncio.run(wake()).output == received


def test_a_message_that_the_run_cannot_receive_is_refused(store: SQLiteRunStore) -> None:
    receiver(store, int)
    refused = runs("send", "r", "paid", "soon")
    assert refused.exit_code == 2
    assert "it is of the type string, not integer" in refused.stderr
    assert runs("send", "unknown", "paid").exit_code == 3
    shown = json.loads(runs("send", "r", "paid", "3", "--json").stdout)
    assert shown == {"run_id": "r", "name": "paid", "value": 3}


def test_a_message_that_the_run_does_not_wait_for_is_sent_with_a_note(store: SQLiteRunStore) -> None:
    receiver(store)
    sent = runs("send", "r", "payd")
    assert (sent.exit_code, sent.stdout) == (0, "sent payd to run r\n")
    assert sent.stderr == "note: the run waits for 'paid', not for 'payd'\n"
    assert runs("send", "r", "paid").stderr == ""


def test_a_run_shows_what_it_waits_for(store: SQLiteRunStore) -> None:
    receiver(store)
    assert "waits for message 'paid' until 2" in runs("show", "r").stdout
    (listed,) = json.loads(runs("list", "--json").stdout)
    assert (listed["status"], listed["due_at"] is not None) == ("paused", True)
