"""What a request gets: scripts, rules, faults, defaults. All through a real client."""

import pytest
from pydantic import BaseModel, Field
from pydantic_ai import Agent, NativeOutput
from pydantic_ai.exceptions import ModelServerError
from pydantic_ai.models import Model

from fastroai.testing import Fault, ModelServer, Reply, ServedRequest, ToolCall


class City(BaseModel):
    name: str = Field(min_length=2)
    people: int = Field(ge=1)


async def ask(model: Model, prompt: str = "hello") -> str:
    return (await Agent(model).run(prompt)).output


async def test_without_script_or_rule_the_server_echoes(model: Model) -> None:
    assert await ask(model, "are you there?") == "echo: are you there?"


async def test_a_script_is_answered_in_its_order(model: Model, model_server: ModelServer) -> None:
    model_server.script(Reply("one"), Reply("two"))
    model_server.script(Reply("three"))

    assert [await ask(model) for _ in range(3)] == ["one", "two", "three"]


async def test_a_server_can_be_made_with_its_script() -> None:
    async with ModelServer(script=[Reply("scripted")]) as server:
        assert await ask(server.model("openai:gpt-5-mini")) == "scripted"


async def test_an_exhausted_script_is_an_error_that_says_so(model: Model, model_server: ModelServer) -> None:
    model_server.script(Reply("one"))
    await ask(model)

    with pytest.raises(ModelServerError, match=r"script of the model server is exhausted.*server\.rule"):
        await ask(model)

    entry = model_server.ledger.entries[-1]
    assert (entry.status, entry.billed) == (500, False)
    assert entry.error is not None
    assert "exhausted" in entry.error


async def test_an_exhausted_script_is_not_asked_again_by_an_sdk(model_server: ModelServer) -> None:
    model = model_server.model("openai:gpt-5-mini")
    model.client.max_retries = 3  # type: ignore[attr-defined]
    model_server.script(Reply("one"))
    await ask(model)

    with pytest.raises(ModelServerError):
        await ask(model)

    assert len(model_server.ledger.entries) == 2


async def test_rules_take_over_from_an_exhausted_script(model: Model, model_server: ModelServer) -> None:
    model_server.script(Reply("scripted"))
    model_server.rule(None, Reply("by rule"))

    assert [await ask(model), await ask(model)] == ["scripted", "by rule"]


async def test_each_model_can_have_its_own_script(model_server: ModelServer) -> None:
    large, small = model_server.model("openai:gpt-5"), model_server.model("openai:gpt-5-mini")
    model_server.script(Reply("from the large one"), model="gpt-5")
    model_server.script(Reply("from any"), Reply("from any again"))

    assert await ask(small) == "from any"
    assert await ask(large) == "from the large one"
    assert await ask(large) == "from any again"


async def test_a_model_without_script_is_not_exhausted(model_server: ModelServer) -> None:
    model_server.script(Reply("one"), model="gpt-5")

    assert await ask(model_server.model("openai:gpt-5-mini")) == "echo: hello"


async def test_the_first_rule_that_fits_counts(model: Model, model_server: ModelServer) -> None:
    model_server.rule(lambda request: "refund" in request.prompt, Reply("a refund"))
    model_server.rule(lambda request: "please" in request.prompt, Reply("since you ask so nicely"))

    assert await ask(model, "a refund, please") == "a refund"
    assert await ask(model, "an answer, please") == "since you ask so nicely"
    assert await ask(model, "anything") == "echo: anything"


async def test_a_rule_can_be_written_as_a_decorator(model: Model, model_server: ModelServer) -> None:
    @model_server.rule(lambda request: request.prompt == "ping")
    def pong(request: ServedRequest) -> Reply:
        return Reply("pong")

    @model_server.rule()
    def shout(request: ServedRequest) -> Reply:
        return Reply(request.prompt.upper())

    assert await ask(model, "ping") == "pong"
    assert await ask(model, "hello") == "HELLO"


