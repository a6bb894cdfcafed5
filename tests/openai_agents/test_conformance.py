"""What the guide promises of a session, through the SDK's own runner and a scripted model."""

from __future__ import annotations

import asyncio
from contextlib import closing, suppress

import pytest
from agents import (
    Agent,
    AgentsException,
    GuardrailFunctionOutput,
    RunConfig,
    Runner,
    SessionSettings,
    SQLiteSession,
    ToolExecutionConfig,
    function_tool,
    input_guardrail,
    output_guardrail,
)
from agents.memory import Session, SessionABC, is_openai_responses_compaction_aware_session
from agents.testing import ScriptedModel, assistant_message, function_call

from warm_integrations.core import WarmConfig
from warm_integrations.openai_agents import WarmSession
from warm_integrations.openai_agents.items import item_to_text

# run_sync ends the generators of a loop that it goes on to use, and httpx makes some for each request.
httpx_after_run_sync = pytest.mark.filterwarnings("ignore:(?!.*_close_with_loop).*shutdown_asyncgens:ResourceWarning")

SIZES = (49, 50, 51, 100, 101, 230)


def user(text):
    return {"role": "user", "content": text}


def users(count):
    return [user(str(n)) for n in range(count)]


def said(text):
    return [assistant_message(text)]


def agent(*steps, **options):
    return Agent(name="assistant", model=ScriptedModel(steps), **options)


@function_tool
def weather(city: str) -> str:
    """The weather in a city."""
    return f"sunny in {city}"


@input_guardrail
async def no_input(context, agent, input):
    return GuardrailFunctionOutput(None, tripwire_triggered=True)


@output_guardrail
async def no_output(context, agent, output):
    return GuardrailFunctionOutput(None, tripwire_triggered=True)


async def streamed(agent, input, session):
    result = Runner.run_streamed(agent, input, session=session)
    async for _ in result.stream_events():
        pass


def run(agent, input, session):
    asyncio.run(Runner.run(agent, input, session=session))


def run_sync(agent, input, session):
    Runner.run_sync(agent, input, session=session)


def run_streamed(agent, input, session):
    asyncio.run(streamed(agent, input, session))


@httpx_after_run_sync
@pytest.mark.usefixtures("default_loop")
@pytest.mark.parametrize("run", [run, run_sync, run_streamed])
def test_the_second_run_is_given_the_history(config, run):
    ada = agent(said("Hello Ada."), said("You are Ada."))
    run(ada, "I am Ada.", WarmSession("c", config))
    run(ada, "Who am I?", WarmSession("c", config))
    replayed = ada.model.calls[1].input
    assert [item["role"] for item in replayed] == ["user", "assistant", "user"]
    assert replayed[0] == user("I am Ada.")
    assert replayed[1]["content"][0]["text"] == "Hello Ada."
    assert replayed[2] == user("Who am I?")


CONVERSATIONS = {
    "plain": lambda: agent(said("one"), said("two")),
    "tool": lambda: agent([function_call("weather", {"city": "Rome"}, call_id="1")], said("warm"), said("two")),
    "tools at once": lambda: agent(
        [function_call("weather", {"city": city}, call_id=city) for city in ("Rome", "Oslo")], said("ok"), said("two")
    ),
    "an unknown tool": lambda: agent([function_call("nope", {}, call_id="1")], said("two")),
    "model fails": lambda: agent(RuntimeError("no model"), said("two")),
    "input guardrail": lambda: agent(said("one"), said("two"), input_guardrails=[no_input]),
    "output guardrail": lambda: agent(said("one"), said("two"), output_guardrails=[no_output]),
}


@pytest.mark.parametrize("conversation", CONVERSATIONS.values(), ids=CONVERSATIONS)
@pytest.mark.parametrize("run", [Runner.run, streamed], ids=["run", "streamed"])
async def test_keeps_and_replays_what_the_sdks_own_session_does(config, conversation, run):
    outcomes = []
    with closing(SQLiteSession("c")) as theirs:
        for session in (WarmSession("c", config), theirs):
            assistant = conversation().clone(tools=[weather])
            for text in ("hi", "there"):
                with suppress(AgentsException, RuntimeError):
                    await run(assistant, text, session=session)
            outcomes.append((await session.get_items(), [call.input for call in assistant.model.calls]))
    assert outcomes[0] == outcomes[1]
    assert outcomes[0][0]


