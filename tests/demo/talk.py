"""Talking to an engine, in tests."""

from __future__ import annotations

from engine import Engine, Turn
from transcript import Message


def wait(engine: Engine, id: str) -> str:
    """The whole answer that is being written."""
    turn = engine.turn(id)
    return Message("assistant", list(turn.follow())[-1]).text if turn else ""


def say(engine: Engine, text: str, id: str | None = None, user: str = "ada") -> str:
    """Say something, wait for the answer, and return the conversation's id."""
    id = engine.call(engine.send(user, id, text))
    wait(engine, id)
    return id


def said(engine: Engine, id: str) -> list[tuple[str, str]]:
    return [(message.role, message.text) for message in engine.call(engine.conversations.messages(id))]


def under_way(engine: Engine, id: str) -> Turn:
    """The answer that is being written, once some of it is there."""
    turn = engine.turn(id)
    assert turn is not None
    for parts in turn.follow():
        if parts:
            break
    return turn
