"""The notebook in the docs: executed by `python docs/notebook.py`, and written into its page by MkDocs.

Run it after each change of the notebook. A test compares its outputs with new ones.
"""

from __future__ import annotations

import asyncio
import re
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import nbformat

NOTEBOOK: Final = Path(__file__).parent / "notebooks" / "tour.ipynb"
_PLACE: Final = "<!-- the notebook -->"
_STYLE: Final = re.compile(r"<style>.*?</style>", re.DOTALL)


def executed(path: Path = NOTEBOOK) -> Any:
    """Return the notebook with the outputs of a new kernel, which works in a folder of its own."""
    from nbclient import NotebookClient

    notebook: Any = nbformat.read(path, as_version=4)  # type: ignore[no-untyped-call]
    with TemporaryDirectory() as folder:
        client = NotebookClient(notebook, timeout=300, resources={"metadata": {"path": folder}})
        asyncio.run(client.async_execute())
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)  # the times at which it ran
    return notebook


def outputs(notebook: Any) -> list[str]:
    """Return what each cell shows, as text and as HTML, without what differs from run to run."""
    shown = [
        "\n".join([output.get("text", ""), *map(str, output.get("data", {}).values())])
        for cell in notebook.cells
        for output in cell.get("outputs", ())
    ]
    return [_fixed(_STYLE.sub("", text)) for text in shown]


def _fixed(text: str) -> str:
    text = re.sub(r"\d+(\.\d+)?(e-\d+)? (ms|s)\b|\b\d+(:\d\d)+\b", "TIME", text)
    text = re.sub(r"(&#x27;)\w+(&#x27; was the last)", r"\1STEP\2", text)  # of two side by side
    text = re.sub(  # a request that waited some milliseconds, as the machine was busy
        r'<rect class="limit".*?</rect>|<p class="faint">a budget or a limit; [^<]*</p>', "", text
    )
    # How many rows were in flight when they were interrupted depends on the machine.
    text = re.sub(r"(at least )?(<span>)?\$(</span>)?0\.00[345]\d*", "COST", text)
    text = re.sub(r'\d+/200 rows|value="\d+" max="200"', "ROWS", text)
    return re.sub(r'(<rect class="\w+" x=)"[\d.]+"( y="\d+" width=)"[\d.]+"', r"\1\2", text)


def as_markdown(notebook: Any) -> str:
    """Return the cells and what they show as Markdown. The style sheet comes once."""
    parts: list[str] = []
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            parts.append(cell.source.removeprefix("# ").partition("\n")[2] if not parts else cell.source)
            continue
        parts.append(f"```python\n{cell.source}\n```")
        for output in cell.outputs:
            data = output.get("data", {})
            text = output.get("text") or data.get("text/plain", "")
            parts.append(data.get("text/html") or f"```text\n{text.rstrip()}\n```")
    first, *others = _STYLE.findall(page := "\n\n".join(parts)) or [""]
    return page.replace(first, "") if not others else f"{first}\n\n{_STYLE.sub('', page)}"


def on_page_markdown(markdown: str, **_: object) -> str:
    """Write the notebook into its page (a hook of MkDocs)."""
    if _PLACE not in markdown:
        return markdown
    notebook: Any = nbformat.read(NOTEBOOK, as_version=4)  # type: ignore[no-untyped-call]
    return markdown.replace(_PLACE, as_markdown(notebook))


if __name__ == "__main__":
    nbformat.write(executed(), sys.argv[1] if len(sys.argv) > 1 else NOTEBOOK)  # type: ignore[no-untyped-call]
