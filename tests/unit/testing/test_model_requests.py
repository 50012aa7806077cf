"""Requests of models are seen where PydanticAI asks whether they are allowed."""

import ast
from pathlib import Path

import pydantic_ai
import pytest
from pydantic_ai import Agent, models
from pydantic_ai.models.openai import OpenAIResponsesModel
from pydantic_ai.providers.openai import OpenAIProvider

from fastroai.testing import ModelServer
from fastroai.testing.addresses import leads_elsewhere
from fastroai.testing.model_requests import model_requests_checked, refuse_other_machines


def functions_that_check() -> list[tuple[str, ast.AsyncFunctionDef | ast.FunctionDef]]:
    found = []
    for file in Path(pydantic_ai.__file__).parent.rglob("*.py"):
        text = file.read_text(encoding="utf-8")
        if "check_allow_model_requests()" not in text:
            continue
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.AsyncFunctionDef | ast.FunctionDef) and any(
                isinstance(one, ast.Call) and ast.unparse(one.func) == "check_allow_model_requests"
                for one in ast.walk(node)
            ):
                found.append((f"{file.name}: {node.name}", node))
    return found


def test_each_function_of_pydantic_ai_that_asks_begins_with_the_model() -> None:
    found = functions_that_check()
    assert len(found) >= 30
    assert {name for name, node in found if node.args.args[0].arg not in ("self", "model")} == set()


async def test_a_model_is_named_before_each_request_and_not_any_more_afterwards(
    model_server: ModelServer,
) -> None:
    model = model_server.model("openai:gpt-5-mini")
    seen: list[object] = []
    with model_requests_checked(seen.append):
        await Agent(model).run("hi")
        async with Agent(model).run_stream("hi") as answer:
            await answer.get_output()
    await Agent(model).run("hi")
    assert seen == [model, model]


async def test_what_pydantic_ai_forbids_stays_forbidden(
    model_server: ModelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(models, "ALLOW_MODEL_REQUESTS", False)
    with (
        model_requests_checked(refuse_other_machines),
        pytest.raises(RuntimeError, match="ALLOW_MODEL_REQUESTS is False"),
    ):
        await Agent(model_server.model("openai:gpt-5-mini")).run("hi")


def test_a_model_without_an_address_is_refused_and_one_elsewhere_is_named_with_it() -> None:
    with pytest.raises(RuntimeError, match="at an unknown address, and real model requests are blocked"):
        refuse_other_machines(object())
    provider = OpenAIProvider(base_url="https://gateway.example.com/v1", api_key="no-real-key")
    with pytest.raises(RuntimeError, match="'gpt-5-mini' at https://gateway.example.com/v1"):
        refuse_other_machines(OpenAIResponsesModel("gpt-5-mini", provider=provider))


@pytest.mark.parametrize("url", ["http://localhost:11434/v1", "http://127.0.0.1:1/", "http://[::1]:8000/v1"])
def test_addresses_of_this_machine(url: str) -> None:
    assert not leads_elsewhere(url)


@pytest.mark.parametrize(
    "url", [None, "", "https://localhost.example.com", "http://10.0.0.1/v1", "not a url"]
)
def test_addresses_that_may_be_elsewhere(url: str | None) -> None:
    assert leads_elsewhere(url)
