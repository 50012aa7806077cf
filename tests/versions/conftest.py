"""Comparisons of our tables with the PydanticAI and the SDKs that are installed.

A later version of these adds models, settings and methods, so only `make test-versions` asks for these tests.
Each failure says which line to add, and to which file.
"""

import os

collect_ignore_glob = [] if os.environ.get("FASTROAI_VERSIONS") else ["test_*.py"]
