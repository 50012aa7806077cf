"""Where the packages of a provider are missing, the error names the extra of FastroAI that brings them."""

import importlib
import re
import sys
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path

import pydantic_ai
import pytest

from fastroai import FastroAgent
from fastroai.agent import Metered
from fastroai.agent.models import build_model, naming_our_extra
from fastroai.errors import MissingExtraError

ROOT = Path(__file__).parents[3]
KINDS = ("models", "providers", "embeddings", "images", "realtime")


@pytest.fixture
def uninstall(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str, str], None]]:
    """Make a package one that cannot be imported, and what PydanticAI has loaded of a provider unloaded."""

    def without(package: str, provider: str) -> None:
        monkeypatch.setitem(sys.modules, package, None)
        for kind in KINDS:
            monkeypatch.delitem(sys.modules, f"pydantic_ai.{kind}.{provider}", raising=False)

    yield without
    monkeypatch.undo()


@pytest.mark.parametrize(
    ("reference", "package", "extra"),
    [
        ("xai:grok-4", "xai_sdk", "xai"),
        ("groq:llama-3.3-70b-versatile", "groq", "groq"),
        ("cohere:command-r-plus", "cohere", "cohere"),
        ("bedrock:amazon.nova-lite-v1:0", "boto3", "bedrock"),
    ],
)
def test_a_model_names_our_extra(
    uninstall: Callable[[str, str], None], reference: str, package: str, extra: str
) -> None:
    uninstall(package, reference.partition(":")[0])
    with pytest.raises(MissingExtraError) as caught:
        build_model(reference)
    assert str(caught.value) == (
        f"'{reference}' needs the packages of its provider: pip install 'fastroai-runs[{extra}]'"
    )
    assert "pydantic-ai-slim" in str(caught.value.__cause__)


def test_an_agent_names_our_extra_before_it_runs(uninstall: Callable[[str, str], None]) -> None:
    uninstall("xai_sdk", "xai")
    with pytest.raises(MissingExtraError, match=r"'xai:grok-4' needs .* pip install 'fastroai-runs\[xai\]'"):
        FastroAgent("xai:grok-4").run_sync("Hello")


def test_models_of_other_kinds_name_our_extra(uninstall: Callable[[str, str], None]) -> None:
    uninstall("cohere", "cohere")
    with pytest.raises(MissingExtraError, match=r"pip install 'fastroai-runs\[cohere\]'"):
        Metered().embedding_model("cohere:embed-v4.0")
    uninstall("xai_sdk", "xai")
    with pytest.raises(MissingExtraError, match=r"pip install 'fastroai-runs\[xai\]'"):
        Metered().image_model("xai:grok-imagine-image")
    uninstall("websockets.asyncio.client", "openai")
    with pytest.raises(MissingExtraError, match=r"pip install 'fastroai-runs\[openai-realtime\]'"):
        Metered().realtime_model("openai:gpt-realtime")


def test_an_import_that_fails_for_another_reason_stays_what_it_is() -> None:
    with pytest.raises(ModuleNotFoundError, match="no_such_module"), naming_our_extra("x:y"):
        importlib.import_module("no_such_module")


def test_we_have_every_extra_that_pydantic_ai_names_for_a_model() -> None:
    package = Path(pydantic_ai.__file__).parent
    sources = (path.read_text() for kind in KINDS for path in (package / kind).rglob("*.py"))
    named = {extra for source in sources for extra in re.findall(r"pydantic-ai-slim\[([^\]]+)\]", source)}
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    for extra in named:
        assert f"pydantic-ai-slim[{extra}]" in extras[extra]
