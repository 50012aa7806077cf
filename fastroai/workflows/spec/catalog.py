"""The specs in a folder."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from fastroai.workflows.errors import WorkflowProblem, WorkflowValidationError
from fastroai.workflows.spec.document import FieldSpec, WorkflowSpec
from fastroai.workflows.spec.reading import load_spec

PATTERNS: Final = ("*.stratum.yaml", "*.workflow.yaml")
"""Patterns of the names of files that have specs."""
MOST_FILES: Final = 1_000
"""Maximum number of files in a folder that are read."""


@dataclass(frozen=True, slots=True)
class CatalogEntry:
    """A spec in a folder."""

    path: Path
    spec: WorkflowSpec

    @property
    def name(self) -> str:
        """The name of the workflow; without one, the name of the flow that it begins with."""
        return self.spec.entry if self.spec.workflow is None else self.spec.workflow.name

    @property
    def description(self) -> str:
        """The description of the workflow; empty if it has none."""
        return "" if self.spec.workflow is None else self.spec.workflow.description

    @property
    def inputs(self) -> Mapping[str, FieldSpec]:
        """The inputs of a run, by name."""
        return self.spec.flows[self.spec.entry].input


@dataclass(frozen=True, slots=True)
class Catalog:
    """The specs in a folder, and the files without a valid spec."""

    entries: tuple[CatalogEntry, ...]
    invalid: Mapping[Path, tuple[WorkflowProblem, ...]]
    """The problems of files without a valid spec, by file."""


def find_specs(folder: Path) -> Catalog:
    """Return the specs in a folder, in the order of their files' names. Folders below it are not searched.

    Only `*.workflow.yaml` and `*.stratum.yaml` are read, at most the first 1,000 of them. Files without a
    valid spec raise nothing: they are in `invalid` of the catalog. Of several workflows with one name, the
    first is an entry; the files of the others are invalid. A folder that does not exist, or cannot be read,
    has no specs.

    Raises:
        MissingExtraError: PyYAML or jsonschema-rs is not installed (the extra `workflows`).
    """
    files = sorted({file for pattern in PATTERNS for file in folder.glob(pattern) if file.is_file()})
    entries: dict[str, CatalogEntry] = {}
    invalid: dict[Path, tuple[WorkflowProblem, ...]] = {}
    for file in files[:MOST_FILES]:
        try:
            entry = CatalogEntry(file, load_spec(file))
        except WorkflowValidationError as error:
            invalid[file] = error.problems
            continue
        except OSError as error:
            invalid[file] = (WorkflowProblem(message=f"it cannot be read: {error.strerror}", file=str(file)),)
            continue
        first = entries.setdefault(entry.name, entry)
        if first is not entry:
            message = f"workflow {entry.name!r} is in {first.path.name} already; give it another name"
            invalid[file] = (WorkflowProblem(message=message, file=str(file)),)
    return Catalog(tuple(entries.values()), invalid)
