"""The chat's page, run by Streamlit's own test harness: no browser, no server."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from warm_integrations.core import WarmConfig
from warm_integrations.openai_agents import WarmSession

st = pytest.importorskip("streamlit", reason="the chat needs Python 3.11 or newer")
AppTest = pytest.importorskip("streamlit.testing.v1").AppTest

APP = Path(__file__).parents[2] / "examples" / "chat" / "app.py"

OpenPage = Callable[..., Any]

on_one_store = pytest.mark.parametrize("store_kind", ["embedded"], indirect=True)  # what no store has a part in


@pytest.fixture
def open_page(config: WarmConfig, monkeypatch: pytest.MonkeyPatch) -> Iterator[OpenPage]:
    """Opens a page at an address, as a browser would in a new tab."""
    monkeypatch.setenv("WARM_URL", config.url)
    monkeypatch.setenv("WARM_TENANT_ID", config.tenant_id or "")

    def open_page(**address: str) -> AppTest:
        page = AppTest.from_file(APP, default_timeout=60)
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


def remembered(page: AppTest) -> list[str]:
    return [text.value for text in page.sidebar.text]


def captions(page: AppTest) -> list[str]:
    return [caption.value for caption in page.caption]


def open_menu(page: AppTest, key: str) -> AppTest:
    page.session_state[key] = True
    return page.run()


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
    click(open_menu(page, f"options {address(page)['c']}"), "Delete for good")
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
    [title] = titles(page)
    assert title.startswith(r"costs \$5 or \$6 \!\[x\]\(http")


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
    assert "This answer was cut short." in captions(again)
    openai_server.well = True
    click(again, "Try again")
    assert said(again) == ["break", "You asked: break"]


def test_rename_and_search_of_titles(open_page):
    page = open_page(u="ada")
    say(page, "the green forest")
    click(page, "New chat")
    say(page, "a blue sea")
    open_menu(page, f"options {address(page)['c']}")
    next(field for field in page.text_input if field.label == "Title").set_value("Holidays *2026*")
    click(page, "Rename")
    assert titles(page) == [r"Holidays \*2026\*", "the green forest"]
    assert page.main.markdown[0].value == r"##### Holidays \*2026\*"
    page.text_input(key="wanted").set_value("GREEN the").run()
    assert titles(page) == ["the green forest"]
    page.text_input(key="wanted").set_value("xyz").run()
    assert titles(page) == []


def test_search_leads_to_a_message(open_page, config):
    page = open_page(u="ada")
    say(page, "the green forest")
    id = address(page)["c"]
    items = [{"role": ("user", "assistant")[number % 2], "content": f"filler {number}"} for number in range(100)]
    asyncio.run(WarmSession(id, config, searchable=True).add_items(items))
    page.run()
    assert len(said(page)) == 40
    assert said(page)[-1] == "filler 99"
    click(page, "Earlier messages")
    assert len(said(page)) == 80

    open_menu(page, f"search {id}")
    page.text_input(key=f"query {id}").set_value("a forest").run()
    click(page, "You: the green forest")
    assert address(page) == {"u": "ada", "c": id, "m": "0"}
    assert said(page)[0] == "the green forest"
    assert len(said(page)) == 30
    assert not page.chat_input[0].disabled
    click(page, "Newest messages")
    assert "m" not in address(page)
    assert said(page)[-1] == "filler 99"
    for wrong in "-1", "102", "x", "²":
        assert said(open_page(u="ada", c=id, m=wrong))[-1] == "filler 99"


def test_memory_is_seen_changed_and_erased(open_page):
    page = open_page(u="ada")
    say(page, "hello")
    say(page, "remember that I like tea #drink")
    where = address(page)
    assert remembered(page) == ["I like tea"]
    assert any(re.search(r"\d\d\\?:\d\d UTC .*drink", caption) for caption in captions(page))
    assert any(" tokens (" in caption for caption in captions(page))
    [call] = page.main.expander
    assert (call.label, call.icon) == ("remember: I like tea", ":material/check:")
    click(page, "New chat")
    click(page, r"You said: “remember that I like tea \#drink”")
    assert address(page) == {**where, "m": "2"}

    [id] = (button.key.removeprefix("why ") for button in page.button if button.label.startswith("You said"))
    open_menu(page, f"edit {id}")
    page.text_area(key=f"text {id}").set_value("I like coffee")
    page.text_input(key=f"tags {id}").set_value("#drink, hot,")
    click(page, "Save")
    assert remembered(page) == ["I like coffee"]
    assert any(r"\#drink · \#hot" in caption for caption in captions(page))
    say(page, "forget coffee")
    assert remembered(page) == []

    for fact in "I like tea", "Rex is a dog":
        say(page, f"remember that {fact}")
    assert remembered(open_page(u="bob")) == []
    tea = next(button.key for button in page.button if button.label.endswith("I like tea”"))
    click(open_menu(page, tea.replace("why", "edit")), "Forget for good")
    assert remembered(page) == ["Rex is a dog"]
    say(page, "What do you know about me?")
    assert said(page)[-1] == "This is what I know:\n\n- Rex is a dog"
    click(page, "Erase it all")
    assert remembered(page) == []
    say(page, "What do you know about me?")
    assert said(page)[-1].startswith("Nothing yet")


@on_one_store
def test_an_idea_is_said_at_a_click(open_page):
    page = open_page(u="ada")
    click(page, "Remember that I like green tea")
    assert said(page)[0] == "Remember that I like green tea"
    assert remembered(page) == ["I like green tea"]


@pytest.mark.parametrize(
    ("url", "step"), [("ftp://example.com", "WARM_URL): allowed: sqlite"), ("http://127.0.0.1:1", "Check")]
)
def test_a_store_that_cannot_be(monkeypatch, url, step):
    monkeypatch.setenv("WARM_URL", url)
    monkeypatch.setenv("WARM_RETRIES", "0")
    page = AppTest.from_file(APP, default_timeout=60).run()
    assert step in page.error[0].value
    assert not page.exception
    assert bool(page.chat_input) == url.startswith("http")  # nothing typed is lost while a server is down
    st.cache_resource.clear()
