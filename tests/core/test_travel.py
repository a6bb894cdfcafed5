"""What can be copied and sent to another process: a worker's backend, a user's memory, and all that they return."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys
from datetime import datetime, timedelta, timezone

import pytest

from warm_integrations.core import (
    AsyncPagedLog,
    AsyncWarmBackend,
    HashingEmbedder,
    Memory,
    Recalled,
    Record,
    UserMemory,
    WarmBackend,
    WarmConfig,
    WarmError,
    user_memory,
)
from warm_integrations.core.log.items import Item
from warm_integrations.core.memory import Remembered
from warm_integrations.core.models import MiniLMEmbedder, OpenAIEmbedder
from warm_integrations.core.stores.interface import Document
from warm_integrations.openai_agents import ItemError, ItemHit, SessionInfo, WarmSession, memory_tools

WAYS = {"pickle": lambda one: pickle.loads(pickle.dumps(one)), "copy": copy.copy, "deepcopy": copy.deepcopy}
NOW = datetime(2026, 1, 31, 12, tzinfo=timezone.utc)
MEMORY = Memory("1", "tea", ("drink",), NOW, NOW, 0.5)
VALUES = [
    Record("tea", {"a": [1]}, "1", [1.0], ["x"]),
    Record("tea"),
    Recalled("1", "tea", {"a": 1}, ("x",), 0.5),
    MEMORY,
    Remembered(MEMORY, True, [MEMORY]),
    HashingEmbedder(dim=64),
    MiniLMEmbedder(),
    OpenAIEmbedder(dim=8),
    WarmConfig(url="sqlite://", embedder=HashingEmbedder(dim=64)),
    SessionInfo("s", NOW, NOW, {"user": "alice"}),
    ItemHit({"role": "user", "content": "tea"}, 0.5),
    Item("tea"),
    Document("1"),
]
duplicated = pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)


class Tenfold(AsyncWarmBackend):
    """A backend with an argument and an attribute of its own."""

    def __init__(self, config: WarmConfig, factor: int) -> None:
        super().__init__(config)
        self.factor = factor


class Audited(WarmSession):
    """A session with an attribute of its own."""

    seen = 0


# By reference, as a module of the tests has no name that an import would find.
copy_in_place = pytest.mark.parametrize("way", [copy.copy, copy.deepcopy], ids=["copy", "deepcopy"])


@duplicated
@pytest.mark.parametrize("value", VALUES, ids=lambda value: type(value).__name__)
def test_a_value_stays_equal(value, way):
    assert way(value) == value


@duplicated
@pytest.mark.parametrize("error", [WarmError("locked", "busy", status=503), ItemError("no JSON")], ids=repr)
def test_an_error_says_the_same(error, way):
    twin = way(error)
    assert (type(twin), str(twin), vars(twin)) == (type(error), str(error), vars(error))


@duplicated
async def test_a_backend_goes_on_and_closes_by_itself(config, way):
    backend = AsyncWarmBackend(config)
    await backend.remember([Record("tea", id="a")])
    assert await backend.recall("tea")
    twin = way(backend)
    assert twin.config == config
    ids = await backend.remember([Record("one")]) + await twin.remember([Record("two")])
    assert {one.id for one in await twin.list()} == {"a", *ids}
    await twin.close()
    assert len(await backend.recall("tea", 3)) == 3
    for closed in (twin, way(twin)):
        with pytest.raises(RuntimeError, match="closed"):
            await closed.list()


@duplicated
def test_a_blocking_backend_goes_on_and_closes_by_itself(config, way):
    backend = WarmBackend(config)
    backend.remember([Record("tea", id="a")])
    twin = way(backend)
    assert [one.id for one in twin.recall("tea")] == ["a"]
    twin.close()
    assert [one.id for one in backend.list()] == ["a"]
    for closed in (twin, way(twin)):
        with pytest.raises(RuntimeError, match="closed"):
            closed.list()


@duplicated
async def test_a_memory_goes_on(config, way):
    alice = user_memory(config, "alice", expires_after=timedelta(days=1))
    await alice.remember("tea")
    twin = way(alice)
    made = (await twin.remember("cake")).memory
    assert (twin.user_id, made.expires_at) == ("alice", made.created_at + timedelta(days=1))
    assert await twin.list() == await alice.list()
    assert len(await alice.list()) == 2
    assert await way(UserMemory(AsyncWarmBackend(config), "bob")).list() == []


async def test_a_copy_looks_anew_for_another_embedder(config):
    """What a backend has found out once may be otherwise by the time its pickle is read."""
    backend = AsyncWarmBackend(config)
    await backend.recall("tea")
    pickled = pickle.dumps(backend)
    await AsyncWarmBackend(config.model_copy(update={"embedder": Letters()})).remember([Record("tea")])
    with pytest.raises(WarmError) as error:
        await pickle.loads(pickled).recall("tea")
    assert error.value.code == "other_embedder"


class Letters(HashingEmbedder):
    name = "letters"


@copy_in_place
async def test_a_subclass_keeps_what_is_its_own(config, way):
    twin = way(Tenfold(config, 10))
    assert (type(twin), twin.factor) == (Tenfold, 10)
    assert await twin.list() == []
    session = Audited("s", config)
    session.seen = 3
    assert (type(way(session)), way(session).seen) == (Audited, 3)


@duplicated
async def test_a_log_goes_on(config, way):
    log = AsyncPagedLog("a", config)
    await log.append(["one"])
    await way(log).append(["two"])
    assert await log.newest() == ["one", "two"]


@copy_in_place
async def test_tools_can_be_copied_but_are_made_where_they_are_used(config, way):
    """They are functions made by a call, which pickle refuses; `memory_tools` in the worker makes the same."""
    tools = memory_tools(config, user_id="alice")
    assert [tool.name for tool in way(tools)] == [tool.name for tool in tools]
    with pytest.raises((AttributeError, pickle.PicklingError)):
        pickle.dumps(tools)


WORKERS = """
import asyncio, multiprocessing, pickle, sys
from concurrent.futures import ProcessPoolExecutor
from warm_integrations.core import Record

def remember(memory):
    return asyncio.run(memory.remember("from a worker"))

if __name__ == "__main__":
    backend, alice = pickle.loads(sys.stdin.buffer.read())
    for method in "spawn", "fork":
        backend.remember([Record("the parent", id=f"before {method}")])
        with ProcessPoolExecutor(1, multiprocessing.get_context(method)) as workers:
            workers.submit(backend.remember, [Record("a worker", id=method)]).result(60)
            there = workers.submit(backend.list).result(60)
            assert [one.text for one in there].count("a worker") == (1 if method == "spawn" else 2), there
            assert workers.submit(remember, alice).result(60).new == (method == "spawn")
"""


async def test_worker_processes_take_them_along(config, tmp_path):
    (tmp_path / "workers.py").write_text(WORKERS)
    made = subprocess.run(
        [sys.executable, "workers.py"],
        cwd=tmp_path,
        input=pickle.dumps((WarmBackend(config), user_memory(config, "alice"))),
        capture_output=True,
    )
    assert made.returncode == 0, made.stderr.decode()
    ids = {one.id for one in await AsyncWarmBackend(config).list()}
    assert {"spawn", "fork", "before spawn", "before fork"} <= ids
    assert [one.text for one in await user_memory(config, "alice").list()] == ["from a worker"]
