"""Task files of spec-kit as a workflow spec."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from fastroai.documents.yaml_writing import dump_yaml
from fastroai.errors import ConfigurationError, ExpressionError
from fastroai.expressions import Expression
from fastroai.workflows.spec.files import FILE_FUNCTIONS
from fastroai.workflows.spec.limits import MAX_FLOW_STEPS, MAX_ID_CHARACTERS
from fastroai.workflows.spec.references import ID

_RETRIES: Final = 1
"""Extra attempts at each task."""
_MOST_CHARACTERS: Final = 100_000
"""Maximum number of characters in a task file."""
_PARALLEL: Final = re.compile(r"\[P\]", re.IGNORECASE)
_TITLE: Final = re.compile(r"#+[ \t]*(?:Task[ \t]*(?:[A-Z]?[0-9]+[ \t]*)?:)?[ \t]*(.*)", re.IGNORECASE)
_HEADING: Final = re.compile(r"#+[ \t]")
_CRITERIA: Final = re.compile(r"#+[ \t]*Acceptance Criteria\b", re.IGNORECASE)
_CRITERION: Final = re.compile(r"[ \t]*[-*+][ \t]+(?:\[[ xX]\][ \t]*)?(\S.*)")
_PATH: Final = r"(?:`(?P<ticks>[^`]+)`|\"(?P<quotes>[^\"]+)\"|(?P<plain>\S+))"
_EXISTS: Final = re.compile(rf"file\s+{_PATH}\s+exists?\.?", re.IGNORECASE)
_CONTAINS: Final = re.compile(
    rf"file\s+{_PATH}\s+contains?\s+(?:\"(?P<double>[^\"]+)\"|'(?P<single>[^']+)'|`(?P<code>[^`]+)`|(?P<word>\S+))\.?",
    re.IGNORECASE,
)
_TESTS: Final = re.compile(r"(?:all\s+)?tests?\s+(?:are\s+)?pass(?:es|ing)?\.?", re.IGNORECASE)
_LINT: Final = re.compile(
    r"(?:no\s+lint(?:er)?\s+errors?|lint\s+(?:passes|(?:is\s+)?clean))\.?", re.IGNORECASE
)
_TESTS_PASS: Final = "result.tests_pass == True"
_LINT_CLEAN: Final = "result.lint_clean == True"


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeckitTask:
    """A task file, as a step."""

    id: str
    title: str
    parallel: bool
    """Whether the task is in a group of tasks that do not wait for each other: `[P]` in its title."""
    ensures: tuple[str, ...]
    """Acceptance criteria that expressions check, as expressions."""
    judgment: tuple[str, ...]
    """Other acceptance criteria, which the agent or person who does the task has to judge."""
    intent: str
    """The work to be done, with the criteria in `judgment`."""


@dataclass(frozen=True, slots=True)
class SpeckitSpec:
    """The tasks of a folder, as a spec."""

    text: str
    """The text of the spec, which is valid."""
    flow: str
    """The name of the flow and of the workflow."""
    tasks: tuple[SpeckitTask, ...]


def compile_speckit(folder: Path, flow: str = "tasks") -> SpeckitSpec:
    """Return a workflow spec made of the task files of spec-kit in a folder: `*.md`, in order of their names.

    The result has the `text` of the spec, which is YAML, and its `tasks`. Each file becomes a step, whose id
    is made of the name of the file. `flow` is the name of the flow and of the workflow. No file is written.

    A file has a title, `# Task: Write the parser` or `# Task: [P] Write the parser`, a text, and below
    `## Acceptance Criteria` a list. `file X exists`, `file X contains "Y"`, `tests pass` and `no lint errors`
    become expressions of `ensure`, which check the result; anything else becomes a part of the intent. A step
    has two attempts, and is done if its result has `done: true` and the checks pass. A task waits for the one
    before it, or for the whole group before it; the tasks of a group, marked by `[P]`, wait for the task
    before the group.

    Raises:
        ConfigurationError: There are no task files, or too many; two come to the same id; one is too long or
            is not UTF-8; or the name of the flow is not a valid name.
        OSError: A file cannot be read.
        MissingExtraError: PyYAML is not installed (the extra `workflows`).
    """
    if not ID.fullmatch(flow) or len(flow) > MAX_ID_CHARACTERS:
        raise ConfigurationError(
            "flow", flow, "a name: letters, digits, '_' and '-', not a digit or '-' first"
        )
    files = sorted(path for path in folder.glob("*.md") if path.is_file())
    if not 0 < len(files) <= MAX_FLOW_STEPS:
        raise ConfigurationError("folder", str(folder), f"a folder with 1 to {MAX_FLOW_STEPS:,} files *.md")
    tasks: dict[str, SpeckitTask] = {}
    sources: dict[str, str] = {}
    for file in files:
        task = _task(file)
        if task.id in tasks:
            expected = f"a different id; {sources[task.id]!r} has {task.id!r} already"
            raise ConfigurationError("task file", file.name, expected)
        tasks[task.id], sources[task.id] = task, file.name
    in_order = tuple(tasks.values())
    return SpeckitSpec(dump_yaml(_document(flow, in_order), "compile_speckit"), flow, in_order)


def _document(flow: str, tasks: Sequence[SpeckitTask]) -> dict[str, Any]:
    optional = {"type": "boolean", "required": False}
    result = {"done": {"type": "boolean"}, "tests_pass": optional, "lint_clean": optional}
    context = {"project_context": {"type": "string", "default": ""}}
    return {
        "version": "0.3",
        "workflow": {"name": flow, "description": "Tasks of spec-kit", "input": context},
        "contracts": {"TaskResult": result},
        "flows": {
            flow: {
                "input": context,
                "output": "TaskResult",
                "steps": [_step(task, before) for task, before in _with_predecessors(tasks)],
            }
        },
    }


def _step(task: SpeckitTask, before: Sequence[str]) -> dict[str, Any]:
    step = {
        "id": task.id,
        "intent": task.intent,
        "inputs": {"task_context": "$.input.project_context"},
        "output_contract": "TaskResult",
        "ensure": [*task.ensures, "result.done == True"],
        "retries": _RETRIES,
    }
    return {**step, "depends_on": list(before)} if before else step


def _with_predecessors(tasks: Sequence[SpeckitTask]) -> Iterator[tuple[SpeckitTask, list[str]]]:
    before: list[str] = []
    group: list[str] = []
    for task in tasks:
        if task.parallel:
            group.append(task.id)
        else:
            before, group = group or before, []
        yield task, before
        if not task.parallel:
            before = [task.id]


# --- one file ---


def _task(file: Path) -> SpeckitTask:
    title, body, criteria = _parts(_text(file).splitlines())
    ensures: list[str] = []
    judgment: list[str] = []
    for criterion in criteria:
        expression = _expression(criterion)
        (judgment if expression is None else ensures).append(expression or criterion)
    plain = " ".join(_PARALLEL.sub(" ", title).split()) or file.stem
    intent = "\n\n".join(filter(None, (plain, body)))
    if judgment:
        intent += "\n\nAlso verify:\n" + "\n".join(f"- {one}" for one in judgment)
    for expression, field, done in (
        (_TESTS_PASS, "tests_pass", "the tests pass"),
        (_LINT_CLEAN, "lint_clean", "there are no lint errors"),
    ):
        if expression in ensures:
            intent += f"\n\nRun the check, and report in `{field}` whether {done}."
    return SpeckitTask(
        id=_id(file.stem),
        title=plain,
        parallel=bool(_PARALLEL.search(title)),
        ensures=tuple(dict.fromkeys(ensures)),
        judgment=tuple(judgment),
        intent=intent,
    )


def _text(file: Path) -> str:
    try:
        with file.open(encoding="utf-8") as opened:
            text = opened.read(_MOST_CHARACTERS + 1)
    except UnicodeDecodeError as error:
        raise ConfigurationError("task file", file.name, "a file in UTF-8") from error
    if len(text) > _MOST_CHARACTERS:
        raise ConfigurationError("task file", file.name, f"at most {_MOST_CHARACTERS:,} characters")
    return text


def _parts(lines: Sequence[str]) -> tuple[str, str, list[str]]:
    """Return the title of a task, the text below it, and the acceptance criteria."""
    start = next((index for index, line in enumerate(lines) if _HEADING.match(line)), None)
    title = "" if start is None else _title(lines[start])
    rest = lines if start is None else lines[start + 1 :]
    end = next((index for index, line in enumerate(rest) if _CRITERIA.match(line)), len(rest))
    below = rest[end + 1 :]
    stop = next((index for index, line in enumerate(below) if _HEADING.match(line)), len(below))
    found = [_CRITERION.fullmatch(line) for line in below[:stop]]
    after = "\n".join(below[stop:])
    body = "\n\n".join(filter(None, ("\n".join(rest[:end]).strip(), after.strip())))
    return title, body, [one[1].strip() for one in found if one is not None]


def _title(line: str) -> str:
    found = _TITLE.fullmatch(line)
    return "" if found is None else found[1].strip()


def _expression(criterion: str) -> str | None:
    """Return the expression of a criterion; `None` if the criterion needs judgment."""
    if _TESTS.fullmatch(criterion):
        return _TESTS_PASS
    if _LINT.fullmatch(criterion):
        return _LINT_CLEAN
    if found := _EXISTS.fullmatch(criterion):
        written = f"file_exists({_one_of(found, 'ticks', 'quotes', 'plain')!r})"
    elif found := _CONTAINS.fullmatch(criterion):
        path = _one_of(found, "ticks", "quotes", "plain")
        written = f"file_contains({path!r}, {_one_of(found, 'double', 'single', 'code', 'word')!r})"
    else:
        return None
    try:
        Expression(written, functions=FILE_FUNCTIONS)
    except ExpressionError:  # it is too long
        return None
    return written


def _one_of(found: re.Match[str], *groups: str) -> str:
    return next(found[group] for group in groups if found[group] is not None)


def _id(stem: str) -> str:
    slug = re.sub(r"[^a-z0-9]+", "_", stem.lower()).strip("_")
    return (slug if slug[:1].isalpha() else f"t{slug}")[:MAX_ID_CHARACTERS]
