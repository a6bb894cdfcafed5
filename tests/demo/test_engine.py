"""The chat's engine, without a page."""

from __future__ import annotations

import itertools
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from agents.testing import ScriptedModel, assistant_message

from conversations import GONE
from demo.talk import said, say, under_way, wait
from engine import ANSWERED, BUSY, Engine
from problem import Problem
from rules import RuleModel
from transcript import Message
from warm_integrations.core import WarmConfig, WarmError
from warm_integrations.openai_agents import WarmSession


def test_a_conversation_goes_on_in_another_engine(make_engine):
    first = make_engine()
    id = say(first, "My flight is LH 4711.")
    assert first.turn(id) is None  # all of it is in the store

    second = make_engine()
    assert second.call(second.conversations.messages(id)) == first.call(first.conversations.messages(id))
    say(second, "What did I say?", id)
    assert [role for role, _ in said(first, id)] == ["user", "assistant"] * 2
    assert "“My flight is LH 4711.”" in said(first, id)[-1][1]


def test_the_list_is_one_users_own_and_begins_with_the_last_used(make_engine):
    engine = make_engine()
    old, new = say(engine, "old"), say(engine, "new")
    say(engine, "foreign", user="bob")
    engine.call(WarmSession("not a chat", engine.config).set_metadata({"user": "ada", "title": "no chat"}))
    assert [(c.id, c.title) for c in engine.call(engine.conversations.list("ada"))] == [(new, "new"), (old, "old")]
    say(engine, "again", old)
    assert [c.title for c in engine.call(engine.conversations.list("ada"))] == ["old", "new"]
    assert [c.title for c in engine.call(engine.conversations.list("bob"))] == ["foreign"]
    assert engine.call(engine.conversations.list("nobody")) == []


@pytest.mark.parametrize(
    ("text", "title"),
    [
        ("  Hello\n there ", "Hello there"),
        ("x" * 50, "x" * 50),
        ("x" * 51, "x" * 49 + "…"),
        ("a " * 40, "a " * 24 + "a…"),
    ],
)
def test_a_title_is_the_beginning_of_the_first_message(make_engine, text, title):
    engine = make_engine()
    id = say(engine, text)
    say(engine, "another message", id)
    assert [c.title for c in engine.call(engine.conversations.list("ada"))] == [title]
    assert said(engine, id)[0] == ("user", text)


def test_rename_keeps_everything_else(make_engine):
    engine = make_engine()
    id = say(engine, "first")
    say(engine, "second")
    before = said(engine, id)
    engine.call(engine.conversations.rename("ada", id, "Holidays"))
    assert [c.title for c in engine.call(engine.conversations.list("ada"))] == ["second", "Holidays"]
    assert said(engine, id) == before


def test_delete_removes_a_conversation_even_while_it_is_being_answered(make_engine):
    engine = make_engine(RuleModel(pause=0.02))
    id = engine.call(engine.send("ada", None, "count to 500"))
    under_way(engine, id)
    engine.call(engine.delete("ada", id))
    time.sleep(0.1)
    assert engine.turn(id) is None
    assert engine.call(engine.conversations.list("ada")) == []
    assert engine.call(engine.conversations.messages(id)) == []


def test_nobody_reaches_what_is_deleted_or_another_users(make_engine):
    engine = make_engine()
    foreign, deleted = say(engine, "mine", user="bob"), say(engine, "deleted")
    engine.call(engine.delete("ada", deleted))
    for id in foreign, deleted, "chat:unknown":
        for work in (
            engine.send("ada", id, "hello"),
            engine.retry("ada", id),
            engine.conversations.rename("ada", id, "mine now"),
            engine.delete("ada", id),
        ):
            with pytest.raises(Problem, match=GONE[:20]):
                engine.call(work)
        assert engine.turn(id) is None
    assert len(said(engine, foreign)) == 2
    assert [c.title for c in engine.call(engine.conversations.list("bob"))] == ["mine"]


def test_one_answer_at_a_time_in_a_conversation(make_engine):
    model = RuleModel(pause=0.02)
    engine = make_engine(model)
    id = engine.call(engine.send("ada", None, "count to 900"))
    under_way(engine, id)
    with pytest.raises(Problem, match=BUSY[:20]):
        engine.call(engine.send("ada", id, "and I?"))
    with pytest.raises(Problem, match=BUSY[:20]):
        engine.call(engine.retry("ada", id))
    other = say(engine, "count to 3")  # another conversation does not wait
    assert said(engine, other)[-1] == ("assistant", "1 2 3")
    assert engine.turn(id) is not None
    model.pause = 0
    assert wait(engine, id).endswith("899 900")
    assert len(said(engine, id)) == 2


def test_of_many_senders_at_once_one_is_answered(make_engine):
    model = RuleModel(pause=0)
    engine = make_engine(model)
    id = say(engine, "hello")
    barrier = threading.Barrier(6)

    def send(number: int) -> str:
        barrier.wait()
        try:
            engine.call(engine.send("ada", id, f"message {number}"))
        except Problem as problem:
            return str(problem)
        return "sent"

    model.pause = 0.05
    with ThreadPoolExecutor(6) as pool:
        assert sorted(pool.map(send, range(6))) == [BUSY] * 5 + ["sent"]
    wait(engine, id)
    assert [role for role, _ in said(engine, id)] == ["user", "assistant"] * 2


