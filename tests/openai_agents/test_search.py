"""Search by the words of a session's items."""

from __future__ import annotations

import asyncio
import uuid
from concurrent.futures import ThreadPoolExecutor

import pytest
from agents import Agent, Runner, function_tool
from agents.testing import ScriptedModel, assistant_message, function_call
from proxy import Proxy

from local_server import LocalServer
from warm_integrations.core import HashingEmbedder, WarmConfig, WarmError, reembed
from warm_integrations.core.digests import digest
from warm_integrations.core.embedder import embedder_name
from warm_integrations.core.log.ids import boundary_id
from warm_integrations.core.log.items import Item
from warm_integrations.core.paged import AsyncPagedLog
from warm_integrations.core.stores.interface import Document
from warm_integrations.openai_agents import ItemHit, WarmSession
from warm_integrations.openai_agents.items import item_to_text

TEXTS = ["I want to see the Alps.", "Book a hotel in Lisbon.", "My cat likes tuna."]


def user(text):
    return {"role": "user", "content": text}


async def made(config, session_id="s", texts=TEXTS, **options):
    session = WarmSession(session_id, config, searchable=True, **options)
    await session.add_items([user(text) for text in texts])
    return session


async def found(session, query, k=10):
    return [hit.item["content"] for hit in await session.search(query, k)]


async def test_the_nearest_item_comes_first(config):
    session = await made(config)
    hits = await session.search("hotels in Lisbon")
    assert isinstance(hits[0], ItemHit)
    assert hits[0].item == user("Book a hotel in Lisbon.")
    assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)
    assert len(hits) == 3
    assert 0 < hits[0].score <= 1 + 1e-6


async def test_the_items_own_words_give_a_cosine_of_one(config):
    session = await made(config)
    assert (await session.search(TEXTS[2], k=1))[0].score == pytest.approx(1, abs=1e-6)


async def test_another_object_finds_what_was_written(config):
    await made(config)
    assert await found(WarmSession("s", config, searchable=True), "tuna", 1) == TEXTS[2:]


async def test_items_of_many_parts_are_found_whole(config):
    long = "needle " + "hay " * 100
    session = await made(config, texts=["first", long, "last"], chunk_chars=20)
    assert await found(session, "needle hay", 1) == [long]
    assert await found(session, "last", 1) == ["last"]


@pytest.mark.parametrize("text", ["word " * 20_000, "x" * 200_000, "水" * 100_000, "\0" * 20_000, '"' * 60_000])
async def test_items_longer_than_a_store_can_rank_are_kept_and_found(config, text):
    session = await made(config, texts=["needle " + text, "other"])
    assert await session.get_items() == [user("needle " + text), user("other")]
    assert len(await found(session, "needle")) == 2


async def test_an_item_without_words_is_kept_and_not_found(config):
    session = WarmSession("s", config, searchable=True)
    items = [{"role": "user", "content": ""}, {}, {"content": "\ud800"}, {"content": [{"image_url": "x"}]}, user("a")]
    await session.add_items(items)
    assert await session.get_items() == items
    assert [hit.item for hit in await session.search("a")] == [user("a")]


async def test_tool_calls_and_their_outputs_are_found(config):
    @function_tool
    def height(tower: str) -> str:
        """How high a tower is."""
        return "330 metres"

    call = function_call("height", {"tower": "Eiffel"}, call_id="1")
    model = ScriptedModel([[call], [assistant_message("Rather high.")]])
    session = WarmSession("s", config, searchable=True)
    await Runner.run(Agent(name="assistant", model=model, tools=[height]), "How high is it?", session=session)
    for query, kind in (("330 metres", "function_call_output"), ("Eiffel", "function_call"), ("rather", "message")):
        assert (await session.search(query, k=1))[0].item["type"] == kind


async def test_popped_items_are_not_found(config):
    session = await made(config)
    await session.pop_item()
    assert TEXTS[2] not in await found(session, "cat tuna")


async def test_cleared_and_deleted_items_are_not_found(config):
    session = await made(config)
    await session.clear_session()
    assert await found(session, "Lisbon") == []
    await session.add_items([user("new")])
    assert await found(session, "Lisbon") == ["new"]
    await session.delete()
    assert await found(session, "new") == []


