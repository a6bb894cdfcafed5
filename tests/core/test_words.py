"""What was kept is found in whatever way it is typed, on both stores, in every script of the table in words.ipynb."""

from __future__ import annotations

import ast
import asyncio
import gzip
import json
import os
import re
import sqlite3
import tracemalloc
import uuid
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import pytest

from warm_integrations.core import AsyncWarmBackend, HashingEmbedder, Record, WarmConfig, WarmError
from warm_integrations.core.connection import connect
from warm_integrations.core.embedder import _word_vector
from warm_integrations.core.masking import _cache, mask_matrix
from warm_integrations.core.reembedding import reembed
from warm_integrations.core.stores.interface import Document, Put, Recall, single
from warm_integrations.core.stores.ranking import Candidates
from warm_integrations.core.words import MAX_WORD_CHARS, joined, question_words, stem, words

ROOT = Path(__file__).parents[2]


def table() -> dict[str, tuple[str, list[str]]]:
    """What words.ipynb shows, so that there is one table."""
    cells = json.loads((ROOT / "nbs/core/words.ipynb").read_text("utf-8"))["cells"]
    [source] = [text for text in ("".join(cell["source"]) for cell in cells) if text.startswith("FORMS = ")]
    forms: dict[str, tuple[str, list[str]]] = ast.literal_eval(source.removeprefix("FORMS = "))
    return forms


FORMS = table()
OTHERS = [
    "She repairs old clocks",
    "C is a letter, A is one, and so are O and B",
    "in 1999, or on 2026-07-12 and 07.12.2026, room 24",
    "ข่าววันนี้",
    "有一只猫",
    "犬が走る",
    "나는 책을 읽는다",
    "वह सितार बजाती है",
    "هذا بيت كبير",
    "זה בית גדול",
    "Это дом",
]


async def best(config: WarmConfig, texts: Sequence[str], question: str, vectors: bool) -> str:
    """The text that a question finds first, by its words alone or with their vectors."""
    store, tenant = connect(config), {"scope": "all"}
    embed = config.embedder.embed_query
    await store.write(
        single(Put([Document(f"{n:02}", text, tenant, text, embed(text)) for n, text in enumerate(texts)]))
    )
    hits = await store.read(single(Recall(question, 3, tenant, embed(question) if vectors else None)))
    return hits[0].payload if hits else ""


@pytest.mark.parametrize("name", FORMS)
async def test_a_text_is_found_in_every_form(config: WarmConfig, name: str) -> None:
    kept, questions = FORMS[name]
    for question in questions:
        assert await best(config, [*OTHERS, kept], question, vectors=False) == kept, question
        assert await best(config, [*OTHERS, kept], question, vectors=True) == kept, question


DIFFERENT = {  # a question, what it asks for, and what is nearly the same
    "C++": ("she writes C++", "she writes C"),
    "O-": ("blood group O-", "blood group O+"),
    "2026-12-07": ("the dentist on 2026-12-07", "the dentist on 2026-07-12"),
    "7/12/2026": ("the dentist on 7/12/2026", "the dentist on 12/7/2026"),
    "ข้าว": ("ข้าว", "ขาว"),
    "की": ("की", "के"),
    "1000": ("it cost 1,000 crowns", "it cost 2,000 crowns"),
}


@pytest.mark.parametrize("question", DIFFERENT)
async def test_signs_and_marks_tell_texts_apart(config: WarmConfig, question: str) -> None:
    wanted, other = DIFFERENT[question]
    for texts in ([wanted, other], [other, wanted]):
        assert await best(config, texts, question, vectors=False) == wanted


@pytest.mark.parametrize("name", FORMS)
def test_a_server_gets_words_that_it_does_not_cut(name: str) -> None:
    for text in (FORMS[name][0], *FORMS[name][1]):
        sent = joined(words(text), 10_000)
        assert len(sent.split(",")) == len(words(text))
        assert not re.search(r"[^\w,]|_", sent)
        assert len(set(sent.split(","))) == len(set(words(text)))


