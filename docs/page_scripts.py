"""The code on pages: what is to be run, and the drawings that the build makes of it.

The Python of a page is one script. But a block with a title is a file, and a block of `console` has
commands, which may run such files. A page gets the answers of `python -m fastroai.testing`.

On a page, `<!-- drawing: expression -->` becomes a picture of a pipeline, graph or trace: of the value of the
expression, after the code of the page up to there has run against the model server.
"""

from __future__ import annotations

import io
import os
import re
import runpy
import shlex
import signal
import subprocess
import sys
import tempfile
import textwrap
import types
from collections.abc import Callable, Iterator
from contextlib import ExitStack, chdir, contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from unittest.mock import patch

from mkdocs.structure.pages import Page
from typer.testing import CliRunner

from fastroai.cli.app import app
from fastroai.drawing.svg_style import STYLE
from fastroai.functions import reset
from fastroai.testing import ModelServer
from fastroai.testing.answers_of_the_docs import rules


@dataclass(frozen=True)
class Block:
    """A block of code of a page, or of what it prints."""

    kind: str
    """`python`, `file`, `console`, `text` or `hidden`."""
    code: str
    line: int
    """The line of the page where it starts."""
    follows: bool
    """Whether only blank lines are between it and the block before."""
    title: str = ""
    """The name of a file."""


_BLOCKS: Final = re.compile(
    r"^(?P<indent> *)```(?P<language>\w*)(?: title=\"(?P<title>[^\"]+)\")?[^\n]*\n"
    r"(?P<fenced>.*?)^(?P=indent)```$"
    r"|^<!-- hidden\n(?P<hidden>.*?)^-->$",
    re.MULTILINE | re.DOTALL,
)
INCLUDE = "--8<--"
"""Begins the inclusion of a file of `examples/`, which has a test of its own."""


def blocks_of(page: str) -> Iterator[Block]:
    """What is to be run on a page, and what is to be printed."""
    end = 0
    for match in _BLOCKS.finditer(page):
        language, code = match["language"], match["fenced"]
        if code is None:
            language, code = "hidden", match["hidden"]
        if (match["title"] or language in ("python", "console", "text", "hidden")) and not code.startswith(
            INCLUDE
        ):
            yield Block(
                kind="file" if match["title"] else language,
                title=match["title"] or "",
                code=textwrap.dedent(code),
                line=page.count("\n", 0, match.start()) + 2,
                follows=not page[end : match.start()].strip(),
            )
        end = match.end()


def has_hidden_parts(page: str) -> bool:
    """Tell whether a page has set-up of its own that readers do not see."""
    return any(block.kind == "hidden" for block in blocks_of(page))


def files_of(page: Path, text: str) -> Iterator[Block]:
    """The files that a reader has from other pages: `<!-- files of pipeline.md -->`."""
    for other in re.findall(r"^<!-- files of (\S+) -->$", text, re.MULTILINE):
        yield from (block for block in blocks_of((page.parent / other).read_text()) if block.kind == "file")


