"""The list of sessions, what is kept with each, and how a session is deleted."""

from __future__ import annotations

import datetime

import pytest

from warm_integrations.core.stores.interface import Document
from warm_integrations.openai_agents import SessionInfo, WarmSession

LONG = "a long session id / " * 500


def user(text):
    return {"role": "user", "content": text}


async def made(config, *session_ids):
    """Sessions with one item each, in this order."""
    sessions = [WarmSession(session_id, config) for session_id in session_ids]
    for session in sessions:
        await session.add_items([user(session.session_id)])
    return sessions


async def ids(config, *args, **options):
    return [info.id for info in await WarmSession.list(config, *args, **options)]


async def test_the_last_written_comes_first(config):
    a, b, _ = await made(config, "a", "b", "c")
    assert await ids(config) == ["c", "b", "a"]
    await a.add_items([user("again")])
    assert await ids(config) == ["a", "c", "b"]
    await b._atomic_replace_items([user("summary")])
    assert await ids(config) == ["b", "a", "c"]
    await a.get_items()
    await a.pop_item()
    await a.set_metadata({"title": "A"})
    assert await ids(config) == ["b", "a", "c"]


async def test_info_says_when_and_what(config):
    before = datetime.datetime.now(datetime.timezone.utc)
    session = WarmSession("a", config)
    assert await session.info() is None
    await session.add_items([user("1")])
    info = await session.info()
    assert isinstance(info, SessionInfo)
    assert (info.id, info.metadata) == ("a", {})
    assert before <= info.created <= info.updated <= datetime.datetime.now(datetime.timezone.utc)
    await session.set_metadata({"title": "A"})
    assert (await session.info()).metadata == {"title": "A"}
    assert [await session.info()] == await WarmSession.list(config)


async def test_info_is_that_of_one_session(config):
    a, ab, _ = await made(config, "a", "ab", "b")
    assert (await a.info()).id == "a"
    await a.delete()
    assert await a.info() is None
    assert (await ab.info()).id == "ab"


VALUES = [1, 1.0, True, False, 0, "1", None, [1], [1.0], {"a": 1, "b": None}, "", "\ud800", 2**70]


@pytest.mark.parametrize("value", VALUES, ids=repr)
async def test_the_filter_compares_json_values(config, value):
    for number, kept in enumerate(VALUES):
        await WarmSession(str(number), config).set_metadata({"value": kept, "other": number})
    expected = [str(number) for number, kept in enumerate(VALUES) if kept is value]
    assert await ids(config, {"value": value}) == expected
    assert await ids(config, {"value": value, "other": VALUES.index(value)}) in (expected, [])
    assert await ids(config, {"value": value, "other": "no"}) == []


async def test_the_filter_asks_for_top_level_keys_that_are_there(config):
    await WarmSession("nested", config).set_metadata({"a": {"user": "ada"}, "n": None})
    await made(config, "plain")
    assert await ids(config, {"user": "ada"}) == []
    assert await ids(config, {"missing": None}) == []
    assert await ids(config, {"n": None}) == ["nested"]
    assert await ids(config, {"a": {"user": "ada"}}) == ["nested"]
    assert await ids(config, {}) == ["plain", "nested"]
    assert await ids(config, None) == ["plain", "nested"]


async def test_paging_meets_each_session_once(config):
    await made(config, *"abcdefg")
    met, page = [], await WarmSession.list(config, limit=3)
    while page:
        met += [info.id for info in page]
        page = await WarmSession.list(config, limit=3, after=page[-1])
    assert met == list("gfedcba")
    assert await ids(config, limit=0) == []
    assert await ids(config, limit=-1) == []
    with pytest.raises(ValueError, match=r"limit is 1\.5"):
        await ids(config, limit=1.5)
    assert await ids(config, limit=99) == list("gfedcba")


async def test_paging_goes_on_behind_a_session_that_was_deleted(config):
    *_, c, d = await made(config, *"abcd")
    page = await WarmSession.list(config, limit=2)
    await c.delete()
    await d.delete()
    assert await ids(config, after=page[-1]) == ["b", "a"]


