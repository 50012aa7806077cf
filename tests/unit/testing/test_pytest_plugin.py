"""The fixture in somebody's own project: a pytest run of its own, without this project's settings."""

import sys

import pytest

pytest_plugins = ["pytester"]

TESTS = """
import asyncio, urllib.request, json
from fastroai.testing import Fault, Reply

def ask(server):
    body = json.dumps({"model": "m", "messages": [{"role": "user", "content": "hi"}]}).encode()
    with urllib.request.urlopen(server.openai_url + "/chat/completions", body) as answer:
        return json.load(answer)["choices"][0]["message"]["content"]

def test_a_script(model_server):
    model_server.script(Reply("one"), Reply("never asked for"))
    model_server.rule(None, Reply("by rule"))
    assert ask(model_server) == "one"
    assert len(model_server.ledger.entries) == 1
    model_server.fail_next(1, Fault.status(500))

def test_nothing_is_left_of_the_test_before(model_server):
    assert model_server.ledger.entries == ()
    assert ask(model_server) == "echo: hi"

def test_with_an_agent(model_server):
    from pydantic_ai import Agent
    result = asyncio.run(Agent(model_server.model("openai:gpt-5-mini")).run("hi"))
    assert result.output == "echo: hi"
    assert result.usage.input_tokens == model_server.ledger.totals().usage.input_tokens
"""


@pytest.mark.slow
def test_the_fixture_works_without_an_asyncio_plugin_and_leaves_nothing_behind(
    pytester: pytest.Pytester,
) -> None:
    pytester.makepyfile(TESTS)

    result = pytester.runpytest_subprocess(
        "-W", "error", "-p", "no:asyncio", "-p", "no:anyio", "-p", "no:llmock"
    )

    result.assert_outcomes(passed=3)


@pytest.mark.slow
def test_the_plugin_imports_nothing_heavy_before_it_is_used(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import sys

        def test_nothing_is_imported():
            ours = {"fastroai.testing", "fastroai.testing.pytest_plugin"}
            assert {name for name in sys.modules if name.startswith("fastroai.testing")} == ours
        """
    )

    pytester.runpytest_subprocess("-p", "no:asyncio").assert_outcomes(passed=1)


def test_every_public_name_is_there_and_another_is_not() -> None:
    import fastroai.testing

    for name in fastroai.testing.__all__:
        assert getattr(fastroai.testing, name).__name__ == name
    assert set(fastroai.testing.__all__) == set(dir(fastroai.testing))
    with pytest.raises(AttributeError, match="no attribute 'FakeModel'; it has ModelServer, Fault"):
        fastroai.testing.FakeModel  # noqa: B018
    assert sys.modules["fastroai.testing"] is fastroai.testing


@pytest.mark.slow
def test_a_spend_limit_without_a_store_begins_anew_in_each_test(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import asyncio
        import pytest
        from fastroai import Pipeline, PipelineConfig, SpendLimit, StepContext, step

        LIMIT = SpendLimit(usd="1", key="ours")

        @step
        async def buys(ctx: StepContext) -> None:
            async with ctx.spend("0.9") as purchase:
                purchase.settle("0.9")

        @pytest.mark.parametrize("time", range(3))
        def test_a_purchase_fits(time):
            pipeline = Pipeline("p", {"buys": buys}, config=PipelineConfig(budget=LIMIT))
            assert asyncio.run(pipeline.execute()).ok
            assert asyncio.run(LIMIT.status()).spent_usd > 0
        """
    )
    result = pytester.runpytest_subprocess("-W", "error", "-p", "no:asyncio", "-p", "no:llmock")

    result.assert_outcomes(passed=3)