async def test_items_are_equal_in_a_fresh_object(config):
    assistant = agent([function_call("weather", {"city": "Rome"}, call_id="1")], said("warm"), tools=[weather])
    result = await Runner.run(assistant, "hi", session=WarmSession("c", config))
    assert await WarmSession("c", config).get_items() == result.to_input_list()


async def test_a_tool_call_and_its_output_are_kept(config):
    session = WarmSession("c", config)
    assistant = agent([function_call("weather", {"city": "Rome"}, call_id="call-1")], said("warm"), tools=[weather])
    await Runner.run(assistant, "hi", session=session)
    _, call, output, _ = await session.get_items()
    assert (call["type"], call["call_id"], call["arguments"]) == ("function_call", "call-1", '{"city":"Rome"}')
    assert (output["type"], output["call_id"], output["output"]) == (
        "function_call_output",
        "call-1",
        "sunny in Rome",
    )


@pytest.mark.parametrize("guardrail", [{"input_guardrails": [no_input]}, {"output_guardrails": [no_output]}])
async def test_a_tripped_guardrail_stores_the_user_input_only(config, guardrail):
    session = WarmSession("c", config)
    with pytest.raises(AgentsException):
        await Runner.run(agent(said("no"), **guardrail), "hi", session=session)
    assert await session.get_items() == [user("hi")]


def test_is_a_session(config):
    session = WarmSession("c", config)
    assert isinstance(session, Session)
    assert isinstance(session, SessionABC)
    assert session.session_id == "c"
    assert session.session_settings == SessionSettings()
    assert not is_openai_responses_compaction_aware_session(session)


async def test_limit_gives_the_latest_items_in_order(config):
    session = WarmSession("c", config)
    await session.add_items(users(5))
    assert await session.get_items(2) == users(5)[3:]
    assert await session.get_items(limit=99) == users(5)
    for wrong in (1.5, "2", True):
        with pytest.raises(ValueError, match="limit is"):
            await session.get_items(limit=wrong)
    assert await session.get_items(2147483647) == users(5)


async def test_pop_item_takes_the_latest(config):
    session = WarmSession("c", config)
    await session.add_items(users(2))
    assert [await session.pop_item() for _ in range(3)] == [user("1"), user("0"), None]
    await session.add_items([user("new")])
    assert await session.get_items() == [user("new")]


async def test_clear_session_removes_every_item(config):
    session = WarmSession("c", config)
    await session.add_items(users(3))
    await session.clear_session()
    assert await session.get_items() == []
    assert await session.pop_item() is None
    await session.add_items([user("new")])
    assert await WarmSession("c", config).get_items() == [user("new")]


@pytest.mark.parametrize("settings", [SessionSettings(limit=2), {"limit": 2}], ids=["settings", "dict"])
async def test_settings_limit_is_the_default(config, settings):
    session = WarmSession("c", config, session_settings=settings)
    assert session.session_settings == SessionSettings(limit=2)
    await session.add_items(users(5))
    assert await session.get_items() == users(5)[3:]
    assert await session.get_items(4) == users(5)[1:]
    assert await session.get_items(0) == []


async def test_the_runner_applies_the_limit_of_the_session_and_of_the_run(config):
    session = WarmSession("c", config, session_settings={"limit": 2})
    await session.add_items(users(5))
    assistant = agent(said("one"), said("two"))
    await Runner.run(assistant, "hi", session=session)
    await Runner.run(assistant, "hi", session=session, run_config=RunConfig(session_settings=SessionSettings(limit=1)))
    assert assistant.model.calls[0].input == [user("3"), user("4"), user("hi")]
    assert [item["role"] for item in assistant.model.calls[1].input] == ["assistant", "user"]


async def test_sessions_are_isolated(config):
    one, two = WarmSession("one", config), WarmSession("two", config)
    assistant = agent(said("to one"), said("to two"))
    await Runner.run(assistant, "I am one", session=one)
    await Runner.run(assistant, "I am two", session=two)
    assert assistant.model.calls[1].input == [user("I am two")]
    await one.clear_session()
    assert (await two.get_items())[0] == user("I am two")


async def test_parallel_tool_calls_one_at_a_time_are_all_kept(config):
    session = WarmSession("c", config)
    calls = [function_call("weather", {"city": str(n)}, call_id=str(n)) for n in range(10)]
    one_by_one = RunConfig(tool_execution=ToolExecutionConfig(max_function_tool_concurrency=1))
    await Runner.run(agent(calls, said("ok"), tools=[weather]), "hi", session=session, run_config=one_by_one)
    kept = [item["call_id"] for item in await session.get_items() if "call_id" in item]
    assert sorted(kept) == sorted([str(n) for n in range(10)] * 2)


