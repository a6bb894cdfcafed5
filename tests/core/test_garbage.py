"""The garbage collector is back after each read, whatever happens."""

from __future__ import annotations

import gc
import os
import threading

import pytest

from warm_integrations.core import AsyncPagedLog, WarmConfig
from warm_integrations.core.gc_pause import paused_gc


def test_a_block_that_fails_leaves_the_collector_on() -> None:
    def fail() -> None:
        with paused_gc():
            assert not gc.isenabled()
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert gc.isenabled()


def test_a_collector_that_was_off_stays_off() -> None:
    gc.disable()
    try:
        with paused_gc():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_blocks_in_two_threads() -> None:
    inside, leave = threading.Event(), threading.Event()

    def block() -> None:
        with paused_gc():
            inside.set()
            leave.wait()

    thread = threading.Thread(target=block)
    with paused_gc():
        thread.start()
        inside.wait()
    leave.set()
    thread.join()
    assert gc.isenabled()


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_process_forked_from_within_has_its_collector() -> None:
    with paused_gc():
        child = os.fork()
        if child == 0:
            os._exit(0 if gc.isenabled() else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert not gc.isenabled()


async def test_a_read_leaves_it_on_and_collects_less(config: WarmConfig) -> None:
    log = AsyncPagedLog("log", config)
    await log.append([str(number) for number in range(3000)])
    assert await log.newest(parse=lambda text: (gc.isenabled(), int(text))) == [(False, n) for n in range(3000)]
    assert gc.isenabled()
