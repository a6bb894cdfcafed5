"""What the best sessions do, and what users of others have reported missing."""

from __future__ import annotations

import asyncio
import datetime
import decimal
import inspect
from contextlib import suppress

import httpx
import pytest
from agents import Agent, Runner
from agents.testing import ScriptedModel, assistant_message, function_call
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from pydantic import BaseModel

from local_server import LocalServer
from warm_integrations.core import WarmConfig, WarmError
from warm_integrations.core.stores.interface import Document
from warm_integrations.openai_agents import ItemError, WarmSession
from warm_integrations.openai_agents.items import item_to_text

embedded = pytest.mark.parametrize("store_kind", ["embedded"], indirect=True)
over_http = pytest.mark.parametrize("store_kind", ["warm-server"], indirect=True)


def user(text):
    return {"role": "user", "content": text}


def users(*texts):
    return [user(str(text)) for text in texts]


# A session from a url


async def test_from_url_is_the_constructor_with_a_configuration_of_that_url(config, monkeypatch):
    monkeypatch.setenv("WARM_TENANT_ID", config.tenant_id)
    options = {"session_settings": {"limit": 1}, "page_size": 7, "chunk_chars": 9, "max_parts": 50, "searchable": True}
    made, short = WarmSession("s", config, **options), WarmSession.from_url("s", url=config.url, **options)
    assert short.config == config
    assert (short.session_settings, short.searchable) == (made.session_settings, made.searchable)
    assert [getattr(short._log, name) for name in ("page_size", "chunk_chars", "max_parts")] == [7, 9, 50]
    await made.add_items(users("first", "tea"))
    assert await short.get_items() == users("tea")
    assert len(await short.search("tea")) == 2


def test_from_url_takes_what_the_constructor_takes():
    constructor, short = (dict(inspect.signature(made).parameters) for made in (WarmSession, WarmSession.from_url))
    del constructor["config"], constructor["store"], short["url"]
    assert short == constructor


def test_from_url_makes_a_session_of_its_own_class_and_refuses_a_wrong_url():
    class Own(WarmSession):
        pass

    assert type(Own.from_url("s", url="sqlite://")) is Own
    with pytest.raises(ValueError, match="WARM_URL") as caught:
        Own.from_url("s", url="http://user:s3cret@host")
    assert "s3cret" not in str(caught.value)


# Appends


@pytest.mark.parametrize("count", [3, 900])
async def test_an_append_is_seen_whole_or_not_at_all(config, count):
    session, reader = WarmSession("s", config), WarmSession("s", config)
    await session.add_items(users("first"))
    seen = set()
    append = asyncio.create_task(session.add_items(users(*range(count))))
    while not append.done():
        seen.add(len(await reader.get_items()))
    assert seen <= {1, 1 + count}
    assert len(await reader.get_items()) == 1 + count


async def test_a_refused_item_leaves_nothing_of_its_append_and_the_next_one_works(config, records):
    session = WarmSession("s", config)
    with pytest.raises(ValueError, match="bytes"):
        await session.add_items([user("a"), user(b"b"), user("c")])
    assert await records.all() == []
    await session.add_items(users("d"))
    assert await session.get_items() == users("d")


@embedded
async def test_a_locked_database_leaves_nothing_and_the_next_append_works(config, held_up):
    session = WarmSession("s", config.model_copy(update={"timeout": 0.2}))
    await session.add_items(users("before"))
    with held_up(), pytest.raises(WarmError) as failure:
        await session.add_items(users(1, 2))
    assert failure.value.code == "locked"
    assert await session.get_items() == users("before")
    await session.add_items(users("after"))
    assert await session.get_items() == users("before", "after")


async def test_a_lost_connection_leaves_nothing_and_the_next_append_works(warm_server_binary, tmp_path):
    with LocalServer(tmp_path) as server:
        session = WarmSession("s", WarmConfig(url=server.url, retries=2))
        await session.add_items(users("before"))
        server.kill()
        with pytest.raises(WarmError) as failure:
            await session.add_items(users(1, 2))
        assert failure.value.code == "unreachable"
        server.start()
        assert await session.get_items() == users("before")
        await session.add_items(users("after"))
        assert await session.get_items() == users("before", "after")


