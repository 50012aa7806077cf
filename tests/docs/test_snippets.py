"""The pages keep their word: their Python runs and prints what they show, and their links lead somewhere.

On a page, the ```python blocks run in order, as one script, against the model server. A ```text block right
after one is exactly what it prints, except for times, durations, ports and random ids. A block with a title
is a file, and ```console has commands, with their output. Tests on a page are run by pytest.

An HTML comment that begins with `hidden` runs where it stands, in a namespace of its own that has `server`.
`HIDDEN` lists the pages with one, each with its reason.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import json
import linecache
import logging
import os
import pkgutil
import re
import subprocess
import sys
import textwrap
import tomllib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import pytest
from opentelemetry.metrics import _internal
from opentelemetry.util._once import Once
from page_scripts import INCLUDE, Script, blocks_of, files_of, has_hidden_parts
from support.fork_server import Program
from support.printed_on_pages import without_what_varies

import fastroai
from fastroai import errors
from fastroai.testing import ModelServer
from fastroai.testing.answers_of_the_docs import rules
from fastroai.tracing import set_redaction

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = [*sorted(ROOT.glob("*.md")), *sorted(DOCS.rglob("*.md"))]
LITERAL = [ROOT / "README.md", DOCS / "index.md", *sorted((DOCS / "learn").glob("*.md"))]
"""Pages for newcomers: they show exactly what is printed, and all that is needed to print it."""
TESTS = re.compile(r"^(?:async )?def test_\w+\(|^class Test", re.MULTILINE)
EXAMPLES = sorted(path for path in (ROOT / "examples").iterdir() if not path.name.startswith(("_", ".")))

# --- the code of pages ---


@contextmanager
def in_a_fresh_process(script: Script) -> Iterator[None]:
    """The page's names can be imported, and its source can be read, as that of a file.

    Nobody has set up logging: pytest has, within a test.
    """
    root, tracing = logging.getLogger(), logging.getLogger("fastroai.tracing")
    before = root.handlers, root.level, tracing.level
    root.handlers = []
    sys.modules[script.module.__name__] = script.module
    source = as_file(script.page)
    file = str(script.page)
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
    environment = {**os.environ}
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(environment)
        del sys.modules[script.module.__name__]
        del linecache.cache[file]
        root.handlers = before[0]
        root.setLevel(before[1])
        tracing.setLevel(before[2])
        set_redaction(None)
        _internal._METER_PROVIDER, _internal._METER_PROVIDER_SET_ONCE = None, Once()


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_the_code_of_a_page_runs_and_prints_what_the_page_shows(page: Path, server: ModelServer) -> None:
    script = Script(page, page.read_text(), server)
    stable: Callable[[str], str] = str if page in LITERAL else without_what_varies
    printed: str | None = None
    with in_a_fresh_process(script):
        for block in blocks_of(page.read_text()):
            if block.kind == "console":
                printed = script.run(block)
            if block.kind in ("text", "console"):
                if printed is not None and (block.follows or block.kind == "console"):
                    shown = f"{name_of(page)}:{block.line} shows\n{block.code}"
                    assert stable(block.code) == stable(printed), f"{shown}\nand prints\n{printed}"
                printed = None
            else:
                printed = script.run(block)
        if page.name == "evaluate-and-compare.md":
            assert script.module.comparison.to_svg() == (DOCS / "images/quality-against-cost.svg").read_text()


HIDDEN = {
    "docs/reference/budget-rules.md": "a sleep lasts until a request has arrived, however slow the machine",
}
"""Pages on which something is hidden from readers, and why it has no effect on what they would see."""


def test_a_reader_can_reproduce_a_page_from_what_it_shows() -> None:
    assert {name_of(page) for page in PAGES if has_hidden_parts(page.read_text())} == set(HIDDEN)


WITH_TESTS = [page for page in PAGES if TESTS.search(page.read_text()) and page not in LITERAL]
"""Of the others, the commands on the page run the tests."""


def test_the_tests_on_pages_pass(server: ModelServer) -> None:
    """A recording is made with the model server; replayed, it asks nobody."""
    rules(server)
    files = {page: f"test_{page.stem.replace('-', '_')}.py" for page in WITH_TESTS}
    for page, file in files.items():
        Path(file).write_text(as_file(page))
    run_tests("--record-models", *files.values())
    recorded = [file for page, file in files.items() if "--record-models" in page.read_text()]
    asked = server.ledger.totals().requests
    run_tests("-qq", *recorded)
    assert server.ledger.totals().requests == asked > 0 < len(recorded)


def run_tests(*arguments: str) -> None:
    options = ("-qq", "-p", "no:cacheprovider", "-o", "asyncio_mode=auto")
    code, out, err = Program("-m", "pytest", *options, *arguments).end()
    assert code == 0, out + err


def test_what_a_page_shows_is_compared_with_what_its_code_prints(server: ModelServer, tmp_path: Path) -> None:
    code, shown = blocks_of("```python\nprint(6 * 7, 'things')\n```\n\n```text\n41 ...\n```\n")
    printed = Script(tmp_path / "page.md", "", server).run(code)
    assert shown.follows
    assert without_what_varies(shown.code) != without_what_varies(printed) == "42 things\n"


def test_only_what_differs_at_each_run_is_left_out_of_the_comparison() -> None:
    once = "[0f1e2d3c] run 'a'    took   3.1 ms at 2026-11-29 20:32:06, for $0.000012 \n"
    again = "[ffffffff] run 'a'  took  1,412 ms at 2027-01-02 00:00:00, for $0.000012 \n"
    assert without_what_varies(once) == without_what_varies(again)
    for other in (once.replace("'a'", "'b'"), once.replace("12 ", "13 ")):
        assert without_what_varies(once) != without_what_varies(other)
    waits_until = "looks again at 2026-03-11 00:00:00 UTC, after 2 attempts"
    assert without_what_varies(waits_until) == waits_until


# --- what type checkers say of the code of pages ---

STRICT = {
    "include": ["."],
    "extraPaths": [str(ROOT)],
    "pythonVersion": "3.11",
    "typeCheckingMode": "strict",
    "reportDuplicateImport": "none",  # for readers who begin in the middle of a page
}
KNOWN_MISTAKES = {
    "docs/guides/agents.md": ["reportCallIssue"],  # a misspelt option
    "docs/guides/typed-function-options.md": [  # an await that is missing
        "reportUnknownMemberType",
        "reportUnknownArgumentType",
        "reportAttributeAccessIssue",
    ],
}
"""Mistakes that a page shows on purpose, so that a type checker must find them."""
PARTLY_TYPED = {"docs/guides/langgraph.md", "docs/guides/langgraph-steps.md", "docs/guides/rows.md"}
"""Pages about packages whose own types are partly unknown, which strict rules report."""


def as_file(page: Path, title: str = "") -> str:
    """The script of a page, or one of its files, at the lines where it is there."""
    lines = ["# pyright: standard"] if name_of(page) in PARTLY_TYPED else [""]
    for block in blocks_of(page.read_text()):
        if block.kind in ("python", "file") and block.title == title:
            lines += [""] * (block.line - 1 - len(lines)) + block.code.splitlines()
    return "\n".join(lines) + "\n"


def as_files(folder: Path, page: Path) -> dict[str, Path]:
    """Write the Python of a page into a folder, and return its files."""
    folder.mkdir()
    titles = {
        block.title
        for block in blocks_of(page.read_text())
        if block.kind == "python" or block.title.endswith(".py")
    }
    for block in files_of(page, page.read_text()):
        (folder / block.title).write_text(block.code)
    for title in titles:
        (folder / (title or "page.py")).write_text(as_file(page, title))
    return {str(folder / (title or "page.py")): page for title in titles}


def test_the_code_of_all_pages_is_clean_under_strict_type_checking(tmp_path: Path) -> None:
    files: dict[str, Path] = {}
    for number, page in enumerate(PAGES):
        files |= as_files(tmp_path / f"page_{number}", page)
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(STRICT))
    command = [sys.executable, "-m", "basedpyright", "-p", str(tmp_path), "--outputjson"]
    checked = subprocess.run(
        [*command, "--pythonpath", sys.executable], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    said = json.loads(checked.stdout)
    assert said["summary"]["filesAnalyzed"] >= len(files), checked.stdout
    mistakes: dict[str, list[str]] = {}
    wrong: list[str] = []
    for one in said["generalDiagnostics"]:
        if one["file"] not in files:
            continue  # it is checked where it belongs
        name = name_of(files[one["file"]])
        mistakes.setdefault(name, []).append(one.get("rule", "syntax"))
        if name not in KNOWN_MISTAKES:
            wrong.append(f"{name}:{one['range']['start']['line'] + 1}: {one['message']}")
    assert not wrong, "\n".join(wrong)
    assert mistakes == KNOWN_MISTAKES


# --- the code of docstrings ---

MODULES = sorted(
    module.name
    for module in pkgutil.walk_packages(fastroai.__path__, "fastroai.")
    if not module.name.endswith("__main__")
)


def docstrings_of(module: str) -> Iterator[tuple[str, str]]:
    """Every docstring of a module, by the name of what it is of."""
    source = inspect.getsource(importlib.import_module(module))
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            text = ast.get_docstring(node)
            if text:
                yield f"{module}.{getattr(node, 'name', '')}", text


def examples_of(docstring: str) -> Iterator[str]:
    """The indented blocks of a docstring; sections such as `Args:` have no blank line before theirs."""
    for block in re.findall(r"(?:^|\n)\n((?:    .*(?:\n+(?=    )|$|\n))+)", docstring):
        if not re.search("[├└]", block):
            yield textwrap.dedent(block)


ALLOW_AWAIT = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT


def test_the_examples_of_docstrings_are_python_and_do_not_render_as_prose() -> None:
    for name, docstring in (one for module in MODULES for one in docstrings_of(module)):
        for example in examples_of(docstring):
            compile(example, name, "exec", flags=ALLOW_AWAIT)
        for paragraph in docstring.split("\n\n"):
            if paragraph.startswith(" ") or paragraph.isidentifier():
                continue
            try:
                compile(paragraph, name, "exec", flags=ALLOW_AWAIT)
            except SyntaxError:
                continue
            pytest.fail(f"{name}: indent the example, and have a sentence after it:\n{paragraph}")


@pytest.mark.parametrize(
    "name", ["usage.money.format_cost", "usage.prices.pricing.CostCalculator", "usage.budget.Budget"]
)
def test_the_complete_examples_of_docstrings_say_what_they_give(name: str) -> None:
    module, _, _ = f"fastroai.{name}".rpartition(".")
    docstring = dict(docstrings_of(module))[f"fastroai.{name}"]
    namespace: dict[str, object] = dict(vars(importlib.import_module(module)))
    checked = 0
    for example in examples_of(docstring):
        exec(example, namespace)
        for expression, said in re.findall(r"^(.+?) +# ('.*'|\d+)", example, re.MULTILINE):
            assert eval(expression, namespace) == ast.literal_eval(said)
            checked += 1
    assert checked or "Budget" in name


# --- what the pages must have ---


def test_every_public_name_has_a_reference() -> None:
    referred = set(re.findall(r"^::: (\S+)", "".join(page.read_text() for page in PAGES), re.MULTILINE))
    packages = (
        "agent",
        "contracts",
        "drawing",
        "errors",
        "expressions",
        "functions",
        "graphs",
        "pipelines",
        "steps",
        "store",
        "testing",
        "tools",
        "tracing",
        "usage",
    )
    names = {name for package in packages for name in importlib.import_module(f"fastroai.{package}").__all__}
    names |= set(fastroai.__all__) - {"__version__"}
    helpers = {"attach_usage", "error_chain", "nearest_hint", "log_metrics", "base_url_of"}
    assert names - helpers <= {reference.rpartition(".")[2] for reference in referred}


def test_every_reference_is_a_name_that_can_be_imported() -> None:
    for page in PAGES:
        for reference in re.findall(r"^::: (\S+)", page.read_text(), re.MULTILINE):
            home, _, name = reference.rpartition(".")
            assert hasattr(importlib.import_module(home), name), f"{name_of(page)}: {reference}"


def test_the_links_of_a_page_lead_somewhere() -> None:
    wrong = list[str]()
    for page in PAGES:
        text = re.sub(r"^ *```.*?^ *```$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
        for link in re.findall(r"(?<!!)\[[^\]\n]*\]\(([^)\s]+)\)", text):
            file, _, anchor = link.partition("#")
            target = page.parent / file if file else page
            if link.startswith(("https://", "http://")) or target.name == "changelog.md":
                continue  # the build writes the change log
            if not target.exists() or (anchor and anchor not in anchors_of(target)):
                wrong.append(f"{name_of(page)} links to {link}")
    assert wrong == []


@cache
def anchors_of(page: Path) -> set[str]:
    """The ids that headings get, and those of the API reference."""
    text = page.read_text()
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    slugs = {re.sub(r"[\s-]+", "-", re.sub(r"[^\w\s-]", "", heading).strip().lower()) for heading in headings}
    return slugs | set(re.findall(r"^::: (\S+)", text, re.MULTILINE))


def test_what_a_page_includes_is_there() -> None:
    included = re.compile(rf'^{INCLUDE} "([^":]+)(?::([^"]+))?"$', re.MULTILINE)
    for page in PAGES:
        for file, section in included.findall(page.read_text()):
            source = (ROOT / file).read_text()
            if section:
                markers = re.findall(rf"{INCLUDE} \[(start|end):{section}\]", source)
                assert markers == ["start", "end"], f"{name_of(page)} includes {file}:{section}"


def test_a_guide_has_at_most_200_lines() -> None:
    guides = [*(DOCS / "guides").glob("*.md"), *(DOCS / "migrating").glob("*.md")]
    lines = {guide.name: len(guide.read_text().splitlines()) for guide in guides}
    long = {name: number for name, number in lines.items() if number > 200}
    assert not long, "split it by task, or move rules that few readers need to docs/reference"


def test_extras_are_installed_in_one_way() -> None:
    """In a clone, which README and Learn begin with, they are installed from its folder."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    of_a_clone = list[str]()
    for page in PAGES:
        for command in re.findall(r"pip install ([^`\n]*\[[^`\n]*)", page.read_text()):
            found = re.match(r"(-e '\.|'fastroai-runs)\[([\w,]+)\]'", command)
            assert found, f"{name_of(page)}: {command}"
            assert {*found[2].split(",")} <= {*extras}
            of_a_clone += [name_of(page)] if found[1].startswith("-e") else []
    assert of_a_clone == ["README.md", "docs/learn/install.md"]


