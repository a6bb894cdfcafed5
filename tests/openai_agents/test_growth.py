"""What a session costs does not grow with what else there is: counted in work, since times vary."""

from __future__ import annotations

import uuid
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from proxy import Proxy

from local_server import LocalServer
from warm_integrations.core import WarmConfig
from warm_integrations.core.stores.sqlite.connections import submit
from warm_integrations.core.stores.sqlite.store import SqliteStore
from warm_integrations.openai_agents import WarmSession

FEW, SMALL, LARGE = 100, 1000, 100_000
Operation = Callable[[WarmSession], Awaitable[Any]]
OPERATIONS: dict[str, Operation] = {
    "newest 50": lambda session: session.get_items(50),
    "append": lambda session: session.add_items(items(2)),
    "pop": lambda session: session.pop_item(),
}


def items(count: int) -> list[Any]:
    return [{"role": "user", "content": f"{number} the quick brown fox"} for number in range(count)]


async def session_of(config: WarmConfig, count: int, name: str = "") -> WarmSession:
    session = WarmSession(name or uuid.uuid4().hex, config)
    for _ in range(0, count, SMALL):
        await session.add_items(items(min(count, SMALL)))
    return session


def instructions(config: WarmConfig) -> Iterator[int]:
    """The instructions that SQLite's machine has carried out, up to each call."""
    key, done = SqliteStore(config).database_key, 0

    def one_more() -> int:
        nonlocal done
        done += 1
        return 0

    submit(key, lambda db: db.set_progress_handler(one_more, 1)).result()
    while True:
        yield done


async def instructions_of(config: WarmConfig, session: WarmSession) -> dict[str, int]:
    count, found = instructions(config), {}
    for name, operation in OPERATIONS.items():
        start = next(count)
        await operation(session)
        found[name] = next(count) - start
    return found


async def bytes_of(proxy: Proxy, session: WarmSession) -> dict[str, tuple[int, int]]:
    found = {}
    for name, operation in OPERATIONS.items():
        proxy.reset()
        await operation(session)
        found[name] = len(proxy.requests), proxy.bytes_read
    return found


async def test_the_embedded_store_works_no_harder_for_a_session_among_many(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    request.node.user_properties.append(("store", "embedded"))
    work = {}
    for count in (SMALL, LARGE):
        config = WarmConfig(url=f"sqlite:///{tmp_path / str(count)}.db?synchronous=normal")
        for _ in range(count // SMALL):
            await session_of(config, SMALL)
        work[count] = await instructions_of(config, await session_of(config, FEW))
    assert all(work[SMALL].values())
    for name in OPERATIONS:
        assert work[LARGE][name] <= 1.2 * work[SMALL][name], work


async def test_the_embedded_store_works_no_harder_for_a_long_session(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    request.node.user_properties.append(("store", "embedded"))
    config = WarmConfig(url=f"sqlite:///{tmp_path}/warm.db?synchronous=normal")
    short, long = [await instructions_of(config, await session_of(config, count)) for count in (FEW, LARGE)]
    for name in OPERATIONS:
        assert long[name] <= 1.2 * short[name], (short, long)


async def test_a_session_among_many_or_of_many_asks_warm_server_for_no_more(
    warm_server_binary: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    request.node.user_properties.append(("store", "warm-server"))
    with LocalServer(tmp_path) as server:
        async with Proxy(server.url) as proxy:
            config = WarmConfig(url=server.url)
            seen = WarmConfig(url=proxy.url)
            await session_of(config, FEW, "little")
            alone = await bytes_of(proxy, WarmSession("little", seen))
            for number in range(10):
                await session_of(config, SMALL, f"another {number}")
            await session_of(config, LARGE, "large")
            among, large = [await bytes_of(proxy, WarmSession(name, seen)) for name in ("little", "large")]
    for name in OPERATIONS:
        assert among[name][0] == large[name][0] == alone[name][0]
        assert max(among[name][1], large[name][1]) <= 1.2 * alone[name][1], (name, alone, among, large)