async def test_replaced_items_are_not_found_but_what_replaced_them_is(config):
    session = await made(config)
    assert await session._atomic_replace_items([user("They travel to Lisbon.")])
    assert await found(session, "Lisbon") == ["They travel to Lisbon."]


async def test_sessions_collections_and_tenants_are_isolated(config):
    session = await made(config)
    collection = config.model_copy(update={"collection": "other"})
    tenant = config.model_copy(update={"tenant_id": config.tenant_id[::-1]})
    others = [await made(config, "s:2", ["Lisbon"]), await made(collection, "s", ["Lisbon"])]
    others.append(await made(tenant, "s", ["Lisbon"]))
    assert await found(session, "Lisbon", 1) == ["Book a hotel in Lisbon."]
    for other in others:
        assert await found(other, "Lisbon") == ["Lisbon"]
    assert await found(WarmSession("never written", config, searchable=True), "Lisbon") == []


async def test_only_items_of_a_searchable_object_are_found(config):
    session = await made(config)
    await WarmSession("s", config).add_items([user("A hotel in Porto.")])
    assert sorted(await found(session, "hotel")) == sorted(TEXTS)
    assert len(await session.get_items()) == 4


async def test_k_is_the_most_that_are_found(config):
    session = await made(config, texts=[f"word {number}" for number in range(150)])
    assert len(await session.search("word")) == 10
    assert await found(session, "word 7", 1) == ["word 7"]
    assert len(await session.search("word", 100)) == 100


@pytest.mark.parametrize("k", [0, -1, 101, True, 1.5, "3", None])
async def test_k_outside_its_limits_is_refused(config, k):
    session = await made(config)
    with pytest.raises(ValueError, match="k is"):
        await session.search("word", k)


@pytest.mark.parametrize("query", ["", " \n", None, 3, b"x"])
async def test_a_query_that_is_empty_or_not_text_is_refused(config, query):
    session = await made(config)
    with pytest.raises(ValueError, match="query"):
        await session.search(query)


@pytest.mark.parametrize("query", ["\0", "\ud800", "水", '"; DROP', "?", "x" * 100_000])
async def test_a_query_may_be_any_text(config, query):
    assert len(await (await made(config)).search(query)) == 3


async def test_a_session_that_is_not_searchable_says_so(config):
    session = WarmSession("s", config)
    await session.add_items([user("a")])
    with pytest.raises(ValueError, match="searchable=True"):
        await session.search("a")


async def test_a_damaged_item_is_passed_over_and_counted(config, records):
    session = await made(config, chunk_chars=20)
    newest, part, *_ = await records.of_items("s")
    vector = HashingEmbedder().embed_query("My cat likes tuna.").tolist()
    await records.put(Document(newest.id, "{bad", newest.metadata, "My cat likes tuna.", vector))
    assert sorted(await found(session, "cat")) == sorted(TEXTS[:2])
    assert session.skipped == 1
    await records.delete(part.id)
    assert sorted(await found(session, "cat")) == sorted(TEXTS[:2])


@pytest.mark.parametrize("many", [120, 3000])
@pytest.mark.parametrize("parts", [1, 3])
async def test_however_many_items_are_damaged_the_good_one_is_found(config, records, many, parts):
    if parts > 1:
        many //= 10
    log = AsyncPagedLog("s", config, chunk_chars=40)
    session = await made(config, texts=["A hotel far from Lisbon, I think, with a view of the river"])
    vector, labels = HashingEmbedder().embed_query("hotels in Lisbon"), (await records.of_items("s"))[0].metadata
    bad = ["{bad" + " " * 40 * (parts - 1)] * many
    await log.append([Item(text, "hotels in Lisbon", vector, labels) for text in bad])
    await session.add_items([user("Nothing at all")])
    texts = ["A hotel far from Lisbon, I think, with a view of the river", "Nothing at all"]
    assert await found(session, "hotels in Lisbon", 1) == texts[:1]
    assert session.skipped == many
    assert await found(session, "hotels in Lisbon", 5) == texts


