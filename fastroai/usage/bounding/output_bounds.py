"""An upper bound on the output tokens of a request, and how far `max_tokens` can lower it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from pydantic_ai.profiles.anthropic import ANTHROPIC_THINKING_BUDGET_MAP

from fastroai.usage.facts import outputs

if TYPE_CHECKING:
    from pydantic_ai.models import Model, ModelRequestParameters

    from fastroai.usage.prices.hosts import Host


@dataclass(frozen=True, slots=True)
class OutputLimit:
    """An upper bound on the output of a request."""

    tokens: int | None
    """The most tokens billed as output, thinking included; `None` if nothing limits them."""
    floor: int | None
    """The smallest `max_tokens` that the provider accepts; `None` where it does not limit the output."""


def output_limit(
    host: Host, model: Model, settings: Mapping[str, object], parameters: ModelRequestParameters
) -> OutputLimit:
    """Return the limit on the output of a request. Takes the results of `Model.prepare_request`.

    `max_tokens` limits all output where a provider honours it, thinking included (`facts.outputs`).
    """
    claude_limit = _positive(_profile(model).get("anthropic_max_output_tokens"))
    facts = host.facts
    limits = [host.window, claude_limit, None if facts is None else facts.output_tokens]
    budget = _thinking_budget(model, settings, parameters)
    if model.system == "anthropic" and not _positive(settings.get("max_tokens")):
        default = claude_limit or outputs.CLAUDE_DEFAULT.tokens
        limits.append(max(default, budget + outputs.CLAUDE_DEFAULT_BEYOND_THINKING.tokens))
    honoured = _honours_max_tokens(model, settings, parameters)
    if honoured:
        limits.append(_positive(settings.get("max_tokens")))
    known = [limit for limit in limits if limit is not None]
    return OutputLimit(min(known, default=None), _floor(model, budget) if honoured else None)


def _honours_max_tokens(
    model: Model, settings: Mapping[str, object], parameters: ModelRequestParameters
) -> bool:
    """Return whether `max_tokens` is sent and limits everything that is billed as output."""
    ignored = {
        *model.unsupported_settings,
        *_strings(_profile(model).get("openai_unsupported_model_settings")),
    }
    return (
        "max_tokens" not in ignored
        and not thinks_besides(model, settings, parameters)
        and not any(settings.get(name) for name in outputs.EXCLUDES_MAX_TOKENS.names)
    )


def thinks_besides(model: Model, settings: Mapping[str, object], parameters: ModelRequestParameters) -> bool:
    """Return whether a model may think beyond `max_tokens`.

    Grok does. Exceptions are the Responses API, and a Grok that can be told not to think and is told so.
    """
    if not outputs.THINKS_BESIDES.names.match(model.model_name) or _is_responses(type(model)):
        return False
    efforts = _profile(model).get("grok_reasoning_efforts")
    effort = settings.get("xai_reasoning_effort")
    asked_not_to = effort == "none" if effort is not None else parameters.thinking is False
    return not (model.system == "xai" and asked_not_to and "none" in _strings(efforts))


def _floor(model: Model, thinking_budget: int) -> int:
    accepted = outputs.LEAST_OF_RESPONSES.tokens if _is_responses(type(model)) else 1
    return max(accepted, thinking_budget + outputs.BEYOND_THINKING.tokens if thinking_budget else 0)


@lru_cache(maxsize=1024)
def _is_responses(cls: type[Model]) -> bool:
    return any(kind.__name__ == "OpenAIResponsesModel" for kind in cls.__mro__)


def _thinking_budget(model: Model, settings: Mapping[str, object], parameters: ModelRequestParameters) -> int:
    """Return the tokens that Claude is given to think with; 0 if it is given none, or decides by itself.

    PydanticAI sends `anthropic_thinking`, else `thinking` for models that do not adapt.
    """
    given = settings.get("anthropic_thinking")
    if isinstance(given, Mapping) and given:
        return _positive(given.get("budget_tokens")) or 0
    adapts = _profile(model).get(f"{model.system}_supports_adaptive_thinking")
    if model.system not in ("anthropic", "bedrock") or adapts or parameters.thinking is None:
        return 0
    return ANTHROPIC_THINKING_BUDGET_MAP.get(parameters.thinking, 0)


def _profile(model: Model) -> Mapping[str, object]:
    return model.profile


def _positive(value: object) -> int | None:
    return value if isinstance(value, int) and value > 0 else None


def _strings(value: object) -> Sequence[str]:
    return [str(item) for item in value] if isinstance(value, Sequence | Set) else []
