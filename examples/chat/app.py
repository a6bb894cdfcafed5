"""The page of the chat: streamlit run examples/chat/app.py

Callbacks change things, the script only draws, and the store is the truth. The address holds what a page shows:
?u= is the user's name and ?c= the conversation, so a refresh, a restart or a link leads to the same place.
"""

from __future__ import annotations

import re
from pathlib import PurePath
from typing import Any

import streamlit as st
from engine import Conversation, Engine, Message, Problem, Turn
from models import choose_model

from warm_integrations.core import WarmConfig

NAMELESS = "guest"
NO_ANSWER = "This message has no answer yet."
CUT_SHORT = "This answer was cut short."
NOT_HERE = "There is no conversation of {user} at this address. Choose one from the list, or start a new chat."


@st.cache_resource(show_spinner=False, on_release=lambda started: started[0].close())
def start() -> tuple[Engine, str]:
    """The engine that all pages share, and the name of its model."""
    model, name = choose_model()
    return Engine(WarmConfig(), model), name


def main() -> None:
    st.set_page_config(page_title="Warm chat", page_icon="💬")
    try:
        engine, model = start()
    except ValueError as error:  # of WarmConfig, in several lines
        st.error(f"The settings are wrong. {error}")
        st.stop()
    user = st.query_params.get("u") or NAMELESS
    wanted = st.query_params.get("c")
    try:
        conversations = engine.call(engine.conversations(user))
        sidebar(engine, model, user, wanted, conversations)
        if wanted is None:
            greet(user)
        elif any(conversation.id == wanted for conversation in conversations):
            draw(engine, user, wanted)
        else:
            st.warning(NOT_HERE.format(user=plain(user)))
            st.stop()
    except Problem as problem:
        st.error(plain(str(problem)))
        st.button("Try again")  # runs this script again, as any button does


main()
