"""The table in the docs names everything in the installed PydanticAI that can send something."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import pytest
from pydantic_ai import direct, embeddings, images, models, realtime
from pydantic_ai.embeddings import Embedder, EmbeddingModel
from pydantic_ai.images import ImageGenerationModel, ImageGenerator
from pydantic_ai.models import Model, StreamedResponse
from pydantic_ai.realtime import RealtimeModel, RealtimeSession
from pydantic_ai.realtime.codec import RealtimeConnection

from fastroai.agent.other_models.embeddings import MeteredEmbeddingModel
from fastroai.agent.other_models.images import MeteredImageModel
from fastroai.agent.other_models.realtime import OPENING, SIGNALLING
from fastroai.agent.requests.metering import MeteredModel

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "metered-calls.md"
ROOTS: Final = (
    Model,
    StreamedResponse,
    Embedder,
    EmbeddingModel,
    ImageGenerator,
    ImageGenerationModel,
    RealtimeModel,
    RealtimeConnection,
    RealtimeSession,
)
"""Their methods, and those of their subclasses."""

STATUSES: Final = {"metered", "free", "refused"}


def table() -> dict[str, str]:
    """What the page says of each call."""
    rows = re.findall(r"^\| (`[\w.`, ]+`) \| ([a-z ]+) \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    told = [(call.strip("`"), status) for calls, status in rows for call in calls.split(", ")]
    assert len(told) == len(dict(told)), "a call is in two rows"
    return dict(told)


def is_call(name: str, value: object) -> bool:
    """Whether it is awaited or entered, or does the same without `await`."""
    function = inspect.unwrap(getattr(value, "__func__", value))  # type: ignore[arg-type]
    if name.startswith("_") or not inspect.isfunction(function):
        return False
    awaited = inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function)
    returns = str(inspect.signature(function).return_annotation)
    is_context = "AsyncContextManager" in returns or "StreamedResponseSync" in returns
    return awaited or is_context or name.endswith("_sync") or name == "batch_decode"


def modules_of(package: ModuleType) -> Iterator[ModuleType]:
    """The package and its modules, as far as what they need is installed."""
    yield package
    for info in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        try:
            yield importlib.import_module(info.name)
        except ImportError:  # an SDK that is not among the development dependencies
            continue


def kinds() -> set[type[Any]]:
    """Every class of PydanticAI that is one of the roots, or made of one."""
    modules = [module for package in (models, embeddings, images, realtime) for module in modules_of(package)]
    classes = {value for module in modules for value in vars(module).values() if inspect.isclass(value)}
    public = {kind for kind in classes if not kind.__name__.startswith("_")}
    return {kind for kind in public if kind.__module__.startswith("pydantic_ai.") and issubclass(kind, ROOTS)}


def calls() -> set[str]:
    """Each call by the first class that has it, or the module."""
    found = {f"direct.{name}" for name in direct.__all__ if is_call(name, getattr(direct, name))}
    for kind in kinds():
        for name, value in vars(kind).items():
            if is_call(name, value):
                first = [base for base in kind.__mro__ if name in vars(base) and issubclass(base, ROOTS)][-1]
                found.add(f"{first.__name__}.{name}")
    return found


@pytest.mark.slow
def test_the_table_has_every_call_and_no_other() -> None:
    found, told = calls(), set(table())
    assert not found - told, "calls of PydanticAI that the table does not have: say what becomes of them"
    assert not told - found, "calls in the table that PydanticAI does not have any more"


def overridden(metered: type[Any], root: type[Any]) -> set[str]:
    """The calls of a root that its class with a meter has of its own."""
    return {f"{root.__name__}.{name}" for name, value in vars(metered).items() if is_call(name, value)}


def test_the_table_says_what_the_meters_do() -> None:
    said = table()
    assert set(said.values()) <= STATUSES
    by_meters = (
        overridden(MeteredModel, Model)
        | overridden(MeteredEmbeddingModel, EmbeddingModel)
        | overridden(MeteredImageModel, ImageGenerationModel)
        | {f"RealtimeModel.{name}" for name in (*OPENING, *SIGNALLING)}
        | {"RealtimeConnection.send"}
    )
    by_meters -= {"Model.cancel_suspended_response", "Model.batch_results"}  # free
    by_meters -= {"Model.decide"}  # of some models only
    through_others = ("Embedder.embed", "ImageGenerator.generate", "direct.", "RealtimeSession.", "Decision")
    counted = {call for call, status in said.items() if status in ("metered", "refused")}
    assert {call for call in counted if not call.startswith(through_others)} == by_meters
    assert said["DecisionModel.decide"] == "refused"
    assert {said[call] for call in said if call.startswith("direct.")} == {"metered", "refused"}


@pytest.mark.parametrize("name", ["request", "request_stream", "batch_decode", "count_tokens"])
def test_a_call_is_told_from_other_functions(name: str) -> None:
    assert is_call(name, getattr(Model, name))
    assert not is_call("prepare_request", Model.prepare_request)
