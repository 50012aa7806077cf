"""The answers that the pages for newcomers show: `python -m fastroai.testing` gives them, and echoes the rest."""

from fastroai.testing.replies import Reply, Usage
from fastroai.testing.server import ModelServer


def rules(server: ModelServer) -> None:
    """Add a rule for each agent and typed function of README, `docs/index.md` and `docs/learn`."""
