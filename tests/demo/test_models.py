"""The models of the chat: the rules, and a real one over HTTP."""

from __future__ import annotations

import pytest
from agents import Agent, OpenAIChatCompletionsModel, OpenAIResponsesModel, RunConfig, Runner

from demo.openai_server import OpenAIServer
from engine import Engine, Message
from models import OFFLINE, RuleModel, answer, choose_model
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


@pytest.mark.parametrize("question", ["What did I say?", "what have I told you so far", "Tell me what I said"])
def test_rules_remember(question):
    assert answer([question]).startswith("Nothing yet")
    assert answer(["I have a cat.", "It is\ngrey.", question]) == "You said:\n\n- “I have a cat.”\n- “It is grey.”"


def test_rules_count_and_say_what_they_are():
    assert answer(["Please count to 4!"]) == "1 2 3 4"
    assert "only a few rules" in answer(["Hello"])
    assert "message 2" in answer(["Hello", "I say"])


async def test_rules_without_streaming():
    agent = Agent(name="assistant", model=RuleModel())
    result = await Runner.run(agent, "count to 3", run_config=RunConfig(tracing_disabled=True))
    assert result.final_output == "1 2 3"


def test_a_real_model_sees_the_history(engine, openai_server):
    id, error = say(engine, "My name is Ada")
    assert not error
    say(engine, "Who am I?", id)
    texts = [message.text for message in engine.call(engine.messages(id))]
    assert texts == ["My name is Ada", "You asked: My name is Ada", "Who am I?", "You asked: Who am I?"]

    body, key = openai_server.requests[-1]
    assert (body["model"], body["stream"], key) == ("tiny", True, "sk-secret")
    system, *history = body["messages"]
    assert system["role"] == "system"
    assert [message["role"] for message in history] == ["user", "assistant", "user"]


def test_a_real_model_sees_what_was_cut_short(engine, openai_server):
    id = engine.call(engine.send("ada", None, "one two three " * 100))
    turn = engine.turn(id)
    for text in turn.follow():
        if "three" in text:
            break
    engine.call(engine.stop(id))
    say(engine, "go on", id)
    assert openai_server.requests[-1][0]["messages"][2] == {"role": "assistant", "content": turn.answer}


@pytest.mark.parametrize(
    ("message", "step"),
    [
        ("status 401", "set OPENAI_API_KEY"),
        ("status 403", "set OPENAI_API_KEY"),
        ("status 404", "set OPENAI_MODEL"),
        ("status 400", "go on in a new chat"),
        ("status 429", "wait a minute"),
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
    kept = [Message("assistant", "You asked:", complete=False)] if message == "break" else []
    assert engine.call(engine.messages(id)) == [Message("user", message), *kept]

    openai_server.well = True
    engine.call(engine.retry("ada", id))
    list(engine.turn(id).follow())
    expected = [Message("user", message), Message("assistant", f"You asked: {message}")]
    assert engine.call(engine.messages(id)) == expected


def test_a_server_that_is_not_there(monkeypatch, tmp_path):
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:1/v1")
    model, _ = choose_model()
    model._client.max_retries = 0
    engine = Engine(WarmConfig(url=f"sqlite:///{tmp_path}/warm.db"), model)
    _, error = say(engine, "hello")
    assert error == "The model's server cannot be reached: check OPENAI_BASE_URL and the network, then try again."
    engine.close()
