"""What the embedded store holds in memory for its rankings is what is in the file."""

from __future__ import annotations

import random
import sqlite3
import tracemalloc
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from warm_integrations.core import WarmConfig
from warm_integrations.core.embedder import HashingEmbedder
from warm_integrations.core.stores.interface import (
    Delete,
    Document,
    Hit,
    Nearest,
    Put,
    Recall,
    Transaction,
    single,
)
from warm_integrations.core.stores.ranking import Candidates
from warm_integrations.core.stores.sqlite.connections import submit
from warm_integrations.core.stores.sqlite.search import candidates_for
from warm_integrations.core.stores.sqlite.store import SqliteStore

WORDS = "tea coffee water clock paint river garden piano lamp stone cloud bread letter window"
ADA = {"user": "ada"}
embed = HashingEmbedder(dim=32)


def store_at(path: Path, timeout: float = 30.0) -> SqliteStore:
    """Stores with different time-outs have connections of their own, as other processes do."""
    return SqliteStore(WarmConfig(url=f"sqlite:///{path}", embedder=embed, timeout=timeout))


def note(id: str, text: str, user: str = "ada") -> Document:
    return Document(id, text=text, vector=embed.embed_query(text), metadata={"user": user, "kind": "note"})


async def ask(store: SqliteStore, text: str, k: int = 20) -> tuple[list[Hit], list[Hit]]:
    vector = embed.embed_query(text)
    nearest: list[Hit] = await store.read(single(Nearest(vector, k, ADA)))
    recalled: list[Hit] = await store.read(single(Recall(text, k, {**ADA, "kind": "note"}, vector)))
    return nearest, recalled


def ids(hits: list[Hit]) -> list[str]:
    return [hit.id for hit in hits]


@pytest.fixture
def fresh_timeouts() -> Iterator[float]:
    return iter(float(100 + n) for n in range(10_000))


@pytest.mark.parametrize("seed", range(10))
async def test_a_store_that_has_ranked_before_ranks_like_one_that_has_not(
    tmp_path: Path, fresh_timeouts: Iterator[float], seed: int
) -> None:
    numbers = random.Random(seed)
    path = tmp_path / "warm.db"
    one, other = store_at(path), store_at(path, 29.0)
    known: list[str] = []
    for _ in range(40):
        writer = numbers.choice([one, other])
        match numbers.choice(["put", "put", "put", "change", "delete", "delete many", "another user's"]):
            case "put":
                new = [f"{numbers.random():.9f}" for _ in range(numbers.randint(1, 5))]
                await writer.write(single(Put([note(id, " ".join(numbers.choices(WORDS.split(), k=4))) for id in new])))
                known += new
            case "change" if known:
                await writer.write(
                    single(Put([note(numbers.choice(known), " ".join(numbers.choices(WORDS.split(), k=4)))]))
                )
            case "delete" if known:
                await writer.write(single(Delete([known.pop(numbers.randrange(len(known)))])))
            case "delete many":
                await writer.write(single(Delete(known[::2])))
                del known[::2]
            case "another user's":
                await writer.write(single(Put([note(f"bob {numbers.random()}", "tea", user="bob")])))
        question = " ".join(numbers.choices(WORDS.split(), k=2))
        new_process = store_at(path, next(fresh_timeouts))
        expected = await ask(new_process, question)
        assert await ask(one, question) == expected
        assert set(ids(expected[0])) == set(known) or len(known) > 20


async def test_what_was_rolled_back_is_not_ranked(tmp_path: Path) -> None:
    store = store_at(tmp_path / "warm.db")
    await store.write(single(Put([note("a", "tea")])))

    def interrupted() -> Transaction[None]:
        yield Put([note("b", "coffee")])
        assert ids((yield Nearest(embed.embed_query("coffee"), 5, ADA))) == ["b", "a"]
        raise RuntimeError("interrupted")

    with pytest.raises(RuntimeError):
        await store.write(interrupted())
    await store.write(single(Put([note("c", "water")])))
    nearest, recalled = await ask(store, "coffee")
    assert set(ids(nearest)) == {"a", "c"}
    assert "b" not in ids(recalled)


async def test_a_file_that_was_put_back_in_place_is_read_anew(tmp_path: Path) -> None:
    path = tmp_path / "warm.db"
    store = store_at(path)
    await store.write(single(Put([note("a", "tea")])))
    with closing(sqlite3.connect(path)) as live, closing(sqlite3.connect(tmp_path / "backup.db")) as backup:
        live.backup(backup)
        await store.write(single(Put([note("b", "coffee")])))
        assert set(ids((await ask(store, "coffee"))[0])) == {"a", "b"}
        backup.backup(live)
    await store.write(single(Put([note("c", "water")])))
    assert set(ids((await ask(store, "coffee"))[0])) == {"a", "c"}


async def test_what_is_held_is_bounded_and_the_last_used_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("warm_integrations.core.stores.sqlite.search.MAX_CACHE_BYTES", 10_000)
    store = store_at(tmp_path / "warm.db")
    users = [f"user {n}" for n in range(20)]
    await store.write(single(Put([note(user, "tea", user) for user in users])))

    def cache() -> list[tuple[object, ...]]:
        return submit(store.database_key, lambda db: [(labels, db.cache_bytes) for _, labels, _ in db.cache]).result()

    for user in users:
        assert ids(await store.read(single(Nearest(embed.embed_query("tea"), 5, {"user": user})))) == [user]
    assert 1 < len(cache()) < 10
    assert cache()[-1][0] == ('"user":"user 19"',)
    assert 0 < cache()[0][1] <= 10_000
    for n in range(20):  # those of whom nothing is known take some memory, too
        assert await store.read(single(Nearest(embed.embed_query("tea"), 5, {"user": f"nobody {n}"}))) == []
    assert 1 < len(cache()) <= 10
    await store.write(single(Delete([], purge=True)))
    assert cache() == []


@pytest.mark.parametrize(("dim", "count", "words"), [(384, 3000, 12), (8, 3000, 12), (8, 1000, 200)])
def test_the_bytes_that_are_counted_are_those_that_are_taken(dim: int, count: int, words: int) -> None:
    vector = np.ones(dim, dtype="<f4").tobytes()
    numbers = random.Random(0)
    tracemalloc.start()
    try:
        candidates = Candidates(dim)
        stems = (" ".join(f"w{numbers.randrange(2000)}" for _ in range(words)) for _ in range(count))
        candidates.add([(n, f"{numbers.getrandbits(200):050x}", text, vector) for n, text in enumerate(stems)])
        candidates.matching(["w1"], 10)
        taken = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert 0.5 < candidates.nbytes / taken < 2


async def test_only_what_is_new_is_read_again(tmp_path: Path) -> None:
    store = store_at(tmp_path / "warm.db")
    await store.write(single(Put([note(f"{n:04}", f"tea {n}") for n in range(500)])))
    await ask(store, "tea")

    def rows_read(db: sqlite3.Connection) -> int:
        steps = 0

        def count() -> int:
            nonlocal steps
            steps += 1
            return 0

        db.set_progress_handler(count, 10)  # called at every tenth instruction of SQLite's machine
        try:
            candidates_for(db, 1, ADA, 32)
        finally:
            db.set_progress_handler(None, 0)
        return steps

    def cold(db: sqlite3.Connection) -> int:
        db.cache.clear()
        return rows_read(db)

    first = submit(store.database_key, cold).result()
    again = submit(store.database_key, rows_read).result()
    await store.write(single(Put([note("new", "tea")])))
    after_one_more = submit(store.database_key, rows_read).result()
    assert again * 100 < first
    assert after_one_more * 10 < first