@over_http
async def test_a_write_retried_after_a_time_out_is_stored_once(config, held_up):
    session = WarmSession("s", config.model_copy(update={"timeout": 1}))
    await session.add_items(users("before"))
    with held_up():
        append = asyncio.create_task(session.add_items(users(1, 2)))
        await asyncio.sleep(1.5)  # the first try, and perhaps the second, has been given up
    await append
    assert await WarmSession("s", config).get_items() == users("before", 1, 2)


@over_http
async def test_a_write_still_under_way_is_waited_for_after_a_time_out(config, monkeypatch):
    session, answers = WarmSession("s", config.model_copy(update={"timeout": 5})), []
    send = httpx.AsyncHTTPTransport.handle_async_request
    await session.add_items(users("before"))

    async def lose_then_wait(transport, request):
        answer = await send(transport, request)
        content = await answer.aread()
        answers.append(httpx.Response(answer.status_code, headers=answer.headers, content=content))
        if len(answers) == 1:
            raise httpx.ReadTimeout("lost")
        if len(answers) == 2:
            problem = {"code": "idempotency_in_progress", "detail": "still running"}
            return httpx.Response(409, json=problem, headers={"retry-after": "0"})
        return answers[-1]

    monkeypatch.setattr(httpx.AsyncHTTPTransport, "handle_async_request", lose_then_wait)
    await session.add_items(users(1, 2))
    assert len(answers) == 3
    assert await session.get_items() == users("before", 1, 2)


async def test_a_cancelled_append_is_settled_before_the_cancellation_goes_on(config, held_up):
    session = WarmSession("s", config)
    await session.add_items(users("before"))
    with held_up():
        append = asyncio.create_task(session.add_items(users(1, 2)))
        for _ in range(3):
            await asyncio.sleep(0.05)
            append.cancel()
        await asyncio.sleep(0.05)
        assert not append.done()
    with pytest.raises(asyncio.CancelledError):
        await append
    assert await WarmSession("s", config).get_items() == users("before", 1, 2)


async def test_what_is_seen_after_a_cancellation_stays(config):
    """So a caller who looks before it repeats an append never writes it twice."""
    session = WarmSession("s", config)
    for number in range(30):
        append = asyncio.create_task(session.add_items(users(number, number)))
        for _ in range(number):
            await asyncio.sleep(0)
        append.cancel()
        with suppress(asyncio.CancelledError):
            await append
        if user(str(number)) not in await session.get_items():
            await session.add_items(users(number, number))
    assert await session.get_items() == [user(str(number)) for number in range(30) for _ in range(2)]


async def test_a_cancelled_pop_and_clear_are_settled_too(config, held_up):
    session = WarmSession("s", config)
    for act, left in ((session.pop_item, users(1)), (session.clear_session, [])):
        await session.clear_session()
        await session.add_items(users(1, 2))
        with held_up():
            task = asyncio.create_task(act())
            await asyncio.sleep(0.05)
            task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await session.get_items() == left


async def test_two_writers_lose_nothing(config):
    writers = [WarmSession("s", config) for _ in range(2)]
    await asyncio.gather(*(writers[n % 2].add_items(users(f"{n} a", f"{n} b")) for n in range(40)))
    texts = [item["content"] for item in await WarmSession("s", config).get_items()]
    assert sorted(texts) == sorted(f"{n} {part}" for n in range(40) for part in "ab")
    assert all(first[:-1] == second[:-1] for first, second in zip(texts[::2], texts[1::2], strict=True))


async def test_pops_at_once_return_different_items(config):
    poppers = [WarmSession("s", config) for _ in range(3)]
    await poppers[0].add_items(users(*range(10)))
    popped = await asyncio.gather(*(poppers[n % 3].pop_item() for n in range(12)))
    texts = [item["content"] for item in popped if item]
    assert sorted(texts) == [str(n) for n in range(10)]
    assert popped.count(None) == 2


async def test_what_is_appended_after_a_read_sorts_after_what_was_read(config):
    one, two = WarmSession("s", config), WarmSession("s", config)
    for number in range(10):
        await (one, two)[number % 2].add_items(users(number))
        assert (await (one, two)[(number + 1) % 2].get_items(1)) == users(number)
    assert await one.get_items() == users(*range(10))


