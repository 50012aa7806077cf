"""What users' data goes through on its way to the store."""

from base64 import b64decode
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pydantic import JsonValue
from support.run_logs import Log, failure

from fastroai.errors import ConfigurationError, RunStoreUnavailable, StepExecutionError
from fastroai.pipelines import Pipeline, PipelineConfig, StepConfig, StepContext, step
from fastroai.runtime.facts import (
    AnyFact,
    RequestEnded,
    RequestSent,
    RunFinished,
    SpendingRecorded,
    StepRetried,
)
from fastroai.store import MemoryRunStore, RunHistory, SQLiteRunStore
from fastroai.store.entries import (
    encode_entry,
)
from fastroai.store.payloads import PayloadCodec, is_sealed, seal, seal_text, unseal, unseal_text
from fastroai.store.unsealing import seal_messages, unseal_messages


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
    assert unseal({"$sealed": "x"}, None) == {"$sealed": "x"}


def test_what_was_stored_before_there_was_a_codec_is_left_as_it_is() -> None:
    assert unseal({"a": 1}, Backwards()) == {"a": 1}
    assert unseal({"$sealed": "x", "more": 1}, Backwards()) == {"$sealed": "x", "more": 1}


def test_codecs_need_no_base_class() -> None:
    assert isinstance(Backwards(), PayloadCodec)
    assert not isinstance(object(), PayloadCodec)


class Broken(Backwards):
    def encode(self, payload: bytes) -> bytes:
        raise OSError("no keys")


class Wordy(Backwards):
    def encode(self, payload: bytes) -> bytes:
        return "text"  # type: ignore[return-value]


@pytest.mark.parametrize(
    ("codec", "said"), [(Broken(), "OSError: no keys"), (Wordy(), "encode returned a str, not bytes")]
)
async def test_a_codec_that_fails_stops_the_run_which_can_be_resumed(codec: PayloadCodec, said: str) -> None:
    store, ran = MemoryRunStore(), list[int]()

    @step(retries=3, retry_delay=0)
    async def work(ctx: StepContext[object]) -> int:
        ran.append(1)
        return 1

    def pipeline(codec: PayloadCodec) -> Pipeline[Any, int]:
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

    pipeline: Pipeline[Any, int] = Pipeline(
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
    sealed = seal_messages(entry, Backwards())
    assert b"no connection" in encode_entry(entry)
    assert b"no connection" not in encode_entry(sealed)
    assert unseal_messages(sealed, Backwards()) == entry
    assert unseal_messages(sealed, None) == sealed
    assert seal_messages(entry, None) == entry


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


def test_a_path_is_no_store_and_the_error_says_which_is() -> None:
    with pytest.raises(ConfigurationError, match=r"SQLiteRunStore\('runs.db'\)"):
        PipelineConfig(store="runs.db")
