"""What users' data goes through on its way to the store."""

import asyncio
from base64 import b64decode
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pydantic import JsonValue
from support.run_logs import Log, failure

from fastroai import Edge, Graph, Node
from fastroai.errors import RunStoreUnavailable, StepExecutionError
from fastroai.pipelines import Pipeline, PipelineConfig, StepConfig, StepContext, step
from fastroai.runtime.facts import (
    AnyFact,
    RequestEnded,
    RequestSent,
    RunFinished,
    SpendingRecorded,
    StepCancelled,
    StepRetried,
)
from fastroai.store import MemoryRunStore, RunHistory, RunTrace, SQLiteRunStore
from fastroai.store.record.entries import (
    encode_entry,
)
from fastroai.store.record.payloads import PayloadCodec, is_sealed, seal, seal_text, unseal, unseal_text
from fastroai.store.record.unsealing import seal_texts, unseal_texts


class Backwards:
    def encode(self, payload: bytes) -> bytes:
        return payload[::-1]

    def decode(self, payload: bytes) -> bytes:
        return payload[::-1]


class Redacted(Backwards):
    def encode(self, payload: bytes) -> bytes:
        return b'"***"'

    def decode(self, payload: bytes) -> bytes:
        return payload


@pytest.mark.parametrize("value", [None, 1.5, "é", [1, {"a": None}], {"$sealed": "by a user"}, float("inf")])
def test_what_was_sealed_is_unsealed_as_it_was(value: JsonValue) -> None:
    stored = seal(value, Backwards())
    assert is_sealed(stored)
    assert unseal(stored, Backwards()) == value


def test_a_codec_gets_json_text_and_what_it_gives_is_stored() -> None:
    stored = seal({"a": [1, 2]}, Backwards())
    assert isinstance(stored, dict)
    assert b64decode(str(stored["$sealed"])) == b'{"a":[1,2]}'[::-1]


def test_what_a_codec_redacts_stays_so() -> None:
    assert unseal(seal("secret", Redacted()), Redacted()) == "***"


def test_without_a_codec_values_are_stored_as_they_are() -> None:
    assert seal([1], None) == [1]
    assert unseal([1], None) == [1]


def test_what_is_sealed_stays_so_where_there_is_no_codec() -> None:
    sealed, text = seal("secret", Backwards()), seal_text("secret", Backwards())
    assert (unseal(sealed, None), unseal_text(text, None)) == (sealed, text)


LOOK_LIKE_ENVELOPES: list[JsonValue] = [
    {"$sealed": "InlOT2E="},
    {"$sealed": 5},
    {"$sealed": "x", "more": 1},
    {"$plain": 1},
    {"$plain": {"$sealed": "x"}},
    {"$plain": {"$plain": {}}},
]


@pytest.mark.parametrize("value", [{"a": 1}, *LOOK_LIKE_ENVELOPES])
@pytest.mark.parametrize("later", [None, Backwards()])
def test_what_was_stored_without_a_codec_comes_back_as_it_is_with_and_without_one(
    value: JsonValue, later: PayloadCodec | None
) -> None:
    stored = seal(value, None)
    assert not is_sealed(stored)
    assert unseal(stored, later) == value


@pytest.mark.parametrize("text", ["", "boom", "$sealed:InlOT2E=", "$plain:x", "$plain:$sealed:x"])
@pytest.mark.parametrize("later", [None, Backwards()])
def test_a_message_that_was_stored_without_a_codec_comes_back_as_it_is(
    text: str, later: PayloadCodec | None
) -> None:
    assert unseal_text(seal_text(text, None), later) == text


def outputs_in(trace: RunTrace) -> dict[str, object]:
    return {summary.step: summary.output for summary in trace.steps}


@pytest.mark.parametrize("value", LOOK_LIKE_ENVELOPES)
async def test_a_run_with_values_that_look_like_envelopes_is_resumed_shown_and_replayed(
    value: dict[str, JsonValue],
) -> None:
    store, mended = MemoryRunStore(), list[int]()

    @step
    async def extract(ctx: StepContext[object]) -> dict[str, JsonValue]:
        return value

    @step
    async def keep(ctx: StepContext[object]) -> JsonValue:
        return await ctx.once("keep", lambda: ctx.get_dependency("extract"))

    @step
    async def book(ctx: StepContext[object]) -> str:
        if not mended:
            raise ConnectionError(f"$sealed:{ctx.get_dependency('keep')}")
        return "booked"

    pipeline: Pipeline[Any, Any, str] = Pipeline(
        "p", {"extract": extract, "keep": keep, "book": book}, {"keep": ["extract"], "book": ["keep"]}
    )
    with pytest.raises(StepExecutionError):
        await pipeline.execute({"form": value}, run_id="r", store=store)
    assert f"ConnectionError: $sealed:{value}" in (await store.trace("r")).explain()
    mended.append(1)
    result = await pipeline.resume("r", store=store)
    assert result.step_outputs["extract"] == result.step_outputs["keep"] == value
    trace = await store.trace("r")
    for one in (trace, result.trace, RunTrace.from_json(trace.to_json())):
        assert one.inputs == {"form": value}
        assert outputs_in(one)["extract"] == outputs_in(one)["keep"] == value
        assert pipeline.replay(one) is None


