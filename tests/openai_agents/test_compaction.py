"""A summary takes the place of a session's items at one moment; the SDK's own wrappers around a session."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest
from agents import Agent, Runner
from agents.memory import OpenAIResponsesCompactionSession
from agents.testing import ScriptedModel, assistant_message

from observed import ObservedStore  # tests/observed.py
from warm_integrations.core import WarmError, connect
from warm_integrations.core.stores.interface import Delete
from warm_integrations.openai_agents import WarmSession


def user(text):
    return {"role": "user", "content": text}


def users(*texts):
    return [user(str(text)) for text in texts]


async def made(config, *texts, **options):
    session = WarmSession("s", config, **options)
    await session.add_items(users(*texts))
    return session


class Client:
    """An OpenAI client whose compaction gives `output`."""

    def __init__(self, output):
        self.output, self.inputs, self.responses = output, [], self

    async def compact(self, **arguments):
        self.inputs.append(arguments.get("input"))
        return SimpleNamespace(output=self.output, usage=None)


def compacting(session, output, **options):
    return OpenAIResponsesCompactionSession("s", session, client=Client(output), **options)


def never(*args, **options):
    raise AssertionError("the replacement is not one step")


@pytest.mark.parametrize("replacement", [[], ["summary"], range(60)])
@pytest.mark.parametrize("chunk_chars", [8000, 20])
async def test_replaces_all_that_was_there(config, records, replacement, chunk_chars):
    session = await made(config, *range(120), chunk_chars=chunk_chars)
    assert await session._atomic_replace_items(users(*replacement)) is True
    assert await session.get_items() == users(*replacement)
    assert await WarmSession("s", config).get_items(2) == users(*replacement)[-2:]
    await session.add_items(users("next"))
    assert await WarmSession("s", config).get_items() == users(*replacement, "next")
    assert len(await records.of_items("s")) == (len(replacement) + 1) * (1 if chunk_chars == 8000 else 2)


async def test_replaces_in_a_session_that_was_never_written(config):
    session = WarmSession("s", config)
    assert await session._atomic_replace_items(users("summary"))
    assert await WarmSession("s", config).get_items() == users("summary")
    assert [info.id for info in await WarmSession.list(config)] == ["s"]


async def test_a_replacement_that_is_refused_changes_nothing(config):
    session = await made(config, 1, 2, chunk_chars=50, max_parts=2)
    for wrong in (b"bytes", "x" * 200):
        with pytest.raises(ValueError, match=r"item|characters"):
            await session._atomic_replace_items([user("summary"), user(wrong)])
    assert await session.get_items() == users(1, 2)


async def test_old_and_new_are_never_seen_together(config):
    session, reader = await made(config, *range(150)), WarmSession("s", config)
    await reader.get_items()
    replacement = asyncio.create_task(session._atomic_replace_items(users("summary", "more")))
    seen = []
    while not replacement.done():
        seen.append(await reader.get_items())
    assert await replacement
    assert all(items in (users(*range(150)), users("summary", "more")) for items in seen)
    assert await reader.get_items() == users("summary", "more")


@pytest.mark.parametrize("store_kind", ["warm-server"], indirect=True)
@pytest.mark.parametrize("items", [users("new"), None], ids=["replaced", "cleared"])
async def test_a_read_of_many_pages_is_whole_when_all_is_replaced_meanwhile(config, items):
    session, commands = await made(config, *range(60)), []

    async def change_between_pages(command):
        commands.append(command)
        if len(commands) == 2:
            await (session._atomic_replace_items(items) if items else session.clear_session())

    reader = WarmSession("s", config, store=ObservedStore(connect(config), change_between_pages))
    seen = await reader.get_items()
    assert len(commands) > 2
    assert seen in (users(*range(60)), await WarmSession("s", config).get_items())


async def test_an_interrupted_replacement_has_happened_or_not(config, records):
    """The connection is lost, or the disk fails, when the old items are to be deleted."""
    await made(config, *range(10))
    other = WarmSession("s", config)
    await other.add_items(users(10))

    def refuse_deletes(command):
        if isinstance(command, Delete):
            raise WarmError("unreachable", "no connection")

    failing = WarmSession("s", config, store=ObservedStore(connect(config), refuse_deletes))
    if config.scheme == "sqlite":
        with pytest.raises(WarmError):
            await failing._atomic_replace_items(users("summary"))
    else:
        assert await failing._atomic_replace_items(users("summary"))
    left = users(*range(11)) if config.scheme == "sqlite" else users("summary")
    assert await WarmSession("s", config).get_items() == left
    assert await WarmSession("s", config).get_items(3) == left[-3:]
    await other.add_items(users("meanwhile"))
    await WarmSession("s", config).add_items(users("next"))
    assert await WarmSession("s", config).get_items() == [*left, *users("meanwhile", "next")]
    assert len(await records.of_items("s")) == len(left) + 2
    assert [await other.pop_item() for _ in range(3)] == [*users("next", "meanwhile"), left[-1]]


async def test_two_replacements_at_once_leave_one_whole(config):
    one, two = await made(config, *range(20)), WarmSession("s", config)
    await asyncio.gather(one._atomic_replace_items(users("one", "one")), two._atomic_replace_items(users("two", "two")))
    left = [item["content"] for item in await WarmSession("s", config).get_items()]
    assert left in (["one", "one"], ["two", "two"], ["one", "one", "two", "two"], ["two", "two", "one", "one"])


async def test_what_was_appended_before_by_others_is_replaced_and_what_comes_after_stays(config):
    session, other = await made(config, 1), WarmSession("s", config)
    await other.add_items(users(2))
    assert await session._atomic_replace_items(users("summary"))
    await other.add_items(users(3))
    assert await session.get_items() == users("summary", 3)
    assert await other._atomic_replace_items(users("second summary"))
    assert await session.get_items() == users("second summary")


@pytest.mark.parametrize("appends", [1, 50])
async def test_a_replacement_of_many_items_and_of_many_appends(config, records, monkeypatch, appends):
    monkeypatch.setattr("warm_integrations.core.log.boundaries.HIDES_PER_RECORD", 20)
    session = WarmSession("s", config)
    for number in range(appends):
        await session.add_items(users(*[number] * (2500 // appends)))
    assert await session._atomic_replace_items(users("summary"))
    assert await session.get_items() == users("summary")
    assert len(await records.of_items("s")) == 1


async def test_a_replacement_past_one_batch(config):
    """Over HTTP it is not made, so that the SDK clears and adds."""
    session = await made(config, 1, 2)
    replaced = await session._atomic_replace_items(users(*range(1200)))
    assert replaced == (config.scheme == "sqlite")
    assert await session.get_items() == (users(*range(1200)) if replaced else users(1, 2))


async def test_the_sdk_compacts_in_one_step(config, monkeypatch):
    monkeypatch.setattr(WarmSession, "clear_session", never)
    session = compacting(await made(config, *range(12)), users("summary"))
    await session.run_compaction({"force": True})
    assert session.client.inputs == [users(*range(12))]
    assert await WarmSession("s", config).get_items() == users("summary")


async def test_the_sdk_compacts_what_exceeds_one_batch(config):
    session = compacting(await made(config, *range(12)), users(*range(1200)))
    await session.run_compaction({"force": True})
    assert await WarmSession("s", config).get_items() == users(*range(1200))


async def test_the_sdk_compacts_a_session_that_gives_fewer_items_by_default(config):
    session = compacting(await made(config, *range(12), session_settings={"limit": 3}), users("summary"))
    await session.run_compaction({"force": True})
    assert await WarmSession("s", config).get_items() == users("summary")


async def test_a_failed_compaction_leaves_the_items(config):
    session = compacting(await made(config, *range(12)), [user(b"no JSON")])
    with pytest.raises(ValueError, match="bytes"):
        await session.run_compaction({"force": True})
    assert await WarmSession("s", config).get_items() == users(*range(12))


async def test_the_runner_compacts_after_a_turn(config, monkeypatch):
    monkeypatch.setattr(WarmSession, "clear_session", never)
    summary = [{"type": "compaction", "encrypted_content": "sealed", "id": "c"}]
    session = compacting(
        WarmSession("s", config),
        summary,
        should_trigger_compaction=lambda context: len(context["session_items"]) >= 4,
    )
    model = ScriptedModel([[assistant_message(str(number))] for number in range(3)])
    for number in range(3):
        await Runner.run(Agent(name="assistant", model=model), f"turn {number}", session=session)
    assert len(session.client.inputs) == 1
    assert model.calls[2].input == [*summary, user("turn 2")]
    kept = await WarmSession("s", config).get_items()
    assert kept[:2] == [*summary, user("turn 2")]
    assert len(kept) == 3


async def test_an_encrypted_session_keeps_no_text_in_clear(config, records):
    pytest.importorskip("cryptography")
    from agents.extensions.memory import EncryptedSession

    model = ScriptedModel([[assistant_message("secret answer")], [assistant_message("two")]])
    for text in ("secret question", "again"):
        session = EncryptedSession("s", WarmSession("s", config), encryption_key="key")
        await Runner.run(Agent(name="assistant", model=model), text, session=session)
    assert model.calls[1].input[0] == user("secret question")
    assert model.calls[1].input[1]["content"][0]["text"] == "secret answer"
    assert "secret" not in str(await records.all())
    assert len(await session.get_items()) == 4
    assert (await session.get_items(2))[0] == user("again")
    assert (await session.pop_item())["content"][0]["text"] == "two"
    await session.clear_session()
    assert await WarmSession("s", config).get_items() == []


async def test_an_encrypted_session_compacts_to_encrypted_items(config, records):
    pytest.importorskip("cryptography")
    from agents.extensions.memory import EncryptedSession

    inner = compacting(WarmSession("s", config), users("secret summary"))
    session = EncryptedSession("s", inner, encryption_key="key")
    await session.add_items(users(*range(12)))
    await session.run_compaction({"force": True})
    assert inner.client.inputs == [users(*range(12))]
    assert await session.get_items() == users("secret summary")
    assert len(await WarmSession("s", config).get_items()) == 1
    assert "secret" not in str(await records.all())