def test_several_pages_follow_one_answer(make_engine):
    engine = make_engine(RuleModel(pause=0.02))
    id = engine.call(engine.send("ada", None, "count to 100"))
    turn = under_way(engine, id)
    assert (turn.prompt, turn.before) == ("count to 100", [])
    with ThreadPoolExecutor(3) as pool:
        seen = list(pool.map(lambda _: list(turn.follow()), range(3)))
    for answers in seen:
        texts = ["".join(parts) for parts in answers]
        assert texts[-1] == " ".join(map(str, range(1, 101)))
        assert all(later.startswith(earlier) for earlier, later in itertools.pairwise(texts))
        assert len(set(texts)) > 3


def test_stop_keeps_what_was_said_and_try_again_replaces_it(make_engine):
    model = RuleModel(pause=0.02)
    engine = make_engine(model)
    id = say(engine, "count to 1")
    engine.call(engine.send("ada", id, "count to 300"))
    turn = under_way(engine, id)
    engine.call(engine.stop(id))
    assert not turn.running
    assert engine.turn(id) is None

    for each in engine, make_engine():
        *_, asked, cut = each.call(each.conversations.messages(id))
        assert asked == Message("user", ("count to 300",))
        assert cut == Message("assistant", turn.parts, complete=False)
    assert turn.parts[0].startswith("1")
    assert "300" not in turn.parts[0]

    model.pause = 0
    engine.call(engine.retry("ada", id))
    wait(engine, id)
    assert len(said(engine, id)) == 4
    assert said(engine, id)[-1][1].endswith("299 300")
    assert all(message.complete for message in engine.call(engine.conversations.messages(id)))


def test_a_new_message_may_follow_an_answer_that_was_cut_short(make_engine):
    engine = make_engine(RuleModel(pause=0.02))
    id = engine.call(engine.send("ada", None, "count to 300"))
    under_way(engine, id)
    engine.call(engine.stop(id))
    say(engine, "What did I say?", id)
    assert "count to 300" in said(engine, id)[-1][1]


def test_stop_before_the_first_word(make_engine):
    engine = make_engine(RuleModel(pause=60))
    id = engine.call(engine.send("ada", None, "hello"))
    engine.call(engine.stop(id))
    assert said(engine, id) == [("user", "hello")]
    engine.call(engine.stop(id))  # again does nothing

    again = make_engine()
    again.call(again.retry("ada", id))
    wait(again, id)
    assert [role for role, _ in said(again, id)] == ["user", "assistant"]


def test_try_again_is_for_answers_that_are_missing(make_engine):
    engine = make_engine()
    id = say(engine, "hello")
    with pytest.raises(Problem, match=ANSWERED[:20]):
        engine.call(engine.retry("ada", id))
    assert engine.turn(id) is None
    assert len(said(engine, id)) == 2


def test_a_failure_is_shown_until_it_is_tried_again(make_engine, caplog):
    engine = make_engine(ScriptedModel([RuntimeError("sk-secret"), [assistant_message("Hello Ada")]]))
    id = say(engine, "I am Ada")
    turn = engine.turn(id)
    assert turn is not None
    assert turn.error == "Something unexpected went wrong (RuntimeError): see the terminal, then try again."
    assert "sk-secret" in caplog.text  # in the terminal
    assert said(engine, id) == [("user", "I am Ada")]

    engine.call(engine.retry("ada", id))
    wait(engine, id)
    assert engine.turn(id) is None
    assert said(engine, id) == [("user", "I am Ada"), ("assistant", "Hello Ada")]


def test_what_the_store_did_not_take_can_be_tried_again(make_engine, monkeypatch):
    engine = make_engine()
    id = say(engine, "hello")
    before = said(engine, id)

    async def fail(self, items):
        raise WarmError("disk_full", "warm.db: no space")

    with monkeypatch.context() as broken:
        broken.setattr(WarmSession, "add_items", fail)
        say(engine, "important", id)
    turn = engine.turn(id)
    assert turn is not None
    assert turn.error.startswith("The store could not do this: warm.db: no space (disk_full). Free some space")
    assert turn.prompt == "important"
    assert said(engine, id) == before == [(m.role, m.text) for m in turn.before]

    engine.call(engine.retry("ada", id))
    wait(engine, id)
    assert said(engine, id)[2] == ("user", "important")
    assert len(said(engine, id)) == 4


def test_closing_keeps_what_was_said(make_engine):
    engine = Engine(make_engine().config, RuleModel(pause=0.02))
    id = engine.call(engine.send("ada", None, "count to 300"))
    under_way(engine, id)
    engine.close()
    again = make_engine()
    assert again.call(again.conversations.messages(id))[-1].text.startswith("1")


def test_a_store_that_is_not_there(tmp_path):
    for url, step in {
        "http://127.0.0.1:1": "Check WARM_URL",
        f"sqlite:///{tmp_path}/missing/warm.db": "Check that the directory exists",
    }.items():
        engine = Engine(WarmConfig(url=url, retries=0), RuleModel())
        with pytest.raises(Problem, match=rf"^The store could not do this: .*{step}"):
            engine.call(engine.conversations.list("ada"))
        with pytest.raises(Problem, match=step):
            engine.call(engine.send("ada", None, "hello"))
        engine.close()
