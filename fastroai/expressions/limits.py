"""Limits of expressions: on the text when it is built, and on the work of each evaluation."""

from __future__ import annotations

from typing import Final

MAX_CHARACTERS: Final = 2_000
"""Maximum number of characters in the text."""
MAX_NODES: Final = 500
"""Maximum number of names, values, operators and calls in the text, together."""
MAX_DEPTH: Final = 50
"""Maximum depth of nested operators, calls and brackets."""

MAX_STEPS: Final = 100_000
"""Maximum number of steps in one evaluation. A step stands for about a tenth of a microsecond. Work that is
done once is free, as the size of the text bounds it. Work that is repeated, or grows with the data, costs the
following steps.
"""
STEPS_PER_ROUND: Final = 6
"""Steps for a round of a comprehension."""
STEPS_PER_NODE: Final = 2
"""Steps for each name, value, operator and call in a round of a comprehension."""
STEPS_PER_ITEM: Final = 4
"""Steps for an item of a list or dict that is compared, searched, sorted, summed, joined or copied."""
CHARACTERS_READ_PER_STEP: Final = 200
"""Number of characters whose comparison costs one step."""
CHARACTERS_SEARCHED_PER_STEP: Final = 40
"""Number of characters whose search costs one step."""
CHARACTERS_BUILT_PER_STEP: Final = 20
"""Number of characters of a new text that cost one step."""
BYTES_OF_CHARACTERS: Final = 4
"""Number of times that each character counts in a text that is built and is not all ASCII."""
STEPS_PER_ROUNDING: Final = 80
"""Steps for rounding to a number of digits, which can be hundreds."""
KEYS_CHECKED_PER_STEP: Final = 4
"""Number of keys of a dict whose check for being text costs one step. Each dict is checked once."""

MAX_INTEGER_BITS: Final = 1_024
"""Maximum number of bits in an integer of a calculation: integers can be as large as floats."""
MAX_NUMBER_CHARACTERS: Final = 400
"""Maximum number of characters in a text that `int()` or `float()` reads."""
MAX_ROUND_DIGITS: Final = 300
"""Maximum of `digits` in `round(number, digits)`, positive or negative."""
MAX_DATA_DEPTH: Final = 100
"""Maximum depth of lists and dicts that are compared, passed to a function or returned."""
