"""Limits on the size of specs and results."""

from __future__ import annotations

from typing import Final

MAX_SPEC_DEPTH: Final = 30
"""Maximum depth of mappings and lists in a spec, in levels. JSON Schemas in it are the deepest part."""
MAX_SPEC_VALUES: Final = 50_000
"""Maximum number of keys and values in a spec, so that any text is refused or accepted within a second."""
MAX_ID_CHARACTERS: Final = 200
"""Maximum number of characters in the name of a contract, function, flow or step."""
MAX_FLOW_STEPS: Final = 1_000
"""Maximum number of steps in one flow."""
MAX_STEPS: Final = 10_000
"""Maximum number of steps in a workflow, with its sub-flows written out."""
MAX_NESTING: Final = 20
"""Maximum number of levels of flows inside of flows."""
MAX_SCHEMA_VALUES: Final = 5_000
"""Maximum number of values in an `output_schema` with its references written out, which bounds the time of
its checks."""
MAX_RESULT_CHARACTERS: Final = 1_000_000
"""Maximum number of characters in a result as JSON text."""
MAX_RESULT_DEPTH: Final = 100
"""Maximum depth of objects and lists in a result, in levels."""
MAX_FILE_BYTES: Final = 10_000_000
"""Maximum number of bytes in a file that `file_contains` reads."""
MAX_VIOLATIONS: Final = 50
"""Maximum number of violations that one check reports."""
MAX_VIOLATION_CHARACTERS: Final = 500
"""Maximum number of characters in one violation."""
