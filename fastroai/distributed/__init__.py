"""Runs that are carried by any number of workers, of one machine or of many, on DBOS: the extra `dbos`.

`Distributed` is an application with the code of its pipelines; `Client` starts its runs without that code.
"""

from typing import TYPE_CHECKING

from fastroai.lazy import lazy_names

if TYPE_CHECKING:
    from fastroai.distributed.app import Distributed as Distributed
    from fastroai.distributed.client import Client as Client
    from fastroai.distributed.engine import QueueOptions as QueueOptions
    from fastroai.distributed.engine import RateLimit as RateLimit
    from fastroai.distributed.handle import RunHandle as RunHandle
    from fastroai.distributed.handle import RunStanding as RunStanding
    from fastroai.distributed.handle import RunStopped as RunStopped
    from fastroai.distributed.registered import CarriedRun as CarriedRun
    from fastroai.distributed.worker import Worker as Worker
else:  # a type checker would take any name, if it saw `__getattr__`
    lazy_names(__name__, unlisted=["CarriedRun", "RateLimit", "RunHandle", "RunStanding", "Worker"])
