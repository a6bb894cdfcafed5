"""The models of the chat: a real one over HTTP, and which one is chosen."""

from __future__ import annotations

import pytest
from agents import OpenAIChatCompletionsModel, OpenAIResponsesModel

from demo.openai_server import OpenAIServer
from engine import SENT_ITEMS, Engine
from models import choose_model
from rules import OFFLINE, RuleModel
from transcript import Call, Message
from warm_integrations.core import WarmConfig


@pytest.fixture
def engine(openai_server: OpenAIServer, tmp_path):
    engine = Engine(WarmConfig(url=f"sqlite:///{tmp_path}/warm.db"), choose_model()[0])
    yield engine
    engine.close()


def say(engine: Engine, text: str, id: str | None = None) -> tuple[str, str]:
    id = engine.call(engine.send("ada", id, text))
    turn = engine.turn(id)
    if turn:
        list(turn.follow())
    return id, turn.error if turn else ""


def test_the_environment_chooses(monkeypatch):
    model, name = choose_model()
    assert isinstance(model, RuleModel)
    assert name == OFFLINE

    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    model, name = choose_model()
    assert isinstance(model, OpenAIResponsesModel)
    assert name == model.model != ""
    monkeypatch.setenv("OPENAI_MODEL", "gpt-large")
    assert choose_model()[1] == "gpt-large"

    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:1/v1")
    assert isinstance(choose_model()[0], OpenAIChatCompletionsModel)
    monkeypatch.delenv("OPENAI_API_KEY")
    assert isinstance(choose_model()[0], OpenAIChatCompletionsModel)


def test_a_real_model_sees_the_history(engine, openai_server):
    id, error = say(engine, "My name is Ada")
    assert not error
    say(engine, "Who am I?", id)
    texts = [message.text for message in engine.call(engine.conversations.messages(id))]
    assert texts == ["My name is Ada", "You asked: My name is Ada", "Who am I?", "You asked: Who am I?"]

    body, key = openai_server.requests[-1]
    assert (body["model"], body["stream"], key) == ("tiny", True, "sk-secret")
    system, *history = body["messages"]
    assert system["role"] == "system"
    assert [message["role"] for message in history] == ["user", "assistant", "user"]


def test_a_real_model_sees_what_was_cut_short(engine, openai_server):
    id = engine.call(engine.send("ada", None, "one two three " * 100))
    turn = engine.turn(id)
    for parts in turn.follow():
        if parts and "three" in parts[0]:
            break
    engine.call(engine.stop(id))
    say(engine, "go on", id)
    assert openai_server.requests[-1][0]["messages"][2] == {"role": "assistant", "content": turn.parts[0]}


def test_a_real_model_uses_the_tools(engine, openai_server):
    id, error = say(engine, 'use remember {"text": "I like tea", "tags": ["drink"]}')
    assert not error
    _, answer = engine.call(engine.conversations.messages(id))
    call, text = answer.parts
    assert isinstance(call, Call)
    assert (call.name, call.failed) == ("remember", False)
    assert text == "The tool answered."
    conversations = engine.call(engine.conversations.list("ada"))
    [known] = engine.call(engine.memories.list("ada", conversations))
    assert (known.text, known.tags, known.reason.message) == ("I like tea", ("drink",), 0)
    assert conversations[0].figures(1)["read"] == 2 * 7  # two requests
    assert conversations[0].figures(1)["written"] == 2 * 3

    first, second = (body for body, _ in openai_server.requests)
    assert {tool["function"]["name"] for tool in first["tools"]} == {"remember", "recall", "forget", "list_memories"}
    assert [message["role"] for message in second["messages"]] == ["system", "user", "assistant", "tool"]
    say(engine, "hello", id)  # what tools found earlier is not sent again
    later = openai_server.requests[-1][0]["messages"]
    assert [message["role"] for message in later] == ["system", "user", "assistant", "user"]


def test_only_the_newest_items_reach_the_model(engine, openai_server):
    id, _ = say(engine, "hello")
    items = [{"role": ("user", "assistant")[n % 2], "content": f"message {n}"} for n in range(2 * SENT_ITEMS)]
    engine.call(engine.conversations.session(id).add_items(items))
    say(engine, "go on", id)
    assert len(openai_server.requests[-1][0]["messages"]) == 1 + SENT_ITEMS + 1
    assert len(engine.call(engine.conversations.messages(id))) == 2 + 2 * SENT_ITEMS + 2


@pytest.mark.parametrize(
    ("message", "step"),
    [
        ("status 401", "set OPENAI_API_KEY"),
        ("status 403", "set OPENAI_API_KEY"),
        ("status 404", "set OPENAI_MODEL"),
        ("status 400", "go on in a new chat"),
        ("status 429", "wait a minute"),
        ("quota", "add credit"),
        ("status 500", "try again in a moment"),
        ("break", "try again"),
    ],
)
def test_failures_are_plain_sentences_and_can_be_tried_again(engine, openai_server, message, step):
    id, error = say(engine, message)
    assert step in error
    assert "unexpected" not in error
    assert "sk-secret" not in error
    assert error.endswith(".")
    kept = [Message("assistant", ("You asked:",), complete=False)] if message == "break" else []
    assert engine.call(engine.conversations.messages(id)) == [Message("user", (message,)), *kept]

    openai_server.well = True
    engine.call(engine.retry("ada", id))
    list(engine.turn(id).follow())
    expected = [Message("user", (message,)), Message("assistant", (f"You asked: {message}",))]
    assert engine.call(engine.conversations.messages(id)) == expected


def test_a_server_that_is_not_there(monkeypatch, tmp_path):
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:1/v1")
    model, _ = choose_model()
    model._client.max_retries = 0
    engine = Engine(WarmConfig(url=f"sqlite:///{tmp_path}/warm.db"), model)
    _, error = say(engine, "hello")
    assert error == "The model's server cannot be reached: check OPENAI_BASE_URL and the network, then try again."
    engine.close()
