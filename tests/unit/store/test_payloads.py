"""What users' data goes through on its way to the store."""

from base64 import b64decode
from typing import Any

import pytest
from pydantic import JsonValue

from fastroai.errors import ConfigurationError, RunStoreUnavailable
from fastroai.pipelines import Pipeline, PipelineConfig, StepContext, step
from fastroai.store import MemoryRunStore
from fastroai.store.payloads import PayloadCodec, is_sealed, seal, unseal


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


def test_a_path_is_no_store_and_the_error_says_which_is() -> None:
    with pytest.raises(ConfigurationError, match=r"SQLiteRunStore\('runs.db'\)"):
        PipelineConfig(store="runs.db")
