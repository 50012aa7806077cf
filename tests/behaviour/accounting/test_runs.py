from fastroai import FastroAgent
from fastroai.testing import ModelServer, Reply, Usage
from pydantic_ai.models import Model

from support.accounting import Account

async def test_a_run_costs_what_the_provider_bills(server, model, account):
    server.script(Reply("Paris", usage=Usage(120, 30, cache_read_tokens=50)))
    response = await FastroAgent(model).run("capital?")
    account.assert_matches(response.usage)
    assert response.output == "Paris"
