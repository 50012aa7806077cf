"""Functions for flows in tests of what holds for any function: one asks a model, one is code."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Literal

from fastroai import FastroAgent, StepContext
from fastroai.functions.calling import perform
from fastroai.functions.declaring.signature import Signature
from fastroai.functions.kept_calls import CallDraft, FunctionCall
from fastroai.steps import PipelineConfig, StepConfig
from fastroai.steps.config import resolve

PLAIN = resolve(StepConfig(), pipeline=PipelineConfig())
TextFunction = Callable[[str], Awaitable[str]]


def _text(text: str) -> str:
    raise NotImplementedError


SIGNATURE = Signature(_text)  # type: ignore[arg-type]


def function_of(
    name: str, kind: Literal["infer", "compute"], does: Callable[[StepContext[Any], str], Awaitable[str]]
) -> TextFunction:
    """A function of a text."""

    async def function(text: str) -> str:
        bound = SIGNATURE.bind((text,), {})

        async def body(context: StepContext[Any], draft: CallDraft) -> str:
            return await does(context, text)

        call: FunctionCall[str] = FunctionCall(
            signature=SIGNATURE,
            name=name,
            kind=kind,
            inputs=SIGNATURE.shown(bound),
            key=SIGNATURE.inputs_hash(bound),
            returns=str,
            config=PLAIN,
        )
        return await perform(call, body)

    return function


def asking(name: str, agent: FastroAgent[Any, str]) -> TextFunction:
    """A function that asks a model."""

    async def ask(context: StepContext[Any], text: str) -> str:
        return (await context.run(agent, text, name="attempt 1")).output

    return function_of(name, "infer", ask)


def computing(name: str, does: Callable[[str], str]) -> TextFunction:
    """A function that is code."""

    async def compute(context: StepContext[Any], text: str) -> str:
        return does(text)

    return function_of(name, "compute", compute)
