"""Copies of nested models: each leaf is replaced once, and the models of the user stay as they were."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from pydantic_ai.models import Model
from pydantic_ai.models.fallback import FallbackModel
from pydantic_ai.models.test import TestModel
from pydantic_ai.models.wrapper import WrapperModel

from fastroai.agent.requests.inner_models import InnerModels


class Own(TestModel):
    """What replaces a leaf."""


class Beside(TestModel):
    """What replaces a leaf that a wrapper has beside its wrapped model."""


def replaced(model: Model) -> Model:
    inner = InnerModels(is_leaf=lambda _: False, beside=lambda _: Beside())
    return inner.replaced(model, lambda _: Own())


class Judged(WrapperModel):
    def __init__(self, wrapped: Model, judge: object) -> None:
        super().__init__(wrapped)
        self.judge: Any = judge


def holding(keep: Callable[[Model], object]) -> Callable[[tuple[Model, Model]], Model]:
    return lambda pair: Judged(pair[0], keep(pair[1]))


models: st.SearchStrategy[Model] = st.recursive(
    st.builds(TestModel),
    lambda inner: st.one_of(
        st.builds(WrapperModel, inner),
        st.builds(FallbackModel, inner, inner),
        *(
            st.tuples(inner, inner).map(holding(keep))
            for keep in (
                lambda model: model,
                lambda model: [model, "judge"],
                lambda model: (1, model),
                lambda model: {"judge": model, "name": None},
            )
        ),
    ),
    max_leaves=8,
)


def inside(model: Model) -> list[Model]:
    """Return all leaves of a model, of judges too."""
    if isinstance(model, FallbackModel):
        return [leaf for each in model.models for leaf in inside(each)]
    if not isinstance(model, WrapperModel):
        return [model]
    judge = getattr(model, "judge", None) if isinstance(model, Judged) else None
    held = list(judge.values()) if isinstance(judge, dict) else judge
    judges = held if isinstance(held, list | tuple) else [held]
    return [leaf for each in (model.wrapped, *judges) if isinstance(each, Model) for leaf in inside(each)]


@given(models)
def test_every_leaf_is_replaced_and_nothing_of_the_user_changes(model: Model) -> None:
    before = inside(model)
    made = replaced(model)
    assert len(inside(made)) == len(before)
    assert all(isinstance(leaf, Own | Beside) for leaf in inside(made))
    assert all(one is other for one, other in zip(inside(model), before, strict=True))


def test_a_model_under_two_names_is_replaced_by_one() -> None:
    leaf = TestModel()
    made = replaced(Judged(leaf, leaf))
    assert isinstance(made, Judged)
    assert made.judge is made.wrapped
    assert type(made.wrapped) is Own


def test_models_may_refer_to_each_other() -> None:
    one, other = Judged(TestModel(), None), Judged(TestModel(), None)
    one.judge, other.judge = other, one
    made = replaced(one)
    assert isinstance(made, Judged)
    assert made.judge.judge is made
    assert made is not one


def test_what_a_model_that_is_no_wrapper_asks_is_its_own_matter() -> None:
    class Asking(TestModel):
        inner = TestModel()

    assert type(replaced(Asking())) is Own
