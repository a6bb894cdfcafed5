"""The page of the chat: streamlit run examples/chat/app.py

Callbacks change things, the script only draws, and the store is the truth. The address says what a page shows,
?u= the user's name, ?c= the conversation and ?m= a message of it, so a refresh, a restart or a link leads to the
same place. The name is no login: whoever can open the page can give any.
"""

from __future__ import annotations

from urllib.parse import urlsplit

import streamlit as st

from conversation_view import draw_conversation, draw_input
from engine import Engine
from models import choose_model
from page import draw_notice, label, plain
from problem import Problem
from sidebar import draw_sidebar
from warm_integrations.core import WarmConfig

STYLE = """<style>
[class*="st-key-open"] button, [class*="st-key-why"] button, [class*="st-key-hit"] button {
    justify-content: flex-start; text-align: left
}
/* Search and options stay at hand in a long conversation. */
:has(> .st-key-header) { position: sticky; top: 0; z-index: 9; margin-top: -3.5rem }
.st-key-header { padding: 3.5rem 0 0.5rem; background: Canvas }
</style>"""
NOT_HERE = "At this address there is no conversation of {user}: choose one from the list, or start a new chat."


@st.cache_resource(show_spinner=False, on_release=lambda started: started[0].close())
def start() -> tuple[Engine, str]:
    """The engine that all pages share, and what the badge says of it."""
    config = WarmConfig()
    url = urlsplit(config.url)
    place = url.path.rpartition("/")[2] or "memory" if url.scheme == "sqlite" else url.netloc or url.path
    model, name = choose_model()
    return Engine(config, model), f"{name} · {'SQLite' if url.scheme == 'sqlite' else 'warm-server'} {place}"


def main() -> None:
    st.set_page_config(page_title="Warm chat", page_icon="💬")
    st.html(STYLE)
    try:
        engine, badge = start()
    except ValueError as error:
        st.error(f"{error}. Correct these settings and start the app again.")
        return
    if not st.query_params.get("u"):
        st.query_params["u"] = "guest"
    user, id = st.query_params["u"], st.query_params.get("c")
    try:
        conversations = engine.call(engine.conversations.list(user))
        known = engine.call(engine.memories.list(user, conversations))
    except Problem as problem:
        draw_problem(problem)
        draw_input(engine)  # what was typed is not lost meanwhile
        return
    draw_sidebar(engine, badge, user, id, conversations, known)
    conversation = next((each for each in conversations if each.id == id), None)
    if id is not None and conversation is None:
        draw_notice()
        st.warning(NOT_HERE.format(user=label(user)))
        return
    try:
        draw_conversation(engine, user, conversation)
    except Problem as problem:
        draw_problem(problem)


def draw_problem(problem: Problem) -> None:
    st.error(plain(str(problem)))
    st.button("Try again", key="again")  # any click runs this script again


main()
