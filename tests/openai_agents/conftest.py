"""What the tests of the session share: the store's records as they are, and a store that holds up writes."""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager

import pytest

from warm_integrations.core import WarmConfig
from warm_integrations.core.connection import connect
from warm_integrations.core.digests import digest
from warm_integrations.core.paged import catalogue_prefix
from warm_integrations.core.stores.interface import (
    Delete,
    Document,
    Nearest,
    Put,
    Row,
    Scan,
    single,
)


class Records:
    """The records of a tenant below the session, to look at and to damage."""

    def __init__(self, config: WarmConfig) -> None:
        self.config, self.store = config, connect(config)

    def prefix(self, session_id: str) -> str:
        return digest("log", self.config.collection, session_id) + "/"

    def place(self, session_id: str) -> str:
        """Where the list keeps what it knows of a session."""
        return catalogue_prefix(self.config) + self.prefix(session_id)

    async def all(self, prefix: str = "") -> list[Row]:
        rows: list[Row] = []
        while page := await self.store.read(single(Scan(prefix, 1000, rows[-1].id if rows else ""))):
            rows += page
        return rows

    async def of_items(self, session_id: str) -> list[Row]:
        """The newest item's first; each item's head before its further parts."""
        return [row for row in await self.all(self.prefix(session_id)) if row.id[33] not in "!#"]

    async def put(self, *documents: Document) -> None:
        await self.store.write(single(Put(documents)))

    async def delete(self, *ids: str) -> None:
        await self.store.write(single(Delete(ids)))

    async def cosine(self, vector, session_id: str) -> float:
        """The best cosine of any vector stored for a session."""
        label = {"_warm_log": digest("log", self.config.collection, session_id)}
        return (await self.store.read(single(Nearest(vector, 1, label))))[0].score


@pytest.fixture
def records(config: WarmConfig) -> Records:
    return Records(config)


@pytest.fixture
def held_up(config: WarmConfig, request: pytest.FixtureRequest) -> Callable[[], AbstractContextManager[None]]:
    """A block in which no write gets through: the database is locked, or the server stands still."""

    @contextmanager
    def lock() -> Iterator[None]:
        with closing(sqlite3.connect(config.url.removeprefix("sqlite:///"), isolation_level=None)) as db:
            db.execute("BEGIN IMMEDIATE")
            yield

    @contextmanager
    def freeze() -> Iterator[None]:
        process = request.getfixturevalue("warm_server").process.pid
        os.kill(process, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(process, signal.SIGCONT)

    return lock if config.scheme == "sqlite" else freeze


@pytest.fixture
def default_loop() -> Iterator[asyncio.AbstractEventLoop]:
    """The loop that `run_sync` takes and leaves open."""
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    yield loop
    loop.close()
    asyncio.set_event_loop(None)
