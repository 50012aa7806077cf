"""The runs of a pipeline over HTTP: routes for FastAPI and Starlette, with the extra `web`.

`runs_router` and `runs_routes` make the routes, `RunsHost` carries out the runs, and `Caller` says who asks.
"""

from typing import TYPE_CHECKING

from fastroai.lazy import lazy_names

if TYPE_CHECKING:
    from fastroai.web.caller import Action as Action
    from fastroai.web.caller import Caller as Caller
    from fastroai.web.events import Show as Show
    from fastroai.web.events import shown_to_clients as shown_to_clients
    from fastroai.web.fastapi import runs_router as runs_router
    from fastroai.web.host import RunsHost as RunsHost
    from fastroai.web.operations import RunOperations as RunOperations
    from fastroai.web.problems import Problem as Problem
    from fastroai.web.problems import problem_of as problem_of
    from fastroai.web.schema import api_schema as api_schema
    from fastroai.web.starlette import runs_routes as runs_routes
else:  # a type checker would take any name, if it saw `__getattr__`
    lazy_names(__name__, unlisted=["Action", "Show"])
