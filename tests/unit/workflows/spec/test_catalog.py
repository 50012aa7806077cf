"""The specs in a folder."""

from __future__ import annotations

from pathlib import Path

from fastroai.workflows.spec.catalog import find_specs

SPEC = (
    "version: '0.2'\nworkflow: {name: NAME, description: What}\nflows: {f: {steps: [{id: a, intent: b}]}}\n"
)


def test_valid_specs_are_entries_and_others_say_what_is_wrong(tmp_path: Path) -> None:
    (tmp_path / "b.stratum.yaml").write_text(SPEC.replace("NAME", "b"))
    (tmp_path / "a.workflow.yaml").write_text(SPEC.replace("workflow:", "#"))
    (tmp_path / "c.workflow.yaml").write_text(SPEC.replace("NAME", "b"))
    (tmp_path / "d.stratum.yaml").write_text("flows: 3")
    (tmp_path / "e.yaml").write_text("flows: 3")
    (tmp_path / "g.workflow.yaml").mkdir()
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "z.stratum.yaml").write_text(SPEC)
    catalog = find_specs(tmp_path)
    assert [(one.path.name, one.name, one.description, dict(one.inputs)) for one in catalog.entries] == [
        ("a.workflow.yaml", "f", "", {}),
        ("b.stratum.yaml", "b", "What", {}),
    ]
    told = {path.name: problems[0].message for path, problems in catalog.invalid.items()}
    assert "workflow 'b' is in b.stratum.yaml already" in told["c.workflow.yaml"]
    assert set(told) == {"c.workflow.yaml", "d.stratum.yaml"}
