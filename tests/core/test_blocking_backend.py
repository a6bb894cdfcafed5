"""The blocking face of the record backend: the same answers, in threads, loops and whole programs."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from warm_integrations.core import WarmConfig
from warm_integrations.core.backend import AsyncWarmBackend
from warm_integrations.core.blocking import WarmBackend
from warm_integrations.core.records import Recalled, Record


def ids(found: Sequence[Recalled]) -> list[str]:
    return [record.id for record in found]


CALLS: list[tuple[str, tuple[Any, ...]]] = [
    ("remember", ([Record("x")],)),
    ("recall", ("x",)),
    ("get", (["a"],)),
    ("list", ()),
    ("forget", (["a"],)),
    ("forget_where", ({"a": 1},)),
]


async def test_closed_lets_no_call_through(config: WarmConfig) -> None:
    async with AsyncWarmBackend(config) as backend:
        await backend.remember([Record("one", {"a": 1}, id="a")])
    await backend.close()
    blocking = WarmBackend(config)
    with blocking as entered:
        assert [found.text for found in entered.list()] == ["one"]  # inside a running loop
    blocking.close()
    for name, arguments in CALLS:
        with pytest.raises(RuntimeError, match="closed"):
            await getattr(backend, name)(*arguments)
        with pytest.raises(RuntimeError, match="closed"):
            getattr(blocking, name)(*arguments)
    with pytest.raises(RuntimeError, match="closed"):
        await backend.__aenter__()
    with pytest.raises(RuntimeError, match="closed"):
        blocking.__enter__()
    assert ids(await AsyncWarmBackend(config).list()) == ["a"]


def test_the_blocking_face_does_the_same(config: WarmConfig) -> None:
    with WarmBackend(config) as backend:
        assert backend.config is config
        assert backend.remember([Record("boat", {"u": 1}, "a"), Record("a boat", {"u": 2}, "b")]) == ["a", "b"]
        assert ids(backend.recall("boat", 1, {"u": 2})) == ids(backend.list({"u": 2})) == ids(backend.get(["b"]))
        assert ids(backend.list(after="a", limit=1, prefix="")) == ["b"]
        assert backend.forget_where({"u": 2}) == ["b"]
        assert backend.forget(["a"], purge=True) == ["a"]
        with pytest.raises(ValueError, match="k is 0"):
            backend.recall("boat", 0)


def resources() -> tuple[int, int]:
    gc.collect()
    return threading.active_count(), len(os.listdir("/proc/self/fd"))


def used(config: WarmConfig, at_once: int) -> None:
    """One instance whose first calls come from so many threads, closed afterwards."""
    start = threading.Barrier(at_once)

    def work(i: int) -> Sequence[str]:
        start.wait()
        return backend.remember([Record(f"boat {i}", id=f"{i}")])

    with WarmBackend(config) as backend, ThreadPoolExecutor(at_once) as pool:
        assert list(pool.map(work, range(at_once))) == [[f"{i}"] for i in range(at_once)]
        assert len(backend.list()) == at_once


@pytest.mark.parametrize("at_once", [1, 8])
def test_instances_leave_no_threads_and_files_behind(config: WarmConfig, at_once: int) -> None:
    used(config, at_once)  # the thread, and the files or connections that all instances share
    threads, files = resources()
    for _ in range(20):
        used(config, at_once)
    after = resources()
    assert after[0] == threads
    assert after[1] <= files + config.concurrency


SETUP = "from warm_integrations.core import *\nb = WarmBackend()\nb.remember([Record('boat', id='a')])\n"
FORK = "import os\nif pid := os.fork():\n    assert os.waitpid(pid, 0)[1] == 0\nassert len(b.list()) == 1\n"


@pytest.mark.parametrize("program", [SETUP, SETUP + FORK], ids=["never closed", "forked"])
def test_a_program_ends_by_itself(config: WarmConfig, program: str) -> None:
    env = {**os.environ, "WARM_URL": config.url, "WARM_TENANT_ID": config.tenant_id or ""}
    command = [sys.executable, "-W", "ignore", "-c", program]
    with subprocess.Popen(command, env=env, stderr=subprocess.PIPE, start_new_session=True) as process:
        try:
            _, errors = process.communicate(timeout=100)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, 9)
            raise
    assert (process.returncode, errors) == (0, b"")
