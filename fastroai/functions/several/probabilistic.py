"""`Probabilistic[T]`: samples of one answer, for functions whose answers may vary."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Generic

from typing_extensions import TypeVar

from fastroai.errors import ConfigurationError, attach_usage
from fastroai.functions.errors import StabilityAssertionError
from fastroai.functions.several.quorum import Fields, fields_of, groups
from fastroai.records import Usage

T_co = TypeVar("T_co", covariant=True)

_USAGE: Final = "_usage"
"""Name of an attribute that is no field, so that neither comparisons nor stores have it."""

DEFAULT_STABILITY: Final = 0.9
"""Share of the samples that must agree for `assert_stable`."""


@dataclass(frozen=True)
class Probabilistic(Generic[T_co]):
    """The samples of one call of a function with `stable=False`.

    `samples` is a tuple of outputs, in the order in which they were asked for. There is one sample; with
    `configure(test_mode=True, sample_n=...)`, there are `sample_n`, by default 5.
    """

    samples: tuple[T_co, ...]
    """All samples, in the order in which they were asked for. There is at least one."""

    @property
    def usage(self) -> Usage:
        """Requests, tokens and cost of the call that returned the samples, all samples together.

        All sums are zero if the samples are from a store, as in a resumed run, or made by hand.
        """
        known: Usage | None = self.__dict__.get(_USAGE)
        return Usage() if known is None else known

    def most_likely(self) -> T_co:
        """Return the sample that most other samples equal; if several are equally common, the earliest."""
        return self.samples[_largest(self.samples, ())[0]]

    def sample(self, source: random.Random | None = None) -> T_co:
        """Return one of the samples at random. Nothing is asked again.

        A seeded `source` makes the choice repeatable; by default, the module `random` chooses.
        """
        return (source or random).choice(self.samples)

    def agreement(self, on: Fields = ()) -> float:
        """Return the share of the samples in the largest group of them that agree, from 0 to 1.

        `on` names the field, or the list of fields, that must be equal for samples to agree; a dot leads into
        a field, as in `"address.city"`. By default, the whole outputs must be equal.

        Raises:
            ConfigurationError: a sample does not have one of the fields.
        """
        return len(_largest(self.samples, fields_of(on))) / len(self.samples)

    def assert_stable(self, threshold: float = DEFAULT_STABILITY, on: Fields = ()) -> T_co:
        """Return the earliest sample of the largest group that agrees, or raise if the group is too small.

        For tests. `threshold` is the share of the samples that has to agree, from 0 to 1; by default 0.9.

        `on` names the field, or the list of fields, that must be equal; by default, the whole outputs must
        be.

        Raises:
            StabilityAssertionError: too few samples agree. It is an `AssertionError`, and its `usage` is that
                of the samples.
            ConfigurationError: the threshold is not a number from 0 to 1, or a sample lacks one of the
                fields.
        """
        if not isinstance(threshold, int | float) or not 0 <= threshold <= 1:  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ConfigurationError("threshold", threshold, "a share of the samples, from 0 to 1")
        agreeing = _largest(self.samples, fields_of(on))
        if (share := len(agreeing) / len(self.samples)) < threshold:
            error = StabilityAssertionError(share, threshold, fields_of(on), self.samples)
            attach_usage(error, self.usage)
            raise error
        return self.samples[agreeing[0]]


def with_usage(samples: Probabilistic[T_co], usage: Usage) -> Probabilistic[T_co]:
    """Return the samples, on which the usage of the call that gave them is noted."""
    samples.__dict__[_USAGE] = usage
    return samples


def _largest(samples: Sequence[object], on: tuple[str, ...]) -> list[int]:
    """Return the indexes of the largest group of samples that agree; of several, the earliest group."""
    return max(groups(list(enumerate(samples)), on), key=len)
