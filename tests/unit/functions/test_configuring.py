"""Settings of typed functions: for the process, and for a context."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from fastroai.errors import ConfigurationError
from fastroai.functions.configuring import Configuration, configuration, configure, configured, reset
from fastroai.store import MemoryRunStore


@pytest.fixture(autouse=True)
def as_at_the_start() -> Iterator[None]:
    yield
    reset()


def test_the_defaults_are_those_of_the_specification() -> None:
    assert configuration() == Configuration(default_model=None, store=None, test_mode=False, sample_n=5)


def test_what_is_not_given_stays_as_it_is_until_reset() -> None:
    configure(default_model="openai:gpt-5-mini")
    configure(sample_n=7)
    assert (configuration().default_model, configuration().sample_n) == ("openai:gpt-5-mini", 7)
    reset()
    assert configuration() == Configuration()


def test_a_setting_can_be_taken_back() -> None:
    configure(store=MemoryRunStore())
    configure(store=None)
    assert configuration().store is None


def test_settings_of_a_context_come_on_top_and_end_with_it() -> None:
    configure(default_model="openai:gpt-5-mini", sample_n=3)
    with configured(sample_n=9) as inside:
        assert inside is configuration()
        assert (inside.default_model, inside.sample_n) == ("openai:gpt-5-mini", 9)
        with configured(default_model="anthropic:claude-haiku-4-5"):
            assert configuration().sample_n == 9
            configure(sample_n=1)  # of the process, so it does not count here
            assert configuration().sample_n == 9
        assert configuration().default_model == "openai:gpt-5-mini"
    assert configuration().sample_n == 1


async def test_other_tasks_do_not_see_the_settings_of_a_context() -> None:
    inside, seen = asyncio.Event(), asyncio.Event()

    async def tenant() -> int:
        with configured(sample_n=9):
            inside.set()
            await seen.wait()
            return configuration().sample_n

    task = asyncio.create_task(tenant())
    await inside.wait()
    assert configuration().sample_n == 5
    seen.set()
    assert await task == 9


@pytest.mark.parametrize(
    "wrong",
    [
        {"default_model": 5},
        {"default_model": ""},
        {"store": 5},
        {"cache_store": 5},
        {"cache_size": 0},
        {"cache_age": -1},
        {"cache_age": timedelta(0)},
        {"review_sink": 5},
        {"tracer": 5},
        {"test_mode": "yes"},
        {"sample_n": 0},
    ],
)
def test_invalid_settings_are_refused_and_change_nothing(wrong: dict[str, Any]) -> None:
    before = configuration()
    with pytest.raises(ConfigurationError, match=next(iter(wrong))):
        configure(**wrong)
    with pytest.raises(ConfigurationError), configured(**wrong):
        pass
    assert configuration() is before


def test_unknown_settings_are_refused() -> None:
    with pytest.raises(TypeError, match="no setting 'modle'; there are"):
        configure(modle="openai:gpt-5")  # type: ignore[call-arg]
