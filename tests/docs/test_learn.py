"""Learn is a way in: short pages in an order, few new words, and commands that do what the pages say."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from fastroai.testing import ModelServer
from fastroai.testing.__main__ import main

ROOT = Path(__file__).parents[2]
LEARN = ROOT / "docs" / "learn"
ORDER = re.findall(r": learn/(\S+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE)
NEW_WORD = re.compile(r"\[[^\]]+\]\(\.\./reference/glossary\.md#([\w-]+)\)")


def box_of(page: str) -> str:
    """What a page says at its start: what it is for, what it needs, and its new words."""
    box = re.search(r'^!!! info "On this page"\n((?:    .*\n|\n)+)', (LEARN / page).read_text(), re.MULTILINE)
    assert box, page
    return box[1]


def test_learn_has_eight_pages_of_about_150_lines() -> None:
    assert sorted(ORDER) == sorted(path.name for path in LEARN.glob("*.md"))
    assert len(ORDER) == 8
    for number, page in enumerate(ORDER, start=1):
        text = (LEARN / page).read_text()
        assert text.startswith(f"# {number}. ")
        assert text.count("\n") <= 160, page


@pytest.mark.parametrize("page", ORDER)
def test_each_page_says_what_it_needs_and_explains_its_new_words(page: str) -> None:
    box = box_of(page)
    assert "**You need**" in box
    glossary = (ROOT / "docs" / "reference" / "glossary.md").read_text()
    entries = {entry.lower().replace(" ", "-") for entry in re.findall(r"^### (.+)$", glossary, re.MULTILINE)}
    words = NEW_WORD.findall(box.partition("**New word")[2])
    assert words
    assert {*words} <= entries


def test_a_run_survives_kill_9_after_at_most_ten_new_words() -> None:
    words = [word for page in ORDER[:4] for word in NEW_WORD.findall(box_of(page).partition("**New word")[2])]
    assert ORDER[3] == "survive.md"
    assert len(words) == len({*words}) <= 10


def test_the_variables_on_the_pages_are_those_that_the_server_prints() -> None:
    with ModelServer() as server:
        printed = {f"export {name}={value}" for name, value in server.environment().items()}
        at_the_default_port = {line.replace(server.url, "http://127.0.0.1:8080") for line in printed}
    for page in (ROOT / "README.md", LEARN / "install.md", ROOT / "docs/guides/run-the-examples.md"):
        assert {*re.findall(r"^export .+$", page.read_text(), re.MULTILINE)} == at_the_default_port


def test_the_command_serves_the_answers_of_the_pages_by_default(monkeypatch: pytest.MonkeyPatch) -> None:
    served: list[ModelServer] = []

    def stop_at_once(self: ModelServer) -> None:
        served.append(self)
        raise OSError("seen")

    monkeypatch.setattr(ModelServer, "start", stop_at_once)
    assert main(["--port", "0"]) == 1
    monkeypatch.undo()
    with served[0] as server:
        from pydantic_ai import Agent

        agent = Agent(server.model("openai:gpt-5-mini"), instructions="Answer in one sentence.")
        assert agent.run_sync("What is the capital of France?").output == "The capital of France is Paris."
        assert agent.run_sync("And of Spain?").output == "echo: And of Spain?"


def test_search_is_tried_when_the_site_is_built() -> None:
    hooks = yaml.load((ROOT / "mkdocs.yml").read_text(), yaml.BaseLoader)["hooks"]
    assert "docs/site_search.py" in hooks
