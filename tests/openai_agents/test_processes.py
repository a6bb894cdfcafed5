"""One session from many processes, threads and event loops."""

from __future__ import annotations

import asyncio
import copy
import multiprocessing
import os
import pickle
import subprocess
import sys
import threading
from contextlib import contextmanager

import pytest
from agents import Agent, Runner
from agents.testing import ScriptedModel, assistant_message

from warm_integrations.core import WarmConfig
from warm_integrations.openai_agents import WarmSession

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs a system with fork")

# run_sync ends the generators of a loop that it goes on to use, and httpx makes some for each request.
httpx_after_run_sync = pytest.mark.filterwarnings("ignore:(?!.*_close_with_loop).*shutdown_asyncgens:ResourceWarning")

START = """
import asyncio, sys
from warm_integrations.core import WarmConfig
from warm_integrations.openai_agents import WarmSession

url, tenant, me = sys.argv[1:]
session = WarmSession("s", WarmConfig(url=url, tenant_id=tenant))

def turn():
    print("ready", flush=True)
    sys.stdin.readline()

def items(append):
    return [{"writer": me, "append": append, "item": number} for number in range(3)]
"""

WRONG_CLOCK = """
import time
right, behind = time.time_ns, 0
time.time_ns = lambda: right() - behind * 10**9
loop = asyncio.new_event_loop()
for line in sys.stdin:
    seconds, text = line.split()
    behind = int(seconds)
    loop.run_until_complete(session.add_items([{"role": "user", "content": text}]))
    print("added", flush=True)
loop.run_until_complete(loop.shutdown_asyncgens())
loop.close()
"""

WRITER = """
async def main():
    for append in range(200):
        await session.add_items(items(append))

turn()
asyncio.run(main())
turn()
"""

OPENER = """
turn()
for store in range(40):
    session = WarmSession("s", WarmConfig(url=f"{url}-{store}.db?synchronous=normal", tenant_id=tenant))
    asyncio.run(session.add_items(items(store)))
turn()
"""
OPEN_AND_APPEND = """
import asyncio
from warm_integrations.openai_agents import WarmSession

async def main():
    session = WarmSession("s", config)
    for append in range(5):
        await session.add_items([{"role": "user", "content": f"{number}.{append} {part}"} for part in "ab"])

together.wait(60)
asyncio.run(main())
"""


def user(text):
    return {"role": "user", "content": text}


def users(*texts):
    return [user(str(text)) for text in texts]


def read(config):
    return asyncio.run(WarmSession("s", config).get_items())


@contextmanager
def processes(count, program, config):
    """Processes that run a program and wait at each `turn()` for `go`, all together."""
    command = [sys.executable, "-c", START + program, config.url, config.tenant_id]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    running = [subprocess.Popen([*command, str(number)], **pipes) for number in range(count)]
    try:
        yield running
    finally:
        for process in running:
            process.kill()
            process.communicate()


def all_ready(running):
    for process in running:
        assert process.stdout.readline() == "ready\n", "a process has failed"


def go(running):
    for process in running:
        process.stdin.write("\n")
        process.stdin.flush()


def check_appends(items, whole):
    """Each append is contiguous and whole, and those of each writer are in order."""
    appends = [(item["writer"], item["append"]) for item in items[::3]]
    assert items == [
        {"writer": writer, "append": append, "item": number} for writer, append in appends for number in range(3)
    ]
    for writer, count in whole.items():
        assert [append for author, append in appends if author == writer] == list(range(count))


def test_eight_processes_append_to_one_session(config):
    with processes(8, WRITER, config) as running:
        all_ready(running)
        go(running)
        all_ready(running)
    items = read(config)
    assert len(items) == 8 * 200 * 3
    check_appends(items, {str(writer): 200 for writer in range(8)})


