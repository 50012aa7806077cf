"""The problems of a spec with their places, gathered until there are enough of them."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from itertools import islice
from typing import Final

from pydantic import JsonValue

from fastroai.documents.parts import Misfit
from fastroai.documents.yaml_text import MORE_PROBLEMS, MOST_PROBLEMS, Way, YamlText
from fastroai.errors import nearest
from fastroai.workflows.errors import WorkflowProblem

_MOST_COMPARED: Final = 10_000
"""Maximum number of names that are compared with wrong ones, as each comparison takes microseconds."""
_LONGEST_COMPARED: Final = 100
"""Maximum number of characters in a name that is compared with others."""
_MOST_SHOWN: Final = 20
"""Maximum number of allowed names that a problem has."""
_MOST_LISTED: Final = 10
"""Maximum number of names that a message lists."""
_LONGEST_MESSAGE: Final = 1_000
"""Maximum number of characters in a message, which can quote the document."""
_LONGEST_SHOWN: Final = 80
"""Maximum number of characters in a name that a message shows."""


class TooManyProblems(Exception):
    """A spec has as many problems as are reported at once."""


@dataclass(slots=True)
class Problems:
    """The problems of one spec."""

    text: YamlText
    file: str | None
    lines: list[str]
    """The lines of the text."""
    found: list[WorkflowProblem] = field(default_factory=list)
    _compared: int = 0

    def add(
        self,
        message: str,
        way: Way,
        *,
        of_key: bool = False,
        name: str | None = None,
        allowed: Collection[str] = (),
        offset: int = 0,
    ) -> None:
        """Note a problem at a place of the document.

        Args:
            message: The problem; the allowed name that is nearest to `name` is added to it.
            way: The place in the document.
            of_key: Whether the problem is the key at this place, and not its value.
            name: The wrong name or word, if it is one of a choice.
            allowed: The allowed names or words of that choice.
            offset: Characters after the place, in the same line.

        Raises:
            TooManyProblems: There are as many problems as are reported at once.
        """
        line, column = self.text.place(way, of_key=of_key)
        self._take(message, way, line, column + offset, name, allowed)

    def add_misfit(self, misfit: Misfit) -> None:
        """Note a part of the document that has the wrong form. Raises `TooManyProblems`, as `add` does."""
        problem = misfit.problem
        line, column = (problem.line or 1, problem.column or 1)
        self._take(problem.message, problem.way, line, column, misfit.unknown, misfit.allowed)

    def unknown(self, what: str, name: str, way: Way, known: Iterable[str]) -> None:
        """Note a name that does not exist. Raises `TooManyProblems`, as `add` does."""
        names = tuple(known)
        there = f"known: {listed(names)}." if names else "there is none."
        self.add(f"{what} {cut(name)!r} does not exist; {there}", way, name=name, allowed=names)

    def choice(self, way: Way, said: str, allowed: Collection[str]) -> bool:
        """Return whether a word is allowed; note a problem if not. Raises `TooManyProblems`, as `add`."""
        if said in allowed:
            return True
        message = f"{way[-1]} is {cut(said)!r}; expected one of {listed(allowed)}."
        self.add(message, way, name=said, allowed=allowed)
        return False

    def _take(
        self,
        message: str,
        way: Way,
        line: int,
        column: int,
        name: str | None = None,
        allowed: Collection[str] = (),
    ) -> None:
        near = None if name is None else self._nearest(name, allowed)
        hint = "" if near is None else f" Did you mean {near!r}?"
        shown = tuple(cut(one) for one in islice(allowed, _MOST_SHOWN))
        if len(message) > _LONGEST_MESSAGE:
            message = f"{message[:_LONGEST_MESSAGE]}…"
        flow, step = self._whose(way)
        self.found.append(
            WorkflowProblem(
                message=message + hint,
                file=self.file,
                line=line,
                column=column,
                flow=flow,
                step=step,
                allowed=shown,
                nearest=near,
            )
        )
        if len(self.found) >= MOST_PROBLEMS:
            self.found.append(
                WorkflowProblem(message=MORE_PROBLEMS, file=self.file, line=line, column=column)
            )
            raise TooManyProblems

    def _nearest(self, name: str, allowed: Collection[str]) -> str | None:
        self._compared += len(allowed)
        if self._compared > _MOST_COMPARED or len(name) > _LONGEST_COMPARED:
            return None
        return nearest(name, [one for one in allowed if len(one) <= _LONGEST_COMPARED])

    def _whose(self, way: Way) -> tuple[str | None, str | None]:
        """Return the flow and the step that a place belongs to."""
        if len(way) < 2 or way[0] != "flows":
            return None, None
        flow = cut(str(way[1]))
        if len(way) < 4 or way[2] != "steps":
            return flow, None
        said = _at(self.text.data, (*way[:4], "id"))
        return flow, cut(said) if isinstance(said, str) else str(int(way[3]) + 1)


def _at(data: JsonValue, way: Way) -> JsonValue:
    for key in way:
        if isinstance(data, dict) and isinstance(key, str):
            data = data.get(key)
        elif isinstance(data, list) and isinstance(key, int):
            data = data[key]
        else:
            return None
    return data


def cut(text: str) -> str:
    """Return a name, shortened for a message."""
    return text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}…"


def listed(names: Iterable[str]) -> str:
    """Return the first names of a list, as text for a message."""
    all_of_them = list(names)
    more = len(all_of_them) - _MOST_LISTED
    shown = ", ".join(map(cut, all_of_them[:_MOST_LISTED]))
    return f"{shown} and {more} more" if more > 0 else shown
