"""A program that uses every public name as users do. It is checked, and never run."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
from agents import Agent, RunConfig, Runner, SessionSettings, SQLiteSession, TResponseInputItem
from agents.memory import Session, SessionABC
from numpy.typing import NDArray
from pydantic import SecretStr

from warm_integrations.core import (
    AsyncPagedLog,
    AsyncWarmBackend,
    Embedder,
    HashingEmbedder,
    Memory,
    Recalled,
    Record,
    UserMemory,
    WarmBackend,
    WarmConfig,
    WarmError,
    ping,
    reembed,
    user_memory,
)
from warm_integrations.core.models import MiniLMEmbedder, OpenAIEmbedder
from warm_integrations.openai_agents import ItemError, ItemHit, SessionInfo, WarmSession, memory_tools


class Lists:
    """Vectors as lists, from a list: the interface of many a library."""

    dim = 2

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        return [self.embed_query(text) for text in texts]

    def embed_query(self, text: str) -> list[float]:
        return [1.0, float(len(text))]


class Arrays:
    name, revision = "arrays", "2"

    def __init__(self, dim: int = 3) -> None:
        self.dim = dim

    def embed_documents(self, texts: Sequence[str]) -> NDArray[np.float32]:
        return np.ones((len(texts), self.dim), np.float32)

    def embed_query(self, text: str) -> NDArray[np.float32]:
        return self.embed_documents([text]).ravel()


class Audited(WarmSession):
    """A session that counts what it is given."""

    added = 0

    async def get_items(self, limit: int | None = None) -> list[TResponseInputItem]:
        return await super().get_items(limit)

    async def add_items(self, items: list[TResponseInputItem]) -> None:
        self.added += len(items)
        await super().add_items(items)

    async def close(self) -> None:
        await super().close()


class Settings(WarmConfig):
    """A configuration with a field of its own."""

    shop: str = "main"


every: WarmConfig = WarmConfig(
    url="https://warm.example",
    api_key="a key",
    tenant_id="acme",
    collection="c",
    embedder=Lists(),
    text_queries=False,
    zero_trust_key=SecretStr("b"),
    max_fetch=10,
    overfetch=2,
    ca_file=Path("ca.pem"),
    timeout=3,
    retries=0,
    concurrency=1,
)
from_elsewhere = WarmConfig(api_key=os.environ.get("KEY"), ca_file="ca.pem", embedder=HashingEmbedder(dim=64))
more = Settings(url="sqlite://", shop="corner")
values: dict[str, Any] = {"url": "sqlite://"}
config = WarmConfig(**values)
embedders: list[Embedder] = [HashingEmbedder(), MiniLMEmbedder(), OpenAIEmbedder(), Lists(), Arrays(), config.embedder]
longer: WarmConfig = config.model_copy(update={"timeout": 60.0})


async def conversations() -> None:
    session: Session = WarmSession("a", config, session_settings=SessionSettings(limit=3))
    base: SessionABC = Audited("a", config, page_size=20)
    counted: Audited = Audited.from_url("a", url="sqlite:///chats.db", session_settings={"limit": 2}, searchable=True)
    print(counted.added)
    await ping(config)
    async with Audited("b", config, session_settings={"limit": 2}, searchable=True) as audited:
        await audited.add_items([{"role": "user", "content": "hi"}])
        print(audited.added, audited.skipped, audited.config.url)
        history: list[TResponseInputItem] = await audited.get_items(limit=2)
        last: TResponseInputItem | None = await audited.pop_item()
        hits: list[ItemHit] = await audited.search("hi", k=3)
        await audited.add_items([hit.item for hit in hits])
        await audited.add_items(history)
        labels = {"user": "alice", "tags": ["a", "b"]}
        await audited.set_metadata(labels)
        sessions: list[SessionInfo] = await WarmSession.list(config, {"user": "alice"}, limit=3)
        if sessions and (info := await audited.info()):
            rest = await Audited.list(config, after=sessions[-1])
            print(sorted(rest, key=lambda one: one.updated)[0].id, info.created.isoformat(), info.metadata.get("user"))
        await audited.clear_session()
        await audited.delete()
    before = SQLiteSession("a")
    await WarmSession("a", config).add_items(await before.get_items())
    agent = Agent(name="a", tools=memory_tools(config, user_id="u", max_k=5, expires_after=timedelta(days=3)))
    both = Agent(name="b", tools=[*memory_tools(config, user_id="u", sync=True, timezone="Europe/Berlin")])
    run_config = RunConfig(session_settings=SessionSettings(limit=1))
    result = await Runner.run(agent, "x", session=audited, run_config=run_config)
    print(session, base, last, both.name, result.final_output)


async def facts() -> None:
    alice: UserMemory = user_memory(config, "alice", expires_after=timedelta(days=1))
    done = await alice.remember("Alice paints", ["art"])
    memory: Memory = done.memory
    near: list[Memory] = done.similar
    many: list[Memory] = await alice.recall("art", k=3)
    every: list[Memory] = await alice.list(limit=10)
    found: Memory | None = await alice.get(memory.id)
    count: int = await alice.import_(await alice.export()) + await alice.forget_all(purge=True)
    gone: bool = await alice.forget(memory.id)
    print(done.new, near + many + every, found, count, gone, ", ".join(memory.tags))


def tagged(found: Recalled) -> bool:
    return "x" in found.tags and found.metadata["a"] == 1


async def records() -> None:
    async with AsyncWarmBackend(config) as backend:
        ids: list[str] = await backend.remember([Record("t", {"a": 1}, tags=["x"], vector=np.ones(3))])
        ids += await backend.forget(ids) + await backend.forget_where({"a": 1}, predicate=tagged)
        found: list[Recalled] = await backend.recall("t", filter={"a": 1}, predicate=tagged)
        found += await backend.list(limit=3) + await backend.get(ids) + await backend.similar("t")
        await backend.remember([Record(one.text, one.metadata, one.id, tags=one.tags) for one in found])
        shared = UserMemory(backend, "bob")
        await shared.recall("art")
    print(await reembed(config, progress=print, batch=10))


def blocking() -> None:
    with WarmBackend(config) as backend:
        ids: list[str] = backend.remember([Record("t", {"a": 1, "b": {"c": [1, None]}})])
        found: list[Recalled] = backend.recall("t", 3, predicate=lambda one: one.score > 0.5)
        first: Recalled = (found + backend.get(ids) + backend.list(predicate=tagged))[0]
        memories: list[Memory] = backend.run(lambda inner: UserMemory(inner, "alice").list())
        print(first.text.upper(), memories, backend.config.url)


async def log() -> None:
    paged = AsyncPagedLog("a", config)
    await paged.append(["one", "two"])
    texts: list[str] = await paged.newest(2)
    newest: str | None = await paged.pop()
    print(texts, newest)


try:
    asyncio.run(conversations())
except ItemError as error:
    print(error)
except WarmError as error:
    code: str = error.code
    status: int | None = error.status
    print(code, status, error.detail, error.request_id)
