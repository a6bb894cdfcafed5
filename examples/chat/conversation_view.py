"""A conversation on the page: what was said, the answer while it is being written, search and options."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import streamlit as st

from conversations import Conversation
from engine import Engine, Turn
from page import attempt, draw_notice, exported, label, open_conversation, plain
from problem import Problem
from transcript import Message, Part, json_object

SHOWN = 40  # messages at once: a page with thousands would be slow
BEFORE_HIT = 10  # as many are shown before the one that a link or a search leads to
IDEAS = ("Remember that I like green tea", "What do you know about me?", "Count to 50")


def draw_conversation(engine: Engine, user: str, conversation: Conversation | None) -> None:
    id = conversation.id if conversation else None
    turn = engine.turn(id) if id else None
    running = turn is not None and turn.running
    # The input comes before the answer, which holds up the script until it is complete.
    if running:
        st.bottom.button("Stop", on_click=stop, args=(engine, id))
    draw_input(engine, disabled=running)

    if conversation is None:
        draw_greeting(engine, user)
        draw_notice()
        return
    draw_header(engine, user, conversation)
    messages = turn.messages if turn else engine.call(engine.conversations.messages(conversation.id))
    if running and messages[-1].role == "assistant":
        messages.pop()  # it is drawn below, as it grows
    hit = None if running else linked_message(len(messages))
    first, last = window(conversation.id, len(messages), hit)
    if first > 0:
        st.button("Earlier messages", on_click=show_earlier, args=(conversation.id,), width="stretch")
    for number in range(first, last):
        draw_message(messages[number], number, conversation.figures(number))
    if hit is not None:
        scroll_to(hit)
    draw_notice()
    if running:
        follow(turn)
    elif last < len(messages):
        st.button("Newest messages", on_click=open_conversation, args=(id,), width="stretch")
    else:
        draw_retry(engine, user, conversation.id, turn, messages)


def draw_input(engine: Engine, disabled: bool = False) -> None:
    if unsent := st.session_state.pop("unsent", None):
        st.session_state.message = unsent
    st.chat_input("Say something", key="message", disabled=disabled, on_submit=send, args=(engine,))


def draw_greeting(engine: Engine, user: str) -> None:
    st.subheader(f"Hello {label(user)}, what is on your mind?")
    st.caption("What is said here is kept. What you ask the assistant to remember, it knows in every conversation.")
    with st.container(horizontal=True):
        for idea in IDEAS:
            st.button(idea, key=f"idea {idea}", on_click=send, args=(engine, idea))


def draw_header(engine: Engine, user: str, conversation: Conversation) -> None:
    """The title, with search and options."""
    id = conversation.id
    with st.container(key="header", horizontal=True, vertical_alignment="center", gap="xsmall"):
        st.markdown(f"##### {label(conversation.title)}", width="stretch")
        search = st.popover("Search", key=f"search {id}", on_change="rerun")
        options = st.popover("Options", key=f"options {id}", on_change="rerun")
    if search.open:
        with search:
            draw_search(engine, user, id)
    if options.open:
        with options:
            draw_options(engine, user, conversation)


def draw_search(engine: Engine, user: str, id: str) -> None:
    query = st.text_input("Search this conversation by meaning", key=f"query {id}")
    if not query.strip():
        return
    try:
        hits = engine.call(engine.conversations.search(user, id, query))
    except Problem as problem:
        st.error(plain(str(problem)))
        return
    with st.container(gap="xxsmall"):
        for hit in hits:
            name = f"{'You' if hit.role == 'user' else 'Assistant'}: {label(hit.text, 100)}"
            st.button(name, key=f"hit {hit.number}", type="tertiary", on_click=open_hit, args=(id, hit.number))
    if not hits:
        st.caption("Nothing here is near to that.")


def draw_options(engine: Engine, user: str, conversation: Conversation) -> None:
    id = conversation.id
    with st.form(f"form {id}", border=False):
        st.text_input("Title", conversation.title, key=f"title {id}", max_chars=100)
        st.form_submit_button("Rename", on_click=rename, args=(engine, user, id), width="stretch")
    for kind, export in {
        "JSON": engine.conversations.export_json,
        "Markdown": engine.conversations.export_markdown,
    }.items():
        st.download_button(
            f"Export {kind}",
            exported(engine, lambda export=export: export(user, id)),
            file_name="conversation.json" if kind == "JSON" else "conversation.md",
            mime="application/json" if kind == "JSON" else "text/markdown",
            key=f"export {kind}",
            on_click="ignore",
            width="stretch",
        )
    st.button("Delete for good", key=f"delete {id}", on_click=delete, args=(engine, user, id), width="stretch")


def draw_message(message: Message, number: int, figures: Mapping[str, Any]) -> None:
    with st.container(key=f"message-{number}"), st.chat_message(message.role):
        for part in message.parts:
            if message.role == "user":
                st.text(part)  # as it was typed
            else:
                draw_part(part, running=False)
        if figures:
            tokens = figures["read"] + figures["written"]
            counted = f" · {tokens} tokens ({figures['read']} read, {figures['written']} written)" if tokens else ""
            st.caption(f"{figures['seconds']} s{counted}")


def draw_part(part: Part, running: bool) -> None:
    """What the assistant said, or a tool that it used, with what that was given and what it answered."""
    if isinstance(part, str):
        st.markdown(plain(part))
        return
    about = label(str(next(iter(json_object(part.arguments).values()), "")), 60)
    icon = ":material/hourglass:" if running and part.output is None else ":material/check:"
    icon = ":material/error:" if part.failed or (part.output is None and not running) else icon
    # Not `st.status`: that waits 50 ms each time, seconds for a page of them.
    with st.expander(f"{label(part.name)}: {about}" if about else label(part.name), icon=icon):
        if json_object(part.arguments):
            st.code(indented(part.arguments), language="json", wrap_lines=True)
        if part.output is not None:
            st.code(indented(part.output), language="json", wrap_lines=True)


def indented(text: str) -> str:
    found = json_object(text)
    return json.dumps(found, ensure_ascii=False, indent=1) if found else text


def follow(turn: Turn) -> None:
    """Draw an answer as it grows: only what changes is drawn again. Afterwards run the script anew."""
    changes = turn.memory_changes
    drawn: list[tuple[Any, Part | None]] = []
    with st.chat_message("assistant"):
        waiting = st.empty()
        waiting.markdown("…")
        for parts in turn.follow():
            for number, part in enumerate(parts):
                waiting.empty()
                if number == len(drawn):
                    drawn.append((st.empty(), None))
                place, before = drawn[number]
                if part != before:
                    with place.container():
                        draw_part(part, running=True)
                    drawn[number] = place, part
            if turn.memory_changes > changes:
                break  # the list of memories has been drawn before: it, too, shall show the change at once
    st.rerun()


def draw_retry(engine: Engine, user: str, id: str, turn: Turn | None, messages: Sequence[Message]) -> None:
    """Say why the last message has no whole answer, if so, and offer to try again."""
    if turn is not None:
        st.error(plain(turn.error))
    elif messages and messages[-1].role == "user":
        st.caption("This message has no answer.")
    elif messages and not messages[-1].complete:
        st.caption("This answer was cut short.")
    else:
        return
    st.button("Try again", key="retry", on_click=retry, args=(engine, user, id))


def linked_message(count: int) -> int | None:
    """The message that the address names."""
    number = st.query_params.get("m", "")
    return int(number) if number.isascii() and number.isdigit() and int(number) < count else None


def window(id: str, count: int, hit: int | None) -> tuple[int, int]:
    """Which messages are shown: the newest, or those around a hit, and what was asked for besides."""
    last = count if hit is None else min(count, hit - BEFORE_HIT + SHOWN)
    earlier = st.session_state.get(f"earlier {id}", 0)
    return max(0, last - SHOWN * (1 + earlier)), last


def scroll_to(number: int) -> None:
    """Bring a message into view and mark it, once for each time that the address changes."""
    st.html(
        f"<style>.st-key-message-{number} {{ outline: 2px solid #d97706; outline-offset: 6px; border-radius: 4px }}"
        f"</style><script>setTimeout(() => document.querySelector('.st-key-message-{number}')"
        ".scrollIntoView({block: 'center'}), 300)</script>",
        unsafe_allow_javascript=True,
    )


def show_earlier(id: str) -> None:
    st.session_state[f"earlier {id}"] = st.session_state.get(f"earlier {id}", 0) + 1


def open_hit(id: str, number: int) -> None:
    st.session_state[f"search {id}"] = False
    st.session_state.pop(f"earlier {id}", None)
    open_conversation(id, number)


def send(engine: Engine, text: str | None = None) -> None:
    text = text or st.session_state.message
    # The address, since the conversation may have been changed after the input was drawn.
    user, id = st.query_params["u"], st.query_params.get("c")
    try:
        open_conversation(engine.call(engine.send(user, id, text)))
    except Problem as problem:
        st.session_state.notice = f"Not sent. {problem}"
        st.session_state.unsent = text  # back into the input


def stop(engine: Engine, id: str) -> None:
    attempt(engine, engine.stop(id))


def retry(engine: Engine, user: str, id: str) -> None:
    attempt(engine, engine.retry(user, id))


def is_open(id: str) -> bool:
    """Whether the page still shows this conversation: a click may come from one that it is about to leave."""
    return st.query_params.get("c") == id


def rename(engine: Engine, user: str, id: str) -> None:
    title = st.session_state[f"title {id}"].strip()
    if not is_open(id):
        return
    if not title or attempt(engine, engine.conversations.rename(user, id, title)):
        st.session_state[f"options {id}"] = False


def delete(engine: Engine, user: str, id: str) -> None:
    if is_open(id) and attempt(engine, engine.delete(user, id)):
        open_conversation(None)
