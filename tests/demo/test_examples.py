"""The programs beside the chat, run as their readers run them."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

from warm_integrations.core import WarmConfig

ROOT = Path(__file__).parents[2]


def run(program: str | Path, *arguments: object, config: WarmConfig, cwd: Path) -> str:
    command = [sys.executable, "-W", "error", str(ROOT / program), *map(str, arguments)]
    env = os.environ | {"WARM_URL": config.url, "WARM_TENANT_ID": config.tenant_id or ""}
    done = subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert not done.stderr
    return done.stdout


def test_quickstart(config, tmp_path):
    said = run("examples/quickstart.py", config=config, cwd=tmp_path)
    first, second = said.split("Second process")
    assert "You have said ['My name is Ada.']." in first
    assert "items stored: 2" in first
    assert "You have said ['My name is Ada.', 'Who am I?']." in second
    assert "items stored: 4" in second


def test_the_engine_beside_a_program(config, tmp_path, monkeypatch):
    guide = (ROOT / "docs" / "CHAT.md").read_text()
    (tmp_path / "program.py").write_text(re.findall(r"```py\n(.*?)```", guide, re.DOTALL)[0])
    monkeypatch.setenv("PYTHONPATH", str(ROOT / "examples" / "chat"))
    said = run(tmp_path / "program.py", config=config, cwd=tmp_path)
    assert said.splitlines()[-1] == "I will remember: **I like tea**"


def test_replay(config, store_kind, tmp_path):
    memories = [f"Message {number}, é, $5" for number in range(60)]
    facts = {"user": "x", "kind": "facts", "memories": ["no turn"]}
    data = [facts, {"user": "x", "kind": "turns", "memories": memories}]
    (tmp_path / "data.json").write_text(json.dumps(data))
    said = run("benchmarks/replay.py", "data.json", "--user", "x", config=config, cwd=tmp_path)
    assert "60 messages through Runner.run" in said
    assert "120 items equal in another process" in said
    requests = [int(number) for number in re.findall(r"HTTP requests: (\d+)", said)]
    assert requests[0] >= 60 if store_kind == "warm-server" else requests == [0, 0]
