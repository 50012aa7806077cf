"""How large specs and results may be."""

from __future__ import annotations

from typing import Final

MAX_SPEC_DEPTH: Final = 30
"""Levels of mappings and lists in a spec: JSON Schemas in it need more than the rest."""
MAX_SPEC_VALUES: Final = 50_000
"""Keys and values in a spec, so that any text is refused or taken within a second."""
MAX_ID_CHARACTERS: Final = 200
"""Characters of the name of a contract, function, flow or step."""
MAX_FLOW_STEPS: Final = 1_000
"""Steps of one flow."""
MAX_STEPS: Final = 10_000
"""Steps of a workflow when its sub-flows are written out."""
MAX_NESTING: Final = 20
"""Flows in each other."""
MAX_SCHEMA_VALUES: Final = 5_000
"""Values in an `output_schema` when its references are written out, so that it takes a bounded time."""
MAX_RESULT_CHARACTERS: Final = 1_000_000
"""Characters of a result as JSON text."""
MAX_RESULT_DEPTH: Final = 100
"""Levels of objects and lists in a result."""
MAX_FILE_BYTES: Final = 10_000_000
"""Bytes of a file that `file_contains` reads."""
MAX_VIOLATIONS: Final = 50
"""Violations that one check tells."""
MAX_VIOLATION_CHARACTERS: Final = 500
"""Characters of one violation."""
