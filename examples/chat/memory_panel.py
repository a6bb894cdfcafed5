"""What the assistant knows of the user, who may change and erase it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timezone
from zoneinfo import ZoneInfo

import streamlit as st

from engine import Engine
from memories import Known
from page import attempt, exported, label, open_conversation

SHOWN = 20  # memories at once


def local(time: datetime) -> datetime:
    """A time in the zone of the browser, which need not be that of the machine that serves it."""
    try:
        return time.astimezone(ZoneInfo(st.context.timezone or "UTC"))
    except (ValueError, LookupError, OSError, OverflowError):  # a zone that is not known here
        return time.astimezone(timezone.utc)


def draw_memories(engine: Engine, user: str, known: Sequence[Known]) -> None:
    if not known:
        st.caption("Nothing is known of you yet. Say: remember that …")
        return
    st.caption(f"What the assistant knows of {label(user)}, in every conversation: {len(known)}")
    shown = SHOWN * (1 + st.session_state.get("more memories", 0))
    for each in known[:shown]:
        draw_memory(engine, user, each)
    if len(known) > shown:
        st.button("Show more", key="show more memories", on_click=show_more, width="stretch")
    st.download_button(
        "Export",
        exported(engine, lambda: engine.memories.export(user)),
        file_name="memories.json",
        mime="application/json",
        key="export memories",
        on_click="ignore",
        width="stretch",
    )
    with st.expander("Forget everything", key="all memories", type="compact"):
        st.write(f"All {len(known)} memories are erased, from the store's files too. Conversations stay.")
        st.button("Erase it all", key="erase all", on_click=forget_all, args=(engine, user), type="primary")


def draw_memory(engine: Engine, user: str, known: Known) -> None:
    with st.container(border=True, gap="xxsmall", key=f"memory {known.id}"):
        st.text(known.text)
        about = " · ".join([f"{local(known.since):%d %b %Y, %H:%M %Z}", *(f"#{tag}" for tag in known.tags)])
        st.caption(label(about, 200))
        if known.reason:
            st.button(
                f"You said: “{label(known.reason.words)}”",
                key=f"why {known.id}",
                type="tertiary",
                help="Open the conversation where this was said",
                on_click=open_conversation,
                args=(known.reason.conversation, known.reason.message),
            )
        else:
            st.caption("The conversation it comes from is gone.")
        menu = st.expander("Edit", key=f"edit {known.id}", type="compact", on_change="rerun")
    if menu.open:
        with menu, st.form(f"form {known.id}", border=False):
            st.text_area("What is so", known.text, key=f"text {known.id}")
            st.text_input("Tags, with commas between them", ", ".join(known.tags), key=f"tags {known.id}")
            args = (engine, user, known.id)
            st.form_submit_button("Save", on_click=edit, args=args, width="stretch")
            st.form_submit_button("Forget for good", on_click=forget, args=args, width="stretch")


def show_more() -> None:
    st.session_state["more memories"] = st.session_state.get("more memories", 0) + 1


def edit(engine: Engine, user: str, id: str) -> None:
    text = st.session_state[f"text {id}"].strip()
    tags = [tag.strip().removeprefix("#") for tag in st.session_state[f"tags {id}"].split(",")]
    if not text or attempt(engine, engine.memories.edit(user, id, text, [tag for tag in tags if tag])):
        st.session_state[f"edit {id}"] = False  # else the form stays open, with what was typed


def forget(engine: Engine, user: str, id: str) -> None:
    attempt(engine, engine.memories.forget(user, id))


def forget_all(engine: Engine, user: str) -> None:
    attempt(engine, engine.memories.forget_all(user))