class Script:
    """A page that runs in the current folder: what it defines, and what it has printed."""

    def __init__(self, page: Path, text: str, server: ModelServer) -> None:
        self.page = page
        self.module = types.ModuleType("page")
        self.hidden: dict[str, object] = {"server": server}
        self.printed = io.StringIO()
        self.defined: dict[str, object] = self.module.__dict__
        """What the script defines, or the file that ran last."""
        rules(server)
        for block in files_of(page, text):
            self.run(block)

    def run(self, block: Block) -> str:
        """Run a block and give what it printed, or the commands with what they print."""
        if block.kind == "file":
            Path(block.title).write_text(block.code, encoding="utf-8")
            return ""
        if block.kind == "console":
            commands = re.findall(r"^\$ ((?:.*\\\n)*.+)\n((?:(?!\$ ).*\n)*)", block.code, re.MULTILINE)
            return "".join(f"$ {typed}\n{self._command(typed, shown)}" for typed, shown in commands)
        code = compile("\n" * (block.line - 1) + block.code, str(self.page), "exec")
        with self._printing() as start:
            exec(code, self.hidden if block.kind == "hidden" else self.module.__dict__)
        return self.printed.getvalue()[start:]

    @contextmanager
    def _printing(self) -> Iterator[int]:
        with redirect_stdout(self.printed), redirect_stderr(self.printed):
            yield self.printed.tell()

    def _command(self, typed: str, shown: str) -> str:
        """Run a command here; a module, or a file that is killed, in a process of its own."""
        program, *arguments = shlex.split(typed.replace("\\\n", " "))
        if program == "export":
            return self._export(typed, arguments[0].partition("=")[0])
        if program == "fastroai":
            return self._with_the_files_here(lambda: self._fastroai(arguments))
        if program != "python":
            raise ValueError(
                f"{self.page}: {typed!r}: console has python, fastroai and export; others are bash"
            )
        if arguments[0] == "-m" or shown.endswith("Killed\n"):
            command = [sys.executable, *arguments]
            options = f"{os.environ.get('PYTEST_ADDOPTS', '')} -p no:asyncio"  # readers need not have it
            environment = os.environ | {"PYTEST_ADDOPTS": options}
            done = subprocess.run(
                command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
            )
            return done.stdout + {0: "", -signal.SIGKILL: "Killed\n"}.get(
                done.returncode, f"{done.returncode}\n"
            )
        with patch.object(sys, "argv", arguments):
            return self._with_the_files_here(lambda: self._file(arguments[0]))

    def _export(self, typed: str, name: str) -> str:
        environment = os.environ | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
        command = ["bash", "-ec", f'{typed}\nprintf %s "${name}"']
        os.environ[name] = subprocess.run(
            command, env=environment, stdout=subprocess.PIPE, text=True, check=True
        ).stdout
        return ""

    def _file(self, file: str) -> None:
        self.defined = runpy.run_path(file, run_name="__main__")

    def _fastroai(self, arguments: list[str]) -> None:
        done = CliRunner().invoke(app, arguments, prog_name="fastroai")
        print("\n".join(line.rstrip() for line in done.output.rstrip().splitlines()))

    def _with_the_files_here(self, run: Callable[[], None]) -> str:
        """Run something that may import the files of this folder, and give what it printed."""
        names = {path.stem for path in Path.cwd().glob("*.py")}
        others = {name: sys.modules.pop(name) for name in [*sys.modules] if name.partition(".")[0] in names}
        with self._printing() as start:
            sys.path.insert(0, str(Path.cwd()))
            try:
                run()
            finally:
                del sys.path[0]
                reset()  # what the file has configured for its process
                for name in names & set(sys.modules):
                    del sys.modules[name]
                sys.modules |= others
        return self.printed.getvalue()[start:]


# --- what mkdocs calls ---

_DRAWING: Final = re.compile(r"^<!-- drawing: (.+) -->$", re.MULTILINE)
_RUN_THE_EXAMPLES: Final = "*You can [run the examples](run-the-examples.md) of this page without a key.*"
_STYLE: Final = re.compile("<style>.*?</style>", re.DOTALL)


def on_page_markdown(markdown: str, page: Page, **_: object) -> str:
    """Put drawings into a page. mkdocs calls this with the text of each page."""
    if page.file.src_uri.startswith("guides/") and _asks_a_model(markdown):
        markdown = re.sub(r"\A(# .+\n)", rf"\1\n{_RUN_THE_EXAMPLES}\n", markdown)
    if not _DRAWING.search(markdown):
        return markdown
    with ExitStack() as stack:
        server = stack.enter_context(ModelServer())
        stack.enter_context(patch.dict(os.environ, server.environment()))
        stack.enter_context(chdir(stack.enter_context(tempfile.TemporaryDirectory())))
        stack.callback(reset)  # what the page has configured for the process
        script = Script(Path(str(page.file.abs_src_path)), markdown, server)
        sys.modules[script.module.__name__] = script.module  # dataclasses look their module up
        stack.callback(sys.modules.pop, script.module.__name__)
        return _drawn(markdown, script)


def _asks_a_model(markdown: str) -> bool:
    return any('"openai' in block.code for block in blocks_of(markdown) if block.kind in ("python", "file"))


def _drawn(markdown: str, script: Script) -> str:
    blocks = iter(blocks_of(markdown))
    upcoming = next(blocks, None)
    parts, end = list[str](), 0
    for marker in _DRAWING.finditer(markdown):
        line = markdown.count("\n", 0, marker.start()) + 1
        while upcoming is not None and upcoming.line < line:
            if upcoming.kind != "text":
                script.run(upcoming)
            upcoming = next(blocks, None)
        found = eval(marker[1], script.defined)
        image = _STYLE.sub("", found if isinstance(found, str) else found.to_svg())
        parts += [markdown[end : marker.start()], f'<figure class="drawing">{_on_one_line(image)}</figure>']
        end = marker.end()
    return "".join([*parts, markdown[end:]])


def _on_one_line(image: str) -> str:
    return " ".join(image.split())


def on_post_build(config: dict[str, object], **_: object) -> None:
    """Write the style sheet of drawings, whose dark theme is that of the page."""
    style = STYLE.replace("@media (prefers-color-scheme: dark)", '[data-md-color-scheme="slate"]')
    Path(str(config["site_dir"]), "drawings.css").write_text(style, encoding="utf-8")
