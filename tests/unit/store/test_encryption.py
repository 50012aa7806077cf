"""The codec that encrypts."""

from __future__ import annotations

import builtins
from collections.abc import Callable
from typing import Any

import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from hypothesis import given
from hypothesis import strategies as st

from fastroai import (
    Edge,
    Graph,
    Inbox,
    Pipeline,
    PipelineConfig,
    RunHistory,
    StepContext,
    send_message,
    step,
)
from fastroai.errors import ConfigurationError, MissingExtraError, RunCorrupt
from fastroai.store import EncryptingCodec, MemoryRunStore
from fastroai.store.record.payloads import PayloadCodec

KEY, OTHER = EncryptingCodec.new_key(), EncryptingCodec.new_key()


@given(st.binary(), st.text(st.characters(codec="utf-8"), min_size=1, max_size=60))
def test_what_was_encrypted_is_decrypted_and_cannot_be_read_meanwhile(payload: bytes, key_id: str) -> None:
    codec = EncryptingCodec({key_id: KEY})
    encrypted = codec.encode(payload)
    assert EncryptingCodec({key_id: KEY}).decode(encrypted) == payload
    assert len(payload) < 4 or payload not in encrypted
    assert codec.encode(payload) != encrypted, "equal payloads cannot be told to be equal"
    assert isinstance(codec, PayloadCodec)


def test_what_is_stored_is_aes_gcm_with_the_id_of_the_key_authenticated() -> None:
    encrypted = EncryptingCodec({"ab": bytes(range(32))}).encode(b"payload")
    header, nonce, rest = encrypted[:6], encrypted[6:18], encrypted[18:]
    assert header == b"fa1\x02ab"
    assert AESGCM(bytes(range(32))).decrypt(nonce, rest, header) == b"payload"


def test_a_new_key_in_front_encrypts_and_old_ones_still_decrypt() -> None:
    before = EncryptingCodec({"old": KEY}).encode(b"payload")
    rotated = EncryptingCodec({"new": OTHER, "old": KEY})
    assert rotated.decode(before) == b"payload"
    assert EncryptingCodec({"new": OTHER}).decode(rotated.encode(b"payload")) == b"payload"


def changed(encrypted: bytes, position: int) -> bytes:
    return encrypted[:position] + bytes([encrypted[position] ^ 1]) + encrypted[position + 1 :]


@pytest.mark.parametrize(
    ("keys", "spoil", "says"),
    [
        ({"new": KEY}, lambda one: one, r"keys=\['new'\]: expected the key 'old' too"),
        ({"old": OTHER}, lambda one: one, "expected the key 'old' that encrypted the value"),
        ({"old": KEY}, lambda one: changed(one, -1 % len(one)), "or the value was changed"),
        ({"old": KEY}, lambda one: changed(one, 10), "or the value was changed"),
        ({"old": KEY}, lambda one: one[:12], "or the value was changed"),
        ({"old": KEY, "olf": KEY}, lambda one: one.replace(b"old", b"olf"), "or the value was changed"),
        ({"old": KEY}, lambda one: b'"in the clear"', "this one did not encrypt the value"),
        ({"old": KEY}, lambda one: b"", "this one did not encrypt the value"),
        ({"old": KEY}, lambda one: one[:3], "this one did not encrypt the value"),
    ],
)
def test_what_cannot_be_decrypted_says_why(
    keys: dict[str, str], spoil: Callable[[bytes], bytes], says: str
) -> None:
    encrypted = spoil(EncryptingCodec({"old": KEY}).encode(b"payload"))
    with pytest.raises(ConfigurationError, match=says):
        EncryptingCodec(keys).decode(encrypted)


@pytest.mark.parametrize(
    ("keys", "says"),
    [
        ({}, "at least one"),
        (["a secret"], "a mapping of ids to keys"),
        ({"": KEY}, "ids of 1 to 255 bytes"),
        ({"x" * 256: KEY}, "ids of 1 to 255 bytes"),
        ({1: KEY}, "ids of 1 to 255 bytes"),
        ({"\ud800": KEY}, "ids of 1 to 255 bytes"),
        ({"a": "secret"}, r"keys\['a'\]='\(not shown\)': expected a key of 32 bytes"),
        ({"a": b"secret"}, "expected a key of 32 bytes"),
        ({"a": "sécret"}, "expected a key of 32 bytes"),
        ({"a": None}, "expected a key of 32 bytes"),
    ],
)
def test_keys_that_are_none_are_refused_and_not_shown(keys: Any, says: str) -> None:
    with pytest.raises(ConfigurationError, match=says) as caught:
        EncryptingCodec(keys)
    assert "ecret" not in str(caught.value)


def test_no_key_is_in_its_repr() -> None:
    assert repr(EncryptingCodec({"a": KEY, "b": OTHER})) == "<EncryptingCodec with keys 'a', 'b'>"


