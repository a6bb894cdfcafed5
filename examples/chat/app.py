"""The page of the chat: streamlit run examples/chat/app.py

Callbacks change things, the script only draws, and the store is the truth. The address says what a page shows,
?u= the user's name and ?c= the conversation, so a refresh, a restart or a link leads to the same place.
The name is no login: whoever can open the page can give any.
"""

from __future__ import annotations

import re
from urllib.parse import urlsplit

import streamlit as st
from pydantic import ValidationError

from engine import Engine, Message, Problem
from models import choose_model
from warm_integrations.core import WarmConfig

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
    try:
        engine, label = start()
    except ValidationError as error:
        wrong = [f"{'_'.join(('WARM', *map(str, e['loc']))).upper()}: {e['msg']}" for e in error.errors()]
        st.error(f"These settings are wrong, so correct them and start the app again. {'; '.join(wrong)}")
        return
    if not st.query_params.get("u"):
        st.query_params["u"] = "guest"
    user, id = st.query_params["u"], st.query_params.get("c")
    try:
        ids = draw_sidebar(engine, label, user, id)
        if id is None or id in ids:
            draw_conversation(engine, user, id)
        else:
            st.warning(plain(st.session_state.pop("notice", NOT_HERE.format(user=user))))
    except Problem as problem:
        st.error(plain(str(problem)))
        st.button("Try again")  # any click runs this script again


def draw_sidebar(engine: Engine, label: str, user: str, id: str | None) -> list[str]:
    """Draw the list of conversations, and return their ids."""
    with st.sidebar:
        st.badge(plain(label))
        st.session_state.name = user
        st.text_input("Your name", key="name", on_change=change_user)
        st.button("New chat", on_click=open_conversation, args=(None,), width="stretch")
        conversations = engine.call(engine.conversations(user))
    with st.sidebar.container(gap="xxsmall"):
        for each in conversations:
            with st.container(horizontal=True, wrap=False, gap="xxsmall"):
                st.container().button(  # alone in a container, it stands at the left
                    plain(each.title),
                    key=f"open {each.id}",
                    type="secondary" if each.id == id else "tertiary",
                    wrap=False,
                    on_click=open_conversation,
                    args=(each.id,),
                )
                menu = st.popover("⋯", key=f"menu {each.id}", type="tertiary", on_change="rerun")
            if menu.open:
                with menu, st.form(f"form {each.id}", border=False):
                    st.text_input("Title", each.title, key=f"title {each.id}", max_chars=100)
                    args = (engine, user, each.id)
                    st.form_submit_button("Rename", on_click=rename, args=args, width="stretch")
                    st.form_submit_button("Delete for good", on_click=delete, args=args, width="stretch")
    return [each.id for each in conversations]


def draw_conversation(engine: Engine, user: str, id: str | None) -> None:
    """Draw what was said, and the answer while it is being written."""
    turn = engine.turn(id) if id else None
    running = turn is not None and turn.running
    if unsent := st.session_state.pop("unsent", None):
        st.session_state.message = unsent
    # These come before the answer, which holds up the script until it is complete.
    if running:
        st.bottom.button("Stop", on_click=stop, args=(engine, id))
    st.chat_input("Say something", key="message", disabled=running, on_submit=send, args=(engine, user, id))

    if id is None:
        messages = []
        st.subheader(f"Hello {plain(user)}, what is on your mind?")
    else:
        messages = turn.before if running else engine.call(engine.messages(id))
    for message in messages:
        draw_message(message)
    if turn is not None and messages == turn.before:  # the store may not have it yet
        draw_message(Message("user", turn.prompt))
    if notice := st.session_state.pop("notice", None):
        st.warning(plain(notice))

    if running:
        with st.chat_message("assistant"):
            place = st.empty()
            for answer in turn.follow():
                place.markdown(plain(answer) or "…")
        st.rerun()
    elif turn is not None:
        st.error(plain(turn.error))
    elif messages and messages[-1].role == "user":
        st.caption("This message has no answer.")
    elif messages and not messages[-1].complete:
        st.caption("This answer was cut short.")
    else:
        return
    st.button("Try again", on_click=retry, args=(engine, user, id))


def draw_message(message: Message) -> None:
    with st.chat_message(message.role):
        if message.role == "user":
            st.text(message.text)  # as it was typed
        else:
            st.markdown(plain(message.text))


def plain(text: str) -> str:
    """Markdown in which a dollar is no formula, and no image makes the browser call another machine."""
    text = text.replace("![", "!\\[")
    return re.sub(r"(\\.|```.*?(?:```|\Z)|`[^`\n]*`)|\$", lambda found: found[1] or "\\$", text, flags=re.DOTALL)


def change_user() -> None:
    st.query_params.from_dict({"u": st.session_state.name.strip() or "guest"})


def open_conversation(id: str | None) -> None:
    if id is None:
        st.query_params.pop("c", None)
    else:
        st.query_params["c"] = id


def send(engine: Engine, user: str, id: str | None) -> None:
    text = st.session_state.message
    try:
        open_conversation(engine.call(engine.send(user, id, text)))
    except Problem as problem:
        st.session_state.notice = f"Not sent. {problem}"
        st.session_state.unsent = text  # back into the input


def stop(engine: Engine, id: str) -> None:
    engine.call(engine.stop(id))


def retry(engine: Engine, user: str, id: str) -> None:
    try:
        engine.call(engine.retry(user, id))
    except Problem as problem:
        st.session_state.notice = str(problem)


def rename(engine: Engine, user: str, id: str) -> None:
    title = st.session_state[f"title {id}"].strip()
    st.session_state[f"menu {id}"] = False
    try:
        if title:
            engine.call(engine.rename(user, id, title))
    except Problem as problem:
        st.session_state.notice = str(problem)


def delete(engine: Engine, user: str, id: str) -> None:
    try:
        engine.call(engine.delete(user, id))
        if st.query_params.get("c") == id:
            open_conversation(None)
    except Problem as problem:
        st.session_state.notice = str(problem)


main()