async def test_two_identical_messages_are_two_items(config):
    session = WarmSession("s", config)
    await session.add_items(users("hi", "hi"))
    await session.add_items(users("hi"))
    assert await session.get_items() == users("hi", "hi", "hi")


async def test_item_ids_may_repeat(config):
    session = WarmSession("s", config)
    items = [{"id": "__fake_id__", "role": "assistant", "content": str(n)} for n in range(3)]
    await session.add_items(items[:2])
    await session.add_items(items[2:])
    assert await session.get_items() == items
    assert await session.pop_item() == items[2]
    assert await session.get_items() == items[:2]


async def test_items_are_taken_as_they_are_when_the_call_begins(config):
    session, items = WarmSession("s", config), users(1)
    append = session.add_items(items)
    task = asyncio.ensure_future(append)
    await asyncio.sleep(0)
    items[0]["content"] = "changed"
    items.append(user("2"))
    await task
    assert await session.get_items() == users(1)


# Damage


async def damage(records, newest):
    """Damage the newest items of session `s`, one by each of `newest`."""
    heads = [row for row in await records.of_items("s") if "/000." in row.id]
    for row, how in zip(heads, newest, strict=False):
        if how == "head":
            await records.delete(row.id)
        elif how == "part":
            await records.delete(row.id.replace("/000.", "/001."))
        else:
            await records.put(Document(row.id, how, row.metadata or {}))


DAMAGE = ["{bad", "[1]", "null", "", "[" * 8000, '{"n":' + "9" * 5000 + "}", "head", "part"]


@pytest.mark.parametrize("how", DAMAGE, ids=lambda how: how[:8])
async def test_a_damaged_newest_item_is_passed_over_and_counted(config, records, how):
    session = WarmSession("s", config, chunk_chars=30)
    items = [user(f"{number} is longer than one record") for number in range(4)]
    await session.add_items(items)
    await damage(records, [how])
    reader = WarmSession("s", config)
    assert await reader.get_items(2) == items[1:3]
    assert reader.skipped == 1
    assert await reader.get_items() == items[:3]
    assert await session.pop_item() == items[2]
    await session.add_items(users("next"))
    assert await reader.get_items() == [*items[:2], user("next")]
    await session.clear_session()
    assert await records.of_items("s") == []


async def test_many_damaged_items_in_a_row_do_not_end_a_read(config, records):
    session = WarmSession("s", config, page_size=3)
    await session.add_items(users(*range(40)))
    await damage(records, ["{bad"] * 30)
    reader = WarmSession("s", config, page_size=3)
    assert await reader.get_items(2) == users(8, 9)
    assert reader.skipped == 30
    assert await session.pop_item() == user("9")
    await session.add_items(users("next"))
    assert await reader.get_items(2) == users(8, "next")


GARBAGE = ["garbage", "~", "0", "!x", "#x", "#", "g" * 28 + "/ffffffff/000.001", "0" * 28 + "/zzzzzzzz/000.001"]
GARBAGE += ["0" * 28 + "/ffffffff/000.000", "f" * 28 + "/ffffffff/000.001", "7" * 28 + "/ffffffff/xx.yy"]
GARBAGE += ["7" * 28 + "/ffffffff/000.001x", "7" * 28 + "-ffffffff/000.001", " " * 28 + "/ffffffff/000.001"]


@pytest.mark.parametrize("name", GARBAGE)
async def test_a_record_with_a_garbage_id_is_passed_over(config, records, name):
    session = WarmSession("s", config)
    await session.add_items(users(1, 2))
    await records.put(Document(records.prefix("s") + name, '{"role": "garbage"}'))
    reader = WarmSession("s", config)
    assert await reader.get_items() == users(1, 2)
    await reader.add_items(users(3))
    await reader.add_items(users(4))
    assert await WarmSession("s", config).get_items() == users(1, 2, 3, 4)
    assert [info.id for info in await WarmSession.list(config)] == ["s"]
    assert await session.pop_item() == user("4")
    await session.delete()
    assert await records.all() == []