def test_code_of_a_guide_is_not_cut_off_beside_the_navigation() -> None:
    block = re.compile(r"^ *```(?:python|yaml|json|javascript).*\n((?:.*\n)*?) *```$", re.M)
    command = re.compile(r"^\$ (?:.*\\\n)*.+$", re.M)  # and not what it prints
    texts = {page: page.read_text() for page in (*DOCS.glob("guides/*.md"), *DOCS.glob("migrating/*.md"))}
    wide = [
        f"{name_of(page)}: {line}"
        for page, text in texts.items()
        for code in (*block.findall(text), *command.findall(text))
        for line in code.splitlines()
        if len(line) > 80 and INCLUDE not in line
    ]
    assert not wide, "at most 80 columns"


def test_every_page_is_in_the_navigation() -> None:
    navigation = (ROOT / "mkdocs.yml").read_text()
    pages = {str(path.relative_to(DOCS)) for path in DOCS.rglob("*.md")}
    missing = {page for page in pages if f" {page}\n" not in navigation}
    assert not missing


def test_no_section_has_the_name_of_a_group_in_the_navigation() -> None:
    """A reader of a narrow page would find two landmarks of one name, which axe refuses."""
    groups = {*re.findall(r'^ +- "?([^":\n]+)"?:$', (ROOT / "mkdocs.yml").read_text(), re.M)}
    assert "Services" in groups
    sections = {
        (name_of(page), heading)
        for page in DOCS.rglob("*.md")
        for heading in re.findall(r"^##+ (.+)$", page.read_text(), re.M)
    }
    assert not {(page, heading) for page, heading in sections if heading in groups}


def test_the_tree_of_errors_is_that_of_the_module() -> None:
    tree = textwrap.dedent(re.findall(r"(    FastroAIError\n(?:    [├│└].*\n)+)", errors.__doc__ or "")[0])
    assert tree in (DOCS / "reference/errors.md").read_text()


def test_every_example_appears_on_a_page() -> None:
    text = "".join(page.read_text() for page in PAGES)
    assert [example.name for example in EXAMPLES if f"examples/{example.name}" not in text] == []