@pytest.mark.parametrize("kept", [False, True])
async def test_a_graph_with_values_that_look_like_envelopes_is_resumed_and_replayed(kept: bool) -> None:
    value: dict[str, JsonValue] = {"$sealed": "a form says so"}
    mended = list[int]()

    @step
    async def write(ctx: StepContext[object]) -> dict[str, int]:
        ctx.write("x", value)
        return {"y": 1}

    @step(retries=0)
    async def read(ctx: StepContext[object]) -> JsonValue:
        if kept and not mended:
            raise ConnectionError("down")
        return ctx.get_input("x", dict)

    graph = Graph(
        "g", nodes={"write": Node(write, writes=["x", "y"]), "read": read}, edges=[Edge("write", "read")]
    )
    store = MemoryRunStore() if kept else None
    result = await graph.run({"form": value}, run_id="r", store=store)
    if kept:
        assert result.status == "failed"
        mended.append(1)
        result = await graph.resume("r", store=store)
    assert (result.status, result.output) == ("finished", value)
    assert result.trace.inputs == {"form": value}
    assert graph.replay(result.trace) is None


class Xor(Backwards):
    def encode(self, payload: bytes) -> bytes:
        return bytes(byte ^ 0x5A for byte in payload)

    decode = encode


async def test_why_a_branch_was_cancelled_goes_through_the_codec(tmp_path: Path) -> None:
    """The reason quotes the failure of another branch."""
    store, started = SQLiteRunStore(tmp_path / "runs.db"), asyncio.Event()

    @step
    async def fine(ctx: StepContext[object]) -> str:
        return "x"

    @step
    async def fails(ctx: StepContext[object]) -> str:
        await started.wait()
        raise ValueError("no account for SECRET")

    @step
    async def waits(ctx: StepContext[object]) -> str:
        started.set()
        await asyncio.Event().wait()
        return "x"

    edges = [("a", "fails"), ("a", "waits"), ("fails", "join"), ("waits", "join")]
    graph = Graph(
        "g",
        nodes={"a": fine, "fails": fails, "waits": waits, "join": fine},
        edges=[Edge(a, b, "on_success") for a, b in edges],
        config=PipelineConfig(store=store, codec=Xor(), retries=0),
    )
    assert (await graph.run({}, run_id="r")).status == "failed"
    assert b"SECRET" not in stored_in(tmp_path)
    cancelled = [
        entry
        for entry in (await RunHistory(store, codec=Xor()).trace("r")).entries
        if isinstance(entry, StepCancelled)
    ]
    assert ["SECRET" in entry.cause for entry in cancelled] == [True]
    await store.aclose()


def test_codecs_need_no_base_class() -> None:
    assert isinstance(Backwards(), PayloadCodec)
    assert not isinstance(object(), PayloadCodec)


class Broken(Backwards):
    def encode(self, payload: bytes) -> bytes:
        if payload.startswith(b"{"):  # of a definition, before anything has happened
            return super().encode(payload)
        raise OSError("no keys")


class Wordy(Backwards):
    def encode(self, payload: bytes) -> bytes:
        return super().encode(payload) if payload.startswith(b"{") else "text"  # type: ignore[return-value]


@pytest.mark.parametrize(
    ("codec", "said"), [(Broken(), "OSError: no keys"), (Wordy(), "encode returned a str, not bytes")]
)
async def test_a_codec_that_fails_stops_the_run_which_can_be_resumed(codec: PayloadCodec, said: str) -> None:
    store, ran = MemoryRunStore(), list[int]()

    @step(retries=3, retry_delay=0)
    async def work(ctx: StepContext[object]) -> int:
        ran.append(1)
        return 1

    def pipeline(codec: PayloadCodec) -> Pipeline[Any, Any, int]:
        return Pipeline("p", {"work": work}, config=PipelineConfig(store=store, codec=codec))

    with pytest.raises(RunStoreUnavailable, match=said):
        await pipeline(codec).execute(run_id="r")
    assert ran == [1], "it is not tried again: what it has done cannot be kept"
    assert (await pipeline(Backwards()).resume("r")).output == 1


def stored_in(folder: Path) -> bytes:
    """All that is in the files of a store."""
    return b"".join(path.read_bytes() for path in folder.iterdir())


