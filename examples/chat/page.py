"""What all parts of the page share: the address, notices of what went wrong, and text that is safe to draw."""

from __future__ import annotations

import re
from collections.abc import Callable, Coroutine
from typing import Any

import streamlit as st

from engine import Engine
from problem import Problem
from transcript import beginning


def open_conversation(id: str | None, message: int | None = None) -> None:
    """Lead the address to a conversation, at one of its messages, or to a new one."""
    address = {"u": st.query_params["u"], "c": id, "m": message}
    st.query_params.from_dict({key: str(value) for key, value in address.items() if value is not None})


def attempt(engine: Engine, work: Coroutine[Any, Any, Any]) -> bool:
    """Do something for a callback. What fails is told at the next `draw_notice`."""
    try:
        engine.call(work)
    except Problem as problem:
        st.session_state.notice = str(problem)
        return False
    return True


def draw_notice() -> None:
    """Say, once, what a callback could not do."""
    if notice := st.session_state.pop("notice", None):
        st.warning(plain(notice))


def exported(engine: Engine, work: Callable[[], Coroutine[Any, Any, str]]) -> Callable[[], str]:
    """The content of a download, made when it is asked for."""

    def make() -> str:
        try:
            return engine.call(work())
        except Problem as problem:  # a download has no other place to say it
            return f"{problem}\n"

    return make


def plain(text: str) -> str:
    """Markdown in which a dollar is no formula, and no image makes the browser call another machine."""
    text = text.replace("![", "!\\[")
    return re.sub(r"(\\.|```.*?(?:```|\Z)|`[^`\n]*`)|\$", lambda found: found[1] or "\\$", text, flags=re.DOTALL)


def label(text: str, most: int = 80) -> str:
    """A text on one line, of which Markdown makes nothing else."""
    return re.sub(r"([\\`*_{}\[\]()<>#+!|~$:^-])", r"\\\1", beginning(text, most))
