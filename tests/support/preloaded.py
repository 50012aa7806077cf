"""What the fork server of the tests has imported; see `fork_server`. Nothing else imports this."""

import gc
from importlib import import_module
from typing import Final

MODULES: Final = (
    *("anyio._backends._asyncio", "fastapi.sse", "psycopg", "redis", "uvicorn.main"),
    *("openai.resources.chat.completions", "openai.resources.responses", "openai.lib.streaming.responses"),
    *("pydantic_ai.models.openai", "pydantic_ai.providers.openai"),
    *("fastroai.agent.agent", "fastroai.cli.app", "fastroai.cli.serving", "fastroai.graphs"),
    *("fastroai.store", "fastroai.tracing.metrics"),
    *("fastroai.usage", "fastroai.web", "fastroai.workflows.driven_flows", "fastroai.workflows.server.app"),
    *("support.agents", "support.budget_worker", "support.graph_processes", "support.job_worker"),
    *("support.spend_worker", "support.workflow_servers", "support.carried"),
    *("fastroai.distributed.worker", "fastroai.distributed.app"),
)

for name in MODULES:
    import_module(name)
gc.collect()
gc.freeze()  # so that no fork copies the pages of these objects only to look at them
