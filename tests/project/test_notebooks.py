"""Each notebook is a test: its cells hold assertions beside the explanations."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NOTEBOOKS = sorted(
    path.relative_to(ROOT).as_posix()
    for path in (ROOT / "nbs").rglob("*.ipynb")
    if not path.parent.name.startswith(".")  # .ipynb_checkpoints
)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("notebook", NOTEBOOKS)
def test_runs(notebook, request):
    if "local_server" in (ROOT / notebook).read_text():
        request.getfixturevalue("warm_server_binary")
    # In a process of its own, as nbdev does it, so that no notebook leaves anything behind here.
    command = [Path(sys.executable).with_name("nbdev-test"), notebook]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "Success." in done.stdout, "nbdev-test found nothing to run"


@pytest.mark.parametrize("notebook", NOTEBOOKS)
def test_no_merge_markers(notebook):
    # nbdev-merge puts conflicts into Markdown cells, so the file stays a valid notebook.
    assert not re.search(r'^\s*"?(<{7}|>{7}) ', (ROOT / notebook).read_text(), re.MULTILINE)


@pytest.mark.parametrize("notebook", NOTEBOOKS)
def test_begins_with_a_title_and_a_subtitle(notebook):
    first = json.loads((ROOT / notebook).read_text())["cells"][0]
    assert re.fullmatch(r"# .+\n\n> .+", "".join(first["source"]).strip())


@pytest.mark.parametrize("notebook", [name for name in NOTEBOOKS if "/tutorials/" in name])
def test_figures_say_what_one_sees(notebook):
    cells = json.loads((ROOT / notebook).read_text())["cells"]
    drawn = [cell for cell in cells if any("image/svg+xml" in out.get("data", {}) for out in cell.get("outputs", []))]
    assert all("#| fig-alt: " in "".join(cell["source"]) for cell in drawn)
