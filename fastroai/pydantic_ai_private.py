"""Names of PydanticAI that are not public, each behind a function that says what happens without the name.

A later PydanticAI may rename them at any time, so none of these functions raises because of it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeGuard
from weakref import ref

from pydantic_ai import models

if TYPE_CHECKING:
    import httpx
    import httpx2
    from pydantic_ai.messages import InstructionPart, ModelMessage, ModelResponse
    from pydantic_ai.models import Model, ModelRequestParameters
    from pydantic_ai.models.wrapper import WrapperModel
    from pydantic_ai.providers import Provider
    from pydantic_ai.result import StreamedRunResult


def change_http_clients(
    provider: Provider[Any], change: Callable[[httpx.AsyncClient | httpx2.AsyncClient], None]
) -> bool:
    """Change the HTTP client that PydanticAI made for a provider, and its replacements on other event loops.

    Return whether there is one: not for the user's own clients, nor for providers without HTTP clients of
    PydanticAI's (Bedrock). Without the names no client is changed, as if all were the user's own.
    """
    client = getattr(provider, "_own_http_client", None)
    make = getattr(provider, "_http_client_factory", None)
    if client is None or not callable(make):
        return False

    def make_changed() -> httpx.AsyncClient | httpx2.AsyncClient:
        made: httpx.AsyncClient | httpx2.AsyncClient = make()  # pyright: ignore[reportAssignmentType]
        change(made)
        return made

    change(client)
    provider._http_client_factory = make_changed
    return True


def refresh_http_client(model: Model) -> None:
    """Give a model a new HTTP client if the event loop of its last one has ended, as each agent run does.

    Without the name the client stays: the first request on another loop may fail as one to a closed loop.
    """
    refresh = getattr(model, "_refresh_http_client", None)
    if callable(refresh):
        refresh()


async def stop_reading(stream: StreamedRunResult[Any, Any]) -> None:
    """End the reading of an answer, even while its next event is awaited.

    The SDKs of Google, xAI and Hugging Face cannot close a connection from which an event is awaited, and
    models without a connection would write on. Without the names, they do.
    """
    events = getattr(stream, "_stream_response", None)
    close: Callable[[], Awaitable[None]] | None = getattr(events, "aclose_events", None)
    if close is not None:
        await close()


def batch_job_error() -> type[Exception]:
    """Return PydanticAI's error for a batch that ended without running any of its requests.

    Without the name it is an error that nobody raises: the requests of such a batch count at their bounds.
    """
    try:
        from pydantic_ai.models._batch_codec import BatchJobError
    except ImportError:
        return _Unraised
    return BatchJobError


def is_batched(model: Model) -> TypeGuard[WrapperModel]:
    """Return whether a model sends its requests in the batches of `BatchModelRequests`.

    Without the name no model does: the batches of runs that are resumed are sent again.
    """
    try:
        from pydantic_ai.models._batch_model import BatchedModel
    except ImportError:
        return False
    return isinstance(model, BatchedModel)


def id_in_batch(response: ModelResponse) -> str | None:
    """Return the id that a request has in its batch, if the response says that the request waits there.

    Without the field no response does, as in `is_batched`.
    """
    if response.state != "suspended" or not (response.provider_response_id or "").startswith("batch:"):
        return None
    ticket = (response.provider_details or {}).get("batch")
    known = ticket.get("custom_id") if isinstance(ticket, dict) else None  # pyright: ignore[reportUnknownVariableType, reportUnknownMemberType]
    return known if isinstance(known, str) else None


class _Unraised(Exception):
    """An error that nobody raises."""


def is_of_every_agent(capability: type[object]) -> bool:
    """Return whether a class is one of the capabilities that PydanticAI gives to every agent.

    They are in private modules, and call no model. From elsewhere they would be named in estimates as code
    that may call models.
    """
    return capability.__module__.startswith("pydantic_ai.capabilities._")


def sent_instructions(
    model: Model, messages: Sequence[ModelMessage], parameters: ModelRequestParameters
) -> list[InstructionPart] | None:
    """Return the instructions that a model sends, with what PydanticAI adds to them.

    From 2.68 on it explains its `<system>` tags there. Takes the parameters that `Model.prepare_request`
    returns. Without the name the result is `None`: the added text is missing from bounds, and what is counted
    as the request is sent shows it.
    """
    collect = getattr(model, "_get_instruction_parts", None)
    try:
        parts: list[InstructionPart] | None = None if collect is None else collect(messages, parameters)
    except (AttributeError, TypeError):  # a method of other arguments or meaning
        return None
    return parts


def is_added_by_pydantic_ai(part: object) -> bool:
    """Return whether PydanticAI itself put a part into a message, or among the instructions.

    From 2.68 on it marks such parts. Without the mark, they pass for the user's own instructions and prompts.
    """
    mark = getattr(models, "_FrameworkAdded", None)
    return isinstance(mark, type) and isinstance(part, mark)


def lend_model_to_run(node: object, lend: Callable[[Model], Model]) -> None:
    """Once a node of a run runs, replace the model that each later `RunContext` of the run has.

    PydanticAI makes these contexts from the dependencies of its graph, which only nodes get to see. Without
    their attribute `model`, these contexts have the model without a meter; without `evaluate_model_selector`
    or `enter_model`, those of steps whose model a function selects do.
    """
    if not hasattr(node, "__dict__"):
        return
    for name in _METHODS_OF_NODES:
        if hasattr(node, name):
            setattr(node, name, partial(_with_lent_model, node, name, lend))


_METHODS_OF_NODES: Final = ("run", "stream")


def _with_lent_model(node: object, method: str, lend: Callable[[Model], Model], context: Any) -> Any:
    for name in _METHODS_OF_NODES:  # they hold the node, and would keep all of the run in a circle
        vars(node).pop(name, None)
    facts = getattr(context, "deps", None)
    model = getattr(facts, "model", None)
    if facts is not None and model is not None and hasattr(model, "request"):
        facts.model = lend(model)
        select = getattr(facts, "evaluate_model_selector", None)
        if select is not None and hasattr(facts, "enter_model") and not _is_lending(select):
            facts.evaluate_model_selector = partial(_select_and_lend, ref(facts), select, lend)
    return getattr(node, method)(context)


def _is_lending(select: object) -> bool:
    return isinstance(select, partial) and select.func is _select_and_lend


async def _select_and_lend(
    of: ref[Any],
    select: Callable[[object, object], Awaitable[tuple[Model, str | None]]],
    lend: Callable[[Model], Model],
    selector: object,
    context: object,
) -> tuple[Model, str | None]:
    """Select the model of a step. PydanticAI enters the lent model, so the selected one is entered here."""
    model, model_id = await select(selector, context)
    facts = of()
    if facts is None or selector is not facts.model_selector:
        return model, model_id  # the model of one attempt at a request, not that of the step
    await facts.enter_model(model)
    return lend(model), model_id


class DeclaredByAgent(NamedTuple):
    """What an agent declares, or what overrides it here."""

    instructions: Sequence[object]
    """Texts and functions."""
    system_prompts: Sequence[object]
    """Texts and functions."""
    model: Any
    """The model that overrides the agent's own; `None` without any."""
    model_settings: object


