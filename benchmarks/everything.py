"""All that is measured against the SDK's own sessions, and all goals, in one run: `make bench`.

    python benchmarks/everything.py [--rounds N]

Writes results.json beside this file, which the tutorial "How fast it is" shows.
"""

from __future__ import annotations

import asyncio
import datetime
import importlib.metadata
import json
import os
import platform
import sqlite3
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

sys.path += [str(Path(__file__).parent), str(Path(__file__).parents[1] / "examples")]
import costs
import growth
import scale
import sessions
from paired import command_line

from local_server import find_warm_server

PACKAGES = ["openai-agents", "httpx", "numpy", "msgspec", "sqlalchemy", "aiosqlite", "redis"]


def machine() -> dict[str, str]:
    """What it was measured on."""

    def output(*command: str) -> str:
        return subprocess.check_output(command, text=True).strip()

    return {
        "day": datetime.datetime.now(datetime.timezone.utc).date().isoformat(),
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores",
        "sqlite": sqlite3.sqlite_version,
        "warm-server": output(find_warm_server(), "--version").split()[-1],
        "redis-server": output("redis-server", "--version").split()[2].removeprefix("v="),
        **{name: importlib.metadata.version(name) for name in PACKAGES},
    }


async def run(rounds: int) -> dict[str, Any]:
    return {
        "machine": machine(),
        "sessions": await sessions.run(rounds),
        "growth": await growth.run(rounds),
        "costs": await costs.run(rounds),
        "scale": await scale.run(),
    }


def main() -> None:
    rounds, start = command_line(__doc__).rounds, time.perf_counter()
    results = asyncio.run(run(rounds))
    path = Path(__file__).with_name("results.json")
    path.write_text(json.dumps(results, indent=1) + "\n")
    print(f"{path.name} written after {time.perf_counter() - start:.0f} s")


if __name__ == "__main__":
    main()
