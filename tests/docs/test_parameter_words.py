"""The page on words in parameters has each parameter, field, option and argument with such a word."""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import click
import pytest
import typer
from pydantic import BaseModel
from support.workflow_servers import server_here

from fastroai.cli.app import app
from fastroai.graphs.document import GraphArguments
from fastroai.workflows import answers
from fastroai.workflows.spec import parts

ROOT: Final = Path(__file__).parents[2]
PAGE: Final = (ROOT / "docs" / "reference" / "parameter-words.md").read_text(encoding="utf-8")
NAMES: Final = (ROOT / "tests" / "unit" / "public_names.txt").read_text(encoding="utf-8").split()
WORD: Final = re.compile(
    r"(?:.*[_-])?(?:retry|retries|attempts?|timeout|limits?|budgets?|review|questions?|answers?)(?:[_-].*)?"
)

Found = dict[tuple[str, str], set[str]]
"""Where a name is, by the place (`Python`, `tools`, …) and the name: functions, classes, commands."""


def python() -> Iterator[tuple[str, str]]:
    for path in NAMES:
        module, _, name = path.rpartition(".")
        for of, function in functions_of(name, getattr(importlib.import_module(module), name)):
            yield from ((parameter, of) for parameter in inspect.signature(function).parameters)


def functions_of(name: str, found: object) -> Iterator[tuple[str, Callable[..., Any]]]:
    if inspect.isfunction(found):
        yield name, found
    elif inspect.isclass(found):
        for method_name, method in inspect.getmembers(found, inspect.isfunction):
            if method.__module__.startswith("fastroai"):
                if method_name == "__init__":
                    yield name, method
                elif not method_name.startswith("_"):
                    yield f"{name}.{method_name}", method


def yaml() -> Iterator[tuple[str, str]]:
    for name, part in inspect.getmembers(parts, inspect.isclass):
        if issubclass(part, BaseModel):
            yield from ((field, name) for field in part.model_fields)
    yield from ((key, "graph") for key in GraphArguments.__annotations__)


def command_line(command: click.Command | None = None, path: str = "fastroai") -> Iterator[tuple[str, str]]:
    command = typer.main.get_command(app) if command is None else command
    for parameter in command.params:
        yield from ((option, path) for option in parameter.opts)
    if isinstance(command, click.Group):
        for name, inner in command.commands.items():
            yield name, path
            yield from command_line(inner, f"{path} {name}")


async def tools(folder: Path) -> list[tuple[str, str]]:
    async with server_here(folder) as call:
        listed = (await call.client.list_tools()).tools
    arguments = [(name, tool.name) for tool in listed for name in tool.input_schema["properties"]]
    models = [one for _, one in inspect.getmembers(answers, inspect.isclass) if issubclass(one, BaseModel)]
    return [*arguments, *((field, model.__name__) for model in models for field in model.model_fields)]


@pytest.fixture
async def found(tmp_path: Path) -> Found:
    collected: Found = {}
    of_tools = await tools(tmp_path)
    for place, names in {
        "Python": python(),
        "YAML": yaml(),
        "command line": command_line(),
        "tools": of_tools,
    }.items():
        for name, of in names:
            if WORD.fullmatch(name):
                collected.setdefault((place, name), set()).add(of)
    return collected


def rows() -> Iterator[tuple[str, str, frozenset[str]]]:
    """Place, name and owners of each row of the page; no owners stand for all that no other row has."""
    for names, places in re.findall(r"^\| (`[^|]+) \| ([^|]+) \| [^|]+ \|$", PAGE, re.MULTILINE):
        for place in places.split("; "):
            where, _, owners = place.partition(": ")
            for name in re.findall(r"`([^`]+)`", names):
                yield where.strip(), name, frozenset(re.findall(r"`([^`]+)`", owners))


def test_every_name_with_such_a_word_is_on_the_page(found: Found) -> None:
    listed = {(place, name) for place, name, _ in rows()}
    missing = [
        f"{place}: {name} of {sorted(found[place, name])[:9]}" for place, name in found.keys() - listed
    ]
    assert not missing, "\n".join(
        ["say on docs/reference/parameter-words.md what it means", *sorted(missing)]
    )
    assert not listed - found.keys(), "the page has names that are no more"


def covered(owners: frozenset[str], of: set[str]) -> set[str]:
    """Whose parameters a row is about: those of a class and its methods, of a method and its sync twin."""
    return {
        one
        for one in of
        for owner in owners
        if one in (owner, f"{owner}_sync") or one.startswith(f"{owner}.")
    }


def test_a_second_meaning_says_whose_it_is(found: Found) -> None:
    general: list[tuple[str, str]] = []
    for place, name, owners in rows():
        for owner in owners:
            assert covered(frozenset({owner}), found[place, name]), f"{place}: {name} of {owner} is no more"
        if not owners:
            general.append((place, name))
    assert len(general) == len({*general}), "two rows without owners"
    for place, name in {(place, name) for place, name, _ in rows()} - {*general}:
        owners = frozenset(one for where, row, of in rows() if (where, row) == (place, name) for one in of)
        left = found[place, name] - covered(owners, found[place, name])
        assert not left, f"{place}: {name}: {sorted(left)}"