async def test_however_many_items_are_hidden_the_others_are_found(config, records):
    """An interrupted replace leaves what it replaced behind a boundary."""
    session = await made(config, texts=["hotels in Lisbon"] * 130)
    prefix, [newest, *_] = records.prefix("s"), await records.of_items("s")
    name = newest.id.removeprefix(prefix)
    await session.add_items([user("A hotel far from Lisbon")])
    await records.put(Document(boundary_id(prefix, name[:28], 0), name[:37]))
    assert await found(WarmSession("s", config, searchable=True), "hotels in Lisbon") == ["A hotel far from Lisbon"]


async def test_requests_of_a_search(warm_server, request):
    request.node.user_properties.append(("store", "warm-server"))
    async with Proxy(warm_server.url) as proxy:
        config = WarmConfig(url=proxy.url, tenant_id=f"proxied-{uuid.uuid4().hex}")
        session = await made(config, texts=[f"word {n}" for n in range(20)])
        proxy.reset()
        assert len(await session.search("word", 5)) == 5
        assert proxy.calls == ["GET documents", "POST query"]
        proxy.reset()
        assert len(await session.search("word", 100)) == 20
        assert proxy.calls == ["GET documents", "POST query"]


class Letters:
    """An embedder that counts letters."""

    dim = 384
    name = "letters"
    revision = "7"

    def embed_documents(self, texts):
        return [self.embed_query(text) for text in texts]

    def embed_query(self, text):
        return [1 + text.count(chr(code)) for code in range(self.dim)]


async def test_vectors_of_two_embedders_are_never_compared(config):
    await made(config)
    session = WarmSession("s", config.model_copy(update={"embedder": Letters()}), searchable=True)
    with pytest.raises(WarmError) as failure:
        await session.search("Lisbon")
    assert failure.value.code == "other_embedder"
    assert "letters/7/384" in str(failure.value)
    assert "hashing/3/384" in str(failure.value)
    await session.add_items([user("Letters")])
    for mixed in (session, WarmSession("s", config, searchable=True)):  # either would find a part
        with pytest.raises(WarmError, match="other_embedder"):
            await mixed.search("Lisbon")
    assert await session._atomic_replace_items([user("Written anew")])
    assert await found(session, "Lisbon") == ["Written anew"]


async def test_another_workers_embedder_is_noticed_by_one_that_has_searched_before(config):
    here = await made(config, texts=[f"word {number}" for number in range(150)])
    there = WarmSession("s", config.model_copy(update={"embedder": Letters()}), searchable=True)
    assert len(await here.search("word")) == 10
    await there.add_items([user("one more word")])
    with pytest.raises(WarmError, match=r"letters/7/384.*hashing/3/384") as failure:
        await here.search("word")
    assert failure.value.code == "other_embedder"
    assert await there.pop_item() == user("one more word")
    assert len(await here.search("word")) == 10
    await here.clear_session()
    await there.add_items([user("one more word")])
    assert await found(there, "word") == ["one more word"]


async def test_an_embedder_of_a_log_that_another_object_deleted_is_noticed(config):
    here = await made(config)
    await WarmSession("s", config).delete()
    await here.add_items([user("Lisbon again")])  # over HTTP without a header
    there = WarmSession("s", config.model_copy(update={"embedder": Letters()}), searchable=True)
    with pytest.raises(WarmError, match="other_embedder"):
        await there.search("Lisbon")


async def test_another_masking_key_is_another_embedder(config):
    await made(config)
    session = WarmSession("s", masked(config, "key"), searchable=True)
    with pytest.raises(WarmError) as failure:
        await session.search("Lisbon")
    assert failure.value.code == "other_embedder"
    assert "key" not in str(failure.value).replace("_key", "")


def masked(config, key):
    return WarmConfig(url=config.url, tenant_id=config.tenant_id, zero_trust_key=key)


async def test_masked_vectors_are_others_but_find_the_same(config, records):
    plain, hidden = await made(config, "plain"), await made(masked(config, "key"), "hidden")
    query = HashingEmbedder().embed_query("Lisbon")
    assert await records.cosine(query, "plain") > 0.3
    assert await records.cosine(query, "hidden") < 0.3
    one, two = [await session.search("Lisbon") for session in (plain, hidden)]
    assert [hit.item for hit in one] == [hit.item for hit in two]
    assert [hit.score for hit in one] == pytest.approx([hit.score for hit in two], abs=1e-6)


