from typing import Any

import pytest

from fastroai.errors import ConfigurationError
from fastroai.steps import ConversationState, ConversationStatus


def test_a_state_has_no_data_and_no_context_unless_they_are_given() -> None:
    state: ConversationState[str] = ConversationState(ConversationStatus.INCOMPLETE)
    assert (state.data, dict(state.context)) == (None, {})


def test_a_status_is_its_name_in_json() -> None:
    assert [str(status) for status in ConversationStatus] == ["complete", "incomplete"]


def test_a_status_may_be_said_as_in_json() -> None:
    state: ConversationState[str] = ConversationState("incomplete")  # type: ignore[arg-type]
    assert state.status is ConversationStatus.INCOMPLETE
    assert state.is_incomplete


@pytest.mark.parametrize("status", ["done", "", None, True])
def test_a_status_that_is_none_is_refused(status: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"^status=.*: expected 'complete' or 'incomplete'$"):
        ConversationState(status)
