"""Codecs, which encrypt or redact the data of users before it is stored."""

from __future__ import annotations

import re
from base64 import b64decode, b64encode
from typing import Final, Protocol, runtime_checkable

from pydantic import JsonValue
from pydantic_core import from_json, to_json

from fastroai.errors import ConfigurationError, RunStoreUnavailable

# A value that went through a codec is stored as {"$sealed": ...}, any other value as it is. A value that
# looks like such an envelope is wrapped in {"$plain": ...}, so no value of a user is ever taken for an
# envelope.
_SEALED: Final = "$sealed"
_PLAIN: Final = "$plain"
_SEALED_TEXT: Final = f"{_SEALED}:"
_PLAIN_TEXT: Final = f"{_PLAIN}:"
_SEALED_WITHIN: Final = re.compile(re.escape(_SEALED_TEXT) + "[A-Za-z0-9+/=]+")
OUTLINE: Final = ("name", "kind", "version")
"""Fields of a definition that can always be read, besides the ids of its steps."""
_MEND: Final = "mend the codec, without which nothing is stored"
_OTHER: Final = "give the codec, with the keys, that the run was stored with"


@runtime_checkable
class PayloadCodec(Protocol):
    """Encodes values, texts and names of users before they are stored, and decodes them again.

    You give it as `PipelineConfig(codec=...)`, and wherever else runs are read or written. `EncryptingCodec`
    is one; a class of your own needs these two methods and no base class. Payloads are JSON text. A codec
    that redacts may return other values from `decode`. Only names by which a run finds its own record, such
    as the names of `ctx.once`, must come back unchanged. Both methods are called on the event loop, so they
    must not block. If `encode` raises, the run stops with `RunStoreUnavailable`, because nothing is stored
    without the codec. If `decode` raises, reading or resuming the run raises `RunCorrupt`.
    """

    def encode(self, payload: bytes) -> bytes:
        """Return the bytes to store instead of `payload`, which is JSON text in UTF-8.

        Any exception stops the run with `RunStoreUnavailable`.
        """
        ...

    def decode(self, payload: bytes) -> bytes:
        """Return the JSON text, in UTF-8, of a payload that `encode` has returned.

        After any exception, or if the result is not JSON, the run cannot be read: that raises `RunCorrupt`.
        """
        ...


def check_codec(codec: object) -> None:
    """Refuse an object that is neither a codec nor `None`.

    Raises:
        ConfigurationError: the object is neither.
    """
    if codec is not None and not isinstance(codec, PayloadCodec):
        raise ConfigurationError("codec", codec, "an object with encode(bytes) and decode(bytes)")


def seal(value: JsonValue, codec: PayloadCodec | None) -> JsonValue:
    """Return a value as it is stored.

    Raises:
        RunStoreUnavailable: the codec fails. It stops the run, as a failing store does.
    """
    if codec is None:
        return {_PLAIN: value} if _opened(value)[0] else value
    return {_SEALED: b64encode(_encoded(value, codec)).decode()}


def _encoded(value: JsonValue, codec: PayloadCodec) -> bytes:
    try:
        encoded: object = codec.encode(to_json(value, inf_nan_mode="constants"))
    except Exception as error:  # a codec of a user can raise anything
        raise RunStoreUnavailable(repr(codec), f"{type(error).__name__}: {error}", _MEND) from error
    if not isinstance(encoded, bytes):
        reason = f"encode returned a {type(encoded).__name__}, not bytes"
        raise RunStoreUnavailable(repr(codec), reason, _MEND)
    return encoded


def seal_text(text: str, codec: PayloadCodec | None) -> str:
    """Return a text as it is stored.

    If the codec fails, return a substitute, because reporting a failure must not fail.
    """
    try:
        return _sealed_text(text, codec)
    except RunStoreUnavailable:
        return "this text is not stored, because the codec failed"


def unseal_text(stored: str, codec: PayloadCodec | None) -> str:
    """Return a text as it was before it was sealed.

    A text that was not sealed, or that cannot be decoded, is returned as it is stored.
    """
    try:
        return unseal_name(stored, codec)
    except RunStoreUnavailable:
        return stored


