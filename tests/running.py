"""Commands that have to succeed."""

from __future__ import annotations

import subprocess
from pathlib import Path


def run(*command: object, cwd: Path) -> None:
    done = subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert done.returncode == 0, done.stdout
