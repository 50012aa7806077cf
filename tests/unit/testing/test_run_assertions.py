"""What a run did, compared with what is expected: all differences in one error."""

import pytest

from fastroai import FastroAgent, Pipeline, StepConfig, StepContext, step
from fastroai.graphs import Edge, Graph
from fastroai.testing import Fault, ModelServer, Reply, Usage, assert_run


def pipeline(server: ModelServer) -> Pipeline[None, dict[str, str], str]:
    agent = FastroAgent(server.model("openai:gpt-5-mini"), name="writer")

    @step(retries=1, retry_delay=0)
    async def classify(ctx: StepContext[None]) -> str:
        response = await ctx.run(agent, "classify " + ctx.get_input("text"))
        if len(server.ledger.entries) == 1:
            raise TimeoutError("once")
        return response.output

    return Pipeline(
        "support",
        {"classify": classify, "reply": agent.as_step("reply\nplease")},
        dependencies={"reply": ["classify"]},
    )


async def test_a_run_that_is_as_expected_passes(model_server: ModelServer) -> None:
    model_server.script(*[Reply("ok", usage=Usage(1000, 100))] * 3)
    result = await pipeline(model_server).run({"text": "hi"})
    # 3 requests with 1,000 tokens in at $0.25 and 100 out at $2.00 a million
    prompts = ["classify hi", "classify hi", "reply\nplease"]
    for run in (result, result.trace):
        assert_run(
            run, path=["classify", "reply"], requests=3, cost_usd="0.00135", most_usd=0.00135, prompts=prompts
        )


async def test_every_difference_is_in_one_error(model_server: ModelServer) -> None:
    model_server.script(*[Reply("ok", usage=Usage(1000, 100))] * 3)
    result = await pipeline(model_server).run({"text": "hi"})
    with pytest.raises(AssertionError) as error:
        assert_run(
            result,
            path=["classify", "escalate", "reply"],
            requests=2,
            cost_usd="0.001",
            most_usd="0.0005",
            prompts=["classify hi", "classify hi", "reply\nnow"],
        )
    listed = [
        "    classify: openai:gpt-5-mini, settled, 1000 + 100 tokens, $0.00045",
        "    classify: openai:gpt-5-mini, settled, 1000 + 100 tokens, $0.00045",
        "    reply: openai:gpt-5-mini, settled, 1000 + 100 tokens, $0.00045",
    ]
    assert str(error.value).splitlines() == [
        "the run of pipeline 'support' differs:",
        "path (- expected, + got):",
        "      classify",
        "    - escalate",
        "      reply",
        "requests: expected 2, got 3",
        *listed,
        "cost: expected $0.001, got $0.00135",
        "cost: expected at most $0.0005, got $0.00135",
        *listed,
        "prompts (- expected, + got):",
        "      classify hi",
        "      classify hi",
        "      reply",
        "    - now",
        "    + please",
    ]


async def test_a_cost_that_is_not_known_is_not_taken_for_the_whole(model_server: ModelServer) -> None:
    model_server.script(Reply("ok", fault=Fault.missing_usage()))
    agent = FastroAgent(model_server.model("openai:gpt-5-mini"))
    result = await Pipeline("p", {"a": agent.as_step("hi")}).run()
    with pytest.raises(AssertionError, match=r"\$0\.00, without 1 requests of unknown cost"):
        assert_run(result, most_usd="1")


async def test_the_path_of_a_graph_has_each_visit_and_that_of_nested_runs_where_they_are() -> None:
    @step
    def again(ctx: StepContext[None]) -> str:
        return "again"

    inner = Pipeline("inner", {"again": again}, step_configs={"again": StepConfig()})
    graph = Graph(
        "g",
        nodes={"a": again, "b": inner},
        edges=[Edge("a", "b", when="always")],
    )
    result = await graph.run()
    assert_run(result, path=["a", "b", "b/inner/again"], requests=0, cost_usd=0, prompts=[])
    with pytest.raises(AssertionError, match="requests: expected 1, got 0\n    no request"):
        assert_run(result, requests=1)
