"""What users install, built once for the tests of a folder."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

from running import run

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def tree(tmp_path_factory) -> Path:
    """A copy of the sources: a build leaves files beside them, and would pick up older ones."""
    copy = tmp_path_factory.mktemp("tree")
    for name in "pyproject.toml", "README.md", "LICENSE":
        shutil.copy(ROOT / name, copy)
    for name in "warm_integrations", "writerslogic_warm_integrations":
        shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
    return copy


@pytest.fixture(scope="session")
def wheel(tree, tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("wheel")
    run(sys.executable, "-m", "build", "--wheel", "--outdir", out, tree, cwd=out)
    (path,) = out.glob("*.whl")
    return path
