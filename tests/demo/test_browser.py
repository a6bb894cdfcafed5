"""The chat as its users have it: the app in a process of its own, and a real browser."""

from __future__ import annotations

import json
import os
import re
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, Locator, Page, TimeoutError, expect

from demo.running import App, chromium
from local_server import LocalServer
from warm_integrations.core import WarmConfig

pytest.importorskip("streamlit", reason="the chat needs Python 3.11 or newer")

on_one_store = pytest.mark.parametrize("store_kind", ["embedded"], indirect=True)  # what no store has a part in

expect.set_options(timeout=60_000)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    try:
        with chromium() as browser:
            yield browser
    except FileNotFoundError as missing:
        if os.environ.get("CI"):
            pytest.fail(str(missing), pytrace=False)
        pytest.skip(str(missing))


@pytest.fixture(scope="module")
def apps() -> Iterator[dict[str, App]]:
    """One running app for each store: starting one takes longer than most tests."""
    apps: dict[str, App] = {}
    yield apps
    for app in apps.values():
        app.terminate()


@pytest.fixture
def app(browser: Browser, apps: dict[str, App], store_kind: str, request: pytest.FixtureRequest) -> App:
    if store_kind not in apps:
        directory = request.getfixturevalue("tmp_path_factory").mktemp("app")
        config: WarmConfig = request.getfixturevalue("config")
        apps[store_kind] = App(directory, {"WARM_URL": config.url, "WARM_TENANT_ID": str(config.tenant_id)})
    return apps[store_kind]


@pytest.fixture
def user() -> str:
    """A user of this test only."""
    return f"ada{uuid.uuid4().hex[:8]}"


@contextmanager
def tab(browser: Browser, app: App, **options: object) -> Iterator[Page]:
    """A new visitor's page, which may call nobody but the app."""
    settings = {"viewport": {"width": 1000, "height": 700}, "reduced_motion": "reduce", **options}
    context = browser.new_context(**settings)
    hosts: set[str] = set()
    context.on("request", lambda request: hosts.add(urlsplit(request.url).netloc))
    context.on("page", lambda page: page.on("websocket", lambda socket: hosts.add(urlsplit(socket.url).netloc)))
    yield context.new_page()
    context.close()
    assert hosts - {""} == {f"localhost:{app.port}"}


@pytest.fixture
def page(browser: Browser, app: App, user: str) -> Iterator[Page]:
    with tab(browser, app) as page:
        page.goto(f"{app.url}/?u={user}")
        yield page


def say(page: Page, text: str) -> None:
    box = page.get_by_test_id("stChatInputTextArea")
    expect(box).to_be_enabled()
    box.fill(text)
    box.press("Enter")


def message(page: Page, number: int) -> Locator:
    return page.get_by_test_id("stChatMessage").nth(number)


def expect_messages(page: Page, *texts: str) -> None:
    expect(page.get_by_test_id("stChatMessage")).to_contain_text(list(texts))


def expect_conversation(page: Page, *texts: str) -> None:
    """That these messages are there, and the last of them is complete."""
    expect_messages(page, *texts)
    expect(button(page, "Stop")).to_have_count(0)


def button(page: Page, name: str) -> Locator:
    return page.get_by_role("button", name=name, exact=True)


def press(page: Page, name: str) -> None:
    """Use a button in a menu that may still be unfolding, where a click would miss it."""
    button(page, name).press("Enter")


def downloaded(page: Page, name: str) -> str:
    """The text that a button gives. It is pressed again where the page was just drawing it anew."""
    for _ in range(3):
        with suppress(TimeoutError):
            with page.expect_download() as download:
                press(page, name)
            return Path(download.value.path()).read_text()
    pytest.fail(f"{name} gave no file")


def memories(page: Page) -> Locator:
    return page.get_by_test_id("stSidebar").get_by_test_id("stText")


def open_memory(page: Page) -> None:
    page.get_by_role("tab", name="Memory").click()


