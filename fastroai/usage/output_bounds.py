"""The most output tokens that a request can have, and how far that can be lowered."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pydantic_ai.profiles.anthropic import ANTHROPIC_THINKING_BUDGET_MAP

from fastroai.usage.facts import THINKS_BESIDES

if TYPE_CHECKING:
    from pydantic_ai.models import Model, ModelRequestParameters

    from fastroai.usage.hosts import Host

_ANTHROPIC_DEFAULT: Final = 16_384
"""What PydanticAI sends as `max_tokens`, which Anthropic requires, where nothing says how much, ..."""
_ANTHROPIC_AFTER_THINKING: Final = 4_096
"""... and at least beyond a budget for thinking."""


@dataclass(frozen=True, slots=True)
class OutputLimit:
    """The most output of a request."""

    tokens: int | None
    """Everything that is billed as output, thinking included; `None` if nothing limits it."""
    floor: int | None
    """The smallest `max_tokens` that the provider accepts; `None` where it does not limit the output."""


def output_limit(
    host: Host, model: Model, settings: Mapping[str, object], parameters: ModelRequestParameters
) -> OutputLimit:
    """What limits the output of a request; takes what `Model.prepare_request` gives.

    `max_tokens` limits all output where a provider honours it, thinking included: for OpenAI "visible output
    tokens and reasoning tokens" (`max_output_tokens` in its API reference), for Anthropic "a strict limit"
    (https://platform.claude.com/docs/en/build-with-claude/extended-thinking), for Google both together
    (https://github.com/googleapis/python-genai/issues/2062).
    """
    claude_limit = _positive(_profile(model).get("anthropic_max_output_tokens"))
    facts = host.facts
    limits = [host.window, claude_limit, None if facts is None else facts.output_tokens]
    budget = _thinking_budget(model, settings, parameters)
    if model.system == "anthropic" and not _positive(settings.get("max_tokens")):
        limits.append(max(claude_limit or _ANTHROPIC_DEFAULT, budget + _ANTHROPIC_AFTER_THINKING))
    honoured = _honours_max_tokens(model, settings, parameters)
    if honoured:
        limits.append(_positive(settings.get("max_tokens")))
    known = [limit for limit in limits if limit is not None]
    return OutputLimit(min(known, default=None), _floor(model, budget) if honoured else None)


def _honours_max_tokens(
    model: Model, settings: Mapping[str, object], parameters: ModelRequestParameters
) -> bool:
    """Whether `max_tokens` is sent and limits everything that is billed as output."""
    ignored = {
        *model.unsupported_settings,
        *_strings(_profile(model).get("openai_unsupported_model_settings")),
    }
    # With predicted outputs, `max_completion_tokens` is refused, and what is rejected of the prediction is
    # billed as output; like other output, it is part of the context window.
    # https://developers.openai.com/api/docs/guides/predicted-outputs#limitations
    return (
        "max_tokens" not in ignored
        and not thinks_besides(model, settings, parameters)
        and not settings.get("openai_prediction")
    )


def thinks_besides(model: Model, settings: Mapping[str, object], parameters: ModelRequestParameters) -> bool:
    """Whether a model may think beyond `max_tokens`.

    Grok does, but in answers of the Responses API, and where it is told not to think and can be told so.
    """
    if not THINKS_BESIDES.names.match(model.model_name) or _is_responses(model):
        return False
    efforts = _profile(model).get("grok_reasoning_efforts")
    effort = settings.get("xai_reasoning_effort")
    asked_not_to = effort == "none" if effort is not None else parameters.thinking is False
    return not (model.system == "xai" and asked_not_to and "none" in _strings(efforts))


def _floor(model: Model, thinking_budget: int) -> int:
    # "Invalid 'max_output_tokens': integer below minimum value. Expected a value >= 16":
    # https://github.com/earendil-works/pi/issues/6265. Others take any positive number.
    accepted = 16 if _is_responses(model) else 1
    # "`max_tokens` must be greater than `thinking.budget_tokens`":
    # https://platform.claude.com/docs/en/build-with-claude/extended-thinking#working-with-thinking-budgets
    return max(accepted, thinking_budget + 1 if thinking_budget else 0)


def _is_responses(model: Model) -> bool:
    return any(kind.__name__ == "OpenAIResponsesModel" for kind in type(model).__mro__)


def _thinking_budget(model: Model, settings: Mapping[str, object], parameters: ModelRequestParameters) -> int:
    """The tokens that Claude is given to think with; 0 if it is not given any, or decides by itself.

    As PydanticAI sends it: `anthropic_thinking`, else `thinking` for models that do not adapt.
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
