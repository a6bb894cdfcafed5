"""What the assistant knows of its users: made in a conversation, and seen, changed and erased by the user."""

from __future__ import annotations

import json

import pytest
from agents.testing import ScriptedModel, assistant_message, function_call

from demo.talk import said, say, under_way
from engine import Engine
from memories import Known
from problem import Problem
from rules import RuleModel
from transcript import Call
from warm_integrations.core import WarmError
from warm_integrations.core.memory import UserMemory


def known(engine: Engine, user: str = "ada") -> list[Known]:
    return engine.call(engine.memories.list(user, engine.call(engine.conversations.list(user))))


def texts(engine: Engine, user: str = "ada") -> list[str]:
    return [each.text for each in known(engine, user)]


def test_what_is_remembered_has_a_reason_and_is_known_everywhere(make_engine):
    engine = make_engine()
    first = say(engine, "Hello")
    say(engine, "Remember that I like green tea #drink", first)
    [tea] = known(engine)
    assert (tea.text, tea.tags) == ("I like green tea", ("drink",))
    assert tea.reason.conversation == first
    assert tea.reason.message == 2
    assert tea.reason.words == "Remember that I like green tea #drink"

    again = make_engine()
    second = say(again, "Which tea do I like?")
    assert said(again, second)[-1][1] == "You told me: “I like green tea”."
    say(again, "remember that I like green tea", second)
    assert known(again) == [tea]  # the first reason stays
    say(again, "remember that Rex is a dog", second)
    assert texts(again) == ["Rex is a dog", "I like green tea"]

    again.call(again.delete("ada", first))
    assert [(each.text, each.reason is None) for each in known(again)] == [("Rex is a dog", False), (tea.text, True)]


def test_tools_are_part_of_the_answer(make_engine):
    engine = make_engine()
    id = say(engine, "remember that I like tea")
    say(engine, "forget tea", id)
    _, remembered, _, forgotten = engine.call(engine.conversations.messages(id))
    call, text = remembered.parts
    assert isinstance(call, Call)
    assert json.loads(call.arguments) == {"text": "I like tea", "tags": []}
    assert json.loads(call.output)["stored"] is True
    assert text == "I will remember: **I like tea**"
    assert [part.name for part in forgotten.parts[:-1]] == ["recall", "forget"]
    assert forgotten.text == "Forgotten: **I like tea**"
    assert known(engine) == []


def test_users_are_isolated(make_engine):
    engine = make_engine()
    say(engine, "remember that I like tea")
    id = say(engine, "what do you know about me?", user="bob")
    assert said(engine, id)[-1][1].startswith("Nothing yet")
    [tea] = known(engine)
    for work in engine.memories.forget("bob", tea.id), engine.memories.edit("bob", tea.id, "I like milk", []):
        with pytest.raises(Problem, match="forgotten already"):
            engine.call(work)
    assert engine.call(engine.memories.forget_all("bob")) == 0
    assert known(engine) == [tea]
    assert texts(engine, "bob") == []


def test_what_the_person_deletes_is_gone_for_the_assistant(make_engine):
    engine = make_engine()
    id = say(engine, "remember that I like tea")
    say(engine, "remember that Rex is a dog", id)
    tea = known(engine)[-1]
    engine.call(engine.memories.forget("ada", tea.id))
    say(engine, "What do you know about me?", id)
    assert said(engine, id)[-1][1] == "This is what I know:\n\n- Rex is a dog"
    say(engine, "Do I like tea?", id)
    assert "tea" not in said(engine, id)[-1][1]
    with pytest.raises(Problem, match="forgotten already"):
        engine.call(engine.memories.forget("ada", tea.id))
    reasons = engine.call(engine.conversations.list("ada"))[0].notes["reasons"]
    assert tea.id not in reasons

    assert engine.call(engine.memories.forget_all("ada")) == 1
    assert known(engine) == []
    assert engine.call(engine.conversations.list("ada"))[0].notes["reasons"] == {}
    say(engine, "What do you know about me?", id)
    assert said(engine, id)[-1][1].startswith("Nothing yet")


