"""The wheel and the sdist, tried in an empty environment: the commands, the extras, the types."""

import json
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest
from support.empty_environment import EmptyEnvironment

from fastroai.version import DISTRIBUTION, __version__

ROOT = Path(__file__).parents[2]
NAME = f"{DISTRIBUTION.replace('-', '_')}-{__version__}"

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("wheel")]


def build(project: Path, target: str, folder: Path) -> None:
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", target, "-d", str(folder)],
        cwd=project,
        check=True,
        capture_output=True,
        timeout=120,
    )


@pytest.fixture(scope="module")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    build(ROOT, "sdist", folder)
    return folder / f"{NAME}.tar.gz"


@pytest.fixture(scope="module")
def wheel(sdist: Path) -> Path:
    """The wheel, built of the sdist, so that the sdist is complete."""
    with tarfile.open(sdist) as archive:
        archive.extractall(sdist.parent, filter="data")
    build(sdist.parent / NAME, "wheel", sdist.parent)
    return sdist.parent / f"{NAME}-py3-none-any.whl"


@pytest.fixture(scope="module")
def empty(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> EmptyEnvironment:
    return EmptyEnvironment(tmp_path_factory.mktemp("environment") / "venv", wheel)


def test_the_wheel_has_every_file_of_the_package_and_nothing_else(wheel: Path) -> None:
    files = {
        str(file.relative_to(ROOT))
        for file in (ROOT / "fastroai").rglob("*")
        if file.is_file() and "__pycache__" not in file.parts
    }
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if ".dist-info/" not in name}
    assert names == files
    assert "fastroai/py.typed" in names


OFFLINE = """
import asyncio
import fastroai, sys
from pydantic_ai.models.test import TestModel
from fastroai import Budget, FastroAgent, Pipeline, PipelineConfig, StepContext, SQLiteRunStore, step

@step
async def reply(ctx: StepContext) -> str:
    return (await ctx.run(FastroAgent(TestModel(custom_output_text="Done.")), "Do it.")).output

store = SQLiteRunStore("runs.db")
config = PipelineConfig(budget=Budget(usd="1", on_unpriced="allow"))
result = Pipeline("p", steps={"reply": reply}, config=config).execute_sync({}, store=store, run_id="first")
print(result.output, fastroai.__file__.startswith(sys.prefix))
"""


def test_the_core_runs_without_extras_and_names_the_one_of_its_command(
    empty: EmptyEnvironment, tmp_path: Path
) -> None:
    ran = empty.run("python", "-W", "error", "-c", OFFLINE, cwd=tmp_path)
    assert (ran.stdout, ran.stderr) == ("Done. True\n", "")
    refused = empty.run("fastroai", "--version", cwd=tmp_path)
    assert refused.returncode == 2
    assert refused.stderr.endswith(f"pip install '{DISTRIBUTION}[cli]'\n")


def test_the_remedy_for_a_missing_extra_uses_the_wheel_that_is_installed(
    empty: EmptyEnvironment, tmp_path: Path
) -> None:
    extra = "zai"  # it brings no other distribution
    pip = [sys.executable, "-m", "pip", "--python", str(empty.python), "install", "--no-index", "--quiet"]
    planned = subprocess.run(
        [*pip, "--dry-run", "--report", "-", f"{DISTRIBUTION}[{extra}]"],
        capture_output=True,
        text=True,
        env=empty.environment,
        timeout=120,
    )
    assert planned.returncode == 0, planned.stderr
    assert json.loads(planned.stdout)["install"] == []


def test_the_commands_start(empty: EmptyEnvironment, tmp_path: Path) -> None:
    version = empty.run("fastroai", "--version", cwd=tmp_path, extra="cli")
    assert version.stdout.startswith(f"fastroai {__version__} (PydanticAI "), version.stderr
    entry = empty.run("fastroai", "help", "SpendLimitExceeded", cwd=tmp_path, extra="cli")
    assert "What to do:" in entry.stdout, entry.stderr


def test_the_mcp_server_answers(empty: EmptyEnvironment, tmp_path: Path) -> None:
    hello = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "initialize",
        "params": {
            "protocolVersion": "2025-06-18",
            "capabilities": {},
            "clientInfo": {"name": "test", "version": "1"},
        },
    }
    line = json.dumps(hello) + "\n"
    served = empty.run("fastroai", "mcp", "--store", "flows.db", cwd=tmp_path, extra="mcp", stdin=line)
    answer = json.loads(served.stdout.splitlines()[0])
    assert answer["result"]["serverInfo"]["version"] == __version__, served.stderr


PACKAGES = {
    "testing": "fastroai.testing.application",
    "viewer": "fastroai.viewer.app",
    "web": "fastroai.web",
    "workflows": "fastroai.workflows",
    "dbos": "fastroai.distributed",
}


def test_each_extra_brings_what_its_package_imports(
    wheel: Path, empty: EmptyEnvironment, tmp_path: Path
) -> None:
    extras = empty.distribution.metadata.get_all("Provides-Extra") or []
    assert set(PACKAGES) <= set(extras)
    for extra, package in PACKAGES.items():
        walk = f"import {package} as p; [getattr(p, name) for name in getattr(p, '__all__', ())]"
        imported = empty.run("python", "-W", "error", "-c", walk, cwd=tmp_path, extra=extra)
        assert imported.returncode == 0, f"{extra}: {imported.stderr}"


USER = """
from decimal import Decimal

from fastroai import FastroAgent

agent = FastroAgent("openai:gpt-5-mini", output_type=bool)
cost: Decimal | None = agent.run_sync("Is it?").cost_usd
agent.run_sync("Is it?").output.upper()
"""


def test_a_type_checker_finds_the_types(empty: EmptyEnvironment, tmp_path: Path) -> None:
    (tmp_path / "user.py").write_text(USER)
    checked = subprocess.run(  # mypy, which checks the package itself, would take half a minute for this
        ["basedpyright", "--pythonpath", str(empty.python), "--level", "error", "--outputjson", "user.py"],
        cwd=tmp_path,
        env={**empty.environment, "PATH": f"{Path(sys.executable).parent}:{empty.environment['PATH']}"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    (error,) = json.loads(checked.stdout)["generalDiagnostics"]
    assert error["range"]["start"]["line"] == 7
    assert 'Cannot access attribute "upper" for class "bool"' in error["message"]
