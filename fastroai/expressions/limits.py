"""What an expression may take, when it is built and each time that it is evaluated."""

from __future__ import annotations

from typing import Final

MAX_CHARACTERS: Final = 2_000
"""Of the text."""
MAX_NODES: Final = 500
"""Names, values, operators and calls in the text, together."""
MAX_DEPTH: Final = 50
"""How deep they, and brackets, may be nested."""

MAX_STEPS: Final = 100_000
"""Of one evaluation. A step stands for about a tenth of a microsecond. What is done once is free, for the
size of the text bounds it; what is repeated, or grows with the data, costs steps as follows."""
STEPS_PER_ROUND: Final = 6
"""A round of a comprehension,"""
STEPS_PER_NODE: Final = 2
"""... and each name, value, operator and call in it."""
STEPS_PER_ITEM: Final = 4
"""An item of a list or dict that is compared, searched, sorted, summed, joined or copied."""
CHARACTERS_READ_PER_STEP: Final = 200
"""Comparing text."""
CHARACTERS_SEARCHED_PER_STEP: Final = 40
"""Searching text."""
CHARACTERS_BUILT_PER_STEP: Final = 20
"""Making text,"""
BYTES_OF_CHARACTERS: Final = 4
"""... each character of which counts so many times, if some are not ASCII."""
STEPS_PER_ROUNDING: Final = 80
"""Rounding to a number of digits, which can be hundreds."""
KEYS_CHECKED_PER_STEP: Final = 4
"""Seeing that the keys of a dict are text, once for each dict."""

MAX_INTEGER_BITS: Final = 1_024
"""Of an integer that is calculated with: as large as floats can be."""
MAX_NUMBER_CHARACTERS: Final = 400
"""Of a text that `int()` or `float()` reads."""
MAX_ROUND_DIGITS: Final = 300
"""Of `round(number, digits)`, to either side."""
MAX_DATA_DEPTH: Final = 100
"""Of lists and dicts that are compared, handed to a function or returned."""
