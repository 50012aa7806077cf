"""A model over a table: a run with a row for each line, and the table that it gives."""

from typing import TYPE_CHECKING

from fastroai.lazy import lazy_names

if TYPE_CHECKING:
    from fastroai.rows.facts import Resumption as Resumption
    from fastroai.rows.facts import RowEnded as RowEnded
    from fastroai.rows.facts import RowGivenBack as RowGivenBack
    from fastroai.rows.facts import RowStarted as RowStarted
    from fastroai.rows.table import Row as Row
    from fastroai.rows.table import RowFailed as RowFailed
    from fastroai.rows.table import RowTable as RowTable
else:  # a type checker would take any name, if it saw `__getattr__`
    lazy_names(__name__, unlisted=["Resumption", "Row", "RowGivenBack"])
