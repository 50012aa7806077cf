"""A codec that encrypts: AES-GCM, with keys that can be replaced."""

from __future__ import annotations

import secrets
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Mapping
from typing import Final

from fastroai.errors import ConfigurationError, MissingExtraError

# An encrypted payload consists of the mark, the length of the key id in one byte, the key id, the nonce, and
# the output of AES-GCM. AES-GCM also authenticates everything before the nonce.
_MARK: Final = b"fa1"
_KEY_BYTES: Final = 32
_NONCE_BYTES: Final = 12  # the size for which AES-GCM is specified (NIST SP 800-38D, 8.2)
_LONGEST_ID: Final = 255


class EncryptingCodec:
    """A codec that encrypts what a store of runs keeps of your data. Needs the extra `crypto`.

        codec = EncryptingCodec({"2026-11": os.environ["RUNS_KEY"]})
        pipeline = Pipeline(..., config=PipelineConfig(store=store, codec=codec))

    Values, texts and names of users are encrypted with AES-256-GCM, which also notices changes to them. Ids
    of runs, names of steps and pipelines, tags, times and costs stay readable.

    The first key encrypts. Each payload has the id of its key with it, so the other keys still decrypt older
    payloads. To replace a key, put a new one in front, and keep the old one until its runs are deleted.

    Nonces are random, so replace a key before it has encrypted 2**32 payloads (NIST SP 800-38D, 8.3).
    """

    def __init__(self, keys: Mapping[str, str | bytes]) -> None:
        """Make a codec from keys by their ids. The first key is the one that encrypts.

        Args:
            keys: Each is 32 bytes, or the text that `new_key` returns. Ids are stored with the payloads and
                can be read there: 1 to 255 bytes of UTF-8.

        Raises:
            ConfigurationError: there is no key, or an id or a key is invalid. No key is in the error.
            MissingExtraError: `cryptography` is not installed (the extra `crypto`).
        """
        try:
            from cryptography.exceptions import InvalidTag
            from cryptography.hazmat.primitives.ciphers.aead import AESGCM
        except ImportError as error:
            raise MissingExtraError("EncryptingCodec", "crypto", "cryptography") from error
        if not isinstance(keys, Mapping) or not keys:
            raise ConfigurationError("keys", "(not shown)", "a mapping of ids to keys, at least one")
        self._wrong_key = InvalidTag
        self._ciphers = {_checked_id(key_id): AESGCM(_key_of(key_id, key)) for key_id, key in keys.items()}
        self._header = _header_of(next(iter(self._ciphers)))

    def __repr__(self) -> str:
        return f"<EncryptingCodec with keys {', '.join(map(repr, self._ciphers))}>"

    @staticmethod
    def new_key() -> str:
        """Return a new random key: 32 bytes, as URL-safe Base64 text for an environment variable.

        The key is not stored: keep it, because nothing can be decrypted without it.
        """
        return urlsafe_b64encode(secrets.token_bytes(_KEY_BYTES)).decode()

    def encode(self, payload: bytes) -> bytes:
        """Return the payload, encrypted with the first key. `decode` of a codec with this key reverses it.

        The result has the id of the key in plain text. Each call uses a new random nonce, so the same payload
        gives different bytes each time.
        """
        nonce = secrets.token_bytes(_NONCE_BYTES)
        cipher = next(iter(self._ciphers.values()))
        return self._header + nonce + cipher.encrypt(nonce, payload, self._header)

    def decode(self, payload: bytes) -> bytes:
        """Return a payload of `encode` as it was before, decrypted with the key whose id is stored with it.

        Raises:
            ConfigurationError: the codec does not have the key of the payload, or has another key under its
                id; or the payload was changed, or another codec made it. Reading a run raises `RunCorrupt`
                from it.
        """
        start = len(_MARK) + 1
        if not payload.startswith(_MARK) or len(payload) < start:
            raise self._unreadable(
                "the codec with which the runs were stored; this one did not encrypt the value"
            )
        end = start + payload[start - 1]
        header, rest = payload[:end], payload[end:]
        key_id = header[start:].decode(errors="replace")
        if key_id not in self._ciphers:
            raise self._unreadable(f"the key {key_id!r} too, which encrypted the value")
        try:
            return self._ciphers[key_id].decrypt(rest[:_NONCE_BYTES], rest[_NONCE_BYTES:], header)
        except (self._wrong_key, ValueError) as error:
            expected = (
                f"the key {key_id!r} that encrypted the value; this is another key, or the value was changed"
            )
            raise self._unreadable(expected) from error

    def _unreadable(self, expected: str) -> ConfigurationError:
        return ConfigurationError("keys", list(self._ciphers), expected)


def _header_of(key_id: str) -> bytes:
    encoded = key_id.encode()
    return _MARK + bytes([len(encoded)]) + encoded


def _checked_id(key_id: object) -> str:
    try:
        is_valid = isinstance(key_id, str) and 0 < len(key_id.encode()) <= _LONGEST_ID
    except UnicodeEncodeError:
        is_valid = False
    if not isinstance(key_id, str) or not is_valid:
        raise ConfigurationError("keys", key_id, f"ids of 1 to {_LONGEST_ID} bytes of UTF-8")
    return key_id


def _key_of(key_id: str, key: object) -> bytes:
    try:
        given = urlsafe_b64decode(key) if isinstance(key, str) else key
    except ValueError:
        given = None
    if not isinstance(given, bytes) or len(given) != _KEY_BYTES:
        expected = f"a key of {_KEY_BYTES} bytes, or a text that EncryptingCodec.new_key() has returned"
        raise ConfigurationError(f"keys[{key_id!r}]", "(not shown)", expected)
    return given