def seal_name(name: str, codec: PayloadCodec | None) -> str:
    """Return a name as it is stored, by which a run finds its own record again.

    Raises:
        RunStoreUnavailable: the codec fails, or would decode the name to another one, so that work done under
            it would be done again.
    """
    sealed = _sealed_text(name, codec)
    if unseal_name(sealed, codec) != name:
        reason = f"decode does not return the name {name!r} that encode got, so its record would be lost"
        raise RunStoreUnavailable(repr(codec), reason, _MEND)
    return sealed


def unseal_name(stored: str, codec: PayloadCodec | None) -> str:
    """Return a name as it was; if it was sealed and there is no codec, as it is stored.

    Raises:
        RunStoreUnavailable: the codec cannot decode it.
    """
    if stored.startswith(_PLAIN_TEXT):
        return stored.removeprefix(_PLAIN_TEXT)
    if codec is None or not stored.startswith(_SEALED_TEXT):
        return stored
    name = _decoded(stored.removeprefix(_SEALED_TEXT), codec)
    return name if isinstance(name, str) else str(name)


def _sealed_text(text: str, codec: PayloadCodec | None) -> str:
    if codec is None:
        return f"{_PLAIN_TEXT}{text}" if text.startswith((_SEALED_TEXT, _PLAIN_TEXT)) else text
    return _SEALED_TEXT + b64encode(_encoded(text, codec)).decode()


def masked(text: str) -> str:
    """Return a text for people, with `(sealed)` in place of texts that are still sealed."""
    return _SEALED_WITHIN.sub("(sealed)", text)


def seal_definition(definition: JsonValue, codec: PayloadCodec | None) -> JsonValue:
    """Return the definition of a pipeline or graph as it is stored: its outline can be read without a codec.

    Raises:
        RunStoreUnavailable: the codec fails.
    """
    if codec is None or not isinstance(definition, dict):
        return definition
    steps = definition.get("steps")
    outline: dict[str, JsonValue] = {name: definition[name] for name in OUTLINE if name in definition}
    outline["steps"] = {step_id: {} for step_id in steps} if isinstance(steps, dict) else {}
    return {**outline, _SEALED: b64encode(_encoded(definition, codec)).decode()}


def unseal_definition(stored: JsonValue, codec: PayloadCodec | None) -> JsonValue:
    """Return a definition as it was; if it was sealed and there is no codec, its outline.

    Raises:
        RunStoreUnavailable: the codec cannot decode it.
    """
    if codec is None or not is_sealed_definition(stored):
        return stored
    assert isinstance(stored, dict)
    return _decoded(str(stored[_SEALED]), codec)


def is_sealed_definition(stored: JsonValue) -> bool:
    """Return whether a definition was sealed, and with it everything else of its run."""
    return isinstance(stored, dict) and _SEALED in stored


def is_sealed(stored: JsonValue) -> bool:
    """Return whether a stored value went through a codec."""
    return _opened(stored)[0] == _SEALED


def unseal(stored: JsonValue, codec: PayloadCodec | None) -> JsonValue:
    """Return a value as it was; if it was sealed and there is no codec, as it is stored.

    Raises:
        RunStoreUnavailable: the codec cannot decode it.
    """
    mark, content = _opened(stored)
    if mark != _SEALED:
        return content
    if codec is None:
        return stored
    return _decoded(str(content), codec)


def _decoded(sealed: str, codec: PayloadCodec) -> JsonValue:
    try:
        value: JsonValue = from_json(codec.decode(b64decode(sealed)))
    except Exception as error:  # a codec of a user can raise anything
        raise RunStoreUnavailable(repr(codec), f"{type(error).__name__}: {error}", _OTHER) from error
    return value


def _opened(value: JsonValue) -> tuple[str, JsonValue]:
    """Return the mark and the content of an envelope; for other values, no mark and the value itself."""
    if isinstance(value, dict) and len(value) == 1:
        ((mark, content),) = value.items()
        if mark in (_SEALED, _PLAIN):
            return mark, content
    return "", value
