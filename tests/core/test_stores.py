"""Both stores answer alike: items, order, error codes, cosines."""

from __future__ import annotations

import random
import subprocess
import sys
import uuid
from pathlib import Path
from typing import Any

import pytest

from local_server import LocalServer
from warm_integrations.core import WarmConfig, WarmError, ping
from warm_integrations.core.connection import connect
from warm_integrations.core.limits import PAYLOAD
from warm_integrations.core.stores.interface import (
    Command,
    Delete,
    Document,
    Get,
    Nearest,
    Put,
    Recall,
    Scan,
    Store,
    single,
)


def vector(seed: int, dim: int = 384) -> list[float]:
    numbers = random.Random(seed)
    return [numbers.gauss(0, 1) for _ in range(dim)]


@pytest.mark.parametrize(
    ("use", "loaded"),
    [
        ("", set()),
        ('connect(WarmConfig(url="sqlite://"))', {"sqlite3"}),
        ('connect(WarmConfig(url="http://h"))', {"httpx"}),
    ],
)
def test_only_the_store_in_use_is_imported(use: str, loaded: set[str]) -> None:
    code = f"import sys; from warm_integrations.core import WarmConfig, connect; {use or 'pass'}; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert {"sqlite3", "httpx"} & set(done.stdout.split()) == loaded


NOTES = [
    Document("a/1", "payload é \U0001f600 \0", {"user": "alice", "n": 1}, "the cat sat on the mat", vector(1)),
    Document("a/2", "", {"user": "alice", "n": 1.0}, "dogs bark at the cat, loudly", vector(2)),
    Document("a/3", "x", {"user": "bob", "n": True, "deep": {"b": [1, None], "a": "é"}}, "cats and dogs", vector(3)),
    Document("a/4", "no vector", {"user": "alice", "empty": ""}),
    Document("b/ü", "plain"),
]


async def ask(store: Store, step: Command) -> Any:
    """The answer of a store, or the code of its error; rounded, so that answers can be compared."""
    run = store.write if isinstance(step, (Put, Delete)) else store.read
    try:
        answer = await run(single(step))
    except WarmError as error:
        return error.code, error.status
    if isinstance(step, (Nearest, Recall)):
        return [(hit.id, pytest.approx(hit.score, abs=1e-6), hit.payload, hit.metadata) for hit in answer]
    if isinstance(step, Get):
        return [(hit.id, hit.payload, hit.metadata) for hit in answer]
    return answer


@pytest.fixture
def both(warm_server: LocalServer, tmp_path: Path, request: pytest.FixtureRequest) -> tuple[Store, Store]:
    request.node.user_properties.append(("store", "warm-server"))
    tenant = f"both-{uuid.uuid4().hex}"
    urls = (f"sqlite:///{tmp_path}/warm.db", warm_server.url)
    embedded, http = (connect(WarmConfig(url=url, tenant_id=tenant)) for url in urls)
    return embedded, http


