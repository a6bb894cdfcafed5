"""The chat as its users have it: the app in a process of its own, and a real browser."""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
import uuid
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, Locator, Page, expect, sync_playwright

from warm_integrations.core import WarmConfig

APP = Path(__file__).parents[2] / "examples" / "chat" / "app.py"
NO_BROWSER = "no chromium: apt-get install --no-install-recommends chromium fonts-dejavu-core fonts-noto-color-emoji"

on_one_store = pytest.mark.parametrize("store_kind", ["embedded"], indirect=True)  # what no store has a part in

expect.set_options(timeout=20_000)


class App:
    """The app's process, which may be stopped and started again at one address."""

    def __init__(self, config: WarmConfig, directory: Path) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.url = f"http://localhost:{self.port}"
        self.log = directory / "app.log"
        self.directory = directory
        # A home without Streamlit's credentials, as on the first day.
        self.env = os.environ | {
            "HOME": str(directory),
            "WARM_URL": config.url,
            "WARM_TENANT_ID": str(config.tenant_id),
        }
        self.start()

    def start(self) -> None:
        command = [sys.executable, "-m", "streamlit", "run", str(APP), f"--server.port={self.port}"]
        flags = ["--server.headless=true", "--server.fileWatcherType=none"]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                command + flags, cwd=self.directory, env=self.env, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        deadline = time.monotonic() + 60
        while not self._healthy():
            assert self.process.poll() is None, self.log.read_text()
            assert time.monotonic() < deadline, self.log.read_text()
            time.sleep(0.05)

    def _healthy(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.url}/_stcore/health", timeout=5) as response:
                return response.status == 200
        except OSError:
            return False

    def terminate(self) -> None:
        self.process.terminate()
        self.process.wait(20)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(20)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    path = shutil.which("chromium")
    if path is None:
        if os.environ.get("CI"):
            pytest.fail(NO_BROWSER, pytrace=False)
        pytest.skip(NO_BROWSER)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox", "--disable-gpu"])
        yield browser
        browser.close()


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
        apps[store_kind] = App(request.getfixturevalue("config"), directory)
    return apps[store_kind]


@pytest.fixture
def user() -> str:
    """A user of this test only."""
    return f"ada{uuid.uuid4().hex[:8]}"


@pytest.fixture
def page(browser: Browser, app: App, user: str) -> Iterator[Page]:
    """A page that may call nobody but the app."""
    context = browser.new_context(viewport={"width": 1000, "height": 700}, reduced_motion="reduce")
    hosts: set[str] = set()
    context.on("request", lambda request: hosts.add(urlsplit(request.url).netloc))
    page = context.new_page()
    page.goto(f"{app.url}/?u={user}")
    yield page
    context.close()
    assert hosts - {""} == {f"localhost:{app.port}"}


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


def test_history_survives_the_app(app, page):
    say(page, "Hello, I am Ada")
    expect_conversation(page, "Hello, I am Ada", "only a few rules")
    expect(button(page, "Hello, I am Ada")).to_be_visible()

    app.terminate()
    app.start()
    page.reload()
    expect_conversation(page, "Hello, I am Ada", "only a few rules")
    say(page, "What did I say?")
    expect_conversation(page, "Hello, I am Ada", "only a few rules", "What did I say?", "“Hello, I am Ada”")
    say(page, "count to 900")
    expect(message(page, 5)).to_contain_text("1 2 3")

    app.kill()
    app.start()
    page.reload()
    expect(page.get_by_text("This message has no answer.")).to_be_visible()
    expect_conversation(
        page, "Hello, I am Ada", "only a few rules", "What did I say?", "“Hello, I am Ada”", "count to 900"
    )
    button(page, "Try again").click()
    expect(message(page, 5)).to_contain_text("1 2 3")
    expect(page.get_by_test_id("stChatMessage")).to_have_count(6)
    assert "Traceback" not in app.log.read_text()