@pytest.mark.parametrize("page_size", [None, 1, 100])
@pytest.mark.parametrize("size", SIZES)
async def test_sizes_across_page_boundaries(config, size, page_size):
    session = WarmSession("c", config, page_size=page_size)
    await session.add_items(users(size))
    assert await session.get_items() == users(size)
    for limit in (1, *SIZES):
        assert await session.get_items(limit) == users(size)[-limit:]
    assert await session.pop_item() == user(str(size - 1))
    assert await WarmSession("c", config).get_items() == users(size - 1)


@pytest.mark.parametrize("page_size", [1, 2, 7, 50])
async def test_an_item_may_lie_across_pages(config, page_size):
    session = WarmSession("c", config, page_size=page_size, chunk_chars=20)
    items = [user("x" * (n % 90)) for n in range(80)]
    for start in range(0, 80, 16):
        await session.add_items(items[start : start + 16])
    assert await session.get_items() == items
    for limit in (1, 2, 7, 50, 79):
        assert await session.get_items(limit) == items[-limit:]
    assert [await session.pop_item() for _ in range(3)] == items[:-4:-1]


def item_of(characters):
    """An item whose JSON text has so many characters."""
    return {"content": "x" * (characters - len(item_to_text({"content": ""})))}


async def test_exactly_max_parts_are_kept_and_one_more_is_refused(config, records):
    session = WarmSession("c", config, chunk_chars=10, max_parts=5)
    with pytest.raises(ValueError, match="51 characters"):
        await session.add_items([user("fits"), item_of(51), user("fits")])
    assert await records.all() == []
    await session.add_items([item_of(50)])
    assert len(await records.of_items("c")) == 5
    assert await session.get_items() == [item_of(50)]
    assert await session.pop_item() == item_of(50)
    assert await records.of_items("c") == []


@pytest.mark.parametrize("max_parts", [100, 1000])
async def test_the_largest_item_is_kept_and_a_larger_one_refused(config, max_parts):
    config = config.model_copy(update={"max_fetch": max_parts})
    session = WarmSession("c", config, max_parts=max_parts)
    with pytest.raises(ValueError, match=str(8000 * max_parts)):
        await session.add_items([item_of(8000 * max_parts + 1)])
    assert await WarmSession.list(config) == []
    await session.add_items([item_of(8000 * max_parts)])
    assert await session.get_items() == [item_of(8000 * max_parts)]
    assert await session.pop_item() == item_of(8000 * max_parts)


async def test_sizes_are_counted_in_characters(config):
    session = WarmSession("c", config, chunk_chars=10, max_parts=5)
    faces = {"content": "😀" * 36}
    assert len(item_to_text(faces)) == 50
    await session.add_items([faces])
    assert await session.get_items() == [faces]


async def test_an_item_too_large_for_one_batch_is_refused_before_anything_is_written(config, records):
    session = WarmSession("c", config.model_copy(update={"max_fetch": 1000}), max_parts=1000)
    with pytest.raises(ValueError, match="does not fit one batch"):
        await session.add_items([user("small"), user("水" * 7_000_000)])
    assert await records.all() == []


@pytest.mark.parametrize(
    ("name", "wrong"),
    [(name, value) for name in ("page_size", "chunk_chars", "max_parts") for value in (0, -1, 1.5, "5", True)]
    + [("page_size", 101), ("max_parts", 101), ("chunk_chars", 8001)],
)
def test_limits_outside_their_range_are_refused(name, wrong):
    with pytest.raises(ValueError, match=name):
        WarmSession("c", WarmConfig(url="sqlite://"), **{name: wrong})


def test_max_parts_and_page_size_may_be_as_large_as_max_fetch():
    with pytest.raises(ValueError, match="max_parts"):
        WarmSession("c", WarmConfig(url="sqlite://", max_fetch=10))  # the default is 100
    WarmSession("c", WarmConfig(url="sqlite://", max_fetch=10), max_parts=10, page_size=10)
    WarmSession("c", WarmConfig(url="sqlite://", max_fetch=1000), max_parts=1000, page_size=1000, chunk_chars=8000)
