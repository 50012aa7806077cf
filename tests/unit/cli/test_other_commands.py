"""Commands that people know from Stratum and other tools."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner, Result

from fastroai.cli.app import app
from fastroai.cli.other_commands import exceptions


def typed(line: str) -> Result:
    return CliRunner(env={"COLUMNS": "200", "NO_COLOR": "1"}).invoke(app, line.split(), prog_name="fastroai")


@pytest.mark.parametrize(
    ("line", "here"),
    [
        ("query flows", "flow list --json"),
        ("query flow 5f3c", "flow show FLOW --json"),
        ("query gates", "gate list --json"),
        ("query", "flow list, flow show FLOW or gate list"),
        ("install", "mcp install"),
        ("setup", "mcp install"),
        ("uninstall --keep-skills", "mcp uninstall"),
        ("validate a.stratum.yaml", "workflow validate SPEC"),
        ("compile tasks/ --flow work", "workflow compile FOLDER"),
        ("audit 5f3c", "flow audit FLOW"),
        ("explain r1", "runs trace RUN"),
    ],
)
def test_a_command_of_stratum_is_told_what_it_is_here(line: str, here: str) -> None:
    result = typed(line)
    assert result.exit_code == 2
    assert f"No such command '{line.split()[0]}'. Here, it is: fastroai {here}" in result.output
    command = [word for word in here.split(",")[0].split() if word.islower() and word[0] != "-"]
    assert typed(" ".join([*command, "--help"])).exit_code == 0, "the command that is named is there"


def test_help_is_a_command_too() -> None:
    assert typed("help").output == typed("--help").output
    assert typed("help flow show").output == typed("flow show --help").output
    assert typed("help").exit_code == typed("help flow show").exit_code == 0
    assert typed("runs help show").output == typed("runs show -h").output == typed("runs show --help").output


def test_other_unknown_commands_are_told_as_before() -> None:
    result = typed("flwo list")
    assert result.exit_code == 2
    assert "Did you mean 'flow'" in result.output
    assert (
        "No such command 'explain'. Here, it is: fastroai runs trace RUN" in typed("runs explain r1").output
    )
    assert typed("help nothing").exit_code == 2


def test_help_says_what_an_exception_means_and_what_to_do() -> None:
    said = typed("help SpendLimitExceeded")
    assert said.exit_code == 0
    assert said.output.startswith("fastroai.errors.SpendLimitExceeded: a CostBudgetExceeded\n")
    assert "What to do: " in said.output
    for misspelt in ("fastroai.errors.SpendLimitExceeded", "SpendLimitExeeded"):
        assert typed(f"help {misspelt}").output == said.output
    assert typed("help nothing-of-the-kind").exit_code == 2


def test_every_exception_says_what_to_do() -> None:
    for name, exception in exceptions().items():
        told = " ".join((exception.__doc__ or "").split())
        reason, _, remedy = told.partition("What to do: ")
        assert (len(reason) > 20, len(remedy) > 20) == (True, True), name
