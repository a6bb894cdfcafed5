"""What a store has told the disk to keep when a write returns, counted by strace."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from local_server import LocalServer
from warm_integrations.core import WarmConfig, user_memory
from warm_integrations.openai_agents import WarmSession

SYNCS = "fsync,fdatasync,msync,sync_file_range,syncfs"
SYNCED = re.compile(r"\b(fsync|fdatasync|msync)(\(| resumed).*= 0$")  # those that a store may rely on


async def each_write(config: WarmConfig, returned: Callable[[str], object]) -> None:
    """Writes of every kind, one after the other."""
    session, memory = WarmSession("s", config), user_memory(config, "alice")
    for turn in range(3):
        writes: dict[str, Awaitable[object]] = {
            "add_items": session.add_items([{"role": "user", "content": "hi"}] * 3),
            "pop_item": session.pop_item(),
            "set_metadata": session.set_metadata({"turn": turn}),  # the same again would write nothing
            "replace": session._atomic_replace_items([{"role": "user", "content": "sum"}]),
            "clear_session": session.clear_session(),
            "remember": memory.remember("She drinks tea."),
            "forget_all": memory.forget_all(),
        }
        for name, write in writes.items():
            await write
            returned(name)


def count(lines: list[str]) -> int:
    return sum(bool(SYNCED.search(line)) for line in lines)


@pytest.fixture(scope="session")
def strace() -> str:
    found = shutil.which("strace")
    works = found and subprocess.run([found, "-o", "/dev/null", "true"], capture_output=True).returncode == 0
    missing = "strace may not trace here" if found else "no strace: apt-get install strace"
    if not works and os.environ.get("CI"):
        pytest.fail(missing, pytrace=False)
    if not works:
        pytest.skip(missing)
    return str(found)


PROGRAM = f"""
import asyncio, os, sys
sys.path[:0] = {sys.path!r}
sys.path.insert(0, {str(Path(__file__).parent)!r})
from test_durability import WarmConfig, each_write

asyncio.run(each_write(WarmConfig(url=sys.argv[1]), lambda name: os.write(1, name.encode())))
"""


@pytest.mark.parametrize(("synchronous", "needed"), [("full", 1), ("normal", 0)])
def test_syncs_of_the_embedded_store(
    strace: str, tmp_path: Path, synchronous: str, needed: int, request: pytest.FixtureRequest
) -> None:
    request.node.user_properties.append(("store", "embedded"))
    trace, url = tmp_path / "trace", f"sqlite:///{tmp_path / 'warm.db'}?synchronous={synchronous}"
    command = [strace, "-f", "-y", "-o", str(trace), "-e", f"trace={SYNCS},write"]
    subprocess.run([*command, sys.executable, "-c", PROGRAM, url], check=True, stdout=subprocess.DEVNULL)
    syncs, between = {}, []
    for line in trace.read_text().splitlines():
        between.append(line)
        if mark := re.search(r'write\(1<.*, "(\w+)"', line):
            syncs[f"{mark[1]} {len(syncs)}"] = count(between)
            between = []
    assert len(syncs) == 21
    first, *later = syncs.values()  # the first creates the file
    assert first > 0
    assert min(later) >= needed, syncs
    assert needed or max(later) == 0, syncs
    line = f"syncs per write, embedded, synchronous={synchronous}: {sum(later) / len(later):.1f}"
    request.node.user_properties.append(("summary", line))


def test_syncs_of_warm_server(
    strace: str,
    warm_server_binary: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
) -> None:
    request.node.user_properties.append(("store", "warm-server"))
    trace, traced = tmp_path / "trace", tmp_path / "warm-server"
    # -D: the server stays the process that was started, which gets the signals
    traced.write_text(f'#!/bin/sh\nexec {strace} -D -f -o {trace} -e trace={SYNCS} {warm_server_binary} "$@"\n')
    traced.chmod(0o755)
    monkeypatch.setenv("WARM_SERVER", str(traced))
    syncs: list[tuple[str, int]] = []
    with LocalServer(tmp_path / "data") as server:

        def returned(name: str) -> None:
            syncs.append((name, count(trace.read_text().splitlines()) - sum(made for _, made in syncs)))

        asyncio.run(each_write(WarmConfig(url=server.url), returned))
    assert len(syncs) == 21
    assert all(made >= 1 for _, made in syncs), syncs
    request.node.user_properties.append(
        ("summary", f"syncs per write, warm-server: {sum(made for _, made in syncs[1:]) / len(syncs[1:]):.1f}")
    )