def test_what_is_said_and_remembered_survives_the_app(app, page, user):
    say(page, "Hello, I am Ada")
    expect_conversation(page, "Hello, I am Ada", "only a few rules")
    say(page, "remember that my sister Mary lives in Oslo")
    expect_conversation(page, "Hello", "only a few rules", "remember that", "I will remember: my sister")

    app.terminate()
    app.start()
    page.reload()
    expect_conversation(page, "Hello", "only a few rules", "remember that", "I will remember: my sister")
    button(page, "New chat").click()
    expect(page.get_by_text(f"Hello {user}, what is on your mind?")).to_be_visible()
    say(page, "Where does Mary live?")
    expect_conversation(page, "Where does Mary live?", "You told me: “my sister Mary lives in Oslo”")
    say(page, "count to 900")
    expect(message(page, 3)).to_contain_text("1 2 3")

    app.kill()
    app.start()
    page.reload()
    expect(page.get_by_text("This message has no answer.")).to_be_visible()
    expect_conversation(page, "Where does Mary live?", "my sister Mary lives in Oslo", "count to 900")
    open_memory(page)
    expect(memories(page)).to_have_text(["my sister Mary lives in Oslo"])
    button(page, "Try again").click()
    expect(message(page, 3)).to_contain_text("1 2 3")
    expect(page.get_by_test_id("stChatMessage")).to_have_count(4)
    button(page, "Stop").click()
    expect(page.get_by_text("This answer was cut short.")).to_be_visible()
    say(page, "What do you know about me?")
    expect(message(page, 5)).to_contain_text("my sister Mary lives in Oslo")
    assert "Traceback" not in app.log.read_text()


def test_the_person_sees_and_erases_what_is_known(page, browser, app):
    open_memory(page)
    say(page, "remember that I like green tea #drink")
    expect(memories(page)).to_have_text(["I like green tea"])
    expect(page.get_by_test_id("stSidebar")).to_contain_text("#drink")
    say(page, "remember that Rex is a dog")
    expect(memories(page)).to_have_text(["Rex is a dog", "I like green tea"])

    with tab(browser, app) as other:  # somebody else, at the same time
        other.goto(f"{app.url}/?u=bob{uuid.uuid4().hex[:8]}")
        say(other, "What do you know about me?")
        expect_conversation(other, "What do you know", "Nothing yet")
        open_memory(other)
        expect(other.get_by_text("Nothing is known of you yet.")).to_be_visible()

    edit = page.get_by_test_id("stSidebar").get_by_text("Edit", exact=True)
    edit.nth(1).click()
    press(page, "Forget for good")
    expect(memories(page)).to_have_text(["Rex is a dog"])
    say(page, "What do you know about me?")
    expect(message(page, 5)).to_contain_text("Rex is a dog")
    expect(message(page, 5)).not_to_contain_text("tea")

    expect(button(page, "Stop")).to_have_count(0)
    edit.click()
    page.get_by_label("What is so").fill("Rex is a cat")
    press(page, "Save")
    expect(memories(page)).to_have_text(["Rex is a cat"])
    expect(page.get_by_label("What is so")).to_be_hidden()
    with page.expect_download() as download:
        press(page, "Export")
    exported = json.loads(Path(download.value.path()).read_text())
    assert [each["text"] for each in exported["memories"]] == ["Rex is a cat"]
    page.get_by_text("Forget everything").click()
    press(page, "Erase it all")
    expect(memories(page)).to_have_count(0)
    say(page, "What is Rex?")
    expect(message(page, 7)).to_contain_text("I know nothing of that")


def test_a_refresh_and_a_second_tab_follow_the_answer(page):
    say(page, "count to 400")
    expect(message(page, 1)).to_contain_text("1 2 3")
    page.reload()
    other = page.context.new_page()
    other.goto(page.url)
    for each in page, other:
        expect(button(each, "Stop")).to_be_visible()
        expect(each.get_by_test_id("stChatInputTextArea")).to_be_disabled()
        expect_messages(each, "count to 400", "1 2 3 4")
    for each in page, other:
        expect_conversation(each, "count to 400", "398 399 400")
        expect(each.get_by_test_id("stChatInputTextArea")).to_be_enabled()