@pytest.mark.parametrize(
    "behind",
    [[3600] * 4, [-3600] * 4, [0, 3600, -3600, 0], [-3600, 0, 3600, -3600]],
    ids=["behind", "ahead", "set twice", "put right, then wrong"],
)
def test_items_of_a_process_with_a_wrong_clock_stand_in_the_order_in_which_they_were_added(config, behind):
    with processes(2, WRONG_CLOCK, config) as (right, wrong):
        for number, seconds in enumerate(behind):
            for process, line in ((right, f"0 {2 * number}\n"), (wrong, f"{seconds} {2 * number + 1}\n")):
                process.stdin.write(line)
                process.stdin.flush()
                assert process.stdout.readline() == "added\n"
    assert read(config) == users(*range(2 * len(behind)))


@pytest.mark.parametrize("store_kind", ["embedded"], indirect=True)
def test_eight_processes_open_a_fresh_store_at_once(config):
    with processes(8, OPENER, config) as running:
        all_ready(running)
        go(running)
        all_ready(running)
    for store in range(40):
        items = read(config.model_copy(update={"url": f"{config.url}-{store}.db"}))
        assert len(items) == 8 * 3
        assert {item["writer"] for item in items} == {str(number) for number in range(8)}
        check_appends(items, {})


async def append_each(session, *texts):
    for text in texts:
        await session.add_items(users(f"{text} a", f"{text} b"))


def check_texts(items, *writers):
    """Nothing is lost, each append is contiguous, and each writer's are in order."""
    texts = [item["content"] for item in items]
    assert [text[:-2] for text in texts[::2]] == [text[:-2] for text in texts[1::2]]
    for writer in writers:
        assert [text for text in texts if text[:-2] in writer] == [f"{text} {part}" for text in writer for part in "ab"]
    assert len(texts) == 2 * sum(map(len, writers))


@pytest.mark.parametrize("store_kind", ["embedded"], indirect=True)
def test_sixty_four_processes_open_a_fresh_store_at_once(config):
    context = multiprocessing.get_context("forkserver")  # which imports but once
    context.set_forkserver_preload(["warm_integrations.openai_agents"])
    together = context.Barrier(64)
    names = [{"config": config, "number": number, "together": together} for number in range(64)]
    running = [context.Process(target=exec, args=(OPEN_AND_APPEND, own)) for own in names]
    for process in running:
        process.start()
    for process in running:
        process.join()
    assert {process.exitcode for process in running} == {0}
    check_texts(read(config), *([f"{number}.{append}" for append in range(5)] for number in range(64)))


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@pytest.mark.parametrize("threads", [False, True])
def test_a_fork_after_use(config, threads):
    session = WarmSession("s", config)
    asyncio.run(append_each(session, "before"))
    writers = [[f"{who} {number}" for number in range(20)] for who in ("parent", "child", "thread")]
    thread = threading.Thread(target=lambda: asyncio.run(append_each(session, *writers[2])))
    if threads:
        thread.start()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            asyncio.run(append_each(session, *writers[1]))
            code = 0
        finally:
            os._exit(code)
    asyncio.run(append_each(session, *writers[0]))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    if threads:
        thread.join()
    check_texts(read(config), ["before"], *writers[: 3 if threads else 2])


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
async def test_a_fork_from_a_running_loop(config):
    session = WarmSession("s", config)
    await append_each(session, "before")
    child = os.fork()
    if child == 0:
        code = 1
        try:
            # The child has the parent's loop, which runs no more: a thread of its own has none.
            thread = threading.Thread(target=lambda: asyncio.run(append_each(session, "child")))
            thread.start()
            thread.join()
            code = 0
        finally:
            os._exit(code)
    await append_each(session, "parent 1", "parent 2")
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    check_texts(await WarmSession("s", config).get_items(), ["before"], ["child"], ["parent 1", "parent 2"])


def open_files():
    return len(os.listdir("/proc/self/fd"))