@pytest.mark.parametrize("text", ["漢字かな交じり文" * 2500, "é " * 4096, "a+ " * 4096, "ﷺ" * 20_000, "x" * 65_536])
async def test_the_longest_texts_are_taken(config: WarmConfig, text: str) -> None:
    text = text.encode()[:65_536].decode("utf-8", "ignore").strip()
    backend = AsyncWarmBackend(config)
    [id] = await backend.remember([Record(text[:15_000])])
    await connect(config).write(single(Put([Document("d", text=text, metadata={"k": 1})])))
    assert [found.id for found in await backend.recall(text, 1)] == [id]


async def test_many_long_texts_without_blanks_fit_their_batches(config: WarmConfig) -> None:
    texts = [f"{number} " + "漢字かな交じり文の長い話" * 400 for number in range(400)]
    ids = await AsyncWarmBackend(config).remember([Record(text) for text in texts])
    assert len(set(ids)) == 400


@pytest.mark.parametrize("text", ["🙂", "...", "\ud800"])
async def test_a_question_without_words_is_answered(config: WarmConfig, text: str) -> None:
    backend = AsyncWarmBackend(config)
    await backend.remember([Record("tea")])
    assert len(await backend.recall(text, 1)) <= 1


@pytest.mark.parametrize("text", ["x" * 65, "ab" * 30_000, "deadbeef" * 100, "iVBORw0KGgo/AAAA+NSUhEUg" * 50])
def test_what_nobody_typed_is_no_word(text: str) -> None:
    assert words(f"a {text} z") == ["a", "z"]
    assert words("x" * MAX_WORD_CHARS) == ["x" * MAX_WORD_CHARS]
    assert question_words("the") == ["the"]


def test_long_words_leave_nothing_in_memory() -> None:
    embedder = HashingEmbedder()
    embedder.embed_query("warm up")
    tracemalloc.start()
    try:
        for _ in range(20):
            embedder.embed_query(os.urandom(30_000).hex())
        taken = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert taken < 1_000_000


def test_the_vectors_of_words_are_bounded_by_bytes() -> None:
    slots, values = _word_vector("x" * MAX_WORD_CHARS, 384)
    most = _word_vector.cache_info().maxsize
    assert most is not None
    assert most * (slots.nbytes + values.nbytes) < 64 * 2**20
    longest = 4 * MAX_WORD_CHARS
    assert (stem.cache_info().maxsize or 10**9) * 3 * longest < 64 * 2**20


def test_rotations_are_bounded_by_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("warm_integrations.core.masking._MAX_CACHE_BYTES", 3 * 64 * 64 * 8)
    for number in range(10):
        mask_matrix(f"key {number}", 64)
    assert len(_cache) == 3
    large = mask_matrix("key", 200)  # alone past the bound
    assert list(_cache.values()) == [large]
    assert mask_matrix("key", 200) is large


def test_what_is_held_for_a_ranking_counts_words_all_different() -> None:
    tracemalloc.start()
    try:
        candidates = Candidates(8)
        texts = (" ".join(os.urandom(12).hex() for _ in range(100)) for _ in range(300))
        candidates.add([(n, str(n), text, None) for n, text in enumerate(texts)])
        unread, taken_unread = candidates.nbytes, tracemalloc.get_traced_memory()[0]
        candidates.matching(["w1"], 10)
        taken = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert 0.5 < unread / taken_unread < 2
    assert 0.5 < candidates.nbytes / taken < 2


class Letters:
    """The embedder of tests/data/schema-2.sqlite.gz."""

    name, revision, dim = "letters", "1", 26

    def embed_documents(self, texts: Sequence[str]) -> list[list[float]]:
        return [self.embed_query(text) for text in texts]

    def embed_query(self, text: str) -> list[float]:
        return [0.01 + text.lower().count(chr(97 + n)) for n in range(26)]


