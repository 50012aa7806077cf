"""The text of an expression, and places in it: syntax trees count bytes, people count characters."""

from __future__ import annotations

import ast


class Source:
    """The text of an expression, as its syntax tree refers to it."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._bytes = text.encode("utf-8", errors="replace")
        self._lines = [0]
        for line in self._bytes.split(b"\n"):
            self._lines.append(self._lines[-1] + len(line) + 1)

    def place(self, node: ast.expr) -> tuple[int, int]:
        """Return the line and column of a node, in characters, both from 1."""
        start = self._lines[node.lineno - 1]
        return node.lineno, len(self._bytes[start : start + node.col_offset].decode()) + 1

    def end(self, node: ast.expr) -> int:
        """Return how many characters of the text come before the end of a node."""
        return len(self._bytes[: self._end(node)].decode())

    def of(self, node: ast.expr) -> str:
        """Return the text of a node, as it was written."""
        start = self._lines[node.lineno - 1] + node.col_offset
        return self._bytes[start : self._end(node)].decode()

    def _end(self, node: ast.expr) -> int:
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        return self._lines[node.end_lineno - 1] + node.end_col_offset