@pytest.mark.parametrize("codec", [Backwards(), None])
async def test_what_exceptions_quote_goes_through_the_codec(
    tmp_path: Path, codec: PayloadCodec | None
) -> None:
    store, mended = SQLiteRunStore(tmp_path / "runs.db"), list[int]()

    @step(retries=1, retry_delay=0)
    async def read(ctx: StepContext[object]) -> int:
        raise LookupError("no page on SECRET")

    @step
    async def check(ctx: StepContext[object]) -> int:
        return 1 if mended else "SECRET"  # type: ignore[return-value]

    pipeline: Pipeline[Any, Any, int] = Pipeline(
        "p",
        {"read": read, "check": check},
        output_step="check",
        config=PipelineConfig(store=store, codec=codec, max_concurrency=1),
        step_configs={"read": StepConfig(on_error="continue")},
    )
    with pytest.raises(StepExecutionError, match="SECRET"):
        await pipeline.execute(run_id="r")
    raw = stored_in(tmp_path)
    assert (b"SECRET" in raw) == (codec is None)
    assert b"LookupError" in raw, "the type is told"
    history = RunHistory(store, codec=codec)
    failures = [attempt.failure for attempt in (await history.trace("r")).failures()]
    assert ["SECRET" in failure.message for failure in failures if failure] == [True, True, True]
    for known in (await history.summary("r"), *await history.list()):
        assert known.error is not None
        assert "SECRET" in known.error
        assert known.error.startswith("fastroai.errors.StepExecutionError: step 'check'")
    if codec is not None:
        assert "SECRET" not in str((await RunHistory(store).summary("r")).error)
        assert "SECRET" not in (await store.trace("r")).explain()
    mended.append(1)
    result = await pipeline.resume("r")
    assert result.output == 1
    failures = [attempt.failure for attempt in result.trace.failures()]
    assert ["SECRET" in failure.message for failure in failures if failure] == [True] * 5
    await store.aclose()


@pytest.mark.parametrize("kind", [RequestSent, RequestEnded, SpendingRecorded, StepRetried, RunFinished])
def test_a_message_goes_through_the_codec_and_comes_back_in_every_kind_of_entry(kind: type[AnyFact]) -> None:
    entries = (
        Log()
        .call_retry("a@1")
        .request("a@1")
        .spend("a@1", "1")
        .end("failed", failure("no connection"))
        .entries
    )
    entry = next(entry for entry in entries if isinstance(entry, kind))
    if isinstance(entry, RequestSent | RequestEnded | SpendingRecorded):
        entry = replace(entry, record=replace(entry.record, error="no connection"))
    sealed = seal_texts(entry, Backwards())
    assert b"no connection" in encode_entry(entry)
    assert b"no connection" not in encode_entry(sealed)
    assert unseal_texts(sealed, Backwards()) == entry
    assert unseal_texts(sealed, None) == sealed
    assert seal_texts(entry, None) == entry


@pytest.mark.parametrize("codec", [Redacted(), Broken()])
async def test_what_could_not_be_found_again_under_its_name_is_not_done(codec: PayloadCodec) -> None:
    class Given(Backwards):
        def encode(self, payload: bytes) -> bytes:
            return (codec if payload == b'"pay SECRET"' else super()).encode(payload)

        def decode(self, payload: bytes) -> bytes:
            return payload if payload == b'"***"' else super().decode(payload)

    done = list[str]()

    @step(retries=3, retry_delay=0)
    async def pay(ctx: StepContext[object]) -> int:
        await ctx.once("pay SECRET", lambda: done.append("paid"))
        return 1

    pipeline: Pipeline[Any, Any, int] = Pipeline("p", {"pay": pay})
    sealed: Pipeline[Any, Any, int] = Pipeline("p", {"pay": pay}, config=PipelineConfig(codec=Given()))
    store = MemoryRunStore()
    with pytest.raises(RunStoreUnavailable, match="decode does not return the name|no keys"):
        await sealed.execute(run_id="r", store=store)
    assert done == []
    assert (await RunHistory(store, codec=Given()).summary("r")).status != "finished"
    assert (await pipeline.execute(run_id="s", store=store)).output == 1
    assert done == ["paid"]


def test_a_message_that_the_codec_cannot_encode_is_left_out_and_fails_nothing() -> None:
    assert seal_text("SECRET", Broken()) == "this text is not stored, because the codec failed"


def test_a_message_that_the_codec_cannot_decode_is_shown_as_it_is_stored() -> None:
    class Lost(Backwards):
        def decode(self, payload: bytes) -> bytes:
            raise OSError("no keys")

    class Other(Backwards):
        def decode(self, payload: bytes) -> bytes:
            return b'["redacted"]'

    sealed = seal_text("SECRET", Backwards())
    assert unseal_text(sealed, Lost()) == sealed
    assert unseal_text("stored before there was a codec", Backwards()) == "stored before there was a codec"
    assert unseal_text(sealed, Other()) == "['redacted']"