async def test_a_large_append_fits_the_requests_of_a_server(warm_server_binary, tmp_path):
    """Vectors are a large part of a request: 1000 of 1536 numbers alone exceed what the server takes."""
    config = {"embedder": HashingEmbedder(1536), "zero_trust_key": "key"}
    with LocalServer(tmp_path, "--input-dim", "1536") as server:
        session = await made(WarmConfig(url=server.url, **config), texts=[f"word {n}" for n in range(1000)])
        assert len(await session.get_items()) == 1000
        assert await found(session, "word 7", 1) == ["word 7"]


async def test_a_large_append_of_long_items_is_found(config):
    texts = [f"needle{number} " + "word " * 800 for number in range(1000)]
    session = await made(masked(config, "key"), texts=texts)
    assert len(await session.get_items()) == 1000
    assert await found(session, "needle700", 1) == [texts[700]]


class Interrupted(Letters):
    """Ends with the third batch."""

    name, calls = "letters", 0

    def embed_documents(self, texts):
        Interrupted.calls += 1
        if Interrupted.calls > 2:
            raise ConnectionError("no more")
        return super().embed_documents(texts)


async def test_reembed_serves_searchable_sessions(config):
    """Interrupted, it goes on, and in between neither embedder misses anything silently."""
    texts = [f"word {number} " + "long " * (3000 if number == 7 else 1) for number in range(30)]
    old = await made(config, texts=texts)
    await made(config, "another")
    changed = config.model_copy(update={"embedder": Letters()})
    new = WarmSession("s", changed, searchable=True)
    Interrupted.calls = 0
    with pytest.raises(ConnectionError):
        await reembed(config.model_copy(update={"embedder": Interrupted()}), batch=20)
    for session in (old, new, WarmSession("s", config, searchable=True)):
        with pytest.raises(WarmError, match="reembed") as failure:
            await session.search("word")
        assert failure.value.code == "other_embedder"
    assert await reembed(changed, batch=20) > 0
    assert await reembed(changed) == 0
    assert len(await new.search("word", 100)) == 30
    assert await new.get_items() == await old.get_items() == [user(text) for text in texts]
    with pytest.raises(WarmError, match="other_embedder"):
        await old.search("word")
    await old.add_items([user("a late word")])  # by a worker that has not heard of the change
    with pytest.raises(WarmError, match="other_embedder"):
        await new.search("word")
    assert await reembed(changed) == 1
    assert len(await new.search("word", 100)) == 31


@pytest.mark.parametrize("parts", [1, 2])
async def test_names_of_the_version_before_are_never_missed(config, parts):
    """It wrote a slash after the embedder's name where there was no mask."""
    log = AsyncPagedLog("s", config, chunk_chars=8000 // parts)
    name = f"{embedder_name(config.embedder)}/"
    labels = {"_warm_log": digest("log", config.collection, "s"), "_warm_embedder": name}
    text = item_to_text(user("They travel to Lisbon. " * 250))
    [vector] = config.embedder.embed_documents([text])
    await log.append([Item(text, "They travel to Lisbon.", vector, labels)])
    session = WarmSession("s", config, searchable=True)
    with pytest.raises(WarmError, match="other_embedder"):
        await session.search("Lisbon")
    assert await reembed(config) == 1
    assert len(await session.search("Lisbon")) == 1


async def test_reembed_does_not_bring_back_a_session_that_was_deleted_meanwhile(config):
    class Meanwhile(Letters):
        def embed_documents(self, texts):
            with ThreadPoolExecutor(1) as pool:
                pool.submit(lambda: asyncio.run(WarmSession("s", config).delete())).result(60)
            return super().embed_documents(texts)

    await made(config)
    await reembed(config.model_copy(update={"embedder": Meanwhile()}))
    assert await WarmSession("s", config).get_items() == []
    assert await WarmSession.list(config) == []