async def test_a_filter_and_paging_go_together(config):
    for number in range(6):
        await WarmSession(str(number), config).set_metadata({"even": number % 2 == 0})
    page = await WarmSession.list(config, {"even": True}, limit=2)
    assert [info.id for info in page] == ["4", "2"]
    assert await ids(config, {"even": True}, limit=2, after=page[-1]) == ["0"]


async def test_more_sessions_than_one_page_of_the_store(config):
    sessions = [WarmSession(f"{number}" + "x" * 9000, config) for number in range(350)]
    for session in sessions:
        await session.set_metadata({"number": session.session_id[:3]})
    assert await ids(config) == [session.session_id for session in reversed(sessions)]


@pytest.mark.parametrize("scope", [{"collection": "other"}, {"tenant_id": "other"}, {"collection": "\ud800/" * 999}])
async def test_collections_and_tenants_are_isolated(config, scope):
    if "tenant_id" in scope:
        scope = {"tenant_id": config.tenant_id[::-1]}
    other = config.model_copy(update=scope)
    [here], [there] = await made(config, "s"), await made(other, "s")
    await here.set_metadata({"where": "here"})
    assert (await there.info()).metadata == {}
    assert await there.pop_item() == user("s")
    assert await here.get_items() == [user("s")]
    await there.delete()
    assert await ids(other) == []
    assert await ids(config) == ["s"]


async def test_metadata_may_come_before_the_first_append(config):
    session = WarmSession(LONG, config)
    await session.set_metadata({"title": "New"})
    assert await session.get_items() == []
    created = (await session.info()).created
    await WarmSession(LONG, config).add_items([user("1")])
    info = await session.info()
    assert (info.id, info.created, info.metadata) == (LONG, created, {"title": "New"})


async def test_metadata_takes_the_place_of_what_was_there(config):
    [session] = await made(config, "a")
    await session.set_metadata({"title": "A", "user": "ada"})
    await session.set_metadata({"title": "B"})
    assert (await session.info()).metadata == {"title": "B"}
    await session.set_metadata({})
    assert (await session.info()).metadata == {}
    assert await ids(config, {"title": "B"}) == []


async def test_metadata_comes_back_equal(config):
    [session] = await made(config, "a")
    metadata = {"z": [1, 1.0, None, {"b": "\ud800\0", "a": 2**70}], "": "", "水": True, "a/b": '"'}
    await session.set_metadata(metadata)
    assert repr((await session.info()).metadata) == repr(metadata)


WRONG = {
    "a reserved key": {"_warm_log": 1},
    "any reserved key": {"fine": 1, "_warm_": 1},
    "bytes": {"a": b"b"},
    "NaN": {"a": float("nan")},
    "a date": {"a": [datetime.date(2020, 1, 1)]},
    "a number as key": {1: "a"},
    "a number as inner key": {"a": [{1: "a"}]},
    "no object": ["a"],
    "text": "title",
    "None": None,
    "too large": {"a": "x" * 65_536},
}


@pytest.mark.parametrize("metadata", WRONG.values(), ids=WRONG)
async def test_metadata_that_cannot_be_kept_is_refused_before_anything_is_written(config, records, metadata):
    with pytest.raises(ValueError):  # noqa: PT011  (any kind of it)
        await WarmSession("s", config).set_metadata(metadata)
    assert await records.all() == []
    session = WarmSession("t", config)
    await session.set_metadata({"title": "before"})
    with pytest.raises(ValueError):  # noqa: PT011
        await session.set_metadata(metadata)
    assert (await session.info()).metadata == {"title": "before"}


async def test_large_metadata_is_kept(config):
    session = WarmSession("s", config)
    await session.set_metadata({"a": "x" * 65_000})
    assert (await session.info()).metadata == {"a": "x" * 65_000}


