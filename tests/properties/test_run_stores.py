"""Random operations on every store of runs, by two clients, against a dict."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test
from support.examples import examples
from support.run_stores import KINDS, run_stores

from fastroai.errors import RevisionConflict
from fastroai.store import RunStore, StoredKey

NAMES = st.text(st.sampled_from("ab%_*[\\A\xe9\ue000\U0001f600"), max_size=2) | st.text(
    st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=8
)
VALUES = st.binary(max_size=20)
CLIENTS = st.integers(0, 1)
OFF = st.sampled_from([0, 0, 0, 1, -1, 5])
"""How far from the key's revision."""


class Machine(RuleBasedStateMachine):
    stores: tuple[RunStore, RunStore]
    loop: asyncio.AbstractEventLoop

    @initialize()
    def begin(self) -> None:
        self.model: dict[str, list[bytes | None]] = {}
        """What was at each position, `None` where it has been replaced."""

    def run(self, operation: Any) -> Any:
        return self.loop.run_until_complete(operation)

    def attempt(self, operation: Any, key: str, revision: int) -> bool:
        actual = len(self.model.get(key, []))
        try:
            self.run(operation)
        except RevisionConflict as error:
            conflict = error
        else:
            assert revision == actual
            return True
        assert (conflict.key, conflict.expected, conflict.actual) == (key, revision, actual)
        assert revision != actual
        return False

    def near(self, key: str, off: int) -> int:
        return max(len(self.model.get(key, [])) + off, 0)

    @rule(client=CLIENTS, name=NAMES, values=st.lists(VALUES, max_size=4), off=OFF)
    def append(self, client: int, name: str, values: list[bytes], off: int) -> None:
        key, revision = f"k{name}", self.near(f"k{name}", off)
        if self.attempt(self.stores[client].append(key, values, revision=revision), key, revision) and values:
            self.model.setdefault(key, []).extend(values)

    @rule(client=CLIENTS, name=NAMES, value=VALUES, off=OFF)
    def compare_and_set(self, client: int, name: str, value: bytes, off: int) -> None:
        key, revision = f"k{name}", self.near(f"k{name}", off)
        if self.attempt(self.stores[client].compare_and_set(key, value, revision=revision), key, revision):
            self.model[key] = [*[None] * revision, value]

    @rule(client=CLIENTS, name=NAMES)
    def delete(self, client: int, name: str) -> None:
        self.run(self.stores[client].delete(f"k{name}"))
        self.model.pop(f"k{name}", None)

    @rule(client=CLIENTS, name=NAMES, after=st.integers(0, 8))
    def read(self, client: int, name: str, after: int) -> None:
        held = self.model.get(f"k{name}", [])
        stored = self.run(self.stores[client].read(f"k{name}", after=after))
        assert stored.values == tuple(value for value in held[after:] if value is not None)
        assert stored.revision == len(held)

    @rule(
        client=CLIENTS,
        prefix=st.just("") | NAMES,
        after=st.just("") | NAMES.map("k{}".format),
        limit=st.integers(1, 5),
    )
    def list(self, client: int, prefix: str, after: str, limit: int) -> None:
        names = sorted(key for key in self.model if key.startswith(f"k{prefix}") and key > after)
        expected = [
            StoredKey(key=name, value=self.model[name][-1] or b"", revision=len(self.model[name]))
            for name in names[:limit]
        ]
        found = self.run(self.stores[client].list(f"k{prefix}", after=after, limit=limit))
        assert [*found] == expected

    def teardown(self) -> None:
        while found := self.run(self.stores[0].list("")):
            for each in found:
                self.run(self.stores[0].delete(each.key))


@pytest.mark.parametrize("kind", KINDS)
def test_every_store_does_what_a_dict_would(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    with run_stores(kind, request, tmp_path) as open_store, asyncio.Runner() as runner:
        clients = (open_store(), open_store())

        class Here(Machine):
            stores = clients
            loop = runner.get_loop()

        checked: Callable[..., None] = run_state_machine_as_test
        checked(
            Here,
            settings=settings(
                max_examples=examples(40 if kind == "memory" else 15),
                stateful_step_count=30,
            ),
        )
        if kind != "memory":
            for client in clients:
                runner.run(client.aclose())
