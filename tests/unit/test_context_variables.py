"""What belongs to a run hangs on its scope. Each other context variable has a reason to be one."""

import re
from pathlib import Path

import fastroai

PACKAGE = Path(fastroai.__file__).parent
REASONS = {
    "fastroai_batching": "of a task: several rows go on at once under one scope",
    "fastroai_row": "of a task: several members of `parallel` run at once under one scope",
    "fastroai_scope": "the innermost scope: the way to all that is of a run",
    "fastroai_caller": "of a thread that waits for another one, inside of runs and outside",
    "fastroai_innermost_span": "of a tracer, which works outside of runs too and knows no scope",
    "fastroai_overridden_agents": "as PydanticAI's override, which is for a context and not for a run",
    "fastroai_plain_run": "of a run of a plain agent, which opens no scope",
    "fastroai_run_responses": "of a run of an agent, also of a plain one, which opens no scope",
    "fastroai_tool_calls": "of a task: several calls of tools go on at once under one scope",
    "fastroai_requests": "of a task: several requests go on at once under one scope",
    "fastroai_wire": "of a task: several requests go on at once under one scope",
    "fastroai_configured": "as PydanticAI's override, which is for a context and not for a run",
    "fastroai_flow": "of a task: several streams are produced at once under one scope",
    "fastroai_flows_read": "of a task: it may read streams of several scopes",
}


def test_every_context_variable_is_listed_with_the_reason_why_its_value_is_not_on_the_scope() -> None:
    made = re.compile(r"\bContextVar\(\s*\"(\w+)\"")
    found = [name for file in PACKAGE.rglob("*.py") for name in made.findall(file.read_text())]
    written = [
        call for file in PACKAGE.rglob("*.py") for call in re.findall(r"\bContextVar\(", file.read_text())
    ]
    assert sorted(found) == sorted(REASONS)
    assert len(written) == len(found), "each has its name in the line that makes it"
