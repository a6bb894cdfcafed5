"""Users' programs, checked by mypy and pyright against the installed wheel, strictly and without plugins."""

from __future__ import annotations

import re
import subprocess
import sys
import venv
from pathlib import Path

import pytest

from running import run
from warm_integrations.core import WarmConfig

ROOT = Path(__file__).parents[2]
PROGRAM = Path(__file__).with_name("user_program.py")
PAGES = [ROOT / "README.md", ROOT / "docs" / "SERVER.md", *sorted((ROOT / "docs" / "guides").glob("*.md"))]
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
# What a script of one's own leaves out, and what the SDK's many kinds of item would ask for.
UNTYPED = "# mypy: allow-untyped-defs, allow-untyped-calls\n"


@pytest.fixture(scope="module")
def python(wheel, tmp_path_factory) -> Path:
    """An interpreter of an environment that has the wheel with its extras, and nothing of this tree."""
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, with_pip=True)
    path = folder / "bin" / "python"
    run(path, "-m", "pip", "install", "--quiet", f"{wheel}[openai-agents,semantic]", cwd=folder)
    return path


@pytest.fixture(scope="module")
def programs(tmp_path_factory) -> Path:
    """A folder of what users write: a program, each page's blocks in their order, and an example."""
    folder = tmp_path_factory.mktemp("programs")
    (folder / "program.py").write_text("# pyright: strict\n" + PROGRAM.read_text())
    (folder / "quickstart.py").write_text(UNTYPED + (ROOT / "examples" / "quickstart.py").read_text())
    (folder / "local_server.py").write_text((ROOT / "examples" / "local_server.py").read_text())
    for page in PAGES:
        if blocks := BLOCK.findall(page.read_text()):
            before = "from warm_integrations.core import WarmConfig\n" if page.name == "SERVER.md" else ""
            (folder / f"page_{page.stem.lower()}.py").write_text(before + "\n".join(blocks))
    assert len(list(folder.glob("page_*.py"))) > 5
    return folder


def test_mypy_accepts_what_users_write(python, programs):
    files = sorted(programs.glob("*.py"))
    run(sys.executable, "-m", "mypy", "--strict", "--config-file=", "--python-executable", python, *files, cwd=programs)


def test_pyright_accepts_what_users_write(python, programs):
    files = sorted(programs.glob("*.py"))
    run(sys.executable, "-m", "pyright", "--warnings", "--pythonpath", python, *files, cwd=programs)


MISTAKES = """\
WarmConfig(colection="c")
WarmConfig(timeout="a minute")
WarmConfig(embedder="minilm")
WarmConfig(api_key=1)
WarmSession(42)
user_memory("alice")
Record("a text", tags=7)
"""


def test_checkers_still_find_mistakes(python, tmp_path):
    """A package whose types say nothing would pass the tests above, too."""
    names = "from warm_integrations.core import Record, WarmConfig, user_memory\n"
    names += "from warm_integrations.openai_agents import WarmSession\n"
    (tmp_path / "wrong.py").write_text(names + MISTAKES)
    for checker in (["mypy", "--python-executable"], ["pyright", "--pythonpath"]):
        command = [sys.executable, "-m", *checker, python, "wrong.py"]
        said = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True).stdout
        wrong = {int(line) for line in re.findall(r"wrong\.py:(\d+):.*error", said)}
        assert wrong == set(range(3, 3 + len(MISTAKES.splitlines()))), said


def test_the_program_sets_every_setting():
    assert {name for name in WarmConfig.model_fields if f"    {name}=" not in PROGRAM.read_text()} == set()
