"""The errors for names of other libraries say what to write here."""

from __future__ import annotations

import copy
import inspect
import pickle
import re
from dataclasses import FrozenInstanceError, dataclass, fields, replace
from typing import Any

import pytest

from fastroai import (
    AgentConfig,
    Budget,
    Edge,
    FastroAgent,
    Graph,
    Pipeline,
    PipelineConfig,
    SpendLimit,
    SQLiteRunStore,
    StepConfig,
    StepContext,
    budget_scope,
    compute,
    flow,
    infer,
    safe_tool,
    step,
)
from fastroai.contracts import Contract
from fastroai.distributed import Distributed
from fastroai.graphs import Send
from fastroai.other_names import OTHER_OPTIONS, by_name, other_names
from fastroai.runtime import CircuitBreaker, ProviderLimit


@other_names(arguments={"colour": "paint="}, attributes={"colour": "box.paint"})
@dataclass(frozen=True, slots=True)
class Box:
    paint: str = "red"


@other_names(arguments={"colour": "paint="})
def paint_of(paint: str = "red", rest: str = "") -> str:
    return paint


UNTYPED: Any = Box


def test_an_argument_of_another_library_is_told() -> None:
    for made, name in ((Box, "Box"), (paint_of, "paint_of")):
        untyped: Any = made
        message = rf"^{name}\(\) got an unexpected keyword argument 'colour'; here, it is paint=$"
        with pytest.raises(TypeError, match=message):
            untyped(colour="blue")


def test_an_attribute_of_another_library_is_told_and_others_are_missing_as_ever() -> None:
    with pytest.raises(
        AttributeError, match=r"'Box' object has no attribute 'colour'; here, it is box\.paint$"
    ):
        UNTYPED().colour  # noqa: B018
    with pytest.raises(AttributeError, match=r"'Box' object has no attribute 'size'$") as raised:
        UNTYPED().size  # noqa: B018
    assert raised.value.name == "size"
    assert not hasattr(Box(), "colour")


@pytest.mark.parametrize(
    ("made", "misspelt", "meant"),
    [
        (paint_of, "pant", "paint"),
        (StepConfig, "time_out", "timeout"),
        (PipelineConfig, "retrys", "retry"),
        (AgentConfig, "temprature", "temperature"),
        (FastroAgent, "instruction", "instructions"),
        (step, "timout", "timeout"),
        (compute, "budgt", "budget"),
        (flow, "confg", "config"),
        (safe_tool, "timout", "timeout"),
        (SpendLimit, "widow", "window"),
        (ProviderLimit, "request_per_minute", "requests_per_minute"),
        (SQLiteRunStore, "time_out", "timeout"),
        (Distributed, "nam", "name"),
    ],
)
def test_a_misspelt_argument_is_told_what_is_probably_meant(made: Any, misspelt: str, meant: str) -> None:
    message = rf"{made.__name__}\(\) got an unexpected .* '{misspelt}'\. Did you mean '{meant}'\?$"
    with pytest.raises(TypeError, match=message):
        made(**{misspelt: 3})


def test_everything_else_is_as_without_the_names() -> None:
    assert Box("blue") == Box(paint="blue") == replace(Box(), paint="blue")
    assert copy.deepcopy(Box("blue")) == pickle.loads(pickle.dumps(Box("blue"))) == Box("blue")
    assert paint_of(rest="yes") == "red"
    with pytest.raises(TypeError, match="unexpected keyword argument 'size'$"):
        UNTYPED(size=1)


@pytest.mark.parametrize("kind", [Pipeline, Graph, Edge, Budget, SpendLimit, FastroAgent])
def test_signatures_have_the_real_parameters(kind: type) -> None:
    assert "args" not in inspect.signature(kind).parameters


@by_name("paint", "size")
@dataclass(frozen=True, kw_only=True)
class Meant:
    paint: str = "red"
    size: int = 1


@by_name()
@dataclass(frozen=True, kw_only=True)
class Mixed:
    paint: str = "red"
    size: int = 1


def test_settings_without_names_are_told_as_they_are_probably_meant() -> None:
    meant: Any = Meant
    with pytest.raises(TypeError, match=r"^Meant takes its settings by name: Meant\(paint='blue', size=2\)$"):
        meant("blue", 2)


def test_settings_without_names_that_can_mean_anything_are_told_the_names() -> None:
    mixed: Any = Mixed
    with pytest.raises(TypeError, match=r"^Mixed takes its settings by name: Mixed\(paint=…, size=…, …\)$"):
        mixed(2)


class plain(Mixed):
    def __init__(self, paint: str) -> None:
        super().__init__(paint=paint)


def test_a_subclass_takes_what_its_own_constructor_takes() -> None:
    made: Any = plain("blue")
    assert (made.paint, made.size) == ("blue", 1)
    with pytest.raises(FrozenInstanceError, match=r"^plain\.size .* dataclasses\.replace\(mixed, size=2\)"):
        made.size = 2


def test_settings_that_are_assigned_to_are_replaced_and_otherwise_behave_as_ever() -> None:
    made: Any = Mixed(paint="blue")
    with pytest.raises(FrozenInstanceError, match=r"dataclasses\.replace\(mixed, size=2\)"):
        made.size = 2
    assert replace(made, size=2) == Mixed(paint="blue", size=2)
    assert copy.deepcopy(made) == pickle.loads(pickle.dumps(made)) == made


@pytest.mark.parametrize("made", [Budget(usd=1, ms=5), SpendLimit(usd=1)])
def test_budgets_are_replaced(made: Any) -> None:
    with pytest.raises(FrozenInstanceError, match="make another one"):
        made.usd = 2
    assert replace(made, usd=2).usd == 2


@pytest.mark.parametrize("kind", [Pipeline, Graph])
@pytest.mark.parametrize("option", OTHER_OPTIONS)
def test_settings_of_runs_are_told_to_be_in_the_config(kind: type, option: str) -> None:
    with pytest.raises(TypeError, match=r"here, it is config=PipelineConfig\("):
        kind("p", **{option: 3})
    assert option == "checkpointer" or option in {each.name for each in fields(PipelineConfig)}


@pytest.mark.parametrize(
    ("made", "argument", "here"),
    [
        (Pipeline, "budget", "config=PipelineConfig(budget=…)"),
        (Graph, "recursion_limit", "max_steps="),
        (Graph, "interrupt_after", "pause_nodes="),
        (PipelineConfig, "checkpointer", "store="),
        (step, "depends_on", "Pipeline(dependencies="),
        (step, "max_retries", "retries="),
        (Send, "arg", "inputs="),
        (infer, "prompt", "intent="),
        (infer, "max_retries", "retries="),
        (infer, "timeout", "budget=Budget(ms=…)"),
        (budget_scope, "usd", "budget_scope(Budget(usd=…))"),
        (CircuitBreaker, "recovery_timeout", "cooldown="),
        (Contract, "output", "returns="),
    ],
)
def test_arguments_that_others_have_are_told(made: Any, argument: str, here: str) -> None:
    with pytest.raises(TypeError, match=f"'{argument}'; here, it is {re.escape(here)}"):
        made(**{argument: 3})


def test_what_others_call_the_parts_of_a_result_is_told() -> None:
    @step
    async def greet(ctx: StepContext) -> str:
        return "Hello."

    result: Any = Pipeline("p", {"greet": greet}).run_sync()
    for name, here in {"data": "output", "outputs": "step_outputs", "success": "ok"}.items():
        with pytest.raises(AttributeError, match=f"here, it is result.{here}$"):
            getattr(result, name)
        assert getattr(result, here)
