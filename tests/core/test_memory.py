"""What is remembered of a user: once, for that user alone, listed, exported, expired and erased."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import uuid
from datetime import datetime, timedelta, timezone

import pytest
from remains import files_holding, new_marker

from local_server import LocalServer
from warm_integrations.core import AsyncWarmBackend, UserMemory, WarmConfig, WarmError, memory, user_memory
from warm_integrations.core.connection import connect
from warm_integrations.core.memory import memory_id
from warm_integrations.core.stores.interface import Scan, single

START = datetime(2026, 1, 31, 12, 0, 0, 250, tzinfo=timezone.utc)


@pytest.fixture
def clock(monkeypatch):
    """The time as memory sees it: `clock.now` may be set."""

    class Clock(datetime):
        at = START

        @classmethod
        def now(cls, tz=None):
            return cls.at.astimezone(tz)

    monkeypatch.setattr(memory, "datetime", Clock)
    return Clock


@pytest.fixture
def alice(config):
    return user_memory(config, "alice")


@pytest.fixture
def bob(config):
    return user_memory(config, "bob")


async def texts(user):
    return sorted(one.text for one in await user.list())


async def rows(config):
    """The metadata of every record of the tenant that has an owner."""
    found = await connect(config).read(single(Scan("", 1000)))
    return [row.metadata for row in found if "user_id" in (row.metadata or {})]


async def test_a_memory_has_its_text_tags_and_time(alice, clock):
    done = await alice.remember("Alice likes tea.", ["drink", "taste"])
    assert done.new
    assert done.similar == []
    assert (done.memory.id, done.memory.text) == (memory_id("Alice likes tea."), "Alice likes tea.")
    assert (done.memory.created_at, done.memory.expires_at) == (START, None)
    for found in (await alice.get(done.memory.id), *await alice.list(), *await alice.recall("tea")):
        assert (found.id, found.text, found.created_at, found.expires_at) == (
            done.memory.id,
            "Alice likes tea.",
            START,
            None,
        )
        assert sorted(found.tags) == ["drink", "taste"]
    assert [one.score > 0 for one in await alice.recall("tea")] == [True]


async def test_another_object_and_another_process_see_the_same(config, alice):
    await alice.remember("Alice likes tea.")
    assert await texts(user_memory(config, "alice")) == ["Alice likes tea."]
    program = (
        "import asyncio, sys\nfrom warm_integrations.core import WarmConfig, user_memory\n"
        "memory = user_memory(WarmConfig(url=sys.argv[1], tenant_id=sys.argv[2]), 'alice')\n"
        "print([one.text for one in asyncio.run(memory.list())])\n"
        "print(asyncio.run(memory.remember('Alice likes cake.')).new)"
    )
    command = [sys.executable, "-c", program, config.url, config.tenant_id]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == "['Alice likes tea.']\nTrue\n"
    assert await texts(alice) == ["Alice likes cake.", "Alice likes tea."]


@pytest.mark.parametrize("user_id", ["", None, 5, b"alice", ["alice"]])
def test_a_user_id_that_is_empty_or_not_text_is_refused(user_id):
    with pytest.raises(ValueError, match="user_id"):
        user_memory(WarmConfig(url="sqlite://"), user_id)


@pytest.mark.parametrize("expires_after", [timedelta(0), timedelta(seconds=-1)])
def test_an_expiry_in_the_past_is_refused(expires_after):
    with pytest.raises(ValueError, match="expires_after"):
        user_memory(WarmConfig(url="sqlite://"), "alice", expires_after=expires_after)


@pytest.mark.parametrize("user_id", ["alice\ud800", "a" * 100_000], ids=["lone surrogate", "very long"])
async def test_an_unusual_user_id_is_refused_at_once_or_works(config, user_id):
    try:
        user = user_memory(config, user_id)
    except ValueError:
        return
    await user.remember("Alice likes tea.")
    assert await texts(user) == ["Alice likes tea."]
    assert await user.forget_all(purge=True) == 1


AGAIN = ["Alice likes tea.", " Alice  likes tea.\n", "Alice\tlikes\u00a0tea.", "Alice\u3000likes\n\ntea. "]


@pytest.mark.parametrize("again", AGAIN, ids=range(len(AGAIN)))
async def test_the_same_text_is_one_memory_with_its_first_time(alice, clock, again):
    first = await alice.remember("Alice likes tea.", ["drink"])
    clock.at = START + timedelta(days=1)
    second = await alice.remember(again)
    assert not second.new
    assert second.similar == []
    assert (second.memory.id, second.memory.created_at) == (first.memory.id, START)
    assert second.memory.text == "Alice likes tea."
    [kept] = await alice.list()
    assert (kept.text, kept.created_at, list(kept.tags)) == ("Alice likes tea.", START, ["drink"])


async def test_the_same_text_in_another_unicode_form_is_one_memory(alice):
    await alice.remember("Caf\u00e9 Zo\u00eb")
    assert not (await alice.remember("Cafe\u0301 Zoe\u0308")).new
    assert (await alice.remember("cafe zoe")).new


async def test_tags_are_added_to_those_known(alice, clock):
    await alice.remember("Alice likes tea.", ["drink"])
    clock.at = START + timedelta(days=1)
    again = await alice.remember("Alice likes tea.", ["taste", "drink", "taste"])
    assert not again.new
    [kept] = await alice.list()
    assert sorted(kept.tags) == ["drink", "taste"]
    assert kept.created_at == START
    assert sorted(again.memory.tags) == ["drink", "taste"]


async def test_a_tag_given_twice_is_one(alice):
    done = await alice.remember("Alice likes tea.", ["a", "a"])
    assert list(done.memory.tags) == ["a"]
    assert [list(one.tags) for one in await alice.list()] == [["a"]]


async def test_writers_at_once_keep_one_memory(config):
    users = [user_memory(config, "alice") for _ in range(10)]
    await asyncio.gather(*[user.remember("Alice likes tea.") for user in users])
    assert await texts(users[0]) == ["Alice likes tea."]


async def test_the_same_text_of_two_users_is_two_memories(config, alice, bob):
    for user in (alice, bob):
        assert (await user.remember("Likes tea.", ["drink"])).new
    assert sorted(row["user_id"] for row in await rows(config)) == ["alice", "bob"]
    [mine] = await alice.list()
    assert await alice.forget(mine.id)
    assert await texts(bob) == ["Likes tea."]
    assert await texts(alice) == []


USERS = [
    "alice",
    "Alice",
    "ALICE",
    "alice ",
    " alice",
    "alice\u0301",
    "alic\u00e9",
    "\uff41lice",
    "alice\0",
    "alice\u200b",
]
USERS += ["alic", "alice/", "alice" * 1000, "alice" * 999 + "alicf", "%", "_lice", "*", "user_id", '{"user": "alice"}']


async def test_user_ids_that_differ_at_all_are_different_users(config):
    users = [user_memory(config, user_id) for user_id in USERS]
    for number, user in enumerate(users):
        assert (await user.remember("The same secret.")).new
        assert {one.text for one in (await user.remember(f"The secret number {number}.")).similar} <= {
            "The same secret."
        }
    for number, user in enumerate(users):
        expected = [f"The secret number {number}.", "The same secret."]
        assert await texts(user) == sorted(expected)
        assert {one.text for one in await user.recall("secret number", 100)} == set(expected)
        assert json.loads(await user.export())["user_id"] == USERS[number]
    for number, user in enumerate(users):
        assert await user.forget_all() == 2
        assert [len(await other.list()) for other in users[number + 1 :]] == [2] * (len(users) - number - 1)


async def test_collections_and_tenants_are_apart(config, alice):
    await alice.remember("Alice likes tea.")
    for update in ({"collection": "other"}, {"tenant_id": f"test-{uuid.uuid4().hex}"}):
        other = user_memory(config.model_copy(update=update), "alice")
        assert await other.list() == []
        assert await other.recall("tea") == []
        assert await other.forget(memory_id("Alice likes tea.")) is False
        assert await other.forget_all(purge=True) == 0
    assert await texts(alice) == ["Alice likes tea."]


TAGS = [
    "user_id",
    "user",
    "created_at",
    "_warm_x",
    "_warm_tag:x",
    "_warm_collection",
    "_warm_payload",
    "_warm_embedder",
]
TAGS += [
    "id",
    "text",
    "expires_at",
    "a.b",
    "$or",
    "'; DROP TABLE documents; --",
    "é",
    "t" * 64,
    "true",
    "null",
    "hms:x",
]


async def test_hostile_tags_stay_tags(config, alice, bob):
    await bob.remember("Bob likes tea.", ["x"])
    await alice.remember("Alice has no tags.")
    plain = next(row for row in await rows(config) if row["user_id"] == "alice")
    await alice.forget_all()
    await alice.remember("Alice likes tea.", TAGS)
    [found] = await alice.recall("tea")
    assert sorted(found.tags) == sorted(TAGS)
    mine = next(row for row in await rows(config) if row["user_id"] == "alice")
    assert {key for key in mine if not key.startswith("_warm_tag:")} == set(plain)
    assert {key: mine[key] for key in plain if key != "created_at"} == {
        key: value for key, value in plain.items() if key != "created_at"
    }
    assert {key for key in mine if key.startswith("_warm_tag:")} == {f"_warm_tag:{tag}" for tag in TAGS}
    assert [list(one.tags) for one in await bob.list()] == [["x"]]
    assert await texts(bob) == ["Bob likes tea."]
    assert sorted((await user_memory(config, "alice").get(found.id)).tags) == sorted(TAGS)


async def test_hundreds_of_tags_are_kept(alice):
    tags = [f"tag number {number}" for number in range(500)]
    await alice.remember("Alice likes tea.", tags)
    [found] = await alice.list()
    assert sorted(found.tags) == sorted(tags)


BAD_TAGS = {
    "65 characters": ["t" * 65],
    "empty": [""],
    "control": ["a\x01"],
    "NUL": ["a\0"],
    "C1 control": ["a\x85"],
    "line break": ["a\n"],
    "bidi": ["a\u202e"],
    "surrogate": ["a\ud800"],
    "a number": [5],
    "none": [None],
    "too many": [f"{number:064}" for number in range(2000)],
    "a text, not a list": "drink",
}


@pytest.mark.parametrize("tags", BAD_TAGS.values(), ids=BAD_TAGS)
@pytest.mark.parametrize("known", [False, True])
async def test_bad_tags_are_refused_and_nothing_is_written(alice, tags, known):
    if known:
        await alice.remember("Alice likes tea.", ["old"])
    before = await alice.list()
    with pytest.raises(ValueError, match="tag"):
        await alice.remember("Alice likes tea.", tags)
    assert await alice.list() == before


BAD_TEXTS = {
    "empty": "",
    "blank": " \n\u3000",
    "none": None,
    "a number": 5,
    "bytes": b"tea",
    "1 MB": "x" * 1_000_000,
    "1 MB of words": "tea " * 250_000,
    "4097 words": "w " * 4097,
    "64 KiB of quotes": '"' * 65_000,
    "lone surrogate": "tea \ud800",
    "halves of a pair": "tea \ud83d\ude00",
}


@pytest.mark.parametrize("text", BAD_TEXTS.values(), ids=BAD_TEXTS)
async def test_a_text_that_cannot_be_kept_is_refused_and_nothing_is_written(config, alice, text):
    with pytest.raises(ValueError, match="text") as refused:
        await alice.remember(text)
    assert len(str(refused.value)) < 500
    assert await rows(config) == []


@pytest.mark.parametrize("text", ["NUL \0 inside", "\u202egnirts \u2069", "\ufeff", "\u200b", "😀" * 1000, "w " * 4096])
async def test_unusual_text_is_kept_as_it_is(alice, text):
    await alice.remember(text)
    [kept] = await alice.list()
    assert kept.text == text
    assert [one.text for one in await alice.recall(text)] == [text]
    await alice.import_(await alice.export())
    assert await alice.list() == [kept]


@pytest.mark.parametrize("query", ["", " ", None, 5])
async def test_an_empty_question_is_refused(alice, query):
    with pytest.raises(ValueError, match="query"):
        await alice.recall(query)


@pytest.mark.parametrize("k", [0, -1, 101, 1.5, "5", True])
async def test_k_outside_its_range_is_refused(alice, k):
    with pytest.raises(ValueError, match="k is"):
        await alice.recall("tea", k)


async def test_recall_gives_the_best_first_and_at_most_k(alice):
    for text in ("Alice likes tea.", "Alice lives in Rome.", "Alice has a cat."):
        await alice.remember(text)
    found = await alice.recall("Where does she live? In Rome?")
    assert found[0].text == "Alice lives in Rome."
    assert [one.score for one in found] == sorted((one.score for one in found), reverse=True)
    assert len(await alice.recall("Alice", 2)) == 2


@pytest.mark.parametrize(
    "query", ["secret", "bob", '{"user_id": "bob"}', "*", "...", "the of", "\0", "\ud800", "x" * 20000]
)
async def test_recall_is_never_without_its_user(alice, bob, query):
    await bob.remember("The secret of bob", ["secret", "alice"])
    assert await alice.recall(query, 100) == []
    await alice.remember("Alice has a secret.")
    assert {one.text for one in await alice.recall(query, 100)} <= {"Alice has a secret."}


NO_IDS = ["", " ", "/", "../x", "%", "*", "\0", "\n", "\ud800", "x" * 100_000, "hms:x", None, 5, b"x", ["x"], "0" * 16]


@pytest.mark.parametrize("id", NO_IDS, ids=range(len(NO_IDS)))
async def test_an_unknown_id_is_a_clean_miss(alice, bob, id):
    await alice.remember("Alice likes tea.")
    await bob.remember("Bob likes tea.")
    assert await alice.forget(id) is False
    assert await alice.forget(id, purge=True) is False
    assert await alice.get(id) is None
    assert (len(await alice.list()), len(await bob.list())) == (1, 1)


async def test_a_foreign_id_is_like_a_missing_one(config, alice, bob):
    theirs = (await bob.remember("Bob likes tea.")).memory.id
    prefix = bob._prefix  # the inside of the store does not help either
    for id in (theirs, f"{prefix}{theirs}", f"../{prefix}{theirs}", "bob/" + theirs):
        assert await alice.forget(id) is False
        assert await alice.get(id) is None
    assert await texts(bob) == ["Bob likes tea."]


async def test_forgetting_twice_succeeds_once(alice):
    kept = (await alice.remember("Alice likes tea.")).memory.id
    assert await alice.forget(kept) is True
    assert await alice.forget(kept) is False
    assert (await alice.remember("Alice likes tea.")).new


async def test_similar_memories_and_contradictions_come_back(alice, bob):
    await bob.remember("Alice loves hiking in the Alps")
    await alice.remember("Alice loves hiking in the Alps")
    await alice.remember("The cat is called Tom")
    done = await alice.remember("Alice hates hiking in the Alps")
    assert [one.text for one in done.similar] == ["Alice loves hiking in the Alps"]
    assert 0.6 <= done.similar[0].score <= 1
    assert (await alice.remember("The capital of France is Paris")).similar == []


async def test_at_most_three_similar_ones_come_back_nearest_first(alice):
    for number in range(6):
        await alice.remember(f"Alice loves hiking in the Alps, she says for the time {number}")
    done = await alice.remember("Alice loves hiking in the Alps, she says for the time 9")
    assert len(done.similar) == 3
    assert [one.score for one in done.similar] == sorted((one.score for one in done.similar), reverse=True)
    assert done.memory.id not in {one.id for one in done.similar}


async def test_a_list_is_complete_and_comes_in_pages(alice, bob):
    exported = {
        "version": 1,
        "user_id": "alice",
        "memories": [
            {"text": f"Fact {n}", "tags": [], "created_at": START.isoformat(), "expires_at": None} for n in range(300)
        ],
    }
    assert await alice.import_(json.dumps(exported)) == 300
    await bob.import_(json.dumps(exported))
    whole = await alice.list()
    assert {one.text for one in whole} == {f"Fact {n}" for n in range(300)}
    assert [one.id for one in whole] == sorted(one.id for one in whole)
    for limit in (1, 49, 50, 51, 100, 299, 300, 301):
        assert await alice.list(limit=limit) == whole[:limit]
    for limit in (40, 100, 150, 300):
        paged = []
        while page := await alice.list(paged[-1].id if paged else "", limit):
            assert len(page) == limit or len(paged) + len(page) == 300
            paged += page
        assert paged == whole
    assert await alice.list(after=whole[-1].id) == []
    assert await alice.list(limit=0) == []
    assert len(json.loads(await alice.export())["memories"]) == 300
    assert await alice.forget_all() == 300
    assert len(await bob.list()) == 300


async def test_more_memories_than_one_page_of_the_store(alice):
    entry = {"tags": ["t"], "created_at": START.isoformat(), "expires_at": None}
    exported = json.dumps({"version": 1, "memories": [{"text": f"Fact {n}", **entry} for n in range(1234)]})
    assert await alice.import_(exported) == 1234
    assert len(await alice.list()) == 1234
    assert await alice.forget_all(purge=True) == 1234
    assert await alice.list() == []


async def test_an_export_is_imported_with_times_and_tags(alice, bob, clock, tmp_path):
    await alice.remember("Alice likes tea.", ["drink", "_warm_x", "é"])
    clock.at = START + timedelta(days=3)
    await alice.remember('Quotes " and \n lines, 水 and 😀')
    whole = await alice.list()
    exported = await alice.export()
    clock.at = START + timedelta(days=9)
    elsewhere = user_memory(WarmConfig(url=f"sqlite:///{tmp_path}/other.db"), "alice")
    for other in (bob, elsewhere, alice):
        assert await other.import_(exported) == 2
        for mine, theirs in zip(whole, await other.list(), strict=True):
            assert (theirs.id, theirs.text, theirs.created_at) == (mine.id, mine.text, mine.created_at)
            assert sorted(theirs.tags) == sorted(mine.tags)
        assert [one.text for one in await other.recall("tea", 1)] == ["Alice likes tea."]
    content = json.loads(exported)
    assert (content["version"], content["user_id"]) == (1, "alice")
    assert {entry["created_at"] for entry in content["memories"]} == {
        START.isoformat(),
        (START + timedelta(days=3)).isoformat(),
    }
    assert await alice.export() == exported
    assert json.loads(await bob.export())["memories"] == content["memories"]


async def test_an_export_of_nothing_is_imported_as_nothing(alice, bob):
    assert await bob.import_(await alice.export()) == 0
    assert await bob.list() == []


async def test_an_expiry_goes_with_an_export(config, bob, clock):
    inline = user_memory(config, "alice", expires_after=timedelta(days=5))
    await inline.remember("Alice is in Rome.")
    await bob.import_(await inline.export())
    assert [one.expires_at for one in await bob.list()] == [START + timedelta(days=5)]
    clock.at = START + timedelta(days=5)
    assert await bob.list() == []


async def test_what_has_no_expiry_is_imported_without_one(config, alice, clock):
    await alice.remember("Alice likes tea.")
    exported = await alice.export()
    clock.at = START + timedelta(days=90)
    inline = user_memory(config, "carol", expires_after=timedelta(days=30))
    assert await inline.import_(exported) == 1
    assert await texts(inline) == ["Alice likes tea."]


async def test_what_an_import_counts_is_what_was_added(alice):
    entry = {"text": "Alice likes tea.", "tags": [], "created_at": START.isoformat(), "expires_at": None}
    again = {**entry, "text": " Alice  likes tea. "}
    assert await alice.import_(json.dumps({"version": 1, "memories": [entry, again]})) == len(await alice.list()) == 1


GOOD = {"text": "Alice likes tea.", "tags": ["drink"], "created_at": START.isoformat(), "expires_at": None}
BROKEN = {
    "not JSON": "{",
    "empty": "",
    "not text": None,
    "a list": json.dumps([GOOD]),
    "null": "null",
    "no memories": {"version": 1},
    "memories null": {"memories": None},
    "memories a text": {"memories": "tea"},
    "memories an object": {"memories": {"a": GOOD}},
    "an unknown version": {"version": 2, "memories": [GOOD]},
    "an entry of text": ["tea"],
    "an entry of null": [None],
    "no text": [{key: value for key, value in GOOD.items() if key != "text"}],
    "no tags": [{key: value for key, value in GOOD.items() if key != "tags"}],
    "no time": [{key: value for key, value in GOOD.items() if key != "created_at"}],
    "text empty": [{**GOOD, "text": " "}],
    "text a number": [{**GOOD, "text": 5}],
    "text too long": [{**GOOD, "text": "x" * 100_000}],
    "text with a lone surrogate": [{**GOOD, "text": "\ud800"}],
    "tags null": [{**GOOD, "tags": None}],
    "tags a text": [{**GOOD, "tags": "drink"}],
    "tags an object": [{**GOOD, "tags": {"user_id": True}}],
    "tags of numbers": [{**GOOD, "tags": [1]}],
    "tag too long": [{**GOOD, "tags": ["t" * 65]}],
    "tags of lists": [{**GOOD, "tags": [["a"]]}],
    "time null": [{**GOOD, "created_at": None}],
    "time a number": [{**GOOD, "created_at": 5}],
    "time a word": [{**GOOD, "created_at": "yesterday"}],
    "time without a zone": [{**GOOD, "created_at": "2026-01-01T00:00:00"}],
    "expiry a word": [{**GOOD, "expires_at": "soon"}],
    "expiry without a zone": [{**GOOD, "expires_at": "2099-01-01T00:00:00"}],
    "nested too deeply": '{"memories": ' + "[" * 200_000 + "]" * 200_000 + "}",
}


@pytest.mark.parametrize("broken", BROKEN.values(), ids=BROKEN)
async def test_a_broken_export_is_refused_with_nothing_written(config, alice, broken):
    if isinstance(broken, list):
        other = {**GOOD, "text": "Alice lives in Rome."}
        broken = {"version": 1, "user_id": "alice", "memories": [other, *broken, {**other, "text": "Last."}]}
    with pytest.raises(ValueError, match=r".") as refused:
        await alice.import_(broken if isinstance(broken, (str, type(None))) else json.dumps(broken))
    assert len(str(refused.value)) < 500
    assert await rows(config) == []
    assert await alice.list() == []


async def test_what_is_wrong_with_an_export_is_said_in_full_but_in_short(alice):
    with pytest.raises(ValueError, match="version 2 is not known; install a newer release"):
        await alice.import_(json.dumps({"version": 2, "memories": []}))
    long = {**GOOD, "created_at": "x" * 100_000}
    with pytest.raises(ValueError, match="isoformat") as caught:
        await alice.import_(json.dumps({"version": 1, "memories": [long]}))
    assert len(str(caught.value)) < 300


async def test_the_user_named_in_an_export_is_not_obeyed(alice, bob):
    await alice.remember("Alice likes tea.")
    await bob.import_(await alice.export())
    assert await bob.forget_all() == 1
    assert await texts(alice) == ["Alice likes tea."]


async def test_forget_all_spares_other_users(alice, bob):
    assert await alice.forget_all() == 0
    for user in (alice, bob):
        for number in range(5):
            await user.remember(f"Fact {number}")
    assert await alice.forget_all(purge=True) == 5
    assert await alice.forget_all(purge=True) == 0
    assert (await alice.list(), await alice.recall("fact")) == ([], [])
    assert len(await bob.list()) == 5
    assert len(await bob.recall("fact")) == 5
    assert (await alice.remember("Fact 1")).new


async def remembered(user, marker):
    await user.remember(f"It says {marker}.", ["marked"])


async def remembered_and_more(user, marker):
    await user.remember(f"It says {marker}.")
    await user.remember("Something else")


async def tagged(user, marker):
    await user.remember("It has a tag.", [marker])


async def given_more_tags(user, marker):
    await user.remember(f"It says {marker}.", ["one"])
    await user.remember(f"It says {marker}.", ["two"])


async def forgotten_before(user, marker):
    await user.remember(f"It says {marker}.")
    assert await user.forget(memory_id(f"It says {marker}."))


async def forgotten_before_with_more_kept(user, marker):
    await user.remember("Something else")
    await forgotten_before(user, marker)


async def all_forgotten_before(user, marker):
    await user.remember(f"It says {marker}.")
    assert await user.forget_all() == 1


async def expired(user, marker):
    inline = UserMemory(user._backend, user.user_id, expires_after=timedelta(milliseconds=1))
    await inline.remember(f"It says {marker}.")
    await asyncio.sleep(0.01)
    assert await user.list() == []


async def expired_and_removed(user, marker):
    await expired(user, marker)
    assert await user.forget_expired() == 1


async def imported(user, marker):
    entry = {"text": f"It says {marker}.", "tags": [marker], "created_at": START.isoformat(), "expires_at": None}
    await user.import_(json.dumps({"version": 1, "memories": [entry]}))


LIVES = [remembered, remembered_and_more, tagged, given_more_tags, imported, expired]
FORGOTTEN = [forgotten_before, forgotten_before_with_more_kept, all_forgotten_before, expired_and_removed]
LIVES += FORGOTTEN


@pytest.mark.parametrize("life", LIVES)
async def test_what_is_purged_is_nowhere_in_the_files(store_kind, life, tmp_path, request):
    marker = new_marker()

    async def erase(config):
        alice, bob = user_memory(config, f"alice {marker}"), user_memory(config, "bob")
        for number in range(20):
            await bob.remember(f"Fact {number}")
        await life(alice, marker)
        await alice.recall(marker)
        assert files_holding(tmp_path, marker) or life in FORGOTTEN  # what a server may have tidied up already
        await alice.forget_all(purge=True)
        assert files_holding(tmp_path, marker) == []
        assert len(await bob.list()) == 20
        assert len(await bob.recall("fact", 20)) == 20
        assert await alice.list() == []

    if store_kind == "embedded":
        return await erase(WarmConfig(url=f"sqlite:///{tmp_path}/warm.db"))
    request.getfixturevalue("warm_server_binary")
    with LocalServer(tmp_path) as server:
        await erase(WarmConfig(url=server.url))
    assert files_holding(tmp_path, marker) == []


async def test_one_memory_can_be_purged(store_kind, tmp_path, request):
    async def erase(config):
        alice, gone, stays = user_memory(config, "alice"), new_marker(), new_marker()
        await alice.remember(f"It says {gone}.")
        await alice.remember(f"It says {stays}.")
        assert files_holding(tmp_path, gone)
        assert await alice.forget(memory_id(f"It says {gone}."), purge=True) is True
        assert files_holding(tmp_path, gone) == []
        assert files_holding(tmp_path, stays)

    if store_kind == "embedded":
        return await erase(WarmConfig(url=f"sqlite:///{tmp_path}/warm.db"))
    request.getfixturevalue("warm_server_binary")
    with LocalServer(tmp_path) as server:
        await erase(WarmConfig(url=server.url))


@pytest.fixture
def inline(config):
    return user_memory(config, "alice", expires_after=timedelta(days=7))


async def test_what_has_expired_is_not_shown_and_is_removed(config, alice, inline, bob, clock):
    await bob.remember("Bob likes tea.")
    done = await inline.remember("Alice is in Rome.")
    assert done.memory.expires_at == START + timedelta(days=7)
    await alice.remember("Alice likes tea.")
    clock.at = START + timedelta(days=7, microseconds=-1)
    assert len(await alice.list()) == 2
    assert await alice.forget_expired() == 0
    clock.at = START + timedelta(days=7)
    for user in (alice, inline):
        assert await texts(user) == ["Alice likes tea."]
        assert [one.text for one in await user.recall("Alice")] == ["Alice likes tea."]
        assert await user.get(done.memory.id) is None
        assert "Rome" not in await user.export()
    assert (await alice.remember("Alice is in Rome today.")).similar == []
    assert len(await rows(config)) == 4
    assert await alice.forget_expired() == 1
    assert await alice.forget_expired() == 0
    assert len(await rows(config)) == 3


async def test_what_has_expired_is_remembered_anew(inline, clock):
    await inline.remember("Alice is in Rome.", ["old"])
    clock.at = later = START + timedelta(days=8)
    done = await inline.remember("Alice is in Rome.", ["new"])
    assert done.new
    assert (done.memory.created_at, done.memory.expires_at) == (later, later + timedelta(days=7))
    assert [(one.created_at, list(one.tags)) for one in await inline.list()] == [(later, ["new"])]


async def test_forget_all_also_removes_what_has_expired(config, inline, clock):
    await inline.remember("Alice is in Rome.")
    clock.at = START + timedelta(days=8)
    await inline.forget_all()
    assert await rows(config) == []


async def test_what_is_said_again_lasts_until_the_later_end(config, alice, inline, clock):
    await inline.remember("Alice is in Rome.", ["city"])
    clock.at = START + timedelta(days=5)
    again = await inline.remember("Alice is in Rome.", ["travel"])
    end = START + timedelta(days=12)
    assert (again.new, again.memory.created_at, again.memory.expires_at) == (False, START, end)
    shorter = user_memory(config, "alice", expires_after=timedelta(hours=1))
    assert (await shorter.remember("Alice is in Rome.")).memory == again.memory
    clock.at = end - timedelta(seconds=1)
    assert await alice.list() == [again.memory]
    for_ever = (await alice.remember("Alice is in Rome.")).memory
    assert (for_ever.expires_at, sorted(for_ever.tags)) == (None, ["city", "travel"])
    assert (await inline.remember("Alice is in Rome.")).memory == for_ever
    clock.at = end + timedelta(days=1000)
    assert await alice.list() == [for_ever]


@pytest.mark.parametrize(("known", "new"), [(7, 9), (9, 7), (7, None), (None, 7), (7, 7)])
@pytest.mark.parametrize("once", [False, True], ids=["of the store", "of the export itself"])
async def test_an_import_keeps_the_later_end(alice, clock, known, new, once):
    def entry(days):
        end = None if days is None else (START + timedelta(days=days)).isoformat()
        return {"text": "Alice is in Rome.", "tags": [], "created_at": START.isoformat(), "expires_at": end}

    for entries in [[entry(known), entry(new)]] if once else [[entry(known)], [entry(new)]]:
        await alice.import_(json.dumps({"version": 1, "memories": entries}))
    latest = None if None in (known, new) else START + timedelta(days=max(known, new))
    assert [one.expires_at for one in await alice.list()] == [latest]


async def test_a_new_tag_does_not_let_what_is_kept_for_ever_expire(alice, inline, clock):
    await alice.remember("Alice likes tea.")
    clock.at = START + timedelta(days=30)
    await inline.remember("Alice likes tea.", ["drink"])
    assert await texts(alice) == ["Alice likes tea."]


async def test_expired_memories_take_no_place_in_a_recall(alice, inline, clock):
    for number in range(5):
        await inline.remember(f"Tea, tea, tea {number}")
    await alice.remember("Alice once drank a cup of tea in a street of Rome.")
    clock.at = START + timedelta(days=7)
    assert len(await alice.recall("tea", 1)) == 1


@pytest.mark.parametrize("many", [120, 3000])
async def test_however_many_have_expired_the_live_one_is_recalled(alice, many):
    now = datetime.now(timezone.utc)
    times = {"created_at": (now - timedelta(days=2)).isoformat(), "expires_at": (now - timedelta(days=1)).isoformat()}
    notes = [{"text": f"Current project: task {number}", "tags": [], **times} for number in range(many)]
    await alice.import_(json.dumps({"version": 1, "memories": notes}))
    live = "Since last week her current work is a project about old bridges, with two colleagues from Turin"
    await alice.remember(live)
    assert [one.text for one in await alice.recall("What is her current project?", 5)] == [live]
    done = await alice.remember("Current work: a project about old bridges, with two colleagues from Turin")
    assert [one.text for one in done.similar] == [live]


async def test_expired_memories_take_no_place_in_a_page(alice, inline, clock):
    for number in range(60):
        await (alice if number % 10 == 0 else inline).remember(f"Fact {number}")
    clock.at = START + timedelta(days=7)
    whole, paged = await alice.list(), []
    assert len(whole) == 6
    while page := await alice.list(paged[-1].id if paged else "", 2):
        assert len(page) == 2
        paged += page
    assert paged == whole


async def test_expired_memories_take_no_place_among_similar_ones(alice, inline, clock):
    for number in range(5):
        await inline.remember(f"Alice loves hiking in the Alps {number}")
    await alice.remember("Alice loves hiking in the high and snowy Alps")
    clock.at = START + timedelta(days=7)
    done = await alice.remember("Alice loves hiking in the Alps")
    assert [one.text for one in done.similar] == ["Alice loves hiking in the high and snowy Alps"]


async def test_an_expiry_beyond_all_time_is_for_ever_or_refused(config):
    try:
        user = user_memory(config, "alice", expires_after=timedelta.max)
    except ValueError:
        return
    await user.remember("Alice likes tea.")
    assert await texts(user) == ["Alice likes tea."]


async def test_a_closed_backend_is_refused(config):
    backend = AsyncWarmBackend(config)
    alice = UserMemory(backend, "alice")
    await backend.close()
    with pytest.raises(RuntimeError, match="closed"):
        await alice.remember("Alice likes tea.")
    with pytest.raises(RuntimeError, match="closed"):
        await alice.list()


async def test_a_store_that_is_down_is_said_to_be():
    alice = user_memory(WarmConfig(url="http://127.0.0.1:9", timeout=0.2, retries=0), "alice")
    for work in (alice.remember("tea"), alice.recall("tea"), alice.list(), alice.forget("x"), alice.forget_all()):
        with pytest.raises(WarmError) as failed:
            await work
        assert failed.value.code == "unreachable"
