"""Names of PydanticAI that are not public, each behind a function that says what happens without the name."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Final

from pydantic_ai.models import Model


def lend_model_to_run(node: object, lend: Callable[[Model], Model]) -> None:
    """Once a node of a run runs, replace the model that each later `RunContext` of the run has.

    PydanticAI makes these contexts from the dependencies of its graph, which only nodes get to see. Without
    their attribute `model`, these contexts have the model without a meter; without `evaluate_model_selector`
    or `enter_model`, those of steps whose model a function selects do.
    """
    if not hasattr(node, "__dict__"):
        return
    for name in _METHODS_OF_NODES:
        if (method := getattr(node, name, None)) is not None:
            setattr(node, name, partial(_with_lent_model, method, lend))


_METHODS_OF_NODES: Final = ("run", "stream")


def _with_lent_model(method: Callable[[Any], Any], lend: Callable[[Model], Model], context: Any) -> Any:
    facts = getattr(context, "deps", None)
    model = getattr(facts, "model", None)
    if facts is not None and isinstance(model, Model):
        facts.model = lend(model)
        select = getattr(facts, "evaluate_model_selector", None)
        if select is not None and hasattr(facts, "enter_model") and not _is_lending(select):
            facts.evaluate_model_selector = partial(_select_and_lend, facts, select, lend)
    return method(context)


def _is_lending(select: object) -> bool:
    return isinstance(select, partial) and select.func is _select_and_lend


async def _select_and_lend(
    facts: Any,
    select: Callable[[object, object], Awaitable[tuple[Model, str | None]]],
    lend: Callable[[Model], Model],
    selector: object,
    context: object,
) -> tuple[Model, str | None]:
    """Select the model of a step. PydanticAI enters the lent model, so the selected one is entered here."""
    model, model_id = await select(selector, context)
    if selector is not facts.model_selector:  # the model of one attempt at a request, not that of the step
        return model, model_id
    await facts.enter_model(model)
    return lend(model), model_id