def test_without_cryptography_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(name: str, *args: Any, **options: Any) -> Any:
        if name.startswith("cryptography"):
            raise ImportError(name)
        return real(name, *args, **options)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(MissingExtraError, match=r"\[crypto\]"):
        EncryptingCodec({"a": KEY})


async def test_a_run_goes_on_after_a_rotation_and_says_which_key_it_lacks() -> None:
    store, mended = MemoryRunStore(), list[int]()

    @step
    async def first(ctx: StepContext[Any]) -> str:
        return await ctx.once("tell", lambda: "told")

    @step(retries=0)
    async def second(ctx: StepContext[Any]) -> str:
        if not mended:
            raise ValueError("down")
        return f"{ctx.get_dependency('first')} {ctx.get_input('name')}"

    def pipeline(keys: dict[str, str]) -> Pipeline[Any, Any, str]:
        config = PipelineConfig(store=store, codec=EncryptingCodec(keys))
        return Pipeline("p", {"first": first, "second": second}, {"second": ["first"]}, config=config)

    with pytest.raises(Exception, match="down"):
        await pipeline({"old": KEY}).execute({"name": "Mia"}, run_id="r")
    mended.append(1)
    for keys, says in (
        ({"new": OTHER}, "expected the key 'old' too.*; give the codec, with the keys, that the run was"),
        ({"old": OTHER}, "this is another key"),
    ):
        with pytest.raises(RunCorrupt, match=says):
            await pipeline(keys).resume("r")
        with pytest.raises(RunCorrupt, match=says):
            await RunHistory(store, codec=EncryptingCodec(keys)).trace("r")
        (listed,) = await RunHistory(store, codec=EncryptingCodec(keys)).list()
        assert listed.status == "failed"
        assert "down" not in str(listed.error)
    assert (await pipeline({"new": OTHER, "old": KEY}).resume("r")).output == "told Mia"


@pytest.mark.parametrize("kind", ["pipeline", "graph"])
async def test_a_key_that_only_later_entries_need_is_asked_for_and_no_other_type(kind: str) -> None:
    store = MemoryRunStore()

    @step
    async def first(ctx: StepContext[Any]) -> str:
        return await ctx.ask("first?", str)

    @step
    async def second(ctx: StepContext[Any]) -> str:
        return ctx.get_dependency("first", str) + await ctx.ask("second?", str)

    def door(keys: dict[str, str]) -> Pipeline[Any, Any, str] | Graph[Any, Any]:
        steps = {"first": first, "second": second}
        config = PipelineConfig(store=store, codec=EncryptingCodec(keys))
        if kind == "pipeline":
            return Pipeline("p", steps, {"second": ["first"]}, config=config)
        return Graph("p", nodes=steps, edges=[Edge("first", "second")], entry="first", config=config)

    rotated = {"new": OTHER, "old": KEY}
    inbox = Inbox(store, codec=EncryptingCodec(rotated))

    async def answered(keys: dict[str, str]) -> Any:
        (asked,) = await inbox.list()
        await inbox.answer(asked.id, "yes")
        return await door(keys).resume("r")

    await door({"old": KEY}).execute(run_id="r")
    assert (await answered(rotated)).status == "paused"
    with pytest.raises(RunCorrupt, match="cannot decode it: .* expected the key 'new' too") as refused:
        await answered({"old": KEY})
    assert "type" not in refused.value.reason
    assert (await door(rotated).resume("r")).status == "finished"


async def test_what_another_key_encrypted_cannot_be_read_and_the_store_is_not_blamed() -> None:
    store = MemoryRunStore()

    @step
    async def ask(ctx: StepContext) -> str:
        return await ctx.ask("first?", str) + await ctx.receive("note", str)

    config = PipelineConfig(store=store, codec=EncryptingCodec({"old": KEY}))
    await Pipeline("p", {"ask": ask}, config=config).execute(run_id="r")
    other = EncryptingCodec({"new": OTHER})
    inbox = Inbox(store, codec=other)
    (asked,) = await inbox.list()

    async def follow() -> None:
        async for _ in RunHistory(store, codec=other).follow("r"):
            pass

    for read in (follow(), inbox.answer(asked.id, "yes")):
        with pytest.raises(RunCorrupt, match="'r' cannot be read: .* expected the key 'old' too"):
            await read
    await Inbox(store, codec=EncryptingCodec({"old": KEY})).answer(asked.id, "yes", rationale="why not")
    await Pipeline("p", {"ask": ask}, config=config).resume("r")
    for read in (inbox.get(asked.id), send_message("r", "note", 1, store=store, codec=other)):
        with pytest.raises(RunCorrupt, match="'r' cannot be read: .* expected the key 'old' too"):
            await read
