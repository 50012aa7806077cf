"""What is declared for agent calls, as hashes by which answers on record are compared.

Compared are the agent's and the call's own instructions, names of instruction functions, the model that is
asked for, the output type and settings. What functions return, fallback models and FastroAI's own defaults
and wording are not, nor are those of PydanticAI.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from pydantic_ai.agent import AbstractAgent, WrapperAgent
from pydantic_ai.messages import InstructionPart
from pydantic_ai.models import Model
from pydantic_ai.models.fallback import FallbackModel
from pydantic_ai.models.wrapper import WrapperModel
from pydantic_core import to_json

from fastroai.calls.call import AgentCall
from fastroai.errors import UnknownModelError
from fastroai.pydantic_ai_private import declared_by, template_of
from fastroai.store.record.declarations import digest, with_sorted_defaults
from fastroai.usage import model_reference

_MOST_KNOWN: Final = 64


class AgentDeclaration:
    """Hashes what is declared for calls of one agent, once for each declaration."""

    __slots__ = ("_agent", "_deferred_model", "_parts")

    def __init__(self, agent: AbstractAgent[Any, Any], deferred_model: str | None) -> None:
        """`deferred_model` is the model of the agent if that is only named, and not built yet."""
        self._agent, self._deferred_model = agent, deferred_model
        self._parts: dict[object, Mapping[str, str]] = {}

    def of(self, call: AgentCall) -> Mapping[str, str]:
        """Return the hashes of what is declared for a call, by name."""
        agent = _innermost(self._agent)
        own = declared_by(agent)
        model = call.options.get("model") or own.model or self._deferred_model or agent.model
        output: Any = agent.output_type if call.output_type is None else call.output_type
        texts = (*map(_text, own.instructions), "", *map(_text, _listed(call.options.get("instructions"))))
        prompts = tuple(map(_text, own.system_prompts))
        settings = settings_as_json(model, own.model_settings, call.options.get("model_settings"))
        given_spec = call.options.get("spec")
        spec = b"" if given_spec is None else to_json(given_spec, fallback=_type_name)
        key = texts, prompts, model_name(model), settings, _hashable(output), spec
        if (known := self._parts.get(key)) is None:
            if len(self._parts) >= _MOST_KNOWN:
                self._parts.clear()
            known = self._parts[key] = {
                "instructions": digest(*texts, "", *prompts, spec),
                "model": digest(model_name(model)),
                "output": digest(_schema(agent, output)),
                "settings": digest(settings),
            }
        return known


def model_name(model: Model | str | None) -> str:
    """Return the name of a model as `provider:model`; of a fallback model, that of its first model.

    For `None`, return an empty text. Return a name as it is if its provider is not known.
    """
    if isinstance(model, FallbackModel):
        return model_name(model.models[0])
    if isinstance(model, WrapperModel):
        return model_name(model.wrapped)
    if isinstance(model, Model):
        return f"{model.system}:{model.model_name}"
    if not isinstance(model, str):
        return ""
    try:
        provider, name = model_reference(model)
    except UnknownModelError:  # which is raised when the model is asked
        return model
    return f"{provider}:{name}"


def settings_as_json(model: Model | str | None, *declared: object) -> bytes:
    """Return declared settings and those that a model was built with. Functions count by their names."""
    built_with = model.settings if isinstance(model, Model) else None
    settings = [_text(one) if callable(one) else one or {} for one in (built_with, *declared)]
    return to_json(settings, fallback=_type_name, inf_nan_mode="constants")


def inputs_of(agent: str, call: AgentCall) -> str:
    """Return the hash of what a call is given: the prompt, and the results of deferred calls of tools."""
    given = [call.prompt, call.options.get("deferred_tool_results")]
    return digest(agent, to_json(given, fallback=_type_name, inf_nan_mode="constants", bytes_mode="base64"))


def has_history(call: AgentCall) -> bool:
    """Return whether a call goes on with a conversation."""
    return bool(call.message_history) or call.options.get("conversation") is not None


def _schema(agent: AbstractAgent[Any, Any], output: Any) -> bytes:
    """Return the JSON Schema of an output type. A type of a library has its name: its wording may change."""
    listed = list(output) if isinstance(output, list | tuple) else [output]
    own = [one for one in listed if not _is_of_library(one)]
    names = "".join(f" {_type_name(one)}" for one in listed if _is_of_library(one)).encode()
    try:
        schema = agent.output_json_schema(own if names else output) if own else {}
        return to_json(with_sorted_defaults(schema)) + names
    except Exception:  # pydantic has no JSON Schema for it, and PydanticAI may need none
        return _type_name(output).encode()


def _is_of_library(output: object) -> bool:
    return isinstance(output, type) and output.__module__.partition(".")[0] in ("pydantic_ai", "fastroai")


def _hashable(output: object) -> object:
    """Return an output type as a key. Two types `list[int]` are equal, though they are two objects."""
    if isinstance(output, list | tuple):
        return tuple(map(_hashable, output))
    try:
        hash(output)
    except TypeError:  # also of an `Annotated` type with a list in it
        return repr(output)
    return output


def _innermost(agent: AbstractAgent[Any, Any]) -> AbstractAgent[Any, Any]:
    while isinstance(agent, WrapperAgent):
        agent = agent.wrapped
    return agent


def _listed(given: object) -> Sequence[object]:
    if given is None:
        return ()
    return given if isinstance(given, Sequence) and not isinstance(given, str) else (given,)


def _text(declared: object) -> str:
    """Return a text that is declared, or the name of a function that makes one."""
    if isinstance(declared, str):
        return declared
    if isinstance(declared, InstructionPart):
        return declared.content
    if (template := template_of(declared)) is not None:
        return template
    function = getattr(declared, "func", declared)  # of a partial
    return f"{getattr(function, '__name__', _type_name(function))}()"


def _type_name(value: object) -> str:
    return type(value).__qualname__ if not isinstance(value, type) else value.__qualname__
