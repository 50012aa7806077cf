"""What users' data goes through on its way to the store."""

from base64 import b64decode

import pytest
from pydantic import JsonValue

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
