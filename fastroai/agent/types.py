"""Types of PydanticAI that it does not export by a public name."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Literal, TypeAlias

from pydantic_ai import RunContext, TemplateStr
from pydantic_ai.messages import InstructionPart
from pydantic_ai.tools import AgentDepsT
from pydantic_ai.workspaces import WorkspaceBackend, WorkspaceRef

InstructionText: TypeAlias = str | InstructionPart | None

InstructionFunction: TypeAlias = (
    Callable[[RunContext[AgentDepsT]], InstructionText]
    | Callable[[RunContext[AgentDepsT]], Awaitable[InstructionText]]
    | Callable[[], InstructionText]
    | Callable[[], Awaitable[InstructionText]]
)

Instruction: TypeAlias = TemplateStr[AgentDepsT] | str | InstructionPart | InstructionFunction[AgentDepsT]

Instructions: TypeAlias = Instruction[AgentDepsT] | Sequence[Instruction[AgentDepsT]] | None
"""What `instructions=` takes: texts, functions that compute them, or both."""

Workspace: TypeAlias = WorkspaceBackend | WorkspaceRef | Literal["new"] | None
"""What `workspace=` takes."""
