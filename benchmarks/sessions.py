"""WarmSession beside the sessions of the OpenAI Agents SDK, in one run.

    python benchmarks/sessions.py [--rounds N]

Each operation is timed on all of them in turns. Times are medians in milliseconds, with their quartiles; the ratio
is that of WarmSession's median to the fastest anchor's. "sync" has every commit on the disk before it returns
(SQLite: synchronous=FULL, Redis: appendfsync always, warm-server: always so); "no sync" leaves that to the system
(SQLite: synchronous=NORMAL in WAL mode). Needs redis-server and warm-server for the second half.
"""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import socket
import subprocess
import sys
import tempfile
import uuid
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

sys.path += [str(Path(__file__).parent), str(Path(__file__).parents[1] / "examples")]
from agents import SQLiteSession
from agents.extensions.memory import AsyncSQLiteSession, RedisSession, SQLAlchemySession
from agents.memory import Session
from paired import Work, command_line, compared
from sqlalchemy import event
from sqlalchemy.ext.asyncio import create_async_engine

from conversations import Make, filled, turn
from local_server import LocalServer
from warm_integrations.core import WarmConfig
from warm_integrations.openai_agents import WarmSession

OURS = "WarmSession"


class UnsyncedSQLiteSession(SQLiteSession):
    @staticmethod
    def _configure_connection(conn: Any) -> None:
        SQLiteSession._configure_connection(conn)
        conn.execute("PRAGMA synchronous = NORMAL")


@contextlib.asynccontextmanager
async def sqlite_kinds(directory: str, sync: bool) -> AsyncIterator[dict[str, Make]]:
    """Sessions in SQLite files of their own, one file for each kind."""
    pragma, opened = f"PRAGMA synchronous = {'FULL' if sync else 'NORMAL'}", []
    engine = create_async_engine(f"sqlite+aiosqlite:///{directory}/sqlalchemy.db")
    event.listen(engine.sync_engine, "connect", lambda connection, _: connection.execute(pragma).close())

    async def warm() -> Session:
        option = "full" if sync else "normal"
        return WarmSession(uuid.uuid4().hex, WarmConfig(url=f"sqlite:///{directory}/warm.db?synchronous={option}"))

    async def sdk() -> Session:
        kind = SQLiteSession if sync else UnsyncedSQLiteSession
        opened.append(kind(uuid.uuid4().hex, f"{directory}/sqlite.db"))
        return opened[-1]

    async def sdk_async() -> Session:
        opened.append(session := AsyncSQLiteSession(uuid.uuid4().hex, f"{directory}/async.db"))
        await (await session._get_connection()).execute(pragma)
        return session

    async def sqlalchemy() -> Session:
        return SQLAlchemySession(uuid.uuid4().hex, engine=engine, create_tables=True)

    yield {OURS: warm, "SQLiteSession": sdk, "AsyncSQLiteSession": sdk_async, "SQLAlchemySession": sqlalchemy}
    for session in opened:
        closed = session.close()
        if closed is not None:
            await closed
    await engine.dispose()


@contextlib.asynccontextmanager
async def redis_server(directory: str) -> AsyncIterator[str]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = ["redis-server", "--port", str(port), "--dir", directory, "--appendonly", "yes"]
    process = subprocess.Popen(  # noqa: ASYNC220
        [*command, "--appendfsync", "always", "--save", ""], stdout=subprocess.DEVNULL
    )
    try:
        while True:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
                break
            await asyncio.sleep(0.02)
        yield f"redis://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait()


@contextlib.asynccontextmanager
async def server_kinds(directory: str) -> AsyncIterator[dict[str, Make]]:
    opened: list[RedisSession] = []
    async with redis_server(directory) as redis, sqlite_kinds(directory, sync=True) as sqlite:
        with LocalServer(f"{directory}/server") as server:

            async def warm() -> Session:
                return WarmSession(uuid.uuid4().hex, WarmConfig(url=server.url))

            async def in_redis() -> Session:
                opened.append(RedisSession.from_url(uuid.uuid4().hex, url=redis))
                return opened[-1]

            yield {OURS: warm, "RedisSession": in_redis, "SQLAlchemySession": sqlite["SQLAlchemySession"]}
            for session in opened:
                await session.close()


def work(operation: str, session: Session) -> Work:
    numbers = iter(range(10**6, 10**9))

    async def append() -> None:
        await session.add_items(turn(next(numbers)))

    async def newest() -> None:
        assert len(await session.get_items(50)) == 50

    async def everything() -> None:
        assert len(await session.get_items()) == 10_000

    async def pop() -> None:
        assert await session.pop_item() is not None

    return {"append 2": append, "newest 50": newest, "read all": everything, "pop": pop}[operation]


async def measure(title: str, kinds: dict[str, Make], rounds: int) -> list[dict[str, Any]]:
    results = []
    sessions = {name: await filled(make, 10_000) for name, make in kinds.items()}
    for operation in ("newest 50", "read all", "append 2", "pop"):
        count = max(10, rounds // 10) if operation == "read all" else rounds
        contenders = {name: work(operation, session) for name, session in sessions.items()}
        results.append(await compared(f"{title}: {operation}", contenders, count))
    return results


async def run(rounds: int) -> list[dict[str, Any]]:
    results = []
    for title, sync in (("embedded, no sync", False), ("embedded, sync", True)):
        with tempfile.TemporaryDirectory() as directory:
            async with sqlite_kinds(directory, sync) as kinds:
                results += await measure(title, kinds, rounds)
    if shutil.which("redis-server") is None:
        print("No redis-server: install Debian's package of that name to compare with RedisSession")
        return results
    with tempfile.TemporaryDirectory() as directory:
        async with server_kinds(directory) as kinds:
            results += await measure("warm-server, sync", kinds, rounds)
    return results


if __name__ == "__main__":
    rounds = command_line(__doc__).rounds
    asyncio.run(run(rounds))
