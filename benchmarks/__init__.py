"""Benchmarks: each beside its bare alternative, in the same process. Run them with `python -m benchmarks`."""

import sys
from pathlib import Path

# The servers and worker processes of the tests.
sys.path.append(str(Path(__file__).parents[1] / "tests"))
