"""The key of a cached answer: any change that can change the answer changes it, and nothing else does."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, Field
from pydantic_ai import Agent, ModelSettings
from pydantic_ai.models.test import TestModel
from support.examples import examples

from fastroai import infer, opaque
from fastroai.functions import configured, contract
from fastroai.functions.cache import key_of
from fastroai.store import MemoryRunStore


@contract
class Verdict(BaseModel):
    label: Literal["a", "b"]


@contract
class OtherVerdict(BaseModel):
    label: Literal["a", "b", "c"]


@contract
class LimitedVerdict(BaseModel):
    label: Annotated[Literal["a", "b"], Field(description="The first letter.")]


class Asked(TestModel):
    """A model that counts how often it is asked, and is otherwise known by what it is made of."""

    asked: list[int] = []  # of all

    async def request(self, *args: Any, **options: Any) -> Any:
        self.asked.append(1)
        return await super().request(*args, **options)


def look_up(word: str) -> str:
    """Look a word up."""
    return word


def look_deeper(word: str, depth: int = 1) -> str:
    """Look a word up."""
    return word


@dataclass(frozen=True)
class Shape:
    """Everything that a call is made of."""

    intent: str = "Classify"
    context: str = ""
    text: str = "x"
    secret: str = "y"
    returns: type = Verdict
    model: str = "one"
    settings: tuple[tuple[str, Any], ...] = ()
    temperature: float | None = None
    tools: tuple[Callable[..., str], ...] = ()
    quorum: tuple[int, int] | None = None
    samples: int = 1
    instructions: str | None = None
    name: str = "text"


shapes = st.builds(
    Shape,
    intent=st.sampled_from(["Classify", "Judge"]),
    context=st.sampled_from(["", "Briefly.", "x"]),
    text=st.sampled_from(["x", "y", '", "', "x\n"]),
    secret=st.sampled_from(["x", "y", ""]),
    returns=st.sampled_from([Verdict, OtherVerdict, LimitedVerdict]),
    model=st.sampled_from(["one", "two"]),
    settings=st.sampled_from([(), (("max_tokens", 5),), (("seed", 1),)]),
    temperature=st.sampled_from([None, 0.0, 0.5]),
    tools=st.sampled_from([(), (look_up,), (look_deeper,)]),
    quorum=st.sampled_from([None, (2, 1), (2, 2), (3, 1)]),
    samples=st.sampled_from([1, 2]),
    instructions=st.sampled_from([None, "Be kind.", "Be strict."]),
    name=st.sampled_from(["text", "words"]),
)

MODELS = {
    (name, settings): Asked(
        call_tools=[],
        model_name=name,
        custom_output_args={"label": "a"},
        settings=ModelSettings(**dict(settings)),  # type: ignore[typeddict-item]
    )
    for name, settings in itertools.product(["one", "two"], [(), (("max_tokens", 5),), (("seed", 1),)])
}


async def made(shape: Shape) -> None:
    """Declare a function of this shape, and call it."""
    model = MODELS[shape.model, shape.settings]
    options: dict[str, Any] = {"model": model, "temperature": shape.temperature, "tools": shape.tools}
    if shape.instructions is not None:
        agent = Agent(
            model,
            instructions=shape.instructions,
            tools=list(shape.tools),
            model_settings=None if shape.temperature is None else {"temperature": shape.temperature},
        )
        options = {"agent": agent}
    if shape.quorum is not None:
        options |= {"quorum": shape.quorum[0], "threshold": shape.quorum[1], "agree_on": "label"}
    declare = infer(
        intent=shape.intent, context=shape.context, cache="global", stable=shape.samples == 1, **options
    )

    def text(text: str, secret: opaque[str]) -> Any:
        raise NotImplementedError

    def words(words: str, secret: opaque[str]) -> Any:
        raise NotImplementedError

    body = {"text": text, "words": words}[shape.name]
    body.__annotations__["return"] = shape.returns
    body.__name__ = "function"
    with configured(test_mode=True, sample_n=shape.samples):
        await declare(body)(shape.text, shape.secret)


@settings(max_examples=examples(17))
@given(shapes, shapes, st.sampled_from(sorted(vars(Shape()))))
def test_two_calls_share_an_answer_exactly_if_they_are_of_one_shape(
    one: Shape, another: Shape, changed: str
) -> None:
    other = replace(one, **{changed: getattr(another, changed)})

    async def both() -> tuple[int, int, int]:
        counts: list[int] = []
        with configured(cache_store=MemoryRunStore()):
            for shape in (one, other, one):
                Asked.asked.clear()
                await made(shape)
                counts.append(len(Asked.asked))
        return counts[0], counts[1], counts[2]

    first, second, again = asyncio.run(both())
    assert first > 0
    assert again == 0
    assert (second == 0) == (one == other)


parts = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)


@given(st.lists(parts, max_size=4), st.lists(parts, max_size=4))
def test_keys_are_equal_exactly_if_all_parts_are(one: list[Any], other: list[Any]) -> None:
    same = repr(one) == repr(other)

    assert (key_of(*one) == key_of(*other)) == same
    assert key_of(*one) == key_of(*one)


@pytest.mark.parametrize("change", [{"retries": 1}, {"ensure": lambda r: True}])
def test_what_shapes_no_answer_changes_no_key(change: dict[str, Any]) -> None:
    async def both() -> int:
        Asked.asked.clear()
        with configured(cache_store=MemoryRunStore(), default_model=MODELS["one", ()]):
            for options in ({}, change):

                @infer(intent="Classify", cache="global", **options)  # type: ignore[arg-type]
                async def classify(text: str) -> Verdict:
                    raise NotImplementedError

                await classify("x")
        return len(Asked.asked)

    assert asyncio.run(both()) == 1
