"""How many examples of each property: the same few in the suite, many at random with `make fuzz`."""

from __future__ import annotations

import os
import random
from typing import Final

from hypothesis import HealthCheck, settings
from hypothesis.internal.conjecture import providers

FUZZ: Final = int(os.environ.get("FASTROAI_FUZZ", "0"))
"""How many times as many examples as in the suite are tried, at random; 0 outside of `make fuzz`."""
_QUICK: Final = 10
_SUITE: Final = 25


def load_profiles() -> None:
    """Make the profiles, and load that of `make fuzz` or of the suite.

    In the suite each property has the same examples each time, so that a change is judged by what it changes.
    Hypothesis would also draw constants of the code, of those modules that something has imported before.
    """
    # A busy machine makes any example slow, so no test is timed.
    untimed = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
    settings.register_profile("suite", untimed, derandomize=True, max_examples=_SUITE)
    settings.register_profile("quick", untimed, derandomize=True, max_examples=_QUICK)
    settings.register_profile("fuzz", untimed, derandomize=False, max_examples=_SUITE * FUZZ or _SUITE)
    settings.load_profile("fuzz" if FUZZ else "suite")
    if not FUZZ:
        providers.is_local_module_file = lambda path: False


def examples(count: int) -> int:
    """How many examples to try of a property of which the suite tries `count`."""
    if FUZZ:
        return count * FUZZ
    return min(count, _QUICK) if settings.get_current_profile_name() == "quick" else count


def seed_of_choices(variable: str, *, searches: bool) -> str:
    """The seed of a test's own random choices: what the variable of the environment says.

    Else a new one if the test searches at random; in the suite it is the same each time.
    """
    new = str(random.SystemRandom().randrange(10**9)) if searches else "suite"
    return os.environ.get(variable, new)