@on_one_store
def test_two_tabs_do_not_answer_at_once(page):
    say(page, "count to 2")
    expect_conversation(page, "count to 2", "1 2")
    other = page.context.new_page()
    other.goto(page.url)
    expect_conversation(other, "count to 2", "1 2")
    say(page, "count to 300")
    expect(message(page, 3)).to_contain_text("1 2 3")
    say(other, "and I")  # its page was drawn before
    expect(other.get_by_test_id("stAlert")).to_contain_text("Not sent. An answer is under way")
    expect_messages(other, "count to 2", "1 2", "count to 300", "1 2 3")
    box = other.get_by_test_id("stChatInputTextArea")
    expect(box).to_be_enabled()
    expect(box).to_have_value("and I")
    box.press("Enter")
    expect_conversation(other, "count to 2", "1 2", "count to 300", "299 300", "and I", "message 3")


@on_one_store
def test_stop_keeps_what_was_said(page):
    say(page, "count to 300")
    expect(message(page, 1)).to_contain_text("1 2 3")
    button(page, "Stop").click()
    expect(page.get_by_text("This answer was cut short.")).to_be_visible()
    kept = message(page, 1).get_by_test_id("stMarkdown").first.inner_text()
    assert re.match(r"1 2 3[ \d]*$", kept)
    assert "300" not in kept
    page.reload()
    expect_conversation(page, "count to 300", kept)
    button(page, "Try again").click()
    expect_conversation(page, "count to 300", "299 300")
    expect(button(page, "Try again")).to_have_count(0)


def test_rename_export_delete_and_links(page, browser, app, user):
    say(page, "count to 1")
    expect_conversation(page, "count to 1", "1")
    link = page.url
    button(page, "New chat").click()
    expect(page.get_by_text(f"Hello {user}, what is on your mind?")).to_be_visible()
    say(page, "count to 2")
    expect_conversation(page, "count to 2", "1 2")
    rows = page.get_by_test_id("stSidebar").locator('[class*="st-key-open"]')
    expect(rows).to_have_text(["count to 2", "count to 1"])

    button(page, "Options").click()
    page.get_by_label("Title", exact=True).fill("Holidays")
    press(page, "Rename")
    expect(rows).to_have_text(["Holidays", "count to 1"])
    expect(page.get_by_test_id("stPopoverBody")).to_have_count(0)
    button(page, "Options").click()
    for kind, begin in {"JSON": '{\n "version": 1', "Markdown": "# Holidays\n\n**You**\n\ncount to 2"}.items():
        assert downloaded(page, f"Export {kind}").startswith(begin)

    with tab(browser, app) as visitor:  # no cookies, no storage: the link alone
        visitor.goto(link)
        expect_conversation(visitor, "count to 1", "1")
        visitor.goto(link.replace(f"u={user}", "u=bob"))
        expect(visitor.get_by_test_id("stAlert")).to_contain_text("no conversation of bob")
        expect(visitor.get_by_test_id("stChatMessage")).to_have_count(0)

    button(page, "count to 1").click()
    expect_conversation(page, "count to 1", "1")
    button(page, "Options").click()
    expect(page.get_by_label("Title", exact=True)).to_have_value("count to 1")
    press(page, "Delete for good")
    expect(rows).to_have_text(["Holidays"])
    expect(page.get_by_text(f"Hello {user}, what is on your mind?")).to_be_visible()
    page.goto(link)
    expect(page.get_by_test_id("stAlert")).to_contain_text(f"no conversation of {user}")


def test_the_server_goes_and_comes_back(browser, warm_server_binary, tmp_path, user):
    with LocalServer(tmp_path / "server") as server:
        app = App(tmp_path, {"WARM_URL": server.url, "WARM_RETRIES": "0"})
        with tab(browser, app) as page:
            page.goto(f"{app.url}/?u={user}")
            say(page, "remember that I like tea")
            expect_conversation(page, "remember", "I will remember: I like tea")
            server.stop()
            say(page, "an important message")
            alert = page.get_by_test_id("stAlert")
            expect(alert.get_by_text("no connection to")).to_be_visible()
            expect(alert.get_by_text("Check WARM_URL")).to_be_visible()
            expect(page.get_by_test_id("stChatInputTextArea")).to_have_value("an important message")
            server.start()
            button(page, "Try again").click()
            expect_conversation(page, "remember", "I will remember: I like tea")
            box = page.get_by_test_id("stChatInputTextArea")
            expect(box).to_have_value("an important message")
            box.press("Enter")
            expect_conversation(page, "remember", "I will remember", "an important message", "message 2")
            say(page, "count to 300")
            expect(message(page, 5)).to_contain_text("1 2 3")
            server.kill()  # in the middle of an answer
            expect(page.get_by_text("Check WARM_URL").first).to_be_visible()
            server.start()
            button(page, "Try again").first.click()
            expect(message(page, 4)).to_contain_text("count to 300")
            button(page, "Try again").click()
            expect_conversation(page, "remember", "I will", "an important", "message 2", "count to 300", "299 300")
        app.terminate()


