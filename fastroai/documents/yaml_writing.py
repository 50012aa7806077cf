"""Plain data as YAML that people can read, and that `read_yaml` reads as the same data."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fastroai.documents.yaml_text import scalar
from fastroai.errors import MissingExtraError


def dump_yaml(document: Mapping[str, Any], feature: str) -> str:
    """Return a document as YAML, with its keys in their order.

    Raises:
        MissingExtraError: PyYAML, which `feature` needs, is not installed (the extra `yaml`).
    """
    try:
        import yaml
    except ImportError as error:
        raise MissingExtraError(feature, "yaml", "pyyaml") from error

    class Dumper(yaml.SafeDumper):
        """Quotes texts that would be read as values of other types, and writes no aliases."""

        def ignore_aliases(self, data: object) -> bool:
            return True

    def represent(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
        return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=_style(text))

    Dumper.add_representer(str, represent)
    written: str = yaml.dump(
        document, Dumper=Dumper, sort_keys=False, allow_unicode=True, default_flow_style=None, width=100
    )
    return written


def _style(text: str) -> str | None:
    """Return the quotes that a text needs to stay a text; `None` if PyYAML can choose."""
    if not text.replace("\n", "").isprintable():
        return '"'
    if "\n" in text:
        return "|"
    return None if isinstance(scalar(text), str) else "'"