def test_an_edit_keeps_the_reason(make_engine):
    engine = make_engine()
    id = say(engine, "remember that I like tea #drink")
    [tea] = known(engine)
    engine.call(engine.memories.edit("ada", tea.id, "I like coffee", ["drink", "hot"]))
    [coffee] = known(engine)
    assert (coffee.text, coffee.tags, coffee.reason) == ("I like coffee", ("drink", "hot"), tea.reason)
    engine.call(engine.memories.edit("ada", coffee.id, "I like  coffee", ["hot"]))
    assert [(each.tags, each.reason) for each in known(engine)] == [(("hot",), tea.reason)]
    say(engine, "What do I like?", id)
    assert "coffee" in said(engine, id)[-1][1]
    with pytest.raises(Problem, match="forgotten already"):
        engine.call(engine.memories.edit("ada", tea.id, "I like milk", []))
    with pytest.raises(Problem, match=r"^Not saved: .* save again\.$"):
        engine.call(engine.memories.edit("ada", coffee.id, "coffee " * 10_000, []))
    assert texts(engine) == ["I like  coffee"]


def test_an_edit_that_is_refused_or_changes_only_the_spelling_loses_nothing(make_engine):
    engine = make_engine()
    say(engine, "remember that I like cafe\u0301 #drink")
    [cafe] = known(engine)
    for tags in (["t" * 65], ["a\n"]):
        with pytest.raises(Problem, match=r"^Not saved: "):
            engine.call(engine.memories.edit("ada", cafe.id, cafe.text, tags))
        assert known(engine) == [cafe]
    engine.call(engine.memories.edit("ada", cafe.id, "I like caf\u00e9", ["hot"]))
    assert [(each.id, each.text, each.tags) for each in known(engine)] == [(cafe.id, "I like caf\u00e9", ("hot",))]


def test_export(make_engine):
    engine = make_engine()
    say(engine, "remember that I like tea #drink")
    exported = json.loads(engine.call(engine.memories.export("ada")))
    assert [(each["text"], each["tags"]) for each in exported["memories"]] == [("I like tea", ["drink"])]


def test_a_turn_tells_that_memory_has_changed(make_engine):
    engine = make_engine(RuleModel(pause=0.05))
    id = engine.call(engine.send("ada", None, "remember that I like tea"))
    turn = under_way(engine, id)
    for _ in turn.follow():
        if turn.memory_changes:
            break
    assert texts(engine) == ["I like tea"]


def test_what_a_tool_did_stays_when_the_answer_fails(make_engine):
    call = function_call("remember", {"text": "I like tea", "tags": []}, call_id="call_1")
    engine = make_engine(ScriptedModel([[call], RuntimeError("lost"), [assistant_message("Yes.")]]))
    id = say(engine, "I like tea")
    assert engine.turn(id).error
    _, cut = make_engine().call(engine.conversations.messages(id))
    assert not cut.complete
    assert [part.name for part in cut.parts] == ["remember"]
    assert texts(engine) == ["I like tea"]
    engine.call(engine.retry("ada", id))
    list(engine.turn(id).follow())
    assert said(engine, id) == [("user", "I like tea"), ("assistant", "Yes.")]


def test_a_store_that_fails_is_told_by_the_assistant(make_engine, monkeypatch):
    async def fail(*args, **kwargs):
        raise WarmError("unreachable", "no connection")

    for name in "remember", "list":
        monkeypatch.setattr(UserMemory, name, fail)
    engine = make_engine()
    id = say(engine, "remember that I like tea")
    say(engine, "What do you know about me?", id)
    _, remembered, _, listed = engine.call(engine.conversations.messages(id))
    for message in remembered, listed:
        assert message.parts[0].failed
        assert message.text.startswith("My memory cannot be used right now")