@pytest.mark.parametrize("session_id", ["s", LONG])
async def test_an_object_that_read_nothing_loses_nothing_of_anothers(config, session_id):
    one = WarmSession(session_id, config)
    await one.add_items([user("1")])
    await one.set_metadata({"title": "kept"})
    first = await one.info()
    acts = [
        lambda session: session.add_items([user("2")]),
        lambda session: session.pop_item(),
        lambda session: session._atomic_replace_items([user("summary")]),
        lambda session: session.clear_session(),
    ]
    for act in acts:
        await act(WarmSession(session_id, config))
        info = await one.info()
        assert (info.id, info.created, info.metadata) == (session_id, first.created, {"title": "kept"})
    await WarmSession(session_id, config).set_metadata({"title": "new"})
    await one.add_items([user("3")])
    info = await one.info()
    assert (info.id, info.created, info.metadata) == (session_id, first.created, {"title": "new"})


async def test_clear_keeps_the_entry(config):
    [session] = await made(config, "s")
    await session.set_metadata({"title": "kept"})
    before = await session.info()
    await session.clear_session()
    assert await session.info() == before
    assert await ids(config) == ["s"]
    await session.add_items([user("again")])
    assert (await session.info()).created == before.created


@pytest.mark.parametrize("searchable", [False, True])
async def test_delete_removes_everything(config, records, searchable):
    await made(config, "other")
    before = await records.all()
    session = WarmSession("secret id" + LONG, config, searchable=searchable, chunk_chars=20)
    await session.add_items([user("secret text, longer than one record"), user("secret")])
    await session.set_metadata({"title": "secret title"})
    assert "secret" in str(await records.all())
    await session.delete()
    assert await records.all() == before
    assert await ids(config) == ["other"]
    assert await session.get_items() == []
    await session.delete()


async def test_delete_removes_more_than_one_page_and_one_deletion(config, records):
    session = WarmSession("s", config, chunk_chars=20)
    await session.add_items([user("x" * 180) for _ in range(450)])
    await session.delete()
    assert await records.all() == []


@pytest.mark.parametrize("session_id", ["s", LONG])
async def test_a_session_begins_anew_after_a_deletion(config, session_id):
    one, two = WarmSession(session_id, config), WarmSession(session_id, config)
    await one.add_items([user("1")])
    await one.set_metadata({"title": "old"})
    old = await one.info()
    await two.delete()
    await one.add_items([user("2")])  # by an object that knew it before
    new = await two.info()
    assert (new.id, new.metadata) == (session_id, {})
    assert new.created > old.updated
    await WarmSession(session_id, config).add_items([user("3")])
    assert (await two.info()).created == new.created
    assert await two.get_items() == [user("2"), user("3")]


DAMAGE = ["{bad", "{}", "[]", "null", "3", '"text"', '["s"]', '["s", "x", 1]', f'["s", {10**20}]', "[" * 8000]


@pytest.mark.parametrize("payload", DAMAGE, ids=lambda payload: payload[:14])
async def test_a_damaged_entry_does_not_hide_other_sessions(config, records, payload):
    session, other = await made(config, LONG, "other")
    await session.set_metadata({"title": "A"})
    await other.set_metadata({"title": "A"})
    kept = await records.all(records.place(LONG))
    assert len(kept) >= 4
    for row in (*kept, Document(records.place(LONG) + "unknown"), Document(records.place(LONG))):
        await records.put(Document(row.id, payload))
        assert "other" in await ids(config)
        assert "other" in await ids(config, {"title": "A"})
        await records.put(Document(row.id, row.payload or payload))
    await session.add_items([user("again")])
    assert await WarmSession(LONG, config).get_items() == [user(LONG), user("again")]
    await session.delete()
    assert await ids(config) == ["other"]


@pytest.mark.parametrize("payload", DAMAGE, ids=lambda payload: payload[:14])
async def test_an_append_mends_a_damaged_entry(config, records, payload):
    [session, _] = await made(config, "s", "other")
    await records.put(Document(records.place("s") + "a", payload))
    await session.add_items([user("again")])
    assert await ids(config) == ["s", "other"]


async def test_metadata_set_after_another_object_deleted_the_session_belong_to_a_new_one(config):
    one, other = WarmSession("s", config), WarmSession("s", config)
    await one.add_items([user("before")])
    await other.delete()
    await one.set_metadata({"title": "new"})
    assert await other.info() == await one.info() is not None
    assert (await one.info()).metadata == {"title": "new"}
    assert await ids(config) == ["s"]
