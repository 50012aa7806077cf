"""`Probabilistic[T]`: samples of one answer, for functions whose answers may vary."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Generic

from typing_extensions import TypeVar

from fastroai.errors import ConfigurationError, StabilityAssertionError
from fastroai.functions.quorum import Fields, fields_of, groups

T_co = TypeVar("T_co", covariant=True)

DEFAULT_STABILITY: Final = 0.9
"""Share of the samples that must agree for `assert_stable`."""


@dataclass(frozen=True)
class Probabilistic(Generic[T_co]):
    """The samples of one call of a function with `stable=False`: one, and `sample_n` in test mode."""

    samples: tuple[T_co, ...]
    """All samples, in the order in which they were asked for. There is at least one."""

    @property
    def most_likely(self) -> T_co:
        """The sample that most other samples equal; if several are equally common, the earliest."""
        return self.samples[_largest(self.samples, ())[0]]

    def sample(self, source: random.Random | None = None) -> T_co:
        """Return one of the samples at random. A seeded `source` makes the choice repeatable."""
        return (source or random).choice(self.samples)

    def agreement(self, on: Fields = ()) -> float:
        """Return the share of the samples that agree with the most likely one, from 0 to 1.

        `on` names the fields that must be equal; without any, the whole outputs must be.

        Raises:
            ConfigurationError: a sample does not have such a field.
        """
        return len(_largest(self.samples, fields_of(on))) / len(self.samples)

    def assert_stable(self, threshold: float = DEFAULT_STABILITY, on: Fields = ()) -> None:
        """Raise if the share of samples that agree is below `threshold`, from 0 to 1. For tests.

        `on` names the fields that must be equal; without any, the whole outputs must be.

        Raises:
            StabilityAssertionError: too few samples agree. It is an `AssertionError`.
            ConfigurationError: the threshold is not a share, or a sample does not have such a field.
        """
        if not isinstance(threshold, int | float) or not 0 <= threshold <= 1:  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ConfigurationError("threshold", threshold, "a share of the samples, from 0 to 1")
        if (share := self.agreement(on)) < threshold:
            raise StabilityAssertionError(share, threshold, fields_of(on), self.samples)


def _largest(samples: Sequence[object], on: tuple[str, ...]) -> list[int]:
    """Return the indexes of the largest group of samples that agree; of several, the earliest group."""
    return max(groups(list(enumerate(samples)), on), key=len)
