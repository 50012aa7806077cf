"""What users' data goes through on its way to the store: a codec of theirs, that encrypts or redacts."""

from __future__ import annotations

from base64 import b64decode, b64encode
from typing import Final, Protocol, runtime_checkable

from pydantic import JsonValue
from pydantic_core import from_json, to_json

from fastroai.errors import ConfigurationError, RunStoreUnavailable

# A value that went through a codec is stored as {"$sealed": ...}, any other as it is. A value that looks like
# an envelope gets one of its own, {"$plain": ...}, so no value of a user is ever taken for an envelope.
_SEALED: Final = "$sealed"
_PLAIN: Final = "$plain"
_SEALED_TEXT: Final = f"{_SEALED}:"
_PLAIN_TEXT: Final = f"{_PLAIN}:"
_MEND = "mend the codec, without which nothing is stored"


@runtime_checkable
class PayloadCodec(Protocol):
    """Changes inputs, outputs, responses and tool results before they reach the store, and back.

    They are given and taken as JSON text. What `decode` gives need not be what `encode` was given: a codec
    that redacts leaves it so. Both are called on the event loop, so they must not block.

        class Encrypted:
            def encode(self, payload: bytes) -> bytes:
                return fernet.encrypt(payload)

            def decode(self, payload: bytes) -> bytes:
                return fernet.decrypt(payload)
    """

    def encode(self, payload: bytes) -> bytes:
        """What is stored instead of `payload`, which is JSON text."""
        ...

    def decode(self, payload: bytes) -> bytes:
        """JSON text again."""
        ...


def check_codec(codec: object) -> None:
    """Refuse what is neither a codec nor `None`.

    Raises:
        ConfigurationError: it is not.
    """
    if codec is not None and not isinstance(codec, PayloadCodec):
        raise ConfigurationError("codec", codec, "an object with encode(bytes) and decode(bytes)")


def seal(value: JsonValue, codec: PayloadCodec | None) -> JsonValue:
    """A value as it is stored.

    Raises:
        RunStoreUnavailable: the codec fails. It stops the run, as a store does that fails.
    """
    if codec is None:
        return {_PLAIN: value} if _opened(value)[0] else value
    return {_SEALED: b64encode(_encoded(value, codec)).decode()}


def _encoded(value: JsonValue, codec: PayloadCodec) -> bytes:
    try:
        encoded: object = codec.encode(to_json(value, inf_nan_mode="constants"))
    except Exception as error:  # whatever a codec of a user raises
        raise RunStoreUnavailable(repr(codec), f"{type(error).__name__}: {error}", _MEND) from error
    if not isinstance(encoded, bytes):
        reason = f"encode returned a {type(encoded).__name__}, not bytes"
        raise RunStoreUnavailable(repr(codec), reason, _MEND)
    return encoded


def seal_text(text: str, codec: PayloadCodec | None) -> str:
    """A text as it is stored; left out where the codec fails, for telling of a failure must not fail."""
    if codec is None:
        return f"{_PLAIN_TEXT}{text}" if text.startswith((_SEALED_TEXT, _PLAIN_TEXT)) else text
    try:
        return _SEALED_TEXT + b64encode(_encoded(text, codec)).decode()
    except RunStoreUnavailable:
        return "this text is not stored, because the codec failed"


def unseal_text(stored: str, codec: PayloadCodec | None) -> str:
    """A text as it was; as it is stored, where it was not sealed or cannot be decoded."""
    if stored.startswith(_PLAIN_TEXT):
        return stored.removeprefix(_PLAIN_TEXT)
    if codec is None or not stored.startswith(_SEALED_TEXT):
        return stored
    try:
        text: JsonValue = from_json(codec.decode(b64decode(stored.removeprefix(_SEALED_TEXT))))
    except Exception:  # whatever a codec of a user raises
        return stored
    return text if isinstance(text, str) else str(text)


def is_sealed(stored: JsonValue) -> bool:
    """Whether a stored value went through a codec."""
    return _opened(stored)[0] == _SEALED


def unseal(stored: JsonValue, codec: PayloadCodec | None) -> JsonValue:
    """A value as it was; as it is stored, where it was sealed and there is no codec."""
    mark, content = _opened(stored)
    if mark != _SEALED:
        return content
    if codec is None:
        return stored
    value: JsonValue = from_json(codec.decode(b64decode(str(content))))
    return value


def _opened(value: JsonValue) -> tuple[str, JsonValue]:
    """Return the mark and the content of an envelope; for other values, no mark and the value itself."""
    if isinstance(value, dict) and len(value) == 1:
        ((mark, content),) = value.items()
        if mark in (_SEALED, _PLAIN):
            return mark, content
    return "", value