@on_one_store
def test_search_jumps_to_the_message(page):
    say(page, "remember that my sister Mary lives in Oslo")
    expect_conversation(page, "remember", "I will remember")
    for number in range(4):
        say(page, f"count to {400 + number}")
        expect(message(page, 2 * number + 3)).to_contain_text("1 2 3")
        button(page, "Stop").click()
        expect(page.get_by_text("This answer was cut short.")).to_be_visible()
    button(page, "Search").click()
    box = page.get_by_label("Search this conversation by meaning")
    box.fill("Where do sisters live?")
    box.press("Enter")
    page.get_by_test_id("stPopoverBody").get_by_role("button", name="You: remember that my sister").press("Enter")
    expect(page).to_have_url(re.compile(r"&m=0$"))
    expect(page.get_by_test_id("stPopoverBody")).to_have_count(0)
    expect(message(page, 0)).to_be_in_viewport()


@on_one_store
def test_a_narrow_dark_screen_the_keyboard_and_names(browser, app, user):
    with tab(browser, app, viewport={"width": 390, "height": 800}, color_scheme="dark") as page:
        page.goto(f"{app.url}/?u={user}")
        say(page, "remember that I like green tea with a very long explanation of why that is so #drink")
        expect_conversation(page, "remember that", "I will remember")
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
        dark = page.get_by_test_id("stApp").evaluate("app => getComputedStyle(app).backgroundColor")
        assert sum(map(int, re.findall(r"\d+", dark)[:3])) < 150
        for name in "Search", "Options":
            expect(button(page, name)).to_be_in_viewport()
        expect(button(page, "New chat")).not_to_be_in_viewport()

        page.get_by_test_id("stExpandSidebarButton").get_by_role("button").or_(
            page.locator("button[data-testid=stExpandSidebarButton]")
        ).first.click()
        expect(button(page, "New chat")).to_be_in_viewport()
        page.get_by_role("tab", name="Conversations").focus()
        page.keyboard.press("ArrowRight")
        page.keyboard.press("Enter")
        expect(memories(page)).to_have_text([re.compile("I like green tea")])
        page.keyboard.press("Tab")
        for _ in range(3):  # over the reason, to the menu
            if page.evaluate("document.activeElement.innerText").startswith("Edit"):
                break
            page.keyboard.press("Tab")
        page.keyboard.press("Enter")
        expect(page.get_by_label("What is so")).to_be_visible()

        # What a screen reader is told: every control has a name.
        told = page.locator("body").aria_snapshot()
        assert 'textbox "What is so"' in told
        assert not re.findall(r"^\s*- (?:button|textbox|link|tab)(?:$|:| \[)", told, re.MULTILINE), told


@on_one_store
def test_nothing_is_fetched_from_elsewhere(page):
    # The fixture sees to it: this adds what a page might fetch.
    say(page, "![x](http://example.com/x.png) <img src='http://example.com/y.png'> :material/home: :sweat_smile:")
    expect(message(page, 1)).to_contain_text("only a few rules")
    expect(button(page, "Stop")).to_have_count(0)
    say(page, "remember that ![z](http://example.com/z.png) <img src='http://example.com/z.png'>")
    expect(message(page, 3)).to_contain_text("I will remember: ![z](http://example.com/z.png)")
    open_memory(page)
    expect(memories(page)).to_contain_text("![z](http://example.com/z.png)")
    say(page, "What did I say?")
    expect(message(page, 5)).to_contain_text("![x](http://example.com/x.png)")
