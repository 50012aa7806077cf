from collections.abc import Iterator

import pytest
from pydantic_ai.messages import ModelRequest, UserPromptPart
from pydantic_ai.models import ModelRequestParameters
from pydantic_ai.settings import ModelSettings
from support.bodies import chat_model

from fastroai import Budget, FastroAgent, budget_scope
from fastroai.errors import UnboundedRequestError
from fastroai.functions.configuring import configured
from fastroai.usage import CostCalculator, RequestBound, request_bound
from fastroai.usage.facts.allowances import OTHER
from fastroai.usage.prices import tested_version
from fastroai.usage.prices.tested_version import (
    NEWEST_TESTED,
    UntestedVersionWarning,
    refusal,
    untested_version,
    warn_if_untested,
)

NEWER = f"{NEWEST_TESTED[0]}.{NEWEST_TESTED[1] + 1}.0"


@pytest.fixture(autouse=True)
def _anew() -> Iterator[None]:
    for known in (untested_version, warn_if_untested):
        known.cache_clear()
    yield
    for known in (untested_version, warn_if_untested):
        known.cache_clear()


@pytest.fixture
def newer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tested_version, "version", lambda package: NEWER)


def bound() -> RequestBound:
    messages = [ModelRequest(parts=[UserPromptPart("Hi")])]
    model, settings = chat_model("gpt-4.1-mini"), ModelSettings(max_tokens=50)
    return request_bound(CostCalculator(), model, messages, settings, ModelRequestParameters())


@pytest.mark.parametrize(
    ("installed", "is_tested"),
    [
        ("2.62.0", True),
        (f"{NEWEST_TESTED[0]}.{NEWEST_TESTED[1]}.7", True),
        (f"{NEWEST_TESTED[0]}.{NEWEST_TESTED[1]}.0rc1", True),
        (NEWER, False),
        ("3.0.0b1", False),
        ("a build of one's own", False),
    ],
)
def test_versions_above_the_newest_tested_one_are_told_from_others(
    monkeypatch: pytest.MonkeyPatch, installed: str, is_tested: bool
) -> None:
    monkeypatch.setattr(tested_version, "version", lambda package: installed)
    assert untested_version() == (None if is_tested else installed)


def test_bounds_have_the_margin_of_an_unknown_host(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tested_version, "version", lambda package: "2.62.0")
    before = bound().input_tokens
    untested_version.cache_clear()
    monkeypatch.setattr(tested_version, "version", lambda package: NEWER)
    after = bound().input_tokens
    assert before is not None
    assert after is not None
    assert after >= before + OTHER.request


@pytest.mark.usefixtures("newer")
async def test_the_first_request_warns_once() -> None:
    agent = FastroAgent("test")
    with pytest.warns(UntestedVersionWarning, match=rf"PydanticAI {NEWER} is newer than .*strict_version"):
        await agent.run("Hi")
    await agent.run("Hi")  # warnings are errors in these tests


@pytest.mark.usefixtures("newer")
async def test_a_strict_version_is_refused_under_budgets_and_only_there() -> None:
    agent = FastroAgent(chat_model("gpt-4.1-mini"), max_tokens=50)
    assert refusal() is None
    with configured(strict_version=True):
        assert NEWER in (bound().why or "")
        with pytest.warns(UntestedVersionWarning):
            async with budget_scope(Budget(usd=1)):
                with pytest.raises(UnboundedRequestError, match="strict_version"):
                    await agent.run("Hi")
        assert (await FastroAgent("test").run("Hi")).content
    assert bound().cost_usd is not None


def test_strict_means_nothing_on_a_tested_version(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tested_version, "version", lambda package: "2.62.0")
    with configured(strict_version=True):
        assert refusal() is None
        assert bound().cost_usd is not None