def test_a_refresh_and_a_second_tab_follow_the_answer(page):
    say(page, "count to 120")
    expect(message(page, 1)).to_contain_text("1 2 3")
    page.reload()
    other = page.context.new_page()
    other.goto(page.url)
    for tab in page, other:
        expect(button(tab, "Stop")).to_be_visible()
        expect(tab.get_by_test_id("stChatInputTextArea")).to_be_disabled()
        expect_messages(tab, "count to 120", "1 2 3 4")
    for tab in page, other:
        expect_conversation(tab, "count to 120", "118 119 120")
        expect(tab.get_by_test_id("stChatInputTextArea")).to_be_enabled()


@on_one_store
def test_two_tabs_do_not_answer_at_once(page):
    say(page, "count to 2")
    expect_conversation(page, "count to 2", "1 2")
    other = page.context.new_page()
    other.goto(page.url)
    expect_conversation(other, "count to 2", "1 2")
    say(page, "count to 80")
    expect(message(page, 3)).to_contain_text("1 2 3")
    say(other, "and I?")  # its page was drawn before
    expect(other.get_by_test_id("stAlert")).to_contain_text("Not sent. An answer is under way")
    expect_messages(other, "count to 2", "1 2", "count to 80", "1 2 3")
    box = other.get_by_test_id("stChatInputTextArea")
    expect(box).to_be_enabled()
    expect(box).to_have_value("and I?")
    box.press("Enter")
    expect_conversation(other, "count to 2", "1 2", "count to 80", "79 80", "and I?", "message 3")


@on_one_store
def test_stop_keeps_what_was_said(page):
    say(page, "count to 90")
    expect(message(page, 1)).to_contain_text("1 2 3")
    button(page, "Stop").click()
    expect(page.get_by_text("This answer was cut short.")).to_be_visible()
    kept = message(page, 1).get_by_test_id("stMarkdown").inner_text()
    assert re.match(r"1 2 3[ \d]*$", kept)
    assert "90" not in kept
    page.reload()
    expect_conversation(page, "count to 90", kept)
    button(page, "Try again").click()
    expect_conversation(page, "count to 90", "89 90")
    expect(button(page, "Try again")).to_have_count(0)


def test_rename_delete_and_links(page, browser, user):
    say(page, "count to 1")
    expect_conversation(page, "count to 1", "1")
    link = page.url
    button(page, "New chat").click()
    expect(page.get_by_text(f"Hello {user}, what is on your mind?")).to_be_visible()
    say(page, "count to 2")
    expect_conversation(page, "count to 2", "1 2")
    rows = page.get_by_test_id("stSidebar").locator('[class*="st-key-open"]')
    expect(rows).to_have_text(["count to 2", "count to 1"])

    page.get_by_test_id("stSidebar").get_by_text("⋯").nth(1).click()
    menu = page.get_by_test_id("stPopoverBody")
    menu.get_by_label("Title").fill("Holidays")
    button(page, "Rename").click()
    expect(rows).to_have_text(["count to 2", "Holidays"])
    expect(menu).to_have_count(0)
    expect_conversation(page, "count to 2", "1 2")

    with browser.new_context() as context:  # no cookies, no storage: the link alone
        visitor = context.new_page()
        visitor.goto(link)
        expect_conversation(visitor, "count to 1", "1")
        visitor.goto(link.replace(f"u={user}", "u=bob"))
        expect(visitor.get_by_test_id("stAlert")).to_contain_text("no conversation of bob")
        expect(visitor.get_by_test_id("stChatMessage")).to_have_count(0)

    button(page, "Holidays").click()
    expect_conversation(page, "count to 1", "1")
    page.get_by_test_id("stSidebar").get_by_text("⋯").nth(1).click()
    button(page, "Delete for good").click()
    expect(rows).to_have_text(["count to 2"])
    expect(page.get_by_text(f"Hello {user}, what is on your mind?")).to_be_visible()
    page.goto(link)
    expect(page.get_by_test_id("stAlert")).to_contain_text(f"no conversation of {user}")


@on_one_store
def test_nothing_is_fetched_from_elsewhere(page):
    # The fixture sees to it: this adds what a page might fetch.
    say(page, "![x](http://example.com/x.png) <img src='http://example.com/y.png'> :material/home: :sweat_smile:")
    expect(message(page, 1)).to_contain_text("only a few rules")
    expect(button(page, "Stop")).to_have_count(0)
    say(page, "What did I say?")
    expect(message(page, 3)).to_contain_text("![x](http://example.com/x.png)")
