"""The chat's page, run by Streamlit's own test harness: no browser, no server."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import streamlit as st
from streamlit.testing.v1 import AppTest

from warm_integrations.core import WarmConfig

APP = Path(__file__).parents[2] / "examples" / "chat" / "app.py"

OpenPage = Callable[..., AppTest]

on_one_store = pytest.mark.parametrize("store_kind", ["embedded"], indirect=True)  # what no store has a part in


@pytest.fixture
def open_page(config: WarmConfig, monkeypatch: pytest.MonkeyPatch) -> Iterator[OpenPage]:
    """Opens a page at an address, as a browser would in a new tab."""
    monkeypatch.setenv("WARM_URL", config.url)
    monkeypatch.setenv("WARM_TENANT_ID", config.tenant_id or "")

    def open_page(**address: str) -> AppTest:
        page = AppTest.from_file(APP, default_timeout=20)
        for name, value in address.items():
            page.query_params[name] = value
        return page.run()

    yield open_page
    st.cache_resource.clear()  # closes the engine


def address(page: AppTest) -> dict[str, str]:
    return {name: value if isinstance(value, str) else value[0] for name, value in page.query_params.items()}


def say(page: AppTest, text: str) -> AppTest:
    page = page.chat_input[0].set_value(text).run()
    assert not page.exception
    return page


def said(page: AppTest) -> list[str]:
    return [(message.text or message.markdown)[0].value for message in page.chat_message]


def click(page: AppTest, label: str) -> AppTest:
    return next(button for button in page.button if button.label == label).click().run()


def titles(page: AppTest) -> list[str]:
    return [button.label for button in page.sidebar.button if button.key and button.key.startswith("open ")]


def test_the_address_leads_back_to_a_conversation(open_page):
    page = open_page()
    assert "guest" in page.subheader[0].value
    say(page, "Hello, I am Ada")
    assert said(page)[0] == "Hello, I am Ada"
    assert len(said(page)) == 2
    assert titles(page) == ["Hello, I am Ada"]

    st.cache_resource.clear()  # as a restart
    again = open_page(**address(page))
    assert said(again) == said(page)
    say(again, "What did I say?")
    assert "“Hello, I am Ada”" in said(again)[-1]


def test_conversations_are_a_users_own(open_page):
    page = open_page(u="ada")
    say(page, "count to 1")
    first = address(page)
    click(page, "New chat")
    assert address(page) == {"u": "ada"}
    say(page, "count to 2")
    assert titles(page) == ["count to 2", "count to 1"]
    click(page, "count to 1")
    assert address(page) == first
    assert said(page)[0] == "count to 1"

    page.text_input(key="name").set_value("bob").run()
    assert address(page) == {"u": "bob"}
    assert titles(page) == []
    for name, id in {"bob": first["c"], "ada": "chat:unknown"}.items():
        other = open_page(u=name, c=id)
        assert f"no conversation of {name}" in other.warning[0].value
        assert not other.chat_message
        assert not other.chat_input


def test_a_deleted_conversation_in_another_tab(open_page):
    page = open_page(u="ada")
    say(page, "count to 1")
    other = open_page(**address(page))
    menu = f"menu {address(page)['c']}"
    page.session_state[menu] = True
    click(page.run(), "Delete for good")
    assert titles(page) == []
    assert address(page) == {"u": "ada"}

    say(other, "still there?")
    assert other.warning[0].value.startswith("Not sent. This conversation is gone")
    assert "no conversation of ada" in other.run().warning[0].value


@on_one_store
def test_markdown_without_formulas_and_images(open_page):
    page = open_page()
    text = "costs $5 or $6 ![x](http://example.com/x.png) in `a$b`"
    say(page, text)
    say(page, "What did I say?")
    assert said(page)[0] == text  # as it was typed
    assert "costs \\$5 or \\$6 !\\[x](http://example.com/x.png) in `a$b`" in said(page)[-1]
    assert titles(page) == ["costs \\$5 or \\$6 !\\[x](http://example.com/x.png) in…"]


@on_one_store
def test_a_failed_answer_is_tried_again(open_page, openai_server):
    page = open_page()
    assert page.sidebar.markdown[0].value.startswith(":blue-badge[tiny · ")
    say(page, "status 429")
    assert "wait a minute" in page.error[0].value
    assert said(page) == ["status 429"]
    openai_server.well = True
    click(page, "Try again")
    assert not page.error
    assert said(page) == ["status 429", "You asked: status 429"]


@on_one_store
def test_an_answer_that_broke_off(open_page, openai_server):
    page = open_page()
    say(page, "break")
    assert "try again" in page.error[0].value
    assert said(page) == ["break", "You asked:"]

    st.cache_resource.clear()
    again = open_page(**address(page))
    assert [caption.value for caption in again.caption] == ["This answer was cut short."]
    openai_server.well = True
    click(again, "Try again")
    assert said(again) == ["break", "You asked: break"]


@pytest.mark.parametrize(
    ("url", "step"), [("ftp://example.com", "WARM_URL: Value error, allowed: sqlite"), ("http://127.0.0.1:1", "Check")]
)
def test_a_store_that_cannot_be(monkeypatch, url, step):
    monkeypatch.setenv("WARM_URL", url)
    monkeypatch.setenv("WARM_RETRIES", "0")
    page = AppTest.from_file(APP, default_timeout=20).run()
    assert step in page.error[0].value
    assert not page.exception
    assert not page.chat_input
    st.cache_resource.clear()
