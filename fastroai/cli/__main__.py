"""`python -m fastroai.cli` is `fastroai`."""

from fastroai.cli import main

main()
