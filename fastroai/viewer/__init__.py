"""The viewer: runs, spending and questions of a store, in a browser. It is an ASGI app."""

from typing import TYPE_CHECKING

from fastroai.lazy import lazy_names

if TYPE_CHECKING:
    from fastroai.viewer.access import Action as Action
    from fastroai.viewer.access import Authorize as Authorize
    from fastroai.viewer.access import Visitor as Visitor
    from fastroai.viewer.app import viewer as viewer
else:  # a type checker would take any name, if it saw `__getattr__`
    lazy_names(__name__, unlisted=["Action", "Authorize"])
