"""Copies of models that hand requests to other models, with those other models replaced."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import TypeAlias

from pydantic_ai.models import Model
from pydantic_ai.models.fallback import FallbackModel
from pydantic_ai.models.wrapper import WrapperModel

Replace: TypeAlias = Callable[[Model], Model]
"""A function that returns the model to use instead of a leaf."""


class InnerModels:
    """Replaces the leaves of a model, and models that wrappers have beside the wrapped one."""

    def __init__(self, *, is_leaf: Callable[[Model], bool], beside: Replace) -> None:
        """Replace leaves that wrappers have beside their wrapped model by `beside`.

        `is_leaf` tells wrappers that are to be replaced themselves. Models that are neither wrappers nor a
        `FallbackModel` are leaves in any case: what they ask inside is a part of their own requests.
        """
        self._is_leaf, self._beside = is_leaf, beside
        self._made: list[tuple[Model, Model]] = []  # models are not hashable

    def replaced(self, model: Model, replace: Replace) -> Model:
        """Return a copy of a model whose leaves are replaced, or what replaces the model, if it is a leaf."""
        for known, made in self._made:
            if known is model:
                return made
        if self._is_leaf(model) or not isinstance(model, FallbackModel | WrapperModel):
            leaf = replace(model)
            self._made.append((model, leaf))
            return leaf
        made = copy.copy(model)
        self._made.append((model, made))  # first, as the models inside may refer to this one
        if isinstance(made, WrapperModel):
            made.wrapped = self.replaced(made.wrapped, replace)
        elif isinstance(made, FallbackModel):
            made.models = [self.replaced(candidate, replace) for candidate in made.models]
        for name, value in vars(model).items():
            if name not in ("models", "wrapped"):
                self._replace_beside(made, name, value)
        return made

    def _replace_beside(self, made: Model, name: str, value: object) -> None:
        replaced: object
        if isinstance(value, Model):
            replaced = self.replaced(value, self._beside)
        elif isinstance(value, list) and any(isinstance(each, Model) for each in value):
            replaced = copy.copy(value)
            replaced[:] = map(self._replaced_or_same, value)
        elif type(value) is tuple and any(isinstance(each, Model) for each in value):
            replaced = tuple(map(self._replaced_or_same, value))
        elif isinstance(value, dict) and any(isinstance(each, Model) for each in value.values()):
            replaced = copy.copy(value)
            replaced.update({key: self._replaced_or_same(each) for key, each in value.items()})
        else:
            return
        vars(made)[name] = replaced

    def _replaced_or_same(self, value: object) -> object:
        return self.replaced(value, self._beside) if isinstance(value, Model) else value