@httpx_after_run_sync
@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="needs /proc")
def test_many_loops_leave_no_open_files(config, default_loop):
    session = WarmSession("s", config)
    model = ScriptedModel()

    def turn(number):
        model.enqueue([assistant_message(str(number))])
        if number % 2:
            Runner.run_sync(Agent(name="assistant", model=model), "hi", session=session)
        else:
            asyncio.run(Runner.run(Agent(name="assistant", model=model), "hi", session=session))
            asyncio.set_event_loop(default_loop)

    for number in range(4):
        turn(number)
    before = open_files()
    for number in range(50):
        turn(number)
    assert open_files() <= before
    assert len(read(config)) == 2 * 54


@httpx_after_run_sync
@pytest.mark.usefixtures("default_loop")
def test_a_session_works_in_run_sync_again_and_again(config):
    session, model = WarmSession("s", config), ScriptedModel([[assistant_message(str(n))] for n in range(50)])
    for _ in range(50):
        Runner.run_sync(Agent(name="assistant", model=model), "hi", session=session)
    assert len(read(config)) == 100
    assert len(model.calls[-1].input) == 99


def test_threads_share_a_session_object(config):
    session = WarmSession("s", config)
    writers = [[f"{thread} {number}" for number in range(20)] for thread in "abcdefgh"]
    failures = []

    def work(texts):
        try:
            asyncio.run(append_each(session, *texts))
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=[texts]) for texts in writers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    check_texts(read(config), *writers)


def test_loops_may_be_open_side_by_side(config):
    session = WarmSession("s", config)
    loops = [asyncio.new_event_loop() for _ in range(3)]
    for number in range(9):
        loops[number % 3].run_until_complete(session.add_items(users(number)))
    for loop in loops:
        assert loop.run_until_complete(session.get_items()) == users(*range(9))
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()
    assert read(config) == users(*range(9))


@pytest.mark.parametrize("duplicate", [lambda s: pickle.loads(pickle.dumps(s)), copy.copy, copy.deepcopy])
async def test_a_copy_is_a_session_of_its_own(config, duplicate):
    session = WarmSession(
        "s", config, session_settings={"limit": 70}, page_size=7, chunk_chars=20, max_parts=9, searchable=True
    )
    await append_each(session, "first")
    twin = duplicate(session)
    assert repr(twin) == repr(session)
    assert (twin.session_id, twin.config, twin.searchable) == ("s", config, True)
    assert twin.session_settings == session.session_settings
    writers = [[f"{who} {number}" for number in range(15)] for who in ("one", "two")]
    await asyncio.gather(append_each(session, *writers[0]), append_each(twin, *writers[1]))
    assert await twin.get_items() == await session.get_items()
    check_texts(await twin.get_items(), ["first"], *writers)
    with pytest.raises(ValueError, match="characters"):
        await twin.add_items([user("x" * 200)])
    await twin.close()
    assert await session.pop_item() is not None


async def test_a_copy_in_another_process_is_a_writer_of_its_own(config):
    session = WarmSession("s", config)
    await append_each(session, "first")
    program = (
        "import asyncio, pickle, sys\n"
        "session = pickle.loads(sys.stdin.buffer.read())\n"
        "items = [{'role': 'user', 'content': f'child {part}'} for part in 'ab']\n"
        "asyncio.run(session.add_items(items))"
    )
    child = await asyncio.create_subprocess_exec(sys.executable, "-c", program, stdin=subprocess.PIPE)
    await child.communicate(pickle.dumps(session))
    assert child.returncode == 0
    await append_each(session, "last")
    check_texts(await WarmSession("s", config).get_items(), ["first"], ["child"], ["last"])


def test_a_store_in_memory_is_one_for_all_loops_and_threads_of_a_process():
    config = WarmConfig(url="sqlite://", tenant_id=f"test-{os.urandom(8).hex()}")
    asyncio.run(WarmSession("s", config).add_items(users(1)))
    thread = threading.Thread(target=lambda: asyncio.run(WarmSession("s", config).add_items(users(2))))
    thread.start()
    thread.join()
    assert read(config) == users(1, 2)
