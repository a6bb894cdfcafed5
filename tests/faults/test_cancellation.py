"""A call that is cancelled at any of its awaits: the caller is told, nothing is left behind, and the data is whole."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import sys
from contextlib import closing, suppress

import pytest
from proxy import Proxy, answer

from local_server import LocalServer
from warm_integrations.core import AsyncWarmBackend, Record, WarmConfig, WarmError
from warm_integrations.openai_agents import WarmSession

over_http = pytest.mark.parametrize("store_kind", ["warm-server"], indirect=True)


def users(*texts):
    return [{"role": "user", "content": str(text)} for text in texts]


class Wait:
    """To wait for what another coroutine waits for."""

    def __init__(self, future):
        self.future = future

    def __await__(self):
        return (yield self.future)


class Cancelling:
    """Counts each time that any task of the loop waits, and cancels the victim at some of them.

    Args:
        at: whether to cancel at the wait of this number.
        woken: cancel when what is waited for has come, just before the task goes on, rather than as the wait begins.
    """

    def __init__(self, at, *, woken=False):
        self.at, self.woken, self.waits, self.hit, self.victim = at, woken, 0, False, None

    async def run(self, call):
        """The result of `call`, or the `CancelledError` that came out of it."""
        loop = asyncio.get_running_loop()
        loop.set_task_factory(lambda loop, work, **options: asyncio.Task(self._watch(work), loop=loop, **options))
        try:
            self.victim = asyncio.ensure_future(call())
            await asyncio.wait([self.victim])
        finally:
            loop.set_task_factory(None)
        if self.victim.cancelled():
            return asyncio.CancelledError()
        return self.victim.result()

    async def _watch(self, work):
        go_on, value = work.send, None
        while True:
            try:
                future = go_on(value)
            except StopIteration as end:
                return end.value
            self.waits += 1
            if self.at(self.waits):
                if self.woken and future is not None:
                    future.add_done_callback(self._cancel)
                else:
                    self._cancel()
            try:
                go_on, value = work.send, await Wait(future)
            except BaseException as error:
                go_on, value = work.throw, error

    def _cancel(self, future=None):
        self.hit = self.victim.cancel() or self.hit


def moments():
    """Every way to cancel: once, at the beginning or the end of a wait, or again and again from one on."""
    for woken in (False, True):
        yield lambda n, woken=woken: Cancelling(lambda wait: wait == n, woken=woken)
    yield lambda n: Cancelling(lambda wait: wait >= n)


def open_files():
    return len(os.listdir("/proc/self/fd"))


class Conversation:
    """A session with two items and a title, and what may be seen after a call that was cancelled."""

    def __init__(self, config):
        self.session, self.config = WarmSession("s", config, searchable=True), config
        self.before, self.title = users("one", "two"), {"title": "old"}

    async def prepare(self):
        await self.session.delete()
        await self.session.set_metadata(self.title)
        await self.session.add_items(self.before)

    async def state(self):
        reader = WarmSession("s", self.config)
        info = await reader.info()
        return await reader.get_items(), info and info.metadata

    async def works(self):
        items = await self.session.get_items()
        await self.session.add_items(users("next"))
        assert await self.session.get_items() == items + users("next")
        assert await WarmSession("s", self.config).pop_item() == users("next")[0]
        assert await self.session.get_items() == items


TITLE, ITEMS = {"title": "old"}, users("one", "two")
NEW = users("three", "four")
SESSION_CALLS = {
    "get_items": (lambda s: s.get_items(), (ITEMS, TITLE)),
    "search": (lambda s: s.search("two"), (ITEMS, TITLE)),
    "info": (lambda s: s.info(), (ITEMS, TITLE)),
    "list": (lambda s: s.list(s.config), (ITEMS, TITLE)),
    "add_items": (lambda s: s.add_items(NEW), (ITEMS + NEW, TITLE)),
    "pop_item": (lambda s: s.pop_item(), (ITEMS[:1], TITLE)),
    "clear_session": (lambda s: s.clear_session(), ([], TITLE)),
    "replace": (lambda s: s._atomic_replace_items(NEW), (NEW, TITLE)),
    "set_metadata": (lambda s: s.set_metadata({"title": "new"}), (ITEMS, {"title": "new"})),
    "delete": (lambda s: s.delete(), ([], None)),
}


class Memories:
    """Three records of a backend, likewise."""

    def __init__(self, config):
        self.session = AsyncWarmBackend(config)
        self.config = config

    async def prepare(self):
        there = [record.id for record in await self.session.list()]
        await self.session.forget(there)
        await self.session.remember([Record(f"note {id}", {"k": k}, id) for id, k in ("a1", "b1", "c2")])

    async def state(self):
        return [record.id for record in await AsyncWarmBackend(self.config).list()]

    async def works(self):
        await self.session.remember([Record("note next", id="z")])
        assert "z" in [record.id for record in await self.session.recall("next", 10)]
        assert await self.session.forget(["z"]) == ["z"]


BACKEND_CALLS = {
    "recall": (lambda b: b.recall("note", 3), ["a", "b", "c"]),
    "get": (lambda b: b.get(["a", "b"]), ["a", "b", "c"]),
    "backend list": (lambda b: b.list(), ["a", "b", "c"]),
    "remember": (lambda b: b.remember([Record("d", id="d"), Record("e", id="e")]), ["a", "b", "c", "d", "e"]),
    "forget": (lambda b: b.forget(["a", "c"]), ["b"]),
    "forget_where": (lambda b: b.forget_where({"k": "1"}), ["c"]),
}


@pytest.fixture
def one_connection(config):
    """One connection only, so that one which is not given back holds up the next call; full durability."""
    return config.model_copy(update={"concurrency": 1, "timeout": 5})


def check_nobody_holds_the_database(config):
    if config.scheme == "sqlite":
        path = config.url.removeprefix("sqlite:///")
        with closing(sqlite3.connect(path, timeout=0, isolation_level=None)) as db:
            db.execute("BEGIN IMMEDIATE")


async def check_at_every_moment(place, call, after):
    """Cancel `call` at its first wait, its second and so on, until it has ended before."""
    await place.prepare()
    before = await place.state()
    tasks, files, hits = asyncio.all_tasks(), open_files(), 0
    for moment in moments():
        number, hit = 0, True
        while hit:
            number += 1
            await place.prepare()
            cancelling = moment(number)
            result = await cancelling.run(lambda: call(place.session))
            hit = cancelling.hit
            assert isinstance(result, asyncio.CancelledError) == hit, f"wait {number}"
            assert asyncio.all_tasks() == tasks, f"wait {number}"
            check_nobody_holds_the_database(place.config)
            state = await place.state()
            assert state in ([before, after] if hit else [after]), f"wait {number}"
            await place.works()
            assert open_files() <= files + 1, f"wait {number}"
            hits += hit
    return hits


@pytest.mark.parametrize("name", SESSION_CALLS)
async def test_a_session_cancelled_at_every_wait(one_connection, name):
    call, after = SESSION_CALLS[name]
    hits = await check_at_every_moment(Conversation(one_connection), call, after)
    assert hits >= (3 if one_connection.scheme == "http" else 0)


@pytest.mark.parametrize("name", BACKEND_CALLS)
async def test_a_backend_cancelled_at_every_wait(one_connection, name):
    call, after = BACKEND_CALLS[name]
    assert await check_at_every_moment(Memories(one_connection), call, after) >= 3


@pytest.mark.parametrize("name", ["get_items", "add_items"])
async def test_the_first_request_of_a_loop_cancelled_at_every_wait(one_connection, name):
    call, (after, _) = SESSION_CALLS[name]
    await Conversation(one_connection).prepare()
    hits = 0
    for moment in moments():
        number, hit = 0, True
        while hit:
            number, hits = number + 1, hits + hit
            fresh = one_connection.model_copy(update={"timeout": 5 + hits / 1000})  # and so are its connections
            place = Conversation(fresh)
            cancelling = moment(number)
            result = await cancelling.run(lambda place=place: call(place.session))
            hit = cancelling.hit
            if sys.version_info >= (3, 11):  # before, anyio cannot tell it from a cancellation of its own
                assert isinstance(result, asyncio.CancelledError) == hit, f"wait {number}"
            items, _ = await place.state()
            assert items in ([ITEMS, after] if hit else [after]), f"wait {number}"
            await place.works()
            await place.prepare()


def test_a_loop_that_ends_with_a_call_under_way(one_connection):
    """`asyncio.run` cancels every task at once, those that settle a write included."""

    async def leave(place, turns):
        await place.prepare()
        task = asyncio.create_task(place.session.add_items(NEW))
        for _ in range(turns):
            await asyncio.sleep(0)
        return task

    async def check(place):
        await place.session.add_items(users("next"))  # a server may still be at work on the one before
        assert (await place.state())[0] in (ITEMS + users("next"), ITEMS + NEW + users("next"))

    before = None
    for turns in range(60):
        place = Conversation(one_connection)
        task = asyncio.run(leave(place, turns))
        assert task.done()
        asyncio.run(check(place))
        before = before or open_files()
    assert open_files() <= before


@pytest.mark.parametrize("name", SESSION_CALLS)
async def test_time_limits_of_the_caller(one_connection, name):
    call, (after, _) = SESSION_CALLS[name]
    place, ended = Conversation(one_connection), set()
    for milliseconds in [0, 0.2, 0.5, 1, 2, 4, 10_000]:
        await place.prepare()
        with suppress(asyncio.TimeoutError):
            await asyncio.wait_for(call(place.session), milliseconds / 1000)
            ended.add(milliseconds)
        items, _ = await place.state()
        assert items in ([after] if milliseconds in ended else [ITEMS, after])
        await place.works()
        if sys.version_info >= (3, 11):
            await place.prepare()
            with suppress(TimeoutError):
                async with asyncio.timeout(milliseconds / 1000):
                    await call(place.session)
            assert (await place.state())[0] in (ITEMS, after)
            await place.works()
    assert 10_000 in ended


BUSY = answer(503, "server_busy", Retry_After="0.2")


@over_http
@pytest.mark.parametrize("fault", [BUSY, "drop before", "drop after"], ids=["busy", "lost", "answer lost"])
@pytest.mark.parametrize("name", ["get_items", "add_items", "pop_item", "replace"])
async def test_cancelled_in_the_pause_before_a_repetition(one_connection, name, fault):
    call, (after, _) = SESSION_CALLS[name]
    async with Proxy(one_connection.url) as proxy:
        place = Conversation(one_connection.model_copy(update={"url": proxy.url}))
        for failures in (1, 2, 3):
            await place.prepare()
            proxy.reset()
            proxy.faults = [[fault]] * 20
            task = asyncio.create_task(call(place.session))
            while len(proxy.faults) > 20 - failures:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            task.cancel()
            proxy.faults.clear()
            await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert (await place.state())[0] in ([ITEMS] if name == "get_items" else [after])
            await place.works()


@pytest.mark.parametrize("name", ["get_items", "add_items", "pop_item"])
async def test_cancelled_while_the_server_is_down(warm_server_binary, tmp_path, name, request):
    request.node.user_properties.append(("store", "warm-server"))
    with LocalServer(tmp_path) as server:
        place = Conversation(WarmConfig(url=server.url, concurrency=1, retries=2))
        await place.prepare()
        server.kill()
        for pause in (0, 0.05):
            task = asyncio.create_task(SESSION_CALLS[name][0](place.session))
            await asyncio.sleep(pause)
            under_way = task.cancel()
            with pytest.raises(asyncio.CancelledError if under_way else WarmError):
                await task
        with pytest.raises(WarmError, match="WARM_URL"):
            await SESSION_CALLS[name][0](place.session)
        server.start()
        assert (await place.state())[0] == ITEMS
        await place.works()


@over_http
async def test_a_read_of_a_server_that_is_silent_ends_at_once(one_connection):
    async with Proxy(one_connection.url) as proxy:
        place, go_on = Conversation(one_connection.model_copy(update={"url": proxy.url})), asyncio.Event()
        await place.prepare()
        loop, reached = asyncio.get_running_loop(), asyncio.Event()

        def hold():
            loop.call_soon_threadsafe(reached.set)
            asyncio.run_coroutine_threadsafe(go_on.wait(), loop).result()

        proxy.faults = [[hold, "pass"]]
        task = asyncio.create_task(place.session.get_items())
        await reached.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task  # with the server still silent
        await place.works()
        go_on.set()
