"""The settings of PydanticAI's models."""

import ast
from pathlib import Path

import pydantic_ai


def names_of_settings() -> set[str]:
    """The names in all classes of settings, read without importing them: some need an SDK."""
    package = Path(pydantic_ai.__file__).parent
    files = [package / "settings.py", *(package / "models").rglob("*.py")]
    classes = [
        node
        for file in files
        for node in ast.parse(file.read_text()).body
        if isinstance(node, ast.ClassDef) and node.name.endswith("ModelSettings")
    ]
    return {
        field.target.id
        for each in classes
        for field in each.body
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)
    }
