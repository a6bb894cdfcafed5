"""Each notebook is a test: its cells hold assertions beside the explanations."""

from __future__ import annotations

import ast
import importlib
import inspect
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


@pytest.mark.parametrize("notebook", NOTEBOOKS)
def test_figures_say_what_one_sees(notebook):
    cells = json.loads((ROOT / notebook).read_text())["cells"]
    shown = [(cell, kind) for cell in cells for output in cell.get("outputs", []) for kind in output.get("data", {})]
    drawn = ["".join(cell["source"]) for cell, kind in shown if kind.startswith("image/")]
    assert [source for source in drawn if not re.search(r"^#\| fig-alt: \w.+", source, re.MULTILINE)] == []


def code_of(notebook):
    cells = json.loads((ROOT / notebook).read_text())["cells"]
    return ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]


def module_of(notebook):
    names = re.findall(r"^#\| default_exp (\S+)$", "\n".join(code_of(notebook)), re.MULTILINE)
    return importlib.import_module(f"warm_integrations.{names[0]}") if names else None


def public(module):
    """The functions and classes of a module, and the methods and properties of these, each with a dot before it.

    Constants and type aliases explain themselves where they stand.
    """
    for name in module.__all__:
        value = inspect.unwrap(getattr(module, name))
        if getattr(value, "__module__", None) == module.__name__ and (
            inspect.isclass(value) or inspect.isroutine(value)
        ):
            yield name
            for member, kind in vars(value).items() if inspect.isclass(value) else ():
                if not member.startswith("_") and (inspect.isroutine(kind) or isinstance(kind, property)):
                    yield f".{member}"


@pytest.mark.parametrize("notebook", [name for name in NOTEBOOKS if module_of(name)])
def test_every_public_name_has_an_example_that_asserts(notebook):
    used = set()
    for source in code_of(notebook):
        no_example = re.search(r"^#\| (export|hide|eval: false)", source, re.MULTILINE)
        if not no_example and re.search(r"\bassert\b|\bAssertionError\b|\btest_fail\(", source):
            nodes = list(ast.walk(ast.parse(source)))
            used |= {node.id for node in nodes if isinstance(node, ast.Name)}
            used |= {f".{node.attr}" for node in nodes if isinstance(node, ast.Attribute)}
    names = list(public(module_of(notebook)))
    assert names
    assert [name for name in names if name not in used] == []
