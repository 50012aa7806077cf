"""The plugin in somebody's own project: pytest runs of its own, without this project's settings."""

import json
import re
import sys

import pytest

from fastroai.testing import ModelServer

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


@pytest.fixture
def modules_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a run of pytest in this process imports stays imported: a copy would be another module."""
    monkeypatch.setattr("_pytest.pytester.SysModulesSnapshot.restore", lambda snapshot: None)


BLOCKING = """
import asyncio
import pytest
from pydantic_ai import Agent, Embedder
from pydantic_ai.models.test import TestModel
from fastroai import FastroAgent

@pytest.fixture(autouse=True)
def keys(monkeypatch):
    for provider in ("OPENAI", "ANTHROPIC", "GROQ"):
        monkeypatch.setenv(provider + "_API_KEY", "no-real-key")

def ask(model):
    return asyncio.run(Agent(model).run("hi"))

async def stream():
    async with Agent("openai-chat:gpt-5-mini").run_stream("hi") as answer:
        await answer.get_output()

@pytest.mark.parametrize("asked", [
    lambda: ask("openai:gpt-5-mini"),
    lambda: ask("anthropic:claude-haiku-4-5"),
    lambda: ask("groq:llama-3.3-70b-versatile"),  # whose module is imported here
    lambda: FastroAgent("openai:gpt-5-mini", request_retries=0).run_sync("hi"),
    lambda: asyncio.run(stream()),
    lambda: asyncio.run(Embedder("openai:text-embedding-3-small").embed_query("hi")),
])
def test_a_real_request_is_refused(asked):
    with pytest.raises(RuntimeError, match="about to send a real request to .* at https://api"):
        asked()

def test_the_model_server_and_models_of_tests_answer(model_server):
    assert ask(model_server.model("openai:gpt-5-mini")).output == "echo: hi"
    assert ask(TestModel(custom_output_text="free")).output == "free"

def test_an_estimate_sends_nothing_and_is_allowed():
    assert asyncio.run(FastroAgent("openai:gpt-5-mini", max_tokens=10).estimate("hi")).upper_usd > 0
"""

WHERE_IT_IS_ON = """
import pytest
from pydantic_ai import models

def is_checked():
    return models.check_allow_model_requests.__name__ == "checked"

def test_by_default():
    assert is_checked() == {default}

@pytest.mark.usefixtures("block_model_requests")
def test_where_it_is_asked_for():
    assert is_checked()

def test_where_it_is_allowed(allow_model_requests):
    assert not is_checked()

def test_after_it():
    assert is_checked() == {default}
"""


@pytest.mark.slow
@pytest.mark.usefixtures("modules_stay")
def test_real_model_requests_are_blocked_where_that_is_switched_on(pytester: pytest.Pytester) -> None:
    pytester.makeini("[pytest]\nfastroai_block_model_requests = true")
    pytester.makepyfile(test_blocking=BLOCKING, test_where=WHERE_IT_IS_ON.replace("{default}", "True"))

    pytester.runpytest_inprocess("-p", "no:asyncio").assert_outcomes(passed=12)


@pytest.mark.slow
@pytest.mark.usefixtures("modules_stay")
def test_an_installed_plugin_alone_blocks_nothing(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(WHERE_IT_IS_ON.replace("{default}", "False"))

    pytester.runpytest_inprocess("-p", "no:asyncio").assert_outcomes(passed=4)


RECORDED = """
import asyncio
import os
import pytest
from pydantic_ai.models.openai import OpenAIResponsesModel
from pydantic_ai.providers.openai import OpenAIProvider
from fastroai import FastroAgent, Pipeline
from fastroai.testing import assert_run

async def answers(prompts):
    model = OpenAIResponsesModel("gpt-5-mini", provider=OpenAIProvider(base_url=os.environ["PROVIDER"]))
    agent = FastroAgent(model, instructions="Be brief. " + os.environ.get("OUR_TOKEN", "SECRET"))
    outputs = [(await agent.run(prompt)).output for prompt in prompts]
    chunks = [chunk async for chunk in agent.run_stream("a stream")]
    return [*outputs, chunks[-1].usage_data.output, chunks[-1].usage_data.cost_usd]

def test_answers(recording):
    *outputs, cost = asyncio.run(answers(os.environ["PROMPTS"].split(",")))
    assert outputs[0] == "echo: one"
    assert outputs[-1] == "echo: a stream"
    assert cost > 0
    assert not os.environ.get("BROKEN")
