"""ARCHITECTURE.md and CONTRIBUTING.md name the packages, files and names that the code has."""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "fastroai"
ARCHITECTURE = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")

ASKED = (
    "Why did this step start?",
    "Where is a 429 retried?",
    "What happens on SIGKILL between a request and its answer?",
    "Where is a nested timeout enforced?",
)
"""Questions that the page must answer, whatever else it does."""


def section(text: str, title: str) -> str:
    """A section of second level, with what is below it."""
    found = re.search(rf"^## {re.escape(title)}$(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
    assert found is not None, f"there is no section {title!r}"
    return found[1]


def paths_in_tree() -> Iterator[str]:
    """Every folder and file of the drawn tree, relative to the package; a folder ends with a slash."""
    around: list[str] = []
    for line in section(ARCHITECTURE, "The tree").splitlines():
        drawn = re.match(r"([│ ]*)[├└]── (.*)", line)
        if drawn is None:
            continue
        depth, text = len(drawn[1]) // 4, drawn[2]
        around = around[:depth]
        if (folder := re.match(r"(\w+)/", text)) is not None:
            around.append(f"{folder[1]}/")
            yield "".join(around)
        yield from ("".join(around) + name for name in re.findall(r"\b\w+\.py\b", text))


def packages() -> set[str]:
    """Every folder and every file at the top that the package has."""
    folders = {f"{path.parent.relative_to(PACKAGE)}/" for path in PACKAGE.rglob("*/__init__.py")}
    return {one for one in folders if one != "./"} | {
        path.name for path in PACKAGE.glob("*.py") if path.name != "__init__.py"
    }


def named(text: str) -> list[tuple[str, str]]:
    """The files that a text names together with something in them: `file.py` · `Class.method`."""
    return re.findall(r"`([\w/]+\.py)`\s+·\s+`([\w.]+)`", text)


def questions() -> dict[str, str]:
    """The answers, by question."""
    asked = re.findall(
        r"^\*\*(.+?\?)\*\*(.*?)(?=^\*\*|\Z)",
        section(ARCHITECTURE, "Where is it?"),
        re.MULTILINE | re.DOTALL,
    )
    return dict(asked)


@cache
def syntax_of(file: str) -> ast.Module:
    return ast.parse((PACKAGE / file).read_text(encoding="utf-8"))


def defines(body: ast.AST, name: str) -> ast.AST | None:
    """What defines a name in a module or class: a class, a function, a value, or `self.name` in a method."""
    for node in ast.iter_child_nodes(body):
        match node:
            case ast.ClassDef() | ast.FunctionDef() | ast.AsyncFunctionDef() if node.name == name:
                return node
            case ast.AnnAssign(target=ast.Name(id=target)) if target == name:
                return node
            case ast.Assign(targets=[ast.Name(id=target)]) if target == name:
                return node
            case ast.FunctionDef(name="__init__"):
                attributes = (one for one in ast.walk(node) if isinstance(one, ast.Attribute))
                if any(one.attr == name and isinstance(one.ctx, ast.Store) for one in attributes):
                    return node
            case _:
                pass
    return None


def test_the_tree_names_every_package_and_nothing_that_does_not_exist() -> None:
    drawn = list(paths_in_tree())
    missing = [path for path in drawn if not (PACKAGE / path).exists()]
    assert missing == []
    assert {path for path in drawn if path in packages()} == packages()
    assert len(drawn) == len(set(drawn))


def test_the_layers_in_contributing_are_those_of_the_contract() -> None:
    config = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    (layers,) = (contract["layers"] for contract in config["tool"]["importlinter"]["contracts"])
    existing = {path.removesuffix("/").removesuffix(".py") for path in packages()}
    held = [set(re.findall(r"\w+", layer)) & existing for layer in layers]  # without those to come
    drawn = re.findall(r"^ {4}([a-z_]+(?: · [a-z_]+)*) {2,}\S", section(CONTRIBUTING, "Layers"), re.MULTILINE)
    assert [set(line.split(" · ")) for line in drawn] == [names for names in held if names]
    assert set().union(*held) == {name for name in existing if "/" not in name}


def test_a_file_that_the_page_names_has_the_name_beside_it() -> None:
    assert [f"{file} has no {name}" for file, name in named(ARCHITECTURE) if not has(file, name)] == []


def has(file: str, name: str) -> bool:
    found: ast.AST | None = syntax_of(file)
    for part in name.split("."):
        found = found and defines(found, part)
    return found is not None


def test_ten_questions_and_more_are_answered_by_a_file_each() -> None:
    answered = questions()
    assert set(ASKED) <= set(answered)
    assert len(answered) >= 10
    for question, answer in answered.items():
        assert re.match(r"\s+`[\w/]+\.py` · `|\s+`[\w/]+\.py`\s+·\s+`", answer), question


def test_every_word_of_the_glossary_has_one_meaning_and_a_place_in_the_code() -> None:
    rows = re.findall(
        r"^\| \*\*(.+?)\*\* \| (.+?) \| (.+?) \|$", section(ARCHITECTURE, "Glossary"), re.MULTILINE
    )
    words = [word for word, _, _ in rows]
    assert len(words) == len(set(words)) > 50
    assert [word for word, _, where in rows if len(named(where)) != 1] == []
    lines = [line for line in section(ARCHITECTURE, "Glossary").splitlines() if line.startswith("| **")]
    assert len(lines) == len(rows)
