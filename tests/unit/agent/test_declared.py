"""What is declared for calls of an agent, as hashes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, cast

import pytest
from pydantic import BaseModel, Field
from pydantic_ai import Agent, DeferredToolRequests, TextOutput, ToolOutput
from pydantic_ai.agent import WrapperAgent
from pydantic_ai.models.fallback import FallbackModel
from pydantic_ai.models.test import TestModel
from pydantic_ai.models.wrapper import WrapperModel

from fastroai import FastroAgent, Verdict
from fastroai.agent.declared import has_history, inputs_of
from fastroai.calls.call import AgentCall
from fastroai.calls.options import PassedOptions


class Invoice(BaseModel):
    total: int


def other_invoice() -> type[BaseModel]:
    class Invoice(BaseModel):
        total: int
        due: str

    return Invoice


def today() -> str:
    return "Sunday"


def tomorrow() -> str:
    return "Sunday"


def agent(**options: Any) -> FastroAgent[Any, Any]:
    return FastroAgent(options.pop("model", TestModel(model_name="one")), **options)


def declared(made: FastroAgent[Any, Any], output_type: Any = None, **options: Any) -> dict[str, str]:
    call = AgentCall(prompt="Go", output_type=output_type, options=cast("PassedOptions[Any]", options))
    return dict(made.declared_for(call))


def changed(one: dict[str, str], other: dict[str, str]) -> set[str]:
    assert one.keys() == other.keys() == {"instructions", "model", "output", "settings"}
    return {name for name in one if one[name] != other[name]}


TWO = TestModel(model_name="two")
DIFFERENT: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "instructions": ("instructions", {}, {"instructions": "Be brief."}),
    "order": ("instructions", {"instructions": ["a", "b"]}, {"instructions": ["b", "a"]}),
    "text or function": ("instructions", {"instructions": "today()."}, {"instructions": today}),
    "name of a function": ("instructions", {"instructions": today}, {"instructions": tomorrow}),
    "system prompt": ("instructions", {}, {"system_prompt": "Be brief."}),
    "kind of prompt": ("instructions", {"instructions": "a"}, {"system_prompt": "a"}),
    "model": ("model", {}, {"model": TWO}),
    "output": ("output", {}, {"output_type": Invoice}),
    "fields": ("output", {"output_type": Invoice}, {"output_type": other_invoice()}),
    "settings": ("settings", {}, {"temperature": 0.5}),
    "settings of the model": ("settings", {}, {"model": TestModel(model_name="one", settings={"seed": 1})}),
}


@pytest.mark.parametrize("what", DIFFERENT)
def test_one_part_differs_if_one_thing_is_declared_differently(what: str) -> None:
    part, one, other = DIFFERENT[what]
    assert changed(declared(agent(**one)), declared(agent(**other))) == {part}


SAME: dict[str, Callable[[], FastroAgent[Any, Any]]] = {
    "made again": agent,
    "another name": lambda: agent(name="other"),
    "retries": lambda: agent(retries=5, request_retries=3, timeout=4),
    "a tool": lambda: agent(tools=[today]),
    "models to fall back on": lambda: agent(model=FallbackModel(TestModel(model_name="one"), TWO)),
    "a wrapped model": lambda: agent(model=WrapperModel(TestModel(model_name="one"))),
    "a brought agent": lambda: FastroAgent(agent=Agent(TestModel(model_name="one"))),
    "a wrapped agent": lambda: FastroAgent(agent=WrapperAgent(Agent(TestModel(model_name="one")))),
}


@pytest.mark.parametrize("what", SAME)
def test_nothing_differs_if_the_same_is_declared_in_another_way(what: str) -> None:
    assert declared(SAME[what]()) == declared(agent())


@pytest.mark.parametrize(
    ("part", "call"),
    [
        ("instructions", {"instructions": "Be brief."}),
        ("instructions", {"instructions": [today]}),
        ("model", {"model": TWO}),
        ("model", {"model": "openai:gpt-5-mini"}),
        ("output", {"output_type": list[Invoice]}),
        ("settings", {"model_settings": {"seed": 1}}),
        ("settings", {"model_settings": lambda context: {"seed": 1}}),
    ],
)
def test_what_is_declared_for_one_call_counts_too(part: str, call: dict[str, Any]) -> None:
    made = agent()
    assert changed(declared(made), declared(made, **call)) == {part}
    assert declared(made, **call) == declared(agent(), **call)


def test_what_overrides_an_agent_is_declared_here() -> None:
    made = agent(instructions="a")
    with made.agent.override(model=TWO, instructions="b", model_settings={"seed": 1}):
        assert changed(declared(agent(instructions="a")), declared(made)) == {
            "instructions",
            "model",
            "settings",
        }
    assert declared(made) == declared(agent(instructions="a"))


def test_instructions_that_are_added_later_count_although_hashes_are_kept() -> None:
    made = agent()
    before = declared(made)
    made.agent.instructions(today)
    assert changed(before, declared(made)) == {"instructions"}


def test_types_without_a_schema_or_a_hash_are_no_hindrance() -> None:
    annotated = Annotated[int, ["no hash"]]
    for output in (TextOutput(len), ToolOutput(Invoice), [Invoice, str], lambda text: text, annotated):
        assert set(declared(agent(), output_type=output)) == set(declared(agent()))


def test_the_inputs_are_the_prompt_and_not_the_conversation() -> None:
    call = AgentCall(prompt="Go")
    again = AgentCall(prompt="Go", message_history=[], options={"metadata": {"a": 1}}, deps=object())
    assert inputs_of("clerk", call) == inputs_of("clerk", again)
    assert inputs_of("clerk", call) != inputs_of("clerk", AgentCall(prompt=["Go"]))
    assert inputs_of("clerk", call) != inputs_of("other", call)
    assert not has_history(call)


def test_the_order_of_sets_in_an_output_type_does_not_count() -> None:
    def made(numbers: set[int]) -> Any:
        class Sized(BaseModel):
            sizes: set[int] | None = numbers
            by_name: Annotated[dict[str, set[int]], Field(examples=[{"b": numbers}])] = {"a": numbers}

        return agent(output_type=Sized)

    assert [*{0, 8}] != [*{8, 0}], "sets of texts differ in each process, and these in one"
    assert not changed(declared(made({0, 8})), declared(made({8, 0})))
    assert changed(declared(made({0, 8})), declared(made({0, 7}))) == {"output"}


def test_the_wording_and_fields_of_types_of_libraries_do_not_count() -> None:
    def later(known: type) -> Any:
        made = type(
            known.__name__, (BaseModel,), {"__doc__": "In other words.", "__annotations__": {"a": int}}
        )
        made.__module__ = known.__module__
        return made

    judge, verdict = declared(agent(output_type=Verdict)), declared(agent(output_type=later(Verdict)))
    assert not changed(judge, verdict)
    known = declared(agent(output_type=[str, DeferredToolRequests]))
    assert not changed(known, declared(agent(output_type=[str, later(DeferredToolRequests)])))
    for other in (str, [int, DeferredToolRequests], [str, Verdict], Verdict):
        assert changed(known, declared(agent(output_type=other))) == {"output"}