async def test_a_damaged_header_is_passed_over(config, records):
    session = WarmSession("s", config)
    await session.add_items(users(1))
    [header] = [row for row in await records.all(records.prefix("s")) if row.id[33] == "!"]
    await records.put(Document(header.id, "garbage"), Document(records.prefix("s") + "!", "garbage"))
    other = WarmSession("s", config)
    assert await other.get_items() == users(1)
    await other.add_items(users(2))
    assert await session.pop_item() == user("2")
    assert await session.get_items() == users(1)


# Limits


@pytest.mark.parametrize("limit", [0, -1, -100])
async def test_no_items_are_read_without_a_request(limit):
    nowhere = WarmConfig(url="http://127.0.0.1:1", retries=0)
    assert await WarmSession("s", nowhere).get_items(limit) == []
    assert await WarmSession("s", nowhere, session_settings={"limit": limit}).get_items() == []


@pytest.mark.parametrize("page_size", [None, 1, 100])
async def test_a_read_is_never_capped(config, page_size):
    session = WarmSession("s", config, page_size=page_size)
    await session.add_items(users(*range(1500)))
    assert await session.get_items() == users(*range(1500))
    assert await session.get_items(1200) == users(*range(300, 1500))


async def test_clear_removes_more_than_one_page_and_one_deletion(config, records):
    session = WarmSession("s", config, chunk_chars=20, max_parts=100)
    await session.add_items([user("x" * 180) for _ in range(450)])  # 11 records each
    assert len(await records.of_items("s")) > 4096
    await session.clear_session()
    assert await records.of_items("s") == []


async def test_an_append_past_one_batch_is_kept_in_order(config):
    session = WarmSession("s", config)
    items = users(*("x" * 5000 + str(n) for n in range(2500)))
    await session.add_items(items)
    assert await WarmSession("s", config).get_items() == items


# Values

json_text = st.text(st.characters()).map(
    # Two surrogates that make a pair are one character in JSON.
    lambda text: text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | json_text,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(json_text, inner, max_size=4),
    max_leaves=12,
)


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(items=st.lists(st.dictionaries(json_text, json_values, max_size=5), min_size=1, max_size=4))
async def test_whatever_json_says_comes_back_equal(config, items):
    session = WarmSession("s", config, chunk_chars=16, max_parts=100)
    assume(all(len(item_to_text(item)) <= 1600 for item in items))
    await session.add_items(items)
    assert repr(await session.get_items(len(items))) == repr(items)


VALUES = {
    "lone surrogates": ["\ud800", "a\udfff", "\ud800\ud800", "\udc00\ud800"],
    "NUL and controls": ["\0", "a\0b", "\x01\x1f\x7f\x85\u2028\ufeff\uffff"],
    "integers": [2**53 + 1, 2**63, 2**64, -(2**70), 10**400],
    "numbers": [1, 1.0, -0.0, 0.1 + 0.2, 1e308, 5e-324, True, False],
    "nulls": [None, [None, {"a": None, "b": [None]}]],
    "key order": {"z": 1, "a": {"z": 1, "m": 2, "a": 3}, "m": 2},
    "empty": ["", [], {}, [[]], {"": ""}],
    "text like JSON": ['{"a": 1}', "\\u0041", "\\", '"', "</script>", "NaN"],
    "unicode": ["水", "😀", "e\u0301", "é", "\U0010ffff", "مرحبا"],
    "reserved names": {"_warm_payload": 1, "_warm_log": 2, "id": "hms:x"},
}


@pytest.mark.parametrize("value", VALUES.values(), ids=VALUES)
@pytest.mark.parametrize("searchable", [False, True])
async def test_values_come_back_equal(config, value, searchable):
    session = WarmSession("s", config, searchable=searchable)
    item = {"role": "user", "content": value, "more": [value]}
    await session.add_items([item, {}])
    assert repr(await WarmSession("s", config).get_items()) == repr([item, {}])


async def test_two_surrogates_that_make_a_pair_are_kept_or_refused_but_never_changed(config):
    session, item = WarmSession("s", config), user("\ud83d" + "\ude00")
    with suppress(ItemError):
        await session.add_items([item])
    assert await session.get_items() in ([item], [])


