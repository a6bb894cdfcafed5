"""The rules that answer in place of a model."""

from __future__ import annotations

import json

import pytest
from agents import Agent, RunConfig, Runner

from rules import NOT_KNOWN, UNAVAILABLE, Command, RuleModel, next_step
from warm_integrations.core import WarmConfig
from warm_integrations.openai_agents import memory_tools


def said(*texts: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": text} for text in texts]


def called(tool: str, output: object) -> list[dict[str, str]]:
    """The items of a tool's call and of its answer."""
    call = {"type": "function_call", "call_id": tool, "name": tool, "arguments": "{}"}
    return [call, {"type": "function_call_output", "call_id": tool, "output": json.dumps(output)}]


@pytest.mark.parametrize("question", ["What did I say?", "what have I told you so far", "Tell me what I said"])
def test_what_was_said_is_repeated(question):
    assert next_step(said(question)).startswith("Nothing yet")
    repeated = "You said:\n\n- “I have a cat.”\n- “It is grey.”"
    assert next_step(said("I have a cat.", "It is\ngrey.", question)) == repeated


def test_counting_and_anything_else():
    assert next_step(said("Please count to 4!")) == "1 2 3 4"
    assert "only a few rules" in next_step(said("Hello"))
    assert "message 2" in next_step(said("Hello", "I say"))


@pytest.mark.parametrize(
    ("text", "step"),
    [
        ("Remember that I like tea", Command("remember", {"text": "I like tea", "tags": []})),
        (
            "please remember: Rex is a  dog #pet",
            Command("remember", {"text": "Rex is a dog", "tags": ["pet"]}),
        ),
        ("Forget that I like tea.", Command("recall", {"query": "I like tea.", "k": 10})),
        ("What do you know about me?", Command("list_memories", {})),
        ("Where does Mary live?", Command("recall", {"query": "Where does Mary live?", "k": 5})),
        ("who is Mary", Command("recall", {"query": "who is Mary", "k": 5})),
    ],
)
def test_tools_are_called(text, step):
    assert next_step(said("Hello", text)) == step


def test_answers_come_from_what_the_tools_return():
    oslo = {"memory_id": "1", "text": "Mary lives in Oslo"}
    tea = {"memory_id": "2", "text": "I like green tea"}
    both = called("recall", {"memories": [oslo, tea]})
    assert next_step(said("What tea?") + both) == "You told me: “I like green tea”."
    assert next_step(said("What car?") + both) == NOT_KNOWN
    assert next_step(said("forget the green tea") + both) == Command("forget", {"memory_id": "2"})
    done = both + called("forget", {"forgotten": "2"})
    assert next_step(said("forget tea") + done) == "Forgotten: **I like green tea**"
    assert next_step(said("forget coffee") + both).startswith("I know nothing that says so")
    assert next_step(said("forget")).startswith("Hello")
    everything = next_step(said("What do you know about me?") + called("list_memories", {"memories": [oslo, tea]}))
    assert everything == "This is what I know:\n\n- Mary lives in Oslo\n- I like green tea"
    assert next_step(said("remember that x") + called("remember", {"stored": False})) == "I knew that already: **x**"
    assert next_step(said("remember that x") + called("remember", {"error": "no"})) == UNAVAILABLE
    assert isinstance(next_step(said("What tea?") + both + said("What tea?")), Command)  # found for another message


async def test_without_streaming():
    config = WarmConfig(url="sqlite://", collection="rules without streaming")
    agent = Agent(name="assistant", model=RuleModel(), tools=memory_tools(config, user_id="ada"))
    for text, answer in {"remember that I like tea": "I will remember: **I like tea**", "count to 3": "1 2 3"}.items():
        result = await Runner.run(agent, text, run_config=RunConfig(tracing_disabled=True))
        assert result.final_output == answer
