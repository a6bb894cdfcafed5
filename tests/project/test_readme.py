"""README.md is made from nbs/index.ipynb."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_readme_is_up_to_date():
    done = subprocess.run([sys.executable, "docs/nb2md.py", "--check"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
