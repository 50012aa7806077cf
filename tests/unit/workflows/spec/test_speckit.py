"""Task files of spec-kit, and the specs that they come to."""

from __future__ import annotations

from pathlib import Path

import pytest

from fastroai.errors import ConfigurationError
from fastroai.workflows.spec.reading import load_spec
from fastroai.workflows.spec.speckit import compile_speckit


def write(folder: Path, **files: str) -> Path:
    for name, text in files.items():
        (folder / f"{name.removeprefix('t')}.md").write_text(text, encoding="utf-8")
    return folder


def criteria(folder: Path, *lines: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    text = "# Task: A\n\n## Acceptance Criteria\n\n" + "\n".join(f"- [ ] {line}" for line in lines)
    (task,) = compile_speckit(write(folder, one=text)).tasks
    return task.ensures, task.judgment


def test_a_task_is_a_step_with_its_criteria(tmp_path: Path) -> None:
    write(
        tmp_path,
        **{
            "t01-parser": "Some words\n\n# Task: Write the parser\n\nIt reads lines.\n\n"
            "## Acceptance Criteria\n\n"
            "- [ ] file src/parser.py exists\n- [x] tests pass\n* no lint errors\n- The names are clear\n\n"
            "## Notes\n\n- [ ] file other exists\n"
        },
    )
    compiled = compile_speckit(tmp_path, "build")
    spec = load_spec(compiled.text)
    (step,) = spec.flows["build"].steps
    assert (spec.entry, step.id, step.attempts, step.output_contract) == (
        "build",
        "t01_parser",
        2,
        "TaskResult",
    )
    assert [one.text for one in step.ensure] == [
        "file_exists('src/parser.py')",
        "result.tests_pass == True",
        "result.lint_clean == True",
        "result.done == True",
    ]
    assert step.intent == (
        "Write the parser\n\nIt reads lines.\n\n## Notes\n\n- [ ] file other exists\n\n"
        "Also verify:\n- The names are clear\n\n"
        "Run the check, and report in `tests_pass` whether the tests pass.\n\n"
        "Run the check, and report in `lint_clean` whether there are no lint errors."
    )
    (task,) = compiled.tasks
    assert (task.title, task.parallel, task.judgment) == ("Write the parser", False, ("The names are clear",))


@pytest.mark.parametrize(
    ("line", "expression"),
    [
        ("file a.py exists", "file_exists('a.py')"),
        ("File `my dir/a.py` exists.", "file_exists('my dir/a.py')"),
        ("file a.py contains \"x = '1'\"", "file_contains('a.py', \"x = '1'\")"),
        ("file a.py contains 'say \"hi\"'", "file_contains('a.py', 'say \"hi\"')"),
        ("file a.py contains def", "file_contains('a.py', 'def')"),
        ('file a.py contains "$.input.x"', "file_contains('a.py', '$.input.x')"),
        (r'file a.py contains "\d+"', r"file_contains('a.py', '\\d+')"),
        ('file a\'b.py contains "c"', "file_contains(\"a'b.py\", 'c')"),
        ("All tests pass", "result.tests_pass == True"),
        ("no lint errors", "result.lint_clean == True"),
        ("lint clean", "result.lint_clean == True"),
    ],
)
def test_criteria_that_can_be_checked_become_expressions(line: str, expression: str, tmp_path: Path) -> None:
    assert criteria(tmp_path, line) == ((expression,), ())
    spec = load_spec(compile_speckit(tmp_path).text)
    assert spec.flows["tasks"].steps[0].ensure[0].text == expression


@pytest.mark.parametrize(
    "line",
    ["The tests that pass are fast", "file exists", "files a and b exist", f'file a contains "{"x" * 3000}"'],
)
def test_other_criteria_are_for_judgment(line: str, tmp_path: Path) -> None:
    assert criteria(tmp_path, line) == ((), (line,))
    load_spec(compile_speckit(tmp_path).text)


def test_tasks_marked_as_parallel_share_a_predecessor_and_do_not_need_each_other(tmp_path: Path) -> None:
    write(
        tmp_path,
        t1="# Task: First",
        t2a="# Task: [P] Left",
        t2b="# Task: Right [P]",
        t3="# Third",
        t4="no title",
    )
    compiled = compile_speckit(tmp_path)
    assert [task.title for task in compiled.tasks] == ["First", "Left", "Right", "Third", "4"]
    flow = load_spec(compiled.text).flows["tasks"]
    assert flow.needs == {"t1": (), "t2a": ("t1",), "t2b": ("t1",), "t3": ("t2a", "t2b"), "t4": ("t3",)}


def test_a_group_at_the_beginning_waits_for_nothing(tmp_path: Path) -> None:
    write(tmp_path, t1="# [P] a", t2="# [p] b", t3="# c")
    assert load_spec(compile_speckit(tmp_path).text).flows["tasks"].needs == {
        "t1": (),
        "t2": (),
        "t3": ("t1", "t2"),
    }


def test_texts_stay_texts(tmp_path: Path) -> None:
    write(tmp_path, ta="# Task: yes\n\n- a: *b\n\n\t&x\n'\"\x07#", tb="# on", tc="# 12", td="# $.input.x")
    (tmp_path / "é é.md").write_text("# é", encoding="utf-8")
    compiled = compile_speckit(tmp_path)
    steps = load_spec(compiled.text).flows["tasks"].steps
    assert [step.intent for step in steps] == [task.intent for task in compiled.tasks]
    assert [step.id for step in steps] == ["a", "b", "c", "d", "t"]


def test_folders_without_tasks_and_names_that_clash_are_told(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"1 to 1,000 files \*.md"):
        compile_speckit(tmp_path)
    write(tmp_path, **{"t01-a": "# a", "t01_a": "# b"})
    with pytest.raises(ConfigurationError, match="a different id; '01-a.md' has 't01_a' already"):
        compile_speckit(tmp_path)
    with pytest.raises(ConfigurationError, match="letters, digits"):
        compile_speckit(tmp_path, "a b")


def test_task_files_are_text_of_a_limited_size(tmp_path: Path) -> None:
    file = tmp_path / "a.md"
    file.write_bytes(b"\xff")
    with pytest.raises(ConfigurationError, match="UTF-8"):
        compile_speckit(tmp_path)
    file.write_text("x" * 100_001)
    with pytest.raises(ConfigurationError, match="at most 100,000 characters"):
        compile_speckit(tmp_path)
