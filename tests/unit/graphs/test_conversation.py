"""What can be said of a graph's conversation."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic_ai import Agent
from pydantic_ai.models.test import TestModel

from fastroai.agent import FastroAgent
from fastroai.errors import ConfigurationError
from fastroai.graphs.conversation.conversation import GraphConversation


def test_the_two_words_are_short_forms() -> None:
    assert GraphConversation.of("continuous") == GraphConversation()
    assert GraphConversation.of("isolated") == GraphConversation(mode="isolated")
    said = GraphConversation(compact_above=10)
    assert GraphConversation.of(said) is said


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"mode": "shared"}, "'continuous', 'isolated' or a GraphConversation"),
        ({"compact_above": 0}, "compact_above=0"),
        ({"keep_phases": 0}, "keep_phases=0"),
        ({"mode": "isolated", "compact_above": 5}, "no value with 'isolated'"),
        ({"summarizer": FastroAgent(TestModel())}, "compact_above= too"),
        ({"summarizer": Agent(TestModel()), "compact_above": 5}, "FastroAgent"),
    ],
)
def test_what_cannot_be_meant_is_refused(options: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigurationError, match=told):
        GraphConversation(**options)
