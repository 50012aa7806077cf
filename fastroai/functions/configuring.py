"""Defaults of typed functions and flows: a model, stores, a tracer, test mode."""

from __future__ import annotations

import inspect
from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from typing_extensions import TypedDict, Unpack

from fastroai.errors import ConfigurationError
from fastroai.human.sinks import Sink
from fastroai.records import Duration
from fastroai.runtime.concurrency.threads import run_in_thread
from fastroai.runtime.options import check_count, check_seconds
from fastroai.store.backends.adapter import adapt_run_store
from fastroai.store.open_questions import Question
from fastroai.store.run_store import RunStore, RunStoreLike
from fastroai.tracing import Tracer
from fastroai.usage.prices.tested_version import be_strict_when

if TYPE_CHECKING:
    from pydantic_ai.models import Model

ModelLike: TypeAlias = "str | Model"
"""A model, or a reference to one: `openai:gpt-5-mini`."""


class Settings(TypedDict, total=False):
    """The keyword arguments of `configure` and `configured`. `Configuration` explains them."""

    default_model: ModelLike | None
    store: RunStoreLike | None
    cache_store: RunStoreLike | None
    cache_size: int
    cache_age: Duration | None
    review_sink: Sink | None
    tracer: Tracer | None
    test_mode: bool
    sample_n: int
    strict_version: bool


@dataclass(frozen=True, kw_only=True)
class Configuration:
    """Defaults of typed functions and flows, which `configure` and `configured` set. It cannot be changed.

    By default, no model and no store is set, so a function must name its model, and runs of flows are not
    kept. `cache_age` is in seconds, or a `timedelta`; `None` means that cached answers never expire.
    `test_mode` makes functions with `stable=False` take `sample_n` samples instead of one. `strict_version`
    makes budgets refuse requests if the installed PydanticAI is newer than those that were tested.

    Raises:
        ConfigurationError: a value is invalid.
    """

    default_model: ModelLike | None = None
    """The model of functions that name none."""
    store: RunStoreLike | None = None
    """Store of the runs of flows, of questions that `await_human` asks outside of runs, and of answers of
    functions with `cache="global"`: a `RunStore`, or the path or URL of one.
    """
    cache_store: RunStoreLike | None = None
    """Store of the answers of functions with `cache="global"`, if that is not to be `store`."""
    cache_size: int = 10_000
    """Number of answers that this store keeps: those written last."""
    cache_age: Duration | None = None
    """Seconds, or a `timedelta`, after which a cached answer is asked for anew; `None` for never."""
    review_sink: Sink | None = None
    """Function that tells people the questions of a flow that waits."""
    tracer: Tracer | None = None
    """Tracer of flows, and of functions that are called outside of runs."""
    test_mode: bool = False
    """Whether functions with `stable=False` take `sample_n` samples; if not, they take one."""
    sample_n: int = 5
    """Number of samples that these functions take in test mode."""
    strict_version: bool = False
    """Whether budgets refuse all requests of a PydanticAI that is newer than the newest tested one; of agents
    and pipelines too. If not, the first request warns, and budgets reserve more.
    """

    def __post_init__(self) -> None:
        _check_model(self.default_model)
        for option in ("store", "cache_store"):
            object.__setattr__(self, option, _opened(option, getattr(self, option)))
        check_count("cache_size", self.cache_size, least=1, required=True)
        check_seconds("cache_age", self.cache_age)
        if self.review_sink is not None and not callable(self.review_sink):
            raise ConfigurationError("review_sink", self.review_sink, "a function that takes a question")
        if self.tracer is not None and not isinstance(self.tracer, Tracer):
            raise ConfigurationError("tracer", self.tracer, "an object with span, log_metric and log_error")
        for option in ("test_mode", "strict_version"):
            if not isinstance(value := getattr(self, option), bool):
                raise ConfigurationError(option, value, "True or False")
        check_count("sample_n", self.sample_n, least=1, required=True)


