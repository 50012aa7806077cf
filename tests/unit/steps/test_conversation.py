from fastroai.steps import ConversationState, ConversationStatus


def test_only_an_incomplete_state_stops_a_pipeline() -> None:
    assert ConversationState(ConversationStatus.INCOMPLETE).is_incomplete
    assert not ConversationState(ConversationStatus.COMPLETE, data={"name": "Ada"}).is_incomplete


def test_a_state_has_no_data_and_no_context_unless_they_are_given() -> None:
    state: ConversationState[str] = ConversationState(ConversationStatus.INCOMPLETE)
    assert (state.data, dict(state.context)) == (None, {})


def test_a_status_is_its_name_in_json() -> None:
    assert [str(status) for status in ConversationStatus] == ["complete", "incomplete"]
