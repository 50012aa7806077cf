"""The reference of the workflow server lists each key of an audit."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

import pytest
from pydantic import BaseModel

from fastroai.workflows.answers import AuditAnswer, FlowStatus, IterationRecord, StepRecord

PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "workflow-server.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("heading", "answer"),
    [
        ("key", AuditAnswer),
        ("key of a record", StepRecord),
        ("key of a report to a loop", IterationRecord),
    ],
)
def test_each_key_of_an_audit_is_listed(heading: str, answer: type[BaseModel]) -> None:
    section = PAGE.partition("## The audit")[2].partition("\n## ")[0]
    table = section.partition(f"| {heading} | what it has |\n")[2].partition("\n\n")[0]
    listed = re.findall(r"`(\w+)`", " ".join(row.split("|")[1] for row in table.splitlines()[1:]))
    assert sorted(listed) == sorted(answer.model_fields)


def test_each_status_of_an_audit_is_listed() -> None:
    [row] = re.findall(r"^\| `status` \| (.*) \|$", PAGE.partition("## The audit")[2], re.MULTILINE)
    assert re.findall(r"`(\w+)`", row) == [*get_args(FlowStatus)]