def _opened(option: str, store: RunStoreLike | None) -> RunStore | None:
    """Return the store of an option. Raises `ConfigurationError`, which names the option."""
    try:
        return None if store is None else adapt_run_store(store)
    except ConfigurationError as error:
        raise ConfigurationError(option, error.value, error.expected) from None


def _check_model(model: object) -> None:
    """Refuse an object that is neither a model nor a reference to one. Raises `ConfigurationError`."""
    if model is None or (isinstance(model, str) and model):
        return
    from pydantic_ai.models import Model  # late: importing PydanticAI takes a second

    if not isinstance(model, Model):
        raise ConfigurationError(
            "default_model", model, "a model of PydanticAI, or a text such as 'openai:gpt-5'"
        )


_DEFAULTS: Final = Configuration()
_process: Configuration = _DEFAULTS
_in_context: Final[ContextVar[Configuration | None]] = ContextVar("fastroai_configured", default=None)


def configuration() -> Configuration:
    """Return the configuration that holds here, which cannot be changed.

    It is that of the innermost `with configured(...)` block around the call. Without one, it is that of the
    process, as `configure` has set it; before any `configure`, it has the default values.
    """
    return _in_context.get() or _process


be_strict_when(lambda: configuration().strict_version)


def configure(**settings: Unpack[Settings]) -> None:
    """Set the defaults of typed functions and flows in this process. Settings that are not given stay.

        configure(default_model="openai:gpt-5-mini", store=SQLiteRunStore("runs.db"))

    They hold for calls that begin later, except inside of `with configured(...)` blocks, which keep theirs.
    If one value is invalid, nothing is set. `strict_version` applies to agents, pipelines and graphs as well.

    Args:
        **settings: The fields of `Configuration`: `default_model`, `store`, `cache_store`, `cache_size`,
            `cache_age`, `review_sink`, `tracer`, `test_mode`, `sample_n`, `strict_version`.

    Raises:
        ConfigurationError: a value is invalid.
        TypeError: there is no such setting.
    """
    global _process
    _process = _with(_process, settings)


def reset() -> None:
    """Undo all that `configure` has set in this process: every setting has its default again.

    Open `with configured(...)` blocks keep their settings.
    """
    global _process
    _process = _DEFAULTS


@contextmanager
def configured(**settings: Unpack[Settings]) -> Generator[Configuration]:
    """Use other defaults of typed functions and flows inside of a `with` block, for tests and tenants.

    The settings are those of `configure`; those that are not given stay. Agents, pipelines and graphs take
    only `strict_version` from here. The block gets the `Configuration` that holds in it:
    `with configured(...) as settings`. Afterwards, the settings from before hold again. Tasks that begin
    inside of the block have these settings, too, to their end. Other tasks do not.

        with configured(test_mode=True, sample_n=10):
            (await classify("Great!")).assert_stable()

    Raises:
        ConfigurationError: a value is invalid.
        TypeError: there is no such setting.
    """
    token = _in_context.set(_with(configuration(), settings))
    try:
        yield configuration()
    finally:
        _in_context.reset(token)


def _with(known: Configuration, settings: Settings) -> Configuration:
    names = {one.name for one in fields(Configuration)}
    for name in settings:
        if name == "client":
            raise TypeError(
                "there is no setting 'client', because a model has its own: write "
                "default_model='openai:gpt-5-mini', or a model of PydanticAI with your client, such as "
                "OpenAIResponsesModel('gpt-5-mini', provider=OpenAIProvider(openai_client=client))"
            )
        if name not in names:
            raise TypeError(f"there is no setting {name!r}; there are {', '.join(sorted(names))}")
    changes: dict[str, Any] = dict(settings)
    return replace(known, **changes)


async def tell_reviewers(asked: Question) -> None:
    """Call the configured sink, when a run waits. This function is a sink itself."""
    sink = configuration().review_sink
    if sink is None:
        return
    if inspect.iscoroutinefunction(sink):
        await sink(asked)
    else:
        told = await run_in_thread(partial(sink, asked), what=f"review sink {sink!r}")
        if inspect.isawaitable(told):
            await told