"""


@pytest.mark.slow
@pytest.mark.usefixtures("modules_stay")
def test_a_run_is_recorded_once_and_replayed_without_a_network_or_keys(
    pytester: pytest.Pytester, model_server: ModelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytester.makepyfile(test_desk=RECORDED)
    file = pytester.path / "recordings" / "test_desk.test_answers.json"
    monkeypatch.setenv("PROVIDER", model_server.openai_url)
    monkeypatch.setenv("PROMPTS", "one,two")
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)

    def run(*arguments: str) -> pytest.RunResult:
        return pytester.runpytest_inprocess("-p", "no:asyncio", "--tb=native", *arguments)

    missing = run()
    missing.assert_outcomes(errors=1)
    missing.stdout.fnmatch_lines(
        ["*there is no recording *. To record, run: pytest --record-models 'test_desk.py*"]
    )

    secrets = {"OPENAI_API_KEY": "sk-of-the-account-0123456789", "OUR_TOKEN": 'token-"in"-the-prompt'}
    with monkeypatch.context() as recording:
        for name, value in secrets.items():
            recording.setenv(name, value)
        run("--record-models").assert_outcomes(passed=1)
        recorded = file.read_text()
        recording.setenv("BROKEN", "yes")
        run("--record-models").assert_outcomes(failed=1)
    assert file.read_text() == recorded, "a test that fails leaves the recording as it was"
    assert len(model_server.ledger.entries) == 6
    assert "Bearer" not in recorded
    assert not [
        secret for secret in secrets.values() if secret in recorded or json.dumps(secret)[1:-1] in recorded
    ]
    assert [one["request"]["method"] for one in json.loads(recorded)["interactions"]] == ["POST"] * 3

    model_server.reset()
    run().assert_outcomes(passed=1)
    monkeypatch.setenv("PROMPTS", "one,three")
    changed = run()
    changed.assert_outcomes(failed=1)
    changed.stdout.fnmatch_lines(
        [
            "*Captured recording call*",
            "the recording *.json has no answer to POST http://127.0.0.1:*; its request 2 differs:",
            '-* "content": "two",',
            '+* "content": "three",',
            "To record, run: pytest --record-models 'test_desk.py::test_answers'",
        ]
    )
    monkeypatch.setenv("PROMPTS", "one")
    fewer = run()
    fewer.assert_outcomes(passed=1, errors=1)
    fewer.stdout.fnmatch_lines(
        ["*requests of *test_desk.test_answers.json were not sent:", '*"content":"two"*']
    )
    monkeypatch.setenv("PROMPTS", "one,two,two")
    more = run()
    more.assert_outcomes(failed=1)
    more.stdout.fnmatch_lines(["*it was sent more often than when this was recorded: *"])
    file.write_text("{}")
    run().stdout.fnmatch_lines(["*cannot be read: it has no `interactions`. To record, run: *"])
    assert model_server.ledger.entries == (), "a replay sends nothing"


@pytest.mark.slow
@pytest.mark.usefixtures("modules_stay")
def test_each_test_has_a_recording_of_its_own(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        test_refunds="""
        import pytest

        class TestRefunds:
            @pytest.mark.parametrize("text", ["plain", "a/b", "a b"])
            def test_answers(self, text, recording): ...
        """
    )
    told = pytester.runpytest_inprocess("-p", "no:asyncio")
    told.assert_outcomes(errors=3)
    names = re.findall(
        r"^E .* there is no recording \S*/recordings/(\S+)\.json\.", told.stdout.str(), re.MULTILINE
    )
    assert names[0] == "test_refunds.TestRefunds.test_answers[plain]"
    assert len(set(names)) == 3
    assert not re.search(r"[^\w.\[\]-]", "".join(names))


@pytest.mark.slow
@pytest.mark.usefixtures("modules_stay")
def test_stores_and_spend_limits_go_by_the_clock_that_the_test_sets(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import asyncio
        from datetime import timedelta
        from fastroai import Pipeline, PipelineConfig, SpendLimit, StepContext, step

        @step
        async def waits(ctx: StepContext) -> str:
            await ctx.sleep(timedelta(days=14))
            async with ctx.spend("0.9") as purchase:
                purchase.settle("0.9")
            return "done"

        def test_two_weeks(run_store, run_clock, spend_store):
            async def story():
                limit = SpendLimit(usd=1, window="day", store=spend_store)
                config = PipelineConfig(store=run_store, budget=limit)
                pipeline = Pipeline("p", {"waits": waits}, config=config)
                await pipeline.run(run_id="r")
                run_clock.advance(timedelta(days=13))
                assert await pipeline.wake() == {}
                run_clock.advance(timedelta(days=1))
                await pipeline.wake()
                assert (await pipeline.resume("r")).output == "done"
                assert (await limit.status()).spent_usd > 0
                run_clock.advance(timedelta(days=1))
                assert (await limit.status()).spent_usd == 0
            asyncio.run(story())

        def test_the_next_test_has_an_empty_store(run_store, run_clock):
            assert asyncio.run(run_store.list("")) == []
            assert run_clock().year == 2026
        """
    )

    pytester.runpytest_inprocess("-p", "no:asyncio").assert_outcomes(passed=2)


def test_every_public_name_is_there_and_another_is_not() -> None:
    import fastroai.testing

    for name in fastroai.testing.__all__:
        assert getattr(fastroai.testing, name).__name__ == name
    assert set(fastroai.testing.__all__) == set(dir(fastroai.testing))
    with pytest.raises(AttributeError, match="module 'fastroai.testing' has no attribute 'FakeModel'"):
        fastroai.testing.FakeModel  # noqa: B018
    assert sys.modules["fastroai.testing"] is fastroai.testing


@pytest.mark.usefixtures("modules_stay")
def test_a_spend_limit_without_a_store_begins_anew_in_each_test_where_that_is_switched_on(
    pytester: pytest.Pytester,
) -> None:
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

    def run() -> pytest.RunResult:
        return pytester.runpytest_inprocess("-W", "error", "-p", "no:asyncio")

    run().assert_outcomes(passed=1, failed=2)
    pytester.makeini("[pytest]\nusefixtures = empty_spend_limits")
    run().assert_outcomes(passed=3)