async def test_a_rule_that_raises_is_an_error_for_the_client_and_in_the_log(
    model: Model, model_server: ModelServer, caplog: pytest.LogCaptureFixture
) -> None:
    model_server.rule(lambda request: False, Reply("never"))
    model_server.rule(None, lambda request: Reply(str(1 // 0)))

    with pytest.raises(ModelServerError, match=r"rule 2 of the model server raised ZeroDivisionError"):
        await ask(model)
    assert "1 // 0" in caplog.text


async def test_a_rule_that_returns_no_reply_is_an_error(model: Model, model_server: ModelServer) -> None:
    model_server.rule(None, lambda request: "text")  # type: ignore[arg-type, return-value]

    with pytest.raises(ModelServerError, match="returned 'text'; expected a Reply"):
        await ask(model)


async def test_a_failed_request_leaves_the_script_to_its_retry(
    model: Model, model_server: ModelServer
) -> None:
    model_server.script(Reply("one"))
    model_server.fail_next(2, Fault.status(503))

    for _ in range(2):
        with pytest.raises(Exception, match="status 503"):
            await ask(model)
    assert await ask(model) == "one"


async def test_an_answer_that_is_cut_is_the_one_of_the_script_which_its_retry_gets(
    model: Model, model_server: ModelServer
) -> None:
    model_server.script(Reply("one two three four five six"))
    model_server.fail_next(1, Fault.cut(after=0))

    with pytest.raises(Exception, match=r"[Cc]onnection"):
        await ask(model)
    assert await ask(model) == "one two three four five six"
    cut, whole = model_server.ledger.entries
    assert cut.usage == whole.usage


async def test_pending_faults_strike_even_when_the_script_is_exhausted(
    model: Model, model_server: ModelServer
) -> None:
    model_server.script(Reply("one"))
    await ask(model)
    model_server.fail_next(1, Fault.missing_finish_reason())

    assert await ask(model) == "echo: hello"


async def test_a_demanded_output_tool_gets_the_smallest_output_that_fits(model: Model) -> None:
    assert (await Agent(model, output_type=City).run("a city")).output == City(name="xx", people=1)


async def test_a_demanded_schema_gets_the_smallest_output_that_fits(model_server: ModelServer) -> None:
    for reference in ("openai:gpt-5-mini", "openai-chat:gpt-5-mini", "anthropic:claude-haiku-4-5"):
        # The providers take no bounds in a schema, so the SDKs leave them out of it.
        agent = Agent(model_server.model(reference), output_type=NativeOutput(list[int]))
        assert (await agent.run("numbers")).output == []


async def test_offered_function_tools_are_not_called_by_default(model: Model) -> None:
    agent = Agent(model)

    @agent.tool_plain
    def weather(city: str) -> str:
        raise AssertionError("nobody asked for this")

    assert (await agent.run("hi")).output == "echo: hi"


async def test_a_schema_that_cannot_be_filled_is_an_error_that_says_so(model_server: ModelServer) -> None:
    class Strange(BaseModel):
        code: str = Field(pattern="^AB-[0-9]{7}$")

    agent = Agent(model_server.model("openai-chat:gpt-5-mini"), output_type=Strange)

    with pytest.raises(ModelServerError, match=r"cannot fill the demanded schema: no simple string"):
        await agent.run("hi")


async def test_reset_forgets_scripts_rules_faults_and_ledger(model: Model, model_server: ModelServer) -> None:
    model_server.script(Reply("scripted"))
    model_server.rule(None, Reply("by rule"))
    await ask(model)
    model_server.fail_next(1, Fault.status(500))

    model_server.reset()

    assert model_server.ledger.entries == ()
    assert await ask(model) == "echo: hello"


def test_failing_no_request_is_refused(model_server: ModelServer) -> None:
    with pytest.raises(ValueError, match=r"fail_next\(0, ...\): expected at least 1"):
        model_server.fail_next(0, Fault.status(500))


async def test_calls_that_are_not_json_reach_the_client_as_they_are(model_server: ModelServer) -> None:
    model = model_server.model("openai-chat:gpt-5-mini")
    model_server.script(Reply(tool_calls=[ToolCall("weather", '{"city": ')]), Reply("sorry"))
    agent = Agent(model)
    cities: list[str] = []

    @agent.tool_plain
    def weather(city: str) -> str:
        cities.append(city)
        return "sunny"

    assert (await agent.run("hi")).output == "sorry"
    assert cities == []