TEXTS = ["Ada lives in Malmö", "Ada writes C++ and likes tea", "أُخْتُ آدا اسْمُهَا لَيْلَى", "我的姐姐住在上海"]
ASKED = ["malmo", "C++", "ليلى", "上海"]


@pytest.fixture
def older(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """A file of schema 2: TEXTS in the collections "letters" and "hashing" (revision 2, 26 dimensions), and a session.

    It was written by the version before schema 3: `AsyncWarmBackend.remember` of each text in both collections,
    `WarmSession("talk").add_items` of one message, `VACUUM INTO` another file, and gzip.
    """
    request.node.user_properties.append(("store", "embedded"))
    path = tmp_path / "warm.db"
    path.write_bytes(gzip.decompress((ROOT / "tests/data/schema-2.sqlite.gz").read_bytes()))
    return path


def everything_but_stems(path: Path) -> list[object]:
    with closing(sqlite3.connect(path)) as db:
        ranked = db.execute("SELECT key, tenant, id, text, vector FROM ranked ORDER BY key").fetchall()
        return [ranked, *(db.execute(f"SELECT * FROM {t}").fetchall() for t in ("documents", "labels", "tenants"))]


async def test_a_file_of_schema_2_is_carried_over(older: Path) -> None:
    before = everything_but_stems(older)
    config = WarmConfig(url=f"sqlite:///{older}", embedder=Letters(), collection="letters")
    backend = AsyncWarmBackend(config)
    for text, question in zip(TEXTS, ASKED, strict=True):
        assert [found.text for found in await backend.recall(question, 1)] == [text]
    assert everything_but_stems(older) == before
    with closing(sqlite3.connect(older)) as db:
        assert db.execute("PRAGMA user_version").fetchone() == (3,)
    await backend.remember([Record("new")])
    assert len(await backend.list()) == len(TEXTS) + 1


async def test_a_file_of_schema_2_is_carried_over_once_by_many(older: Path) -> None:
    configs = [
        WarmConfig(url=f"sqlite:///{older}", embedder=Letters(), collection="letters", timeout=20 + n) for n in range(8)
    ]  # each with a connection of its own
    found = await asyncio.gather(*(AsyncWarmBackend(config).recall("上海", 1) for config in configs))
    assert [[one.text for one in records] for records in found] == [[TEXTS[3]]] * 8


async def test_vectors_of_the_older_embedder_are_made_anew(older: Path) -> None:
    config = WarmConfig(url=f"sqlite:///{older}", embedder=HashingEmbedder(26), collection="hashing")
    with pytest.raises(WarmError, match=r"hashing/2/26.*hashing/3/26.*reembed"):
        await AsyncWarmBackend(config).recall("tea")
    assert await reembed(config) == len(TEXTS)
    for text, question in zip(TEXTS, ASKED, strict=True):
        assert [found.text for found in await AsyncWarmBackend(config).recall(question, 1)] == [text]


async def test_both_stores_score_words_of_all_scripts_alike(
    request: pytest.FixtureRequest, warm_server: object, tmp_path: Path
) -> None:
    request.node.user_properties.append(("store", "warm-server"))
    urls = (f"sqlite:///{tmp_path}/warm.db", warm_server.url)  # type: ignore[attr-defined]
    stores = [connect(WarmConfig(url=url, tenant_id=f"words-{uuid.uuid4().hex}")) for url in urls]
    texts = [*OTHERS, *(kept for kept, _ in FORMS.values())]
    for store in stores:
        await store.write(single(Put([Document(f"{n:02}", "", {"k": 1}, text) for n, text in enumerate(texts)])))
    for question in (question for _, questions in FORMS.values() for question in questions):
        one, other = [await store.read(single(Recall(question, 10, {"k": 1}))) for store in stores]
        assert {hit.id: hit.score for hit in one} == pytest.approx({hit.id: hit.score for hit in other}, abs=1e-5)
