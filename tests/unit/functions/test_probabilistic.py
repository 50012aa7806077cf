"""Samples of one answer: the most likely one, one of them, and whether enough of them agree."""

from __future__ import annotations

import random
from dataclasses import dataclass

import pytest
from pydantic import TypeAdapter

from fastroai.errors import ConfigurationError
from fastroai.functions.errors import StabilityAssertionError
from fastroai.functions.several.probabilistic import Probabilistic


@dataclass
class Verdict:
    label: str
    reason: str


def test_the_most_likely_sample_is_the_one_that_most_others_equal() -> None:
    assert Probabilistic(("b", "a", "c", "a")).most_likely() == "a"
    assert Probabilistic(("b", "a", "a", "b")).most_likely() == "b", "the earlier of two"
    assert Probabilistic(("only",)).most_likely() == "only"


def test_a_sample_is_drawn_from_all() -> None:
    answer = Probabilistic(("a", "b", "c"))

    assert {answer.sample() for _ in range(200)} == {"a", "b", "c"}
    assert answer.sample(random.Random(1)) == answer.sample(random.Random(1))


def test_stability_is_the_share_of_samples_that_agree() -> None:
    answer = Probabilistic((*["a"] * 9, "b"))

    assert answer.agreement() == 0.9
    answer.assert_stable()
    with pytest.raises(StabilityAssertionError, match="90% of 10 samples agree, and 95% must") as raised:
        answer.assert_stable(0.95)
    assert raised.value.outputs == answer.samples
    assert isinstance(raised.value, AssertionError)


def test_samples_may_have_to_agree_on_fields_only() -> None:
    answer = Probabilistic((Verdict("good", "x"), Verdict("good", "y")))

    answer.assert_stable(on="label")
    answer.assert_stable(on=["label"])
    with pytest.raises(StabilityAssertionError, match="50% of 2 samples agree on 'label', 'reason'"):
        answer.assert_stable(on=("label", "reason"))
    with pytest.raises(StabilityAssertionError):
        answer.assert_stable()


@pytest.mark.parametrize("threshold", [1.1, -0.1, float("nan")])
def test_a_threshold_that_is_no_share_is_refused(threshold: float) -> None:
    with pytest.raises(ConfigurationError, match="threshold"):
        Probabilistic(("a",)).assert_stable(threshold)


def test_it_can_be_stored_by_its_type() -> None:
    adapter = TypeAdapter(Probabilistic[Verdict])
    answer = Probabilistic((Verdict("good", "x"),))

    assert adapter.validate_json(adapter.dump_json(answer)) == answer


def test_stable_samples_give_the_most_likely_one() -> None:
    answer = Probabilistic((Verdict("bad", "x"), Verdict("good", "y"), Verdict("good", "z")))

    assert answer.assert_stable(0.5, on="label") == Verdict("good", "y")
    assert answer.usage.request_count == 0, "no call has given them"