STEPS = {
    "scan all": Scan("", 100),
    "scan a prefix": Scan("a/", 100),
    "scan past an id": Scan("a/", 100, "a/2"),
    "scan past an id that is not there": Scan("a/", 1, "a/11"),
    "scan nothing": Scan("zzz", 10),
    "scan a page": Scan("a/", 2),
    "page too small": Scan("", 0),
    "page too large": Scan("", 1001),
    "get": Get(["a/3", "missing", "a/1", "b/ü", "a/4"]),
    "nearest": Nearest(vector(2), 10, {"user": "alice"}),
    "nearest of the constant": Nearest([1.0] + [0.0] * 383, 2, {"user": "alice"}),
    "nearest one": Nearest(vector(3), 1, {"user": "alice"}),
    "nearest, two keys": Nearest(vector(3), 5, {"user": "alice", "n": 1}),
    "one is not one point zero": Nearest(vector(3), 5, {"n": 1.0}),
    "one is not true": Nearest(vector(3), 5, {"n": True}),
    "objects are equal in any order": Nearest(vector(3), 5, {"deep": {"a": "é", "b": [1, None]}}),
    "nearest nobody": Nearest(vector(3), 5, {"user": "carol"}),
    "huge numbers": Nearest([1e308] * 384, 5, {"user": "bob"}),
    "tiny numbers": Nearest([1e-308] * 384, 5, {"user": "bob"}),
    "nearest among": Nearest(vector(3), 5, {"user": "alice"}, ["a/3", "a/1", "b/ü", "missing"]),
    "nearest of two among": Nearest(vector(3), 2, {"user": "alice"}, ["a/1", "a/2", "a/3"]),
    "nearest among a thousand": Nearest(vector(3), 5, {"user": "alice"}, [*(f"x{i}" for i in range(999)), "a/2"]),
    "nearest among none": Nearest(vector(3), 5, {"user": "alice"}, []),
    "nearest among too many": Nearest(vector(3), 5, {"user": "alice"}, [f"x{i}" for i in range(1001)]),
    "k too small": Nearest(vector(1), 0, {"user": "alice"}),
    "vector too short": Nearest(vector(1)[:-1], 5, {"user": "alice"}),
    "vector of zeros": Nearest([0.0] * 384, 5, {"user": "alice"}),
    "no filter": Nearest(vector(1), 5, {}),
    "recall by a word": Recall("cat", 5, {"user": "alice"}),
    "recall by a stem": Recall("Barking CATS", 5, {"user": "alice"}),
    "recall by one of two words": Recall("bark zebra", 5, {"user": "alice"}),
    "recall by a word of nobody": Recall("zebra", 5, {"user": "alice"}),
    "recall by somebody else's word": Recall("mat", 5, {"user": "bob"}),
    "recall in a query language": Recall('cat" OR text:* NEAR(', 5, {"user": "alice"}),
    "recall by word and meaning": Recall("cat", 5, {"user": "alice"}, vector(2)),
    "recall by meaning alone": Recall("", 5, {"user": "alice"}, vector(2)),
    "recall the best": Recall("dogs", 1, {"n": True}, vector(3)),
    "recall without filter": Recall("cat", 5, {}),
    "recall with a vector too short": Recall("cat", 5, {"user": "alice"}, [1.0]),
    "recall more than the candidates": Recall("cat", 5, {"user": "alice"}, candidates=4),
    "recall by a question too long": Recall("x" * 8193, 5, {"user": "alice"}),
    "delete": Delete(["a/1", "missing", "a/1", "b/ü"]),
    "delete nothing": Delete([]),
    "delete a wrong id": Delete(["a\n"]),
    "replace": Put([Document("a/1", "new", {"user": "bob"}, "a mat", vector(9))]),
    "the last of two with one id stays": Put([Document("c", "1"), Document("c", "2")]),
    "empty batch": Put([]),
    "batch too large": Put([Document(f"d{i}") for i in range(1001)]),
    "empty id": Put([Document("")]),
    "id too long": Put([Document("é" * 129)]),
    "id of 256 bytes": Put([Document("é" * 128)]),
    "reserved id": Put([Document("hms:x")]),
    "control character in id": Put([Document("a\x85")]),
    "wrong dimension": Put([Document("d", vector=[1.0, 2.0])]),
    "zero vector": Put([Document("d", vector=[0.0] * 384)]),
    "vector with NaN": Put([Document("d", vector=[float("nan")] * 384)]),
    "metadata just fits": Put([Document("d", metadata={"k": "x" * 65528})]),
    "metadata too large": Put([Document("d", metadata={"k": "x" * 65529})]),
    "payload just fits": Put([Document("d", '"' * ((65536 - len(PAYLOAD) - 7) // 2))]),
    "payload too large": Put([Document("d", '"' * ((65536 - len(PAYLOAD) - 7) // 2 + 1))]),
    "text of 64 KiB": Put([Document("d", text="x" * 65536, vector=vector(4))]),
    "text too large": Put([Document("d", text="x" * 65537, vector=vector(4))]),
    "4096 words": Put([Document("d", text="w " * 4096, vector=vector(4))]),
    "4097 words": Put([Document("d", text="w " * 4097, vector=vector(4))]),
    "lone surrogate": Put([Document("d", metadata={"k": "\ud800"})]),
    "one bad document stops all": Put([Document("good"), Document("bad", vector=[1.0])]),
}


@pytest.mark.parametrize("step", STEPS.values(), ids=STEPS.keys())
async def test_both_stores_answer_alike_and_are_left_alike(both: tuple[Store, Store], step: Command) -> None:
    for store in both:
        await store.write(single(Put(NOTES)))
    embedded, http = both
    assert await ask(embedded, step) == await ask(http, step)
    assert await ask(embedded, Scan("", 100)) == await ask(http, Scan("", 100))
    for name in ("user", "n"):
        everyone = Nearest(vector(5), 100, {name: "alice" if name == "user" else 1})
        assert await ask(embedded, everyone) == await ask(http, everyone)


async def test_a_thousand_documents_in_one_batch(config: WarmConfig) -> None:
    store = connect(config)
    documents = [Document(f"{i:04}", f"payload {i}") for i in range(1000)]
    await store.write(single(Put(documents)))
    rows = await store.read(single(Scan("", 1000)))
    assert [(row.id, row.payload) for row in rows] == [(d.id, d.payload) for d in documents]


async def test_ties_go_by_id(config: WarmConfig) -> None:
    store = connect(config)
    for id in ("z", "a", "m"):
        await store.write(single(Put([Document(id, vector=vector(1), metadata={"k": 1})])))
    for k in (2, 3):
        hits = await store.read(single(Nearest(vector(1), k, {"k": 1})))
        assert [hit.id for hit in hits] == ["a", "m", "z"][:k]


async def test_tenants_do_not_see_each_other(config: WarmConfig) -> None:
    other = connect(config.model_copy(update={"tenant_id": f"{config.tenant_id}-2"}))
    await connect(config).write(single(Put(NOTES)))
    assert await ask(other, Scan("", 100)) == []
    assert await ask(other, Get(["a/1"])) == []
    assert await ask(other, Nearest(vector(1), 5, {"user": "alice"})) == []
    assert await ask(other, Recall("cat", 5, {"user": "alice"}, vector(1))) == []
    assert await ask(other, Delete(["a/1"])) == []
    assert len(await ask(connect(config), Scan("", 100))) == len(NOTES)


async def test_a_deleted_document_is_found_by_nothing(config: WarmConfig) -> None:
    store = connect(config)
    await store.write(single(Put(NOTES)))
    assert await ask(store, Delete(["a/1", "a/2"])) == ["a/1", "a/2"]
    assert [row.id for row in await ask(store, Scan("", 9))] == ["a/3", "a/4", "b/ü"]
    assert await ask(store, Get(["a/1"])) == []
    assert [hit[0] for hit in await ask(store, Nearest(vector(1), 5, {"user": "alice"}))] == ["a/4"]
    assert await ask(store, Recall("cat", 5, {"user": "alice"})) == []


WORDS = [
    "alice",
    "paints",
    "painting",
    "sunset",
    "clock",
    "clocks",
    "lisbon",
    "hotel",
    "the",
    "a",
    "cat's",
    "naïve",
    "2026",
]


async def test_a_hundred_questions_are_ranked_alike(both: tuple[Store, Store]) -> None:
    draw = random.Random(7)
    texts = [" ".join(draw.choices(WORDS, k=draw.randint(1, 12))) for _ in range(150)]
    notes = [Document(f"{i:03}", "", {"user": i % 2}, text, vector(i)) for i, text in enumerate(texts)]
    for store in both:
        await store.write(single(Put(notes)))
    for i in range(100):
        question = Recall(" ".join(draw.choices(WORDS, k=3)), 10, {"user": i % 2}, vector(1000 + i) if i % 3 else None)
        embedded, http = [await store.read(single(question)) for store in both]
        assert [hit.score for hit in embedded] == pytest.approx([hit.score for hit in http], abs=1e-5)
        # where two differ by less than the stores' rounding, either may be first
        clear = [i for i, hit in enumerate(http) if all(abs(hit.score - o.score) > 1e-5 for o in http if o is not hit)]
        assert [embedded[i].id for i in clear[:-1]] == [http[i].id for i in clear[:-1]]


# Whether a store is there


async def test_ping_returns_where_the_store_can_be_read_and_leaves_nothing(config: WarmConfig) -> None:
    await ping(config)
    await connect(config).write(single(Put([Document("a", "1")])))
    await ping(config)
    assert [row.id for row in await connect(config).read(single(Scan("", 10)))] == ["a"]


@pytest.mark.parametrize("use", [ping, lambda config: connect(config).read(single(Scan("a/", 1)))])
async def test_ping_raises_what_a_call_would(use: Any, tmp_path: Path) -> None:
    (tmp_path / "other.db").write_text("a file that is no database, and longer than its header of a hundred bytes" * 9)
    for url, code in {
        "http://127.0.0.1:9": "unreachable",
        f"unix://{tmp_path}/nothing": "unreachable",
        f"sqlite:///{tmp_path}/other.db": "not_a_store",
        f"sqlite:///{tmp_path}/no/folder.db": "cannot_open",
    }.items():
        with pytest.raises(WarmError) as caught:
            await use(WarmConfig(url=url, retries=0))
        assert caught.value.code == code
    assert not (tmp_path / "no").exists()


async def test_ping_notices_a_wrong_key(warm_server_binary: str, tmp_path: Path) -> None:
    with LocalServer(tmp_path, env={"WARM_API_KEY": "right"}) as server:
        await ping(WarmConfig(url=server.url, api_key="right"))
        with pytest.raises(WarmError) as caught:
            await ping(WarmConfig(url=server.url, api_key="wrong"))
    assert caught.value.code == "unauthorized"
