"""The side of the page: who it is for, the user's conversations, and what is known of the user."""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st

from conversations import Conversation
from engine import Engine
from memories import Known
from memory_panel import draw_memories
from page import label, open_conversation, plain

LISTED = 30  # conversations; the search finds the others


def draw_sidebar(
    engine: Engine, badge: str, user: str, id: str | None, conversations: Sequence[Conversation], known: Sequence[Known]
) -> None:
    with st.sidebar:
        st.badge(plain(badge))
        st.session_state.name = user
        st.text_input("Your name", key="name", on_change=change_user)
        chats, memory = st.tabs(["Conversations", "Memory"])
        with chats:
            draw_list(id, conversations)
        with memory:
            draw_memories(engine, user, known)


def draw_list(id: str | None, conversations: Sequence[Conversation]) -> None:
    """The user's conversations, or those with the wanted words in their titles."""
    st.button("New chat", on_click=open_conversation, args=(None,), width="stretch")
    wanted = st.text_input("Search the titles", key="wanted", placeholder="Search") if conversations else ""
    words = wanted.casefold().split()
    found = [each for each in conversations if all(word in each.title.casefold() for word in words)]
    with st.container(gap="xxsmall"):
        for each in found[:LISTED]:
            st.button(
                label(each.title),
                key=f"open {each.id}",
                type="secondary" if each.id == id else "tertiary",
                on_click=open_conversation,
                args=(each.id,),
            )
    if len(found) > LISTED:
        st.caption(f"{len(found) - LISTED} older ones: search for their titles.")
    elif not found:
        st.caption("None with these words." if conversations else "Your conversations will be listed here.")


def change_user() -> None:
    st.query_params.from_dict({"u": st.session_state.name.strip() or "guest"})
