"""`map`: which rows are asked, what becomes of each, and what the table says."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import suppress
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from support.interruptions import DyingStore, nth
from support.patience import PATIENCE
from support.typed_functions import Sentiment, listed_costs, sentiment

from fastroai import Budget, Pipeline, StepContext, flow, step
from fastroai.agent import AskPeople, FastroAgent
from fastroai.errors import (
    CallChangedError,
    ConfigurationError,
    CostBudgetExceeded,
    FlowStopped,
    RunExists,
    RunStoreUnavailable,
)
from fastroai.functions import HumanReviewContext, await_human, compute, infer, parallel
from fastroai.graphs import Graph
from fastroai.human import Inbox
from fastroai.pipelines import BaseStep, Progress
from fastroai.rows import RowEnded, RowFailed, RowGivenBack, RowTable
from fastroai.runtime import budget_scope
from fastroai.runtime.facts import ToolEnded
from fastroai.store import MemoryRunStore, RowCounts, RunHistory, SQLiteRunStore
from fastroai.store.record.checksums import with_checksum
from fastroai.store.record.headers import keys_with, read_header
from fastroai.testing import Fault, ModelServer, Reply, ToolCall

MODEL = "openai:gpt-5-mini"


def classifier(server: ModelServer, intent: str = "Classify the text", **options: Any) -> Any:
    @infer(intent=intent, model=server.model(MODEL), **options)
    async def classify(text: str) -> Sentiment:
        raise NotImplementedError

    return classify


@pytest.fixture
def classify(model_server: ModelServer) -> Any:
    model_server.rule(None, sentiment())
    return classifier(model_server)


@step
async def asks_or_works(ctx: StepContext[Any]) -> str:
    text = ctx.get_input("text", str)
    return await (ctx.ask(f"What is {text}?", str) if text != "work" else asyncio.sleep(PATIENCE, "done"))


async def numbers(count: int) -> AsyncIterator[dict[str, str]]:
    for number in range(count):
        yield {"text": f"text {number}"}


class TestRows:
    async def test_a_list_of_values_gives_a_line_for_each_in_order(
        self, classify: Any, model_server: ModelServer
    ) -> None:
        table = await classify.map(["good", "fine", "great"])
        assert [row.inputs for row in table] == [{"text": "good"}, {"text": "fine"}, {"text": "great"}]
        assert [row.output for row in table] == [Sentiment(label="positive", confidence=0.9)] * 3
        assert [row.number for row in table] == [0, 1, 2]
        assert (table.status, table.ok, table.resumed) == ("finished", True, None)
        assert table.cost_usd == listed_costs(model_server) > 0
        assert sum((row.cost_usd for row in table), Decimal(0)) == table.cost_usd

    async def test_mappings_give_the_inputs_by_name_and_other_columns_are_left_out(
        self, classify: Any
    ) -> None:
        table = await classify.map([{"text": "good", "id": 7}])
        assert table[0].inputs == {"text": "good"}

    async def test_columns_of_other_names_are_named_by_inputs(self, classify: Any) -> None:
        table = await classify.map([{"body": "good"}], inputs={"text": "body"})
        assert table[0].inputs == {"text": "good"}
        table = await classify.map([{"body": "good"}], inputs=lambda row: {"text": row["body"] * 2})
        assert table[0].inputs == {"text": "goodgood"}

    async def test_an_input_that_nothing_takes_is_refused(self, classify: Any) -> None:
        with pytest.raises(ConfigurationError, match="Did you mean 'text'"):
            await classify.map([], inputs={"txt": "body"})

    @pytest.mark.parametrize("rows", ["text", b"bytes", {"text": "one"}, 3, None])
    async def test_what_is_no_rows_is_refused(self, classify: Any, rows: Any) -> None:
        with pytest.raises(ConfigurationError, match="a list or an iterator of rows"):
            await classify.map(rows)

    async def test_an_iterator_is_read_no_further_ahead_than_rows_are_asked(
        self, model_server: ModelServer
    ) -> None:
        model_server.rule(None, sentiment())
        classify, read, ended = classifier(model_server), 0, 0

        def rows() -> Iterator[str]:
            nonlocal read
            for number in range(20):
                assert read - ended <= 3
                read += 1
                yield f"text {number}"

        async def note(event: object) -> None:
            nonlocal ended
            ended += isinstance(event, RowEnded)

        table = await classify.map(rows(), concurrency=3, on_event=note)
        assert (len(table), read, ended) == (20, 20, 20)

    async def test_an_async_iterator_is_read(self, classify: Any) -> None:
        table = await classify.map(numbers(5), concurrency=2)
        assert [row.inputs["text"] for row in table] == [f"text {number}" for number in range(5)]

    async def test_no_rows_give_an_empty_table(self, classify: Any) -> None:
        table = await classify.map([])
        assert (len(table), table.ok, table.records, str(table)) == (0, True, [], table.summary)

    def test_scripts_call_map_sync(self, classify: Any) -> None:
        assert len(classify.map_sync(["good"])) == 1


class TestBadRows:
    async def test_a_row_without_the_column_is_told_and_the_others_are_asked(
        self, classify: Any, model_server: ModelServer
    ) -> None:
        table = await classify.map([{"text": "good"}, {"txt": "bad"}, {"text": "fine"}])
        [failed] = table.failed
        assert failed.number == 1
        assert "row 1: it has no column 'text', which 'classify' needs; its columns are 'txt'" in failed.error
        assert len(model_server.ledger.entries) == 2
        assert not table.ok

    async def test_a_value_of_the_wrong_type_is_told_by_row_and_column(self, classify: Any) -> None:
        table = await classify.map([{"text": 5}, {"text": None}])
        assert "row 0: function 'classify': its inputs do not fit its contract: text:" in table[0].error
        assert [row["text"] for row in table.records] == ["5", None]

    async def test_two_rows_with_one_key_are_told(self, classify: Any, model_server: ModelServer) -> None:
        rows = [{"id": "a", "text": "one"}, {"id": "b", "text": "two"}, {"id": "a", "text": "three"}]
        table = await classify.map(rows, key="id")
        assert [row.key for row in table] == ["a", "b", "2: a"]
        assert "row 2 has the key 'a' of row 0" in table[2].error
        assert len(model_server.ledger.entries) == 2

    async def test_an_iterator_that_raises_ends_the_run_after_the_rows_that_are_asked(
        self, model_server: ModelServer
    ) -> None:
        model_server.rule(None, sentiment())
        store = MemoryRunStore()

        def rows(*, breaks: bool) -> Iterator[str]:
            yield from ["one", "two"]
            if breaks:
                raise OSError("the file is gone")

        classify = classifier(model_server)
        with pytest.raises(OSError, match="the file is gone"):
            await classify.map(rows(breaks=True), store=store, run_id="r")
        table = await classify.map(rows(breaks=False), store=store, run_id="r")
        assert table.resumed is not None
        assert table.resumed.finished == 2
        assert len(model_server.ledger.entries) == 2

    async def test_many_failing_rows_are_all_told(self, classify: Any, model_server: ModelServer) -> None:
        table = await classify.map([{"txt": "x"}] * 10_000)
        assert len(table.failed) == 10_000
        assert all("no column 'text'" in row.error for row in table.failed[::1000])
        assert not model_server.ledger.entries


class TestFailures:
    async def test_a_failed_row_is_a_line_and_the_others_go_on(self, model_server: ModelServer) -> None:
        model_server.rule(lambda request: "bad" in request.prompt, Reply(fault=Fault.status(400)))
        model_server.rule(None, sentiment())
        table = await classifier(model_server).map(["good", "bad", "fine"])
        assert [row.ok for row in table] == [True, False, True]
        assert table.outputs[1] is None
        assert "status_code: 400" in table[1].error

    async def test_stop_cancels_the_rest_and_raises_with_the_table(self, model_server: ModelServer) -> None:
        model_server.rule(lambda request: "bad" in request.prompt, Reply(fault=Fault.status(400)))
        model_server.rule(None, sentiment())
        rows = ["good", "bad", *(f"text {number}" for number in range(50))]
        with pytest.raises(RowFailed, match=r"row 1 \(1-.*\) of 'classify' failed") as raised:
            await classifier(model_server).map(rows, on_error="stop", concurrency=1)
        table = raised.value.table
        assert table is not None
        assert [row.ok for row in table] == [True, False]
        assert raised.value.usage.request_count == 1
        assert len(model_server.ledger.entries) == 2

    async def test_a_row_that_has_its_answer_is_kept_while_another_one_stops_the_rest(self) -> None:
        class Slow(MemoryRunStore):
            async def append(self, *args: Any, **options: Any) -> Any:
                await asyncio.sleep(0.1)
                return await super().append(*args, **options)

        @compute
        async def work(text: str) -> str:
            if text == "bad":
                raise ValueError
            await asyncio.sleep(0.02)  # until the failure is being written
            return text

        with pytest.raises(RowFailed, match="row 0") as raised:
            await work.map(["bad", "good"], on_error="stop", store=Slow(), run_id="r")
        table = raised.value.table
        assert table is not None
        assert [row.output for row in table] == [None, "good"]

    async def test_retries_ask_a_row_again(self, model_server: ModelServer) -> None:
        model_server.rule(None, sentiment())
        model_server.fail_next(3, Fault.status(503))
        agent = FastroAgent(model_server.model(MODEL), request_retries=0, name="agent")
        table = await agent.map(["one"], retries=3)
        assert (table[0].ok, table[0].usage.failed_requests) == (True, 3)

    async def test_retries_ask_a_row_again_whose_code_fails(self) -> None:
        tries = 0

        @compute
        async def flaky(text: str) -> str:
            nonlocal tries
            tries += 1
            if tries < 3:
                raise TimeoutError
            return text

        table = await flaky.map(["one"], retries=2)
        assert (table[0].output, table[0].attempts) == ("one", 3)

    async def test_a_budget_that_cannot_pay_for_one_row_sends_nothing(
        self, classify: Any, model_server: ModelServer
    ) -> None:
        table = await classify.map(["one"], budget=Budget(usd="0.000001"))
        assert (table.reason_code, len(table)) == ("budget_exceeded", 0)
        assert "cost" in table.reason
        assert not model_server.ledger.entries

    async def test_a_budget_around_the_call_is_raised(self, classify: Any) -> None:
        async with budget_scope(Budget(usd="0.000001")):
            with pytest.raises(CostBudgetExceeded):
                await classify.map(["one"])

    async def test_a_run_goes_on_after_its_budget_was_raised(self, model_server: ModelServer) -> None:
        model_server.rule(None, sentiment())
        classify, store = classifier(model_server), MemoryRunStore()
        one = (await classify.map(["text 0"])).cost_usd
        model_server.ledger.clear()
        rows = [f"text {number}" for number in range(30)]
        first = await classify.map(rows, budget=Budget(usd=one * 20), store=store, run_id="r", concurrency=2)
        assert (first.status, first.reason_code, first.ok) == ("failed", "budget_exceeded", False)
        assert 0 < len(first) < 30
        assert all(row.ok for row in first)
        assert first.cost_usd <= one * 20
        table = await classify.map(rows, budget=Budget(usd=one * 500), store=store, run_id="r")
        assert table.ok
        assert len(table) == 30
        assert len(model_server.ledger.entries) == 30
        assert table.cost_usd == listed_costs(model_server)

    async def test_a_cancelled_task_ends_the_run_as_cancelled(self, model_server: ModelServer) -> None:
        model_server.rule(None, sentiment())
        classify, store = classifier(model_server), MemoryRunStore()
        arrived = asyncio.Event()

        async def note(event: object) -> None:
            if isinstance(event, RowEnded) and event.number == 2:
                arrived.set()

        rows = [f"text {number}" for number in range(1000)]
        running = asyncio.create_task(
            classify.map(rows, store=store, run_id="r", on_event=note, concurrency=2)
        )
        await arrived.wait()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        asked = len(model_server.ledger.entries)
        table = await classify.map(rows[:50], store=store, run_id="r")
        assert len(table) == 50
        assert table.resumed is not None
        assert table.resumed.finished >= 3
        assert len(model_server.ledger.entries) <= 50 + 2
        assert asked < 60


class TestResuming:
    async def test_finished_rows_are_not_asked_again_and_new_ones_are(
        self, classify: Any, model_server: ModelServer, tmp_path: Path
    ) -> None:
        store = SQLiteRunStore(tmp_path / "runs.db")
        rows = [f"text {number}" for number in range(5)]
        await classify.map(rows, store=store, run_id="r")
        told: list[Any] = []
        table = await classify.map([*rows, "new"], store=store, run_id="r", on_event=told.append)
        assert table.resumed is not None
        assert (table.resumed.finished, table.resumed.new, str(table.resumed)) == (
            5,
            1,
            "5 finished before, 1 new",
        )
        assert [row.output.label for row in table] == ["positive"] * 6
        assert len(model_server.ledger.entries) == 6
        assert table.cost_usd == listed_costs(model_server)
        assert [type(one) for one in told if isinstance(one, RowEnded | RowGivenBack)].count(
            RowGivenBack
        ) == 5

    async def test_rows_that_are_gone_are_not_in_the_table(self, classify: Any) -> None:
        store = MemoryRunStore()
        rows = [{"id": number, "text": f"text {number}"} for number in range(4)]
        await classify.map(rows, store=store, run_id="r", key="id")
        table = await classify.map(list(reversed(rows[1:])), store=store, run_id="r", key="id")
        assert [row.key for row in table] == ["3", "2", "1"]
        assert table.resumed is not None
        assert (table.resumed.finished, table.resumed.gone) == (3, 1)

    async def test_a_row_with_new_inputs_is_asked_anew(
        self, classify: Any, model_server: ModelServer
    ) -> None:
        store = MemoryRunStore()
        await classify.map(
            [{"id": 1, "text": "one"}, {"id": 2, "text": "two"}], store=store, run_id="r", key="id"
        )
        table = await classify.map(
            [{"id": 1, "text": "one!"}, {"id": 2, "text": "two"}], store=store, run_id="r", key="id"
        )
        assert table.resumed is not None
        assert (table.resumed.finished, table.resumed.changed) == (1, {"inputs": 1})
        assert table[0].inputs == {"text": "one!"}
        assert len(model_server.ledger.entries) == 3

    async def test_failed_rows_are_asked_again(self, model_server: ModelServer) -> None:
        model_server.rule(None, sentiment())
        model_server.fail_next(1, Fault.status(400))
        classify, store = classifier(model_server), MemoryRunStore()
        first = await classify.map(["one", "two"], store=store, run_id="r", concurrency=1)
        assert len(first.failed) == 1
        table = await classify.map(["one", "two"], store=store, run_id="r")
        assert table.ok
        assert table.resumed is not None
        assert (table.resumed.finished, table.resumed.failed) == (1, 1)

    async def test_each_row_is_counted_once_when_a_run_goes_on(self, model_server: ModelServer) -> None:
        model_server.rule(lambda request: "bad" in request.prompt, Reply(fault=Fault.status(400)))
        model_server.rule(lambda request: "slow" in request.prompt, Reply(latency=60))
        model_server.rule(None, sentiment())
        classify, store = classifier(model_server), MemoryRunStore()
        texts = {"a": "fine", "b": "bad", "c": "slow"}
        rows = [{"id": key, "text": text} for key, text in texts.items()]
        task = asyncio.create_task(
            classify.map([*rows, rows[0]], store=store, run_id="r", key="id", concurrency=1)
        )
        while b"slow" not in b"".join(one.raw_body for one in model_server.ledger.entries):
            await asyncio.sleep(0.01)
        task.cancel()
        await asyncio.wait([task])
        model_server.reset()
        model_server.rule(None, sentiment())
        rows = [*rows, {"id": "d", "text": "fine, too"}, rows[0]]
        for expected in ((1, 1, ("c",), 2), (4, 1, (), 0)):
            table = await classify.map(rows, store=store, run_id="r", key="id")
            known = table.resumed
            assert known is not None
            assert (known.finished, known.failed, known.interrupted, known.new) == expected
            assert known.finished + known.failed + len(known.interrupted) + known.new == len(table) == 5
            assert known.gone == 0

    async def test_a_run_that_stops_early_keeps_the_lines_of_rows_to_which_it_did_not_come(
        self, model_server: ModelServer, tmp_path: Path
    ) -> None:
        model_server.rule(lambda request: "bad" in request.prompt, Reply(text="not what was asked for"))
        model_server.rule(None, sentiment())
        classify, path = classifier(model_server, retries=0), tmp_path / "rows.csv"
        store = SQLiteRunStore(tmp_path / "runs.db")
        options: Any = {"budget": Budget(requests=5), "concurrency": 1, "store": store, "write_to": path}
        rows = ["one", "bad", "two", "three", "four"]
        first = await classify.map(rows, run_id="r", **options)
        written = path.read_text(encoding="utf-8")
        for edited in (classify, classifier(model_server, retries=0)):
            table = await edited.map(rows, run_id="r", **options)
            assert (table.status, table.reason_code) == ("failed", "budget_exceeded")
            assert table.records == first.records
            assert path.read_text(encoding="utf-8") == written
            assert table.resumed is not None
            assert (table.resumed.finished, table.resumed.unread, table.resumed.gone) == (1, 3, 0)
            [run] = await RunHistory(store).list()
            assert run.rows == RowCounts(done=5, failed=1, total=5)
        await store.aclose()

    async def test_rows_that_have_moved_keep_their_lines_when_the_run_stops_before_them(
        self, model_server: ModelServer
    ) -> None:
        model_server.rule(lambda request: "bad" in request.prompt, Reply(text="not what was asked for"))
        model_server.rule(None, sentiment())
        classify, store = classifier(model_server, retries=0), MemoryRunStore()
        rows = [{"id": name, "text": text} for name, text in zip("abc", ("one", "bad", "two"), strict=True)]
        options: Any = {"budget": Budget(requests=3), "concurrency": 1, "key": "id", "store": store}
        await classify.map(rows, run_id="r", **options)
        moved = [rows[2], rows[1], {"id": "d", "text": "new"}, rows[0]]
        table = await classify.map(moved, run_id="r", **options)
        assert [(row.number, row.key, row.ok) for row in table] == [
            (0, "c", True),
            (1, "b", False),
            (2, "a", True),
        ]

    async def test_a_row_that_is_refused_again_has_one_line_when_the_run_stops_after_it(
        self, classify: Any
    ) -> None:
        one, two = ({"id": name, "text": name} for name in ("a", "b"))
        options: Any = {"budget": Budget(requests=2), "concurrency": 1, "key": "id"}
        options |= {"store": MemoryRunStore(), "run_id": "r"}
        await classify.map([one, one, two], **options)
        table = await classify.map([one, one, {"id": "c", "text": "new"}, two], **options)
        assert [(row.number, row.key) for row in table] == [(0, "a"), (1, "1: a"), (3, "b")]

    @pytest.mark.parametrize(("on_changed", "kept"), [("ask", []), ("keep", ["one", "two"])])
    async def test_lines_whose_question_has_changed_are_left_out_unless_they_are_to_be_kept(
        self, model_server: ModelServer, tmp_path: Path, on_changed: Any, kept: list[str]
    ) -> None:
        model_server.rule(None, sentiment())
        path = tmp_path / "rows.jsonl"
        options: Any = {"budget": Budget(requests=2), "concurrency": 1, "store": MemoryRunStore()}
        options |= {"run_id": "r", "write_to": path, "on_changed": on_changed}
        await classifier(model_server).map(["one", "two"], **options)
        table = await classifier(model_server, "Classify anew").map(["zero", "two", "three"], **options)
        assert [row.inputs["text"] for row in table] == [text for text in kept if text != "one"]

    async def test_a_file_has_the_rows_on_record_as_soon_as_the_run_goes_on(
        self, model_server: ModelServer, tmp_path: Path
    ) -> None:
        model_server.rule(lambda request: "slow" in request.prompt, Reply(latency=60))
        model_server.rule(None, sentiment())
        classify, path = classifier(model_server), tmp_path / "rows.csv"
        options: Any = {"concurrency": 1, "store": MemoryRunStore(), "run_id": "r", "write_to": path}
        await classify.map(["one", "two"], **options)
        written = path.read_text(encoding="utf-8")
        task = asyncio.create_task(classify.map(["slow", "two", "one"], **options))
        while b"slow" not in b"".join(one.raw_body for one in model_server.ledger.entries):
            await asyncio.sleep(0.01)
        assert path.read_text(encoding="utf-8") == written
        task.cancel()
        await asyncio.wait([task])
        assert path.read_text(encoding="utf-8") == written

        async def rows() -> AsyncIterator[str]:
            yield "one"
            raise OSError("the disk is gone")

        with pytest.raises(OSError, match="gone"):
            await classify.map(rows(), **options)
        assert path.read_text(encoding="utf-8") == written

    async def test_rows_at_which_a_budget_ended_the_run_are_not_called_interrupted(
        self, model_server: ModelServer
    ) -> None:
        model_server.rule(None, sentiment())
        classify, store = classifier(model_server), MemoryRunStore()
        rows = [f"text {number}" for number in range(20)]
        first = await classify.map(rows, budget=Budget(requests=10), store=store, run_id="r", concurrency=8)
        assert (len(first), first.usage.uncertain_usd) == (10, 0)
        table = await classify.map(rows, budget=Budget(requests=20), store=store, run_id="r")
        known = table.resumed
        assert known is not None
        assert (known.finished, known.interrupted) == (10, ())
        assert (known.stopped + known.new, len(table)) == (10, 20)

    async def test_the_cost_of_a_row_whose_request_was_lost_is_not_known(
        self, model_server: ModelServer
    ) -> None:
        model_server.rule(lambda request: "lost" in request.prompt, Reply(fault=Fault.disconnect()))
        model_server.rule(None, sentiment())
        classify = classifier(model_server)
        table = await classify.map(["fine", "lost"], retries=0)
        fine, lost = table.records
        assert (fine["cost_usd"], lost["cost_usd"]) == (table[0].cost_usd, None)
        assert [row.cost_complete for row in table] == [True, False]
        assert not table.cost_complete
        assert f"at least ${table.cost_usd:f}" in table.summary
        assert str(table).splitlines()[1].endswith("cost not known")

    async def test_a_row_that_was_between_two_requests_keeps_what_it_has(
        self, model_server: ModelServer
    ) -> None:
        model_server.rule(lambda request: bool(request.tool_results), Reply(text="done"))
        model_server.rule(None, Reply(tool_calls=[ToolCall("look_up", {"name": "it"})]))
        agent, calls = FastroAgent(model_server.model(MODEL), name="agent"), 0

        @agent.agent.tool_plain
        async def look_up(name: str) -> str:
            nonlocal calls
            calls += 1
            return name

        store = MemoryRunStore()
        with pytest.raises(RunStoreUnavailable):
            await agent.map(["one"], store=DyingStore(store, nth(ToolEnded), written=True), run_id="r")
        table = await agent.map(["one"], store=store, run_id="r")
        assert (table.outputs, calls) == (["done"], 1)
        assert len(model_server.ledger.entries) == table.usage.request_count == 2
        assert table.cost_usd == table[0].cost_usd == listed_costs(model_server)
        assert table.usage.cost_complete

    @pytest.mark.parametrize("deaths", [1, 2, 3])
    async def test_what_the_run_of_a_row_has_spent_counts_however_many_processes_have_asked_the_row(
        self, model_server: ModelServer, deaths: int
    ) -> None:
        model_server.rule(None, Reply(text="done"))
        agent, store = FastroAgent(model_server.model(MODEL), name="agent"), MemoryRunStore()
        pipeline = Pipeline("asks", {"ask": agent.as_step("Hello")})
        for _ in range(deaths):
            with pytest.raises(RunStoreUnavailable):
                await pipeline.map([{}], store=DyingStore(store, nth(RowEnded)), run_id="r")
        await RunHistory(store).cancel("r")
        [cancelled] = await RunHistory(store).list(pipeline="asks.map")
        assert (cancelled.status, cancelled.cost_usd) == ("cancelled", listed_costs(model_server))
        table = await pipeline.map([{}], store=store, run_id="r")
        assert len(model_server.ledger.entries) == table.usage.request_count == 1
        assert table.cost_usd == table[0].cost_usd == listed_costs(model_server)

    @pytest.mark.parametrize("on_changed", ["ask", "keep"])
    async def test_rows_whose_question_has_changed_are_asked_anew_or_kept(
        self, model_server: ModelServer, on_changed: Any
    ) -> None:
        model_server.rule(lambda request: "sharply" in json_of(request), sentiment("negative"))
        model_server.rule(None, sentiment("positive"))
        store = MemoryRunStore()
        await classifier(model_server).map(["one", "two"], store=store, run_id="r")
        sharper = classifier(model_server, "Classify the text sharply")
        table = await sharper.map(["one", "two", "new"], store=store, run_id="r", on_changed=on_changed)
        assert table.resumed is not None
        if on_changed == "ask":
            assert (table.resumed.changed, table.resumed.new) == ({"intent": 2}, 1)
            assert [row.output.label for row in table] == ["negative"] * 3
            assert len(model_server.ledger.entries) == 5
        else:
            assert (table.resumed.kept, table.resumed.new) == (2, 1)
            assert [row.output.label for row in table] == ["positive", "positive", "negative"]
            assert len(model_server.ledger.entries) == 3
        again = await sharper.map(["one", "two", "new"], store=store, run_id="r", on_changed=on_changed)
        assert again.resumed is not None
        assert again.resumed.finished + again.resumed.kept == 3

    async def test_a_changed_question_can_be_refused_before_anything_is_sent(
        self, model_server: ModelServer
    ) -> None:
        model_server.rule(None, sentiment())
        store = MemoryRunStore()
        await classifier(model_server).map(["one"], store=store, run_id="r")
        with pytest.raises(CallChangedError, match="intent"):
            await classifier(model_server, "Other").map(
                ["one", "two"], store=store, run_id="r", on_changed="fail"
            )
        assert len(model_server.ledger.entries) == 1

    async def test_an_instruction_with_the_date_of_today_changes_nothing(
        self, model_server: ModelServer
    ) -> None:
        model_server.rule(None, Reply(text="fine"))
        agent, day = FastroAgent(model_server.model(MODEL), name="dated"), 1
        store = MemoryRunStore()

        @agent.agent.instructions
        def today() -> str:
            return f"Today is day {day}"

        await agent.map(["one"], store=store, run_id="r")
        day = 2
        table = await agent.map(["one"], store=store, run_id="r")
        assert table.resumed is not None
        assert table.resumed.finished == 1
        assert len(model_server.ledger.entries) == 1

    async def test_the_id_of_another_run_is_refused(self, classify: Any) -> None:
        store = MemoryRunStore()

        @flow
        async def other(text: str) -> str:
            return text

        await other.run("x", store=store, run_id="r")
        with pytest.raises(RunExists, match=r"it is a run of flow 'other'; choose another run_id"):
            await classify.map(["one"], store=store, run_id="r")
        await classify.map(["one"], store=store, run_id="rows")
        with pytest.raises(RunExists, match=r"it is a run of rows of 'classify'; choose another run_id"):
            await other.map(["one"], store=store, run_id="rows")

    async def test_deps_are_refused_before_anything_is_sent_where_nothing_takes_them(
        self, classify: Any, model_server: ModelServer
    ) -> None:
        @flow
        async def other(text: str) -> str:
            return text

        for target, kind in ((classify, "function"), (other, "flow")):
            with pytest.raises(ConfigurationError, match=f"deps=3: expected none, because .* is a {kind}"):
                await target.map(["one"], deps=3)
            with pytest.raises(ConfigurationError, match="expected none"):
                await target.estimate_rows(["one"], deps=3)
        assert not model_server.ledger.entries


class TestRunsOfRows:
    def targets(self, server: ModelServer) -> list[Any]:
        agent = FastroAgent(server.model(MODEL), name="agent")

        @step
        async def answer(ctx: StepContext[Any]) -> str:
            return (await ctx.run(agent, ctx.get_input("text"))).output

        @flow
        async def flowing(text: str) -> str:
            return (await agent.run(text)).output

        return [
            Pipeline("pipeline", {"answer": answer}),
            Graph("graph", nodes={"answer": answer}, entry="answer", terminals=["answer"], edges=[]),
            flowing,
        ]

    async def test_rows_of_pipelines_graphs_and_flows_are_runs_which_the_store_keeps(
        self, model_server: ModelServer
    ) -> None:
        model_server.rule(None, Reply(text="fine"))
        for target in self.targets(model_server):
            store = MemoryRunStore()
            model_server.ledger.clear()
            rows = [{"text": f"text {number}"} for number in range(4)]
            table: RowTable[str] = await target.map(rows[:3], store=store, run_id="r")
            assert table.outputs == ["fine"] * 3
            table = await target.map(rows, store=store, run_id="r")
            assert table.outputs == ["fine"] * 4
            assert table.resumed is not None
            assert table.resumed.finished == 3
            assert len(model_server.ledger.entries) == 4
            assert table.cost_usd == listed_costs(model_server)

    async def test_a_run_that_failed_goes_on_where_it_was(self, model_server: ModelServer) -> None:
        model_server.rule(None, Reply(text="fine"))
        agent, fails = FastroAgent(model_server.model(MODEL), name="agent"), True

        @step
        async def first(ctx: StepContext[Any]) -> str:
            return (await ctx.run(agent, ctx.get_input("text"))).output

        @step
        async def second(ctx: StepContext[Any]) -> str:
            if fails:
                raise ValueError("not yet")
            return ctx.get_dependency("first", str) + "!"

        pipeline = Pipeline("two", {"first": first, "second": second}, {"second": ["first"]})
        store = MemoryRunStore()
        table = await pipeline.map([{"text": "a"}, {"text": "b"}], store=store, run_id="r")
        assert [row.ok for row in table] == [False, False]
        assert table.cost_usd > 0
        fails = False
        table = await pipeline.map([{"text": "a"}, {"text": "b"}], store=store, run_id="r")
        assert table.outputs == ["fine!", "fine!"]
        assert len(model_server.ledger.entries) == 2
        assert table.cost_usd == listed_costs(model_server)

    async def test_the_order_of_sets_in_inputs_does_not_count(self) -> None:
        begun = list[set[int]]()

        @step
        async def count(ctx: StepContext[Any]) -> int:
            begun.append(ctx.get_input("numbers"))
            return len(begun[-1])

        pipeline = Pipeline("sets", {"count": count}, accepts={"numbers": set[int]})
        store = MemoryRunStore()
        for numbers in ([0, 8], [8, 0]):  # of which sets in another order are made
            table = await pipeline.map([{"numbers": numbers}], store=store, run_id="r")
            assert (table.outputs, begun) == ([2], [{0, 8}])

    async def test_rows_continue_if_a_step_declares_more_or_less_and_begin_again_if_it_changes(self) -> None:
        asked, fails = list[str](), True

        class Answers(BaseStep[Any, str]):
            def __init__(self, declared: Mapping[str, str]) -> None:
                self.declared = declared

            def declares(self) -> Mapping[str, str]:
                return self.declared

            async def execute(self, context: StepContext[Any]) -> str:
                asked.append(context.get_input("text"))
                return "fine"

        @step
        async def close(ctx: StepContext[Any]) -> str:
            if fails and ctx.get_input("text") == "fails":
                raise ValueError("not yet")
            return await ctx.ask("close it?", str) if ctx.get_input("text") == "waits" else "closed"

        async def mapped(**declared: str) -> RowTable[Any]:
            steps: Any = {"answer": Answers(declared), "close": close}
            pipeline = Pipeline("two", steps, {"close": ["answer"]}, version=repr(declared))
            asked.clear()
            return await pipeline.map([{"text": row} for row in rows], store=store, run_id="r")

        store, rows = MemoryRunStore(), ["ends", "fails", "waits"]
        await mapped(tone="1")
        for declared in ({"tone": "1", "words": "1"}, {"tone": "1"}, {}, {"words": "1"}):
            table = await mapped(**declared)
            assert (asked, len(table.waiting)) == ([], 1)
            assert table.resumed is not None
            assert (table.resumed.finished, table.resumed.failed) == (1, 1)
        [question] = await Inbox(store).list()
        await Inbox(store).answer(question.id, "yes")
        fails, rows = False, [*rows, "new"]
        assert (await mapped(words="1")).outputs == ["closed", "closed", "yes", "closed"]
        assert asked == ["new"]
        table = await mapped(words="2")
        assert sorted(asked) == ["fails", "new", "waits"]
        assert table.resumed is not None
        assert table.resumed.changed == {"words of answer": 3}

    async def test_the_cost_of_its_rows_stays_when_a_run_is_cancelled_that_nobody_has(
        self, model_server: ModelServer
    ) -> None:
        model_server.rule(None, Reply(text="fine"))
        agent = FastroAgent(model_server.model(MODEL), name="agent", max_tokens=100)

        @step
        async def first(ctx: StepContext[Any]) -> str:
            return (await ctx.run(agent, ctx.get_input("text"))).output

        @step
        async def second(ctx: StepContext[Any]) -> str:
            return (await ctx.run(agent, ctx.get_dependency("first"))).output

        pipeline: Any = Pipeline("p", {"first": first, "second": second}, {"second": ["first"]})
        store = MemoryRunStore()
        rows = [{"text": str(number)} for number in range(3)]
        options: Any = {"store": store, "run_id": "r", "budget": Budget(requests=3), "concurrency": 1}
        table = await pipeline.map(rows, **options)
        assert (table.reason_code, len(table)) == ("budget_exceeded", 1)
        assert table.cost_usd == listed_costs(model_server) > 0
        assert (await pipeline.row_runs.table("r", store=store)).cost_usd == table.cost_usd
        history = RunHistory(store)
        await history.cancel("r")
        [run] = await history.list(pipeline="p.map")
        assert (run.status, run.requests, run.cost_usd) == ("cancelled", 3, table.cost_usd)

    async def test_a_row_that_waits_for_a_person_pauses_the_run_at_its_end(self) -> None:
        @step
        async def asks(ctx: StepContext[Any]) -> str:
            if ctx.get_input("text") == "hard":
                return await ctx.ask("What is it?", str)
            return "easy"

        pipeline, store = Pipeline("asks", {"asks": asks}), MemoryRunStore()
        rows = [{"text": "easy"}, {"text": "hard"}]
        table = await pipeline.map(rows, store=store, run_id="r")
        assert (table.status, table.reason_code, len(table)) == ("paused", "rows_waiting", 1)
        assert len(table.waiting) == 1
        inbox = Inbox(store)
        [question] = await inbox.list()
        await inbox.answer(question.id, "a mystery")
        table = await pipeline.map(rows, store=store, run_id="r")
        assert table.outputs == ["easy", "a mystery"]
        assert table.status == "finished"

    async def test_of_a_cancelled_run_nobody_is_asked_for_its_rows_until_it_continues(self) -> None:
        @step
        async def asks(ctx: StepContext[Any]) -> str:
            return await ctx.ask(f"What is {ctx.get_input('text')}?", str)

        pipeline, store = Pipeline("asks", {"asks": asks}), MemoryRunStore()
        inbox, history, rows = Inbox(store), RunHistory(store), [{"text": "this"}, {"text": "that"}]
        for cancel in (lambda: history.cancel("r"), lambda: pipeline.row_runs.cancel("r", store=store)):
            table = await pipeline.map(rows, store=store, run_id="r")
            assert (table.status, len(await inbox.list())) == ("paused", 2)
            await cancel()
            assert not await inbox.list()
            assert {run.status for run in await history.list()} == {"cancelled"}
            assert (await history.list(pipeline="asks.map"))[0].rows == RowCounts(total=2)
        await pipeline.map(rows, store=store, run_id="r")
        for question in await inbox.list():
            await inbox.answer(question.id, question.question)
        table = await pipeline.map(rows, store=store, run_id="r")
        assert table.outputs == ["What is this?", "What is that?"]

    @pytest.mark.parametrize("how", ["task", "door", "history"])
    async def test_nobody_is_asked_for_rows_of_a_run_that_is_cancelled_while_it_runs(self, how: str) -> None:
        store = MemoryRunStore()
        inbox, pipeline = Inbox(store), Pipeline("asks", {"asks": asks_or_works})
        rows = [{"text": "this"}, {"text": "that"}, {"text": "work"}]
        running = asyncio.create_task(pipeline.map(rows, store=store, run_id="r"))
        while len(await inbox.list()) < 2:
            await asyncio.sleep(0.01)
        if how == "task":
            running.cancel()
        elif how == "door":
            await pipeline.row_runs.cancel("r", store=store)
        else:
            await RunHistory(store).cancel("r")
        with suppress(asyncio.CancelledError):
            assert (await running).status == "cancelled"
        assert not await inbox.list()
        assert {run.status for run in await RunHistory(store).list()} == {"cancelled"}

    async def test_people_are_still_asked_for_rows_of_a_run_that_goes_on_in_another_process(self) -> None:
        store = MemoryRunStore()
        inbox, pipeline = Inbox(store), Pipeline("asks", {"asks": asks_or_works})
        door, rows = pipeline.row_runs, [{"text": "this"}, {"text": "work"}]
        begun = pipeline.map(rows, store=store, run_id="r", record_rows=True)
        for running in map(asyncio.create_task, (begun, door.resume("r", store=store))):
            while not await inbox.list():
                await asyncio.sleep(0.01)
            await door.interrupt()
            running.cancel()
            with suppress(asyncio.CancelledError):
                await running
        assert [run.status for run in await RunHistory(store).list(pipeline="asks.map")] == ["interrupted"]
        assert len(await inbox.list()) == 1

    async def test_a_deleted_run_takes_the_runs_of_its_rows_with_it(self) -> None:
        @step
        async def first(ctx: StepContext[Any]) -> str:
            return ctx.get_input("text", str)

        store = MemoryRunStore()
        pipeline, history = Pipeline("one", {"first": first}), RunHistory(store)
        await pipeline.execute({"text": "another"}, store=store, run_id="another")
        await pipeline.map([{"text": "a"}, {"text": "b"}], store=store, run_id="r")
        assert len(await history.list()) == 4
        await history.delete("r")
        assert [run.run_id for run in await history.list()] == ["another"]
        assert not [key async for key in keys_with(store, "") if "-row-" in key.key]


class TestPeople:
    """Questions of rows that are no runs are in the record of the run of rows."""

    @pytest.fixture
    def clerk(self, model_server: ModelServer) -> FastroAgent[Any, str]:
        model_server.rule(lambda request: bool(request.tool_results), Reply(text="done"))
        model_server.rule(None, Reply(tool_calls=[ToolCall("pay", {"usd": 5})]))
        agent = FastroAgent(model_server.model(MODEL), name="clerk", capabilities=[AskPeople()])

        @agent.agent.tool_plain(requires_approval=True)
        async def pay(usd: int) -> str:
            return f"paid {usd}"

        return agent

    async def test_calls_of_tools_that_wait_for_approval(
        self, clerk: FastroAgent[Any, str], model_server: ModelServer
    ) -> None:
        store = MemoryRunStore()
        inbox = Inbox(store)
        table = await clerk.map(["one", "two"], store=store, run_id="r")
        assert (table.status, len(table), len(table.waiting)) == ("paused", 0, 2)
        first, second = await inbox.list(run_id="r")
        await inbox.answer(first.id, True)
        table = await clerk.map(["one", "two"], store=store, run_id="r")
        assert (table.status, len(table), len(table.waiting)) == ("paused", 1, 1)
        assert [one.id for one in await inbox.list(run_id="r")] == [second.id]
        await inbox.answer(second.id, True)
        table = await clerk.map(["one", "two"], store=store, run_id="r")
        assert table.outputs == ["done", "done"]
        assert len(model_server.ledger.entries) == 4
        assert table.cost_usd == listed_costs(model_server)

    async def test_a_flow_around_waits_with_its_rows(
        self, clerk: FastroAgent[Any, str], model_server: ModelServer
    ) -> None:
        store = MemoryRunStore()

        @flow
        async def pays(texts: list[str]) -> list[str | None]:
            return (await clerk.map(texts)).outputs

        with pytest.raises(FlowStopped) as stopped:
            await pays.run(["one", "two"], store=store, run_id="r")
        assert stopped.value.status == "paused"
        for question in await Inbox(store).list(run_id="r"):
            await Inbox(store).answer(question.id, True)
        assert await pays.resume("r", store=store) == ["done", "done"]
        assert len(model_server.ledger.entries) == 4

    async def test_a_function_with_a_body_that_asks(self) -> None:
        @compute
        async def decide(text: str) -> bool:
            return (await await_human(HumanReviewContext(question=text), bool)).value

        store = MemoryRunStore()
        await decide.map(["one", "two"], store=store, run_id="r")
        for question in await Inbox(store).list(run_id="r"):
            await Inbox(store).answer(question.id, question.question == "one")
        assert (await decide.map(["one", "two"], store=store, run_id="r")).outputs == [True, False]


class TestInsideOfOthers:
    async def test_map_in_a_flow_on_record_asks_nothing_twice(self, model_server: ModelServer) -> None:
        model_server.rule(None, sentiment())
        classify, store, fails = classifier(model_server), MemoryRunStore(), True

        @flow
        async def report(texts: list[str]) -> int:
            table = await classify.map(texts)
            if fails:
                raise ValueError("not yet")
            return len(table)

        with pytest.raises(ValueError, match="not yet"):
            await report.run(["a", "b", "c"], store=store, run_id="r")
        fails = False
        assert await report.resume("r", store=store) == 3
        assert len(model_server.ledger.entries) == 3


def json_of(request: Any) -> str:
    return str(request.body)


class TestEstimates:
    ROWS = tuple(f"text {number}" for number in range(60))

    async def test_a_sample_is_paid_for_once_and_its_cost_is_scaled(self, model_server: ModelServer) -> None:
        model_server.rule(None, sentiment())
        classify, store = classifier(model_server), MemoryRunStore()
        quote = await classify.estimate(rows=self.ROWS, sample=10, store=store, run_id="r")
        assert len(model_server.ledger.entries) == 10
        spent = listed_costs(model_server)
        assert (quote.lower_usd, quote.expected_usd) == (spent, spent * 6)
        table = await classify.map(self.ROWS, store=store, run_id="r")
        assert table.resumed is not None
        assert (table.resumed.finished, table.resumed.new) == (10, 50)
        assert len(model_server.ledger.entries) == 60
        assert quote.upper_usd is not None
        assert table.cost_usd <= quote.upper_usd
        assert [row.number for row in table] == list(range(60))

    async def test_nothing_is_sent_without_a_store(self, classify: Any, model_server: ModelServer) -> None:
        quote = await classify.estimate(rows=self.ROWS)
        assert not model_server.ledger.entries
        assert 0 < quote.expected_usd <= quote.upper_usd

    async def test_a_sample_is_within_its_budget(self, classify: Any, model_server: ModelServer) -> None:
        one = (await classify.estimate(rows=self.ROWS[:1])).upper_usd
        quote = await classify.estimate(
            rows=self.ROWS, sample=50, store=MemoryRunStore(), run_id="r", budget=Budget(usd=one * 2)
        )
        assert quote.upper_usd == one * 2
        assert listed_costs(model_server) <= one * 2

    async def test_an_iterator_is_refused_as_map_could_not_read_it_again(self, classify: Any) -> None:
        with pytest.raises(ConfigurationError, match="`map` could not read an iterator again"):
            await classify.estimate_rows(iter(self.ROWS))

    async def test_a_quote_says_that_rows_of_its_sample_have_failed(self, model_server: ModelServer) -> None:
        model_server.fail_next(1, Fault.status(400))
        model_server.rule(None, sentiment())
        quote = await classifier(model_server).estimate(
            rows=self.ROWS, sample=2, store=MemoryRunStore(), run_id="r"
        )
        assert "1 of them failed, the first with pydantic_ai" in quote.expected_reasons[0]

    async def test_an_option_that_a_quote_of_rows_does_not_take_is_named(self, classify: Any) -> None:
        with pytest.raises(TypeError, match=r"classify.estimate\(\) of rows takes no batch=; it takes rows="):
            await classify.estimate(rows=self.ROWS, batch=True)

    async def test_rows_that_cannot_be_asked_cost_nothing(self, classify: Any) -> None:
        quote = await classify.estimate(rows=[{"txt": "x"}])
        assert quote.upper_usd == 0


class TestOtherWays:
    async def test_ctx_map_gives_a_function_its_arguments(self, classify: Any) -> None:
        @compute
        async def joined(text: str, mark: str = "!") -> str:
            return text + mark

        @step
        async def several(ctx: StepContext[Any]) -> list[str]:
            one = await ctx.map(joined, ["a", "b"])
            return one + await ctx.map(joined, [{"text": "c", "mark": "?"}, {"text": "d"}])

        result = await Pipeline("several", {"several": several}).execute()
        assert result.output == ["a!", "b!", "c?", "d!"]

    async def test_parallel_runs_no_more_at_once_than_its_limit(self) -> None:
        running, most = 0, 0

        async def one(number: int) -> int:
            nonlocal running, most
            running += 1
            most = max(most, running)
            await asyncio.sleep(0)
            running -= 1
            return number

        results = await parallel(*[one(number) for number in range(10)], concurrency=3)
        assert (results, most) == (tuple(range(10)), 3)
        with pytest.raises(ConfigurationError, match="concurrency"):
            await parallel(one(1), concurrency=0)

    async def test_parallel_without_a_required_success_keeps_what_was_paid_when_a_budget_ends(
        self, model_server: ModelServer
    ) -> None:
        model_server.rule(None, sentiment())
        classify = classifier(model_server)
        one = (await classify.map(["text 0"])).cost_usd
        async with budget_scope(Budget(usd=one * 20)):
            outcomes = await parallel(
                *[classify(f"text {number}") for number in range(40)], require=0, concurrency=2
            )
        good = [outcome for outcome in outcomes if outcome.ok]
        assert 0 < len(good) < 40
        assert all(isinstance(one.error, CostBudgetExceeded) for one in outcomes if not one.ok)
        with pytest.raises(CostBudgetExceeded):
            async with budget_scope(Budget(usd="0.000001")):
                await parallel(classify("a"), classify("b"))


class TestProgress:
    async def test_progress_counts_rows_and_those_given_back(self, model_server: ModelServer) -> None:
        model_server.rule(lambda request: "bad" in request.prompt, Reply(fault=Fault.status(400)))
        model_server.rule(None, sentiment())
        classify, store, told = classifier(model_server), MemoryRunStore(), list[Progress]()
        table = await classify.map(["a", "b", "bad"], store=store, run_id="r", on_progress=told.append)
        last = told[-1]
        assert (last.noun, last.total, last.done, last.failed) == ("row", 3, 2, 1)
        assert (last.status, last.cost_usd, last.seconds_left) == ("finished", table.cost_usd, 0)
        again = list[Progress]()
        await classify.map(iter(["a", "b", "bad"]), store=store, run_id="r", on_progress=again.append)
        assert (again[-1].total, again[-1].done, again[-1].failed) == (None, 2, 1)
        assert again[-1].seconds_left is None

    async def test_a_pause_lets_the_rows_that_are_asked_end_and_the_run_goes_on_later(
        self, model_server: ModelServer
    ) -> None:
        model_server.rule(None, sentiment())
        classify, store = classifier(model_server), MemoryRunStore()
        rows = [f"text {number}" for number in range(200)]

        async def pause(event: object) -> None:
            if isinstance(event, RowEnded) and event.number == 3:
                await RunHistory(store).pause("r")

        table = await classify.map(rows, store=store, run_id="r", on_event=pause, concurrency=2)
        assert (table.status, table.reason_code) == ("paused", "pause_requested")
        assert 4 <= len(table) < 200
        assert all(row.ok for row in table)
        asked = len(model_server.ledger.entries)
        assert asked == len(table)
        summary = await RunHistory(store).summary("r")
        assert (summary.status, summary.pipeline) == ("paused", "classify.map")
        table = await classify.map(rows[:50], store=store, run_id="r")
        assert len(table) == 50
        assert len(model_server.ledger.entries) == max(50, asked)


@pytest.mark.parametrize("of", ["memory", "sqlite"])
async def test_runs_of_rows_are_purged_each_by_its_own_status(of: str, tmp_path: Path) -> None:
    @step
    async def check(ctx: StepContext) -> str:
        if ctx.get_input("row") == "bad":
            raise ValueError("bad")
        return "good"

    store = MemoryRunStore() if of == "memory" else SQLiteRunStore(tmp_path / "runs.db")
    await Pipeline("p", {"check": check}).map([{"row": "good"}, {"row": "bad"}], store=store, run_id="r")
    history = RunHistory(store)
    states = {run.run_id: run.status for run in await history.list()}
    assert sorted(states.values()) == ["failed", "finished", "finished"]
    doomed = {run_id for run_id, status in states.items() if status == "finished"}
    for is_dry in (True, False):
        assert set(await history.purge(timedelta(0), status="finished", dry_run=is_dry)) == doomed
    assert [run.status for run in await history.list()] == ["failed"]
    await store.aclose()


async def test_rows_that_a_dead_process_left_are_purged_and_those_of_runs_stay(classify: Any) -> None:
    store = MemoryRunStore()
    await classify.map(["good"], store=store, run_id="r", record_rows=True)
    for epoch, at in (("a" * 32, 0), ("b" * 32, 1e12)):
        await store.append(f"rows:gone:{epoch}", [with_checksum(b'{"at":%d,"rows":[]}' % at)], revision=0)
    await RunHistory(store).purge(timedelta(days=1))
    epoch = (await read_header(store, "r")).header.epoch
    left = [one.key async for one in keys_with(store, "rows:")]
    assert left == [f"rows:gone:{'b' * 32}", f"rows:r:{epoch}"]


async def test_the_rows_on_record_are_those_of_the_first_call(
    classify: Any, model_server: ModelServer
) -> None:
    store = MemoryRunStore()
    with pytest.raises(ConfigurationError, match=r"a store that keeps the rows"):
        await classify.map(["good"], record_rows=True)
    for _ in range(2):
        table = await classify.map(["good", "fine"], store=store, run_id="r", record_rows=True)
        assert [row.inputs["text"] for row in table] == ["good", "fine"]
    with pytest.raises(ConfigurationError, match="the 2 rows that this run has on record"):
        await classify.map(["good"], store=store, run_id="r", record_rows=True)
    with pytest.raises(ConfigurationError, match="record_rows=False: expected True"):
        await classify.map(["good"], store=store, run_id="r")
    assert len(await classify.row_runs.table("r", store=store)) == 2
    await classify.map(["good"], store=store, run_id="plain")
    with pytest.raises(ConfigurationError, match="a run whose rows are on record"):
        await classify.row_runs.resume("plain", store=store)
    assert len(model_server.ledger.entries) == 3


async def test_the_table_on_record_counts_what_the_runs_of_rows_have_spent(classify: Any) -> None:
    @flow
    async def labels(text: str) -> str:
        label: str = (await classify(text)).label
        return label

    store = MemoryRunStore()
    table = await labels.map(["good", "fine"], store=store, run_id="r", record_rows=True)
    again = await labels.row_runs.table("r", store=store)
    assert again.usage == table.usage
    assert again.cost_usd == sum((row.cost_usd for row in table), Decimal(0)) > 0


async def test_rows_that_nobody_can_write_down_fail_alone(classify: Any) -> None:
    nested: list[Any] = []
    for _ in range(3000):
        nested = [nested]
    table = await classify.map([{"text": nested}, {"text": "good"}], concurrency=10**9)
    assert [row.failure is None for row in table] == [False, True]
    table = await classify.map(["good"], inputs=lambda row: row)
    assert "inputs= made" in table[0].failure.message


async def test_rows_of_a_flow_may_leave_out_its_variadic_arguments() -> None:
    @flow
    async def count(text: str, *words: str, **notes: str) -> int:
        return len(words) + len(notes)

    table = await count.map(["one", {"text": "two", "words": ["a", "b"]}])
    assert table.outputs == [0, 2]