def declared_by(agent: object) -> DeclaredByAgent:
    """Return what an agent declares besides its public `model` and `output_type`.

    Without the names its instructions and overrides are missing: runs that are resumed do not see that they
    have changed.
    """
    overridden = _overridden(agent, "_override_instructions")
    sourced = _listed(agent, "_instructions") if overridden is None else overridden
    prompts = [*_listed(agent, "_system_prompts"), *_listed(agent, "_system_prompt_functions")]
    settings = _overridden(agent, "_override_model_settings")
    return DeclaredByAgent(
        [getattr(one, "instruction", one) for one in sourced],
        [getattr(one, "function", one) for one in prompts],
        _overridden(agent, "_override_model"),
        getattr(agent, "model_settings", None) if settings is None else settings,
    )


def template_of(instruction: object) -> str | None:
    """Return the source of a template of instructions; `None` for anything else, and without the name."""
    source = getattr(instruction, "_source", None)
    return source if isinstance(source, str) else None


def _listed(agent: object, name: str) -> Sequence[object]:
    found = getattr(agent, name, ())
    return found if isinstance(found, list | tuple) else ()  # pyright: ignore[reportUnknownVariableType]


def _overridden(agent: object, name: str) -> Any:
    """Return the value that overrides one of an agent in this context; `None` without any."""
    variable: Any = getattr(agent, name, None)
    found = None if variable is None else variable.get()
    return None if found is None else getattr(found, "value", None)
