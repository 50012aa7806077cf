"""The inbox: every question that waits for an answer is found, without reading the runs that ask nothing."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel
from support.counting_store import Counting
from support.faulty_store import FaultyStore, Write, gone
from support.run_logs import Log, definition
from support.run_stores import run_stores
from support.stored_runs import change_header, header_of
from support.virtual_time import in_virtual_time

from fastroai.errors import ConfigurationError, RunStoreUnavailable
from fastroai.graphs import Edge, Graph, Node
from fastroai.human import Inbox, Question
from fastroai.pipelines import PipelineConfig, StepContext, step
from fastroai.records import Usage
from fastroai.runtime.fact_base import Part
from fastroai.runtime.facts import QuestionAsked, RunFinished, RunStarted, Wait
from fastroai.store import MemoryRunStore, RunHistory
from fastroai.store.reading.index import index_keys
from fastroai.store.record.headers import read_log
from fastroai.store.record.runs import DurableRun, RecordOptions

SHAPE = definition({"a": []})


@pytest.fixture(params=("memory", "sqlite"))
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Any]:
    with run_stores(request.param, request, tmp_path) as open_store:
        opened = open_store()
        yield opened
        if request.param != "memory":
            asyncio.run(opened.aclose())


class Approval(BaseModel):
    approved: bool


@step
async def propose(ctx: StepContext[Any]) -> int:
    return 1


@step
async def ask(ctx: StepContext[Any]) -> dict[str, object]:
    return {"text": f"Pay {ctx.get_input('amount', 5)} dollars?"}


def asking(name: str = "refunds", **config: Any) -> Graph[Any, Any]:
    return Graph(
        name,
        nodes={"propose": propose, "ask": Node(ask, answer_type=Approval), "end": propose},
        edges=[Edge("propose", "ask"), Edge("ask", "end")],
        pause_nodes=["ask"],
        config=PipelineConfig(**config),
    )


def two_branches() -> Graph[Any, Any]:
    """One node in front of two that ask."""
    return Graph(
        "both",
        nodes={"propose": propose, "legal": ask, "money": ask},
        edges=[Edge("propose", "legal"), Edge("propose", "money")],
        pause_nodes=["legal", "money"],
    )


async def inbox(store: Any, **filters: Any) -> list[tuple[str, str, int]]:
    return [(one.run_id, one.node, one.visit) for one in await Inbox(store).list(**filters)]


async def test_a_question_is_found_until_somebody_answers_it(store: Any) -> None:
    graph = asking()
    await graph.run({"amount": 12}, run_id="r", store=store)
    (asked,) = await Inbox(store).list()
    (fact,) = [f for f in (await store.trace("r")).entries if isinstance(f, QuestionAsked)]
    assert asked == Question(
        id=f"r:{fact.id}",
        run_id="r",
        pipeline="refunds",
        node="ask",
        visit=1,
        question={"text": "Pay 12 dollars?"},
        answer_schema=Approval.model_json_schema(),
        options=None,
        to="",
        asked_at=fact.at,
        deadline=None,
        tags=(),
        tenant=None,
    )
    await graph.resume("r", input={"approved": True}, store=store)
    assert await inbox(store) == []
    assert "index:asks" not in " ".join(found.key for found in await store.list("index:"))


async def test_the_newest_run_comes_first_and_its_questions_in_the_order_in_which_they_were_asked(
    store: Any,
) -> None:
    await asking().run(run_id="old", store=store)
    both = two_branches()
    result = await both.run(run_id="new", store=store)
    order = [("new", one.node, one.visit) for one in result.questions]
    assert await inbox(store) == [*order, ("old", "ask", 1)]
    assert await inbox(store, limit=1) == order[:1]
    assert await inbox(store, limit=2) == order
    assert await inbox(store, pipeline="refunds", limit=9) == [("old", "ask", 1)]
    await both.resume("new", input="yes", node="legal", store=store)
    assert await inbox(store, pipeline="both") == [("new", "money", 1)]
    assert await inbox(store, pipeline="nobody's") == []


async def test_questions_are_chosen_by_tag_and_tenant(store: Any) -> None:
    for run_id, tags, tenant in (("a", ("eu",), "acme"), ("b", ("eu", "vip"), None)):
        log = Log(SHAPE, run_id=run_id).start("a").add(QuestionAsked("a", "sure?", id="1"))
        finish = RunFinished(status="paused", waits=(Wait(what="question", id="1"),))
        await log.add(finish).write(store, questions=(3,), tags=tags, tenant=tenant)
    assert await inbox(store, tag="vip") == [("b", "a", 1)]
    assert await inbox(store, tenant="acme", tag="eu") == [("a", "a", 1)]
    assert await inbox(store, tenant="acme", tag="vip") == []
    assert await inbox(store, run_id="a") == [("a", "a", 1)]
    assert await inbox(store, run_id="a", tenant="acme", limit=1) == [("a", "a", 1)]
    assert await inbox(store, run_id="a", tag="vip") == []
    assert await inbox(store, run_id="nobody's") == []
    with pytest.raises(ConfigurationError, match="run_id="):
        await inbox(store, run_id="")
    (found,) = await Inbox(store).list(tag="vip")
    assert (found.tags, found.tenant, found.answer_schema) == (("eu", "vip"), None, None)


class Codec:
    def encode(self, payload: bytes) -> bytes:
        return base64.b85encode(payload)

    def decode(self, payload: bytes) -> bytes:
        return base64.b85decode(payload)


async def test_a_question_that_went_through_a_codec_is_read_with_it(store: Any) -> None:
    await asking(codec=Codec()).run(run_id="r", store=store)
    (sealed,) = await Inbox(store).list()
    (read,) = await Inbox(store, codec=Codec()).list()
    assert isinstance(sealed.question, dict)
    assert list(sealed.question) == ["$sealed"]
    assert read.question == {"text": "Pay 5 dollars?"}


async def test_a_run_that_was_cancelled_or_deleted_asks_nobody(store: Any) -> None:
    graph = asking()
    for run_id in ("cancelled", "deleted", "open"):
        await graph.run(run_id=run_id, store=store)
    await graph.cancel("cancelled", store=store)
    await RunHistory(store).delete("deleted")
    assert await inbox(store) == [("open", "ask", 1)]


async def test_a_question_of_a_branch_that_ran_out_of_time_is_not_open_any_more(store: Any) -> None:
    """No fact of the log withdraws the question: the state machine knows which are open."""

    @step
    async def never(ctx: StepContext[Any]) -> None:
        await asyncio.Event().wait()

    graph = Graph(
        "g",
        nodes={"propose": propose, "fan": propose, "legal": ask, "slow": never, "money": ask},
        edges=[
            Edge("propose", "fan"),
            Edge("propose", "money"),
            Edge("fan", "legal"),
            Edge("fan", "slow"),
        ],
        pause_nodes=["legal", "money"],
        on_branch_failure="continue_others",
        branch_timeout=2,
    )
    result = await graph.run(run_id="r", store=store)
    asked = [fact.step_id for fact in result.trace.entries if isinstance(fact, QuestionAsked)]
    assert sorted(asked) == ["legal", "money"]
    assert [question.node for question in result.questions] == ["money"]
    assert await inbox(store) == [("r", "money", 1)]


async def test_only_runs_that_ask_are_read_and_their_logs_from_the_question_on() -> None:
    store = Counting()
    for number in range(200):
        status: Any = ("finished", "paused", "failed")[number % 3]
        await Log(SHAPE, run_id=f"r{number}").start("a").end(status).write(store)
    log = Log(SHAPE, run_id="long")
    for _ in range(300):
        log.start("a").output("a")
    log.add(QuestionAsked("a", "sure?", visit=2)).end("paused")
    await log.write(store, questions=(len(log.entries) - 1,))
    store.reads.clear()
    store.values.clear()
    assert await inbox(store) == [("long", "a", 2)]
    assert store.reads == {"list index": 2, "run": 1, "log": 1}
    assert store.values["log"] == 2


async def test_the_index_of_questions_is_rebuilt_from_the_runs() -> None:
    store = MemoryRunStore()
    await asking().run(run_id="r", store=store)
    for key in index_keys(await header_of(store, "r")):
        await store.delete(key)
    assert await inbox(store) == []
    await RunHistory(store).rebuild_indexes()
    assert await inbox(store) == [("r", "ask", 1)]


async def test_a_run_whose_header_cannot_be_read_does_not_close_the_inbox(store: Any) -> None:
    for run_id in ("a", "b"):
        await asking().run(run_id=run_id, store=store)
    await change_header(store, "a", format=99)
    assert await inbox(store) == [("b", "ask", 1)]
    assert [run.run_id for run in await RunHistory(store).list(status="unreadable")] == ["a"]


@pytest.mark.parametrize("filters", [{"limit": 0}, {"tag": 3}, {"pipeline": b"p"}, {"tenant": ["acme"]}])
async def test_a_filter_that_is_none_is_refused(filters: Any) -> None:
    with pytest.raises(ConfigurationError, match=next(iter(filters))):
        await Inbox(MemoryRunStore()).list(**filters)


# --- what dies on the way ---


@pytest.mark.parametrize("number", range(1, 14))
@pytest.mark.parametrize("after", [False, True])
@in_virtual_time
async def test_a_process_that_dies_at_any_write_leaves_no_question_that_is_not_found(
    number: int, after: bool
) -> None:
    inner = MemoryRunStore()
    dying = FaultyStore(inner)

    def gone_from(write: Write) -> None:
        if write.number >= number:
            raise gone()

    dying.before, dying.after = (None, gone_from) if after else (gone_from, None)
    opened = RunStarted(part=Part("r", "g", ("g",)))
    run = None
    try:
        run = await DurableRun.begin(RecordOptions(store=dying, codec=None), [opened])
        run.journal.note(QuestionAsked("ask", "sure?", id="1"))
        await asyncio.wait_for(run.journal.flush(), 0.05)
        ended = RunFinished(status="paused", waits=(Wait(what="question", id="1"),))
        await asyncio.wait_for(run.end(ended, Usage()), 1)
    except (RunStoreUnavailable, TimeoutError):
        pass
    if run is None:
        assert await inbox(inner) == []
        return
    await run.release()
    log = await read_log(inner, await header_of(inner, "r"))
    is_asked = any(isinstance(fact, QuestionAsked) for fact in log)
    waits = any(isinstance(fact, RunFinished) for fact in log)
    found = await inbox(inner)
    assert found in ([], [("r", "ask", 1)])
    assert waits <= bool(found) <= is_asked