async def test_a_deeply_nested_item_is_readable_or_refused(config):
    session, item = WarmSession("s", config), {}
    for _ in range(900):
        item = {"x": item}
    with suppress(ItemError):
        await session.add_items([item])
    await session.add_items(users(1))

    async def deeper(frames):
        return await (deeper(frames - 1) if frames else session.get_items())

    assert (await deeper(200))[-1] == user("1")


class Part(BaseModel):
    text: str
    when: datetime.date = datetime.date(2020, 1, 2)
    unset: str | None = None


async def test_pydantic_models_are_stored_as_their_json_form(config):
    session = WarmSession("s", config)
    message, call = assistant_message("hello"), function_call("f", {"a": 1}, call_id="c")
    part = Part(text="a", when=datetime.date(2021, 3, 4))
    await session.add_items([message, call, {"role": "user", "content": [part, {"deep": [Part(text="b")]}]}])
    assert await session.get_items() == [
        message.model_dump(mode="json", exclude_unset=True),
        call.model_dump(mode="json", exclude_unset=True),
        {"role": "user", "content": [{"text": "a", "when": "2021-03-04"}, {"deep": [{"text": "b"}]}]},
    ]


REFUSED = {
    "bytes": b"bytes",
    "datetime": datetime.datetime(2020, 1, 1),
    "NaN": float("nan"),
    "infinity": float("inf"),
    "minus infinity": float("-inf"),
    "number as key": {1: "a"},
    "None as key": {None: "a"},
    "tuple as key": {("a",): 1},
    "set": {"a"},
    "object": object(),
    "Decimal": decimal.Decimal(1),
    "complex": 1j,
    "class": BaseModel,
}


@pytest.mark.parametrize("value", REFUSED.values(), ids=REFUSED)
@pytest.mark.parametrize("searchable", [False, True])
async def test_what_has_no_json_form_is_refused_before_anything_is_written(config, records, value, searchable):
    session = WarmSession("s", config, searchable=searchable)
    for content in (value, [{"deep": value}]):
        with pytest.raises(ItemError):
            await session.add_items([user("a"), user(content), user("c")])
    assert await records.all() == []


async def test_an_item_that_holds_itself_is_refused(config, records):
    item = user("a")
    item["self"] = item
    with pytest.raises(ItemError):
        await WarmSession("s", config).add_items([item])
    assert await records.all() == []


@pytest.mark.parametrize("item", ["text", 3, None, True, ["a"], [("a", 1)]])
async def test_what_is_no_object_is_refused(config, records, item):
    with pytest.raises(ItemError):
        await WarmSession("s", config).add_items([user("a"), item])
    assert await records.all() == []


# Session ids

IDS = [
    "x",
    "x/",
    "x:messages",
    "x:messages:1",
    "x/!",
    "a/b",
    "../..",
    "it's",
    '"',
    "`",
    "%",
    "_",
    "*",
    "?",
    "x%",
    "[x]",
]
IDS += ["\\", "' OR 1=1 --", " ", "  ", "\n", "\0", "x\0", "X", "é", "e\u0301", "水", "😀", "\ud800", "\udfff"]
IDS += ["hms:x", "_warm_log", "null", "0", "y" * 10_000, "y" * 10_001, "\ud800" * 10_000, '["log"]']


async def test_sessions_with_ids_of_all_kinds_are_isolated(config):
    for number, session_id in enumerate(IDS):
        await WarmSession(session_id, config).add_items(users(number))
    for number, session_id in enumerate(IDS):
        assert await WarmSession(session_id, config).get_items() == users(number)
    assert [info.id for info in await WarmSession.list(config)] == IDS[::-1]
    await WarmSession("x", config).delete()
    await WarmSession("y" * 10_000, config).clear_session()
    assert await WarmSession("x:messages", config).pop_item() == user("2")
    assert await WarmSession("y" * 10_001, config).get_items() == users(IDS.index("y" * 10_001))
    assert {info.id for info in await WarmSession.list(config)} == {*IDS} - {"x"}


async def test_ids_that_differ_in_a_split_surrogate_pair_are_isolated_or_refused(config):
    await WarmSession("😀", config).add_items(users(1))
    with suppress(ValueError):
        assert await WarmSession("\ud83d" + "\ude00", config).get_items() == []


