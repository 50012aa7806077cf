"""Whether every setting of PydanticAI's models is sorted, or left out on purpose."""

from typing import Final

import pytest
from support.settings import names_of_settings

from fastroai.usage.facts.settings import HARMLESS_SETTINGS, HARMLESS_VALUES, SERVER_SIDE_INPUT_SETTINGS

SORTED: Final = HARMLESS_SETTINGS | SERVER_SIDE_INPUT_SETTINGS | HARMLESS_VALUES.keys()
LEFT_OUT: Final = {
    "adds input of a size that nothing documents": """
        anthropic_code_execution_tool_version anthropic_container anthropic_task_budget
        bedrock_additional_model_requests_fields bedrock_guardrail_config bedrock_prompt_variables citations
    """,
    "adds work or prices that the bound does not know": """
        anthropic_betas anthropic_context_management anthropic_web_tools_allowed_callers
        bedrock_inference_profile bedrock_performance_configuration extra_body google_model_armor_config
        mcp_model_preferences openai_context_management openai_moderation openai_native_tools
        openai_reasoning_mode openrouter_models openrouter_preset openrouter_provider snowflake_reasoning
        xai_agent_count xai_max_turns
    """,
    "is for tools or models that have no bound anyway": """
        bedrock_additional_model_response_fields_paths decision_boolean_threshold decision_route_threshold
        openai_include_code_execution_outputs openai_include_file_search_results
        openai_include_unmapped_response_data openai_include_web_search_sources
        typesafe_boolean_threshold typesafe_tool_call_threshold xai_include_attachment_search_output
        xai_include_code_execution_output xai_include_collections_search_output xai_include_inline_citations
        xai_include_mcp_output xai_include_web_search_output xai_include_x_search_output
    """,
}
"""Settings that budgets refuse, as one that nobody has looked at is refused; by reason."""


def left_out() -> set[str]:
    return {name for names in LEFT_OUT.values() for name in names.split()}


def test_every_setting_is_sorted_or_left_out() -> None:
    new = names_of_settings() - SORTED - left_out()
    assert not new, (
        f"new settings: {sorted(new)}. Add each to fastroai/usage/facts/settings.py if it adds nothing "
        "but tokens of the body and the answer, at prices that the bound knows; else to LEFT_OUT here, which "
        "budgets refuse"
    )


def test_no_setting_is_in_two_groups() -> None:
    assert not SORTED & left_out()


@pytest.mark.parametrize("name", ["max_tokens", "openai_service_tier", "anthropic_cache"])
def test_the_classes_of_settings_are_found(name: str) -> None:
    assert name in names_of_settings()
