"""What FastroAI costs, each figure beside the bare alternative, measured in the same run."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1] / "tests"))  # what supports the tests imports itself from there