@pytest.mark.parametrize("wrong", ["", None, 3, b"x", ["x"], True])
def test_an_id_that_is_empty_or_not_text_is_refused(wrong):
    with pytest.raises(ValueError, match="session_id"):
        WarmSession(wrong, WarmConfig(url="sqlite://"))


# The end of a session, and before its beginning

CALLS = {
    "get_items": lambda session: session.get_items(),
    "get_items(0)": lambda session: session.get_items(0),
    "add_items": lambda session: session.add_items(users(1)),
    "add_items([])": lambda session: session.add_items([]),
    "pop_item": lambda session: session.pop_item(),
    "clear_session": lambda session: session.clear_session(),
    "replace": lambda session: session._atomic_replace_items([]),
    "search": lambda session: session.search("a"),
    "info": lambda session: session.info(),
    "set_metadata": lambda session: session.set_metadata({}),
    "delete": lambda session: session.delete(),
    "async with": lambda session: session.__aenter__(),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
async def test_a_call_after_close_raises(config, call):
    awaited, not_awaited, left = (WarmSession("s", config, searchable=True) for _ in range(3))
    await awaited.add_items(users(1))
    await awaited.close()
    not_awaited.close()
    async with left as entered:
        assert entered is left
        assert await entered.get_items() == users(1)
    for session in (awaited, not_awaited, left):
        with pytest.raises(RuntimeError, match="closed"):
            await call(session)
    assert await WarmSession("s", config).get_items() == users(1)


async def test_close_may_be_repeated_and_leaves_other_objects_open(config):
    closed, other = WarmSession("s", config), WarmSession("s", config)
    await closed.add_items(users(1))
    await closed.close()
    await closed.close()
    assert await other.get_items() == users(1)
    with pytest.raises(KeyError):
        async with other:
            raise KeyError
    with pytest.raises(RuntimeError, match="closed"):
        await other.get_items()


async def test_nothing_is_created_before_the_first_item(config, records):
    session = WarmSession("s", config)
    await session.add_items([])
    await session.clear_session()
    assert await session.pop_item() is None
    assert await session.get_items() == []
    assert await session.info() is None
    await session.delete()
    assert await WarmSession.list(config) == []
    assert await records.all() == []


async def test_an_append_keeps_the_creation_time(config):
    session = WarmSession("s", config)
    await session.add_items(users(1))
    first = await session.info()
    await session.add_items(users(2))
    second = await session.info()
    await WarmSession("s", config).add_items(users(3))
    third = await session.info()
    await session.pop_item()
    assert first.created == second.created == third.created == (await session.info()).created
    assert first.created <= first.updated < second.updated < third.updated


async def test_nothing_of_the_stores_own_is_replayed(config):
    session = WarmSession("s", config, searchable=True, chunk_chars=20)
    await session.set_metadata({"title": "secret title"})
    model = ScriptedModel([[assistant_message("one")], [assistant_message("two")]])
    for text in ("hi", "there"):
        await Runner.run(Agent(name="assistant", model=model), text, session=session)
    assert "_warm" not in str(model.calls[1].input)
    assert "secret" not in str(model.calls[1].input)
    first, answer, second = model.calls[1].input
    assert (first, second) == (user("hi"), user("there"))
    assert answer == assistant_message("one").model_dump(exclude_unset=True)


async def test_no_key_is_shown(tmp_path):
    config = WarmConfig(url="http://127.0.0.1:1", api_key="hidden", zero_trust_key="hidden", retries=0)
    session = WarmSession("s", config)
    with pytest.raises(WarmError) as failure:
        await session.add_items(users(1))
    assert "hidden" not in repr(session) + str(failure.value) + repr(failure.value) + repr(session.config)


@over_http
async def test_a_read_during_an_outage_says_so(config, monkeypatch):
    async def invalid_request(*args, **options):
        raise httpx.ConnectError("refused")

    session = WarmSession("s", config.model_copy(update={"retries": 1}))
    await session.add_items(users(1))
    monkeypatch.setattr(httpx.AsyncHTTPTransport, "handle_async_request", invalid_request)
    with pytest.raises(WarmError, match="WARM_URL"):
        await session.get_items()
