"""The chat on a long conversation, as its user has it: the app, its page in Chromium, and each of the two stores.

    python benchmarks/chat.py [--items 2000] [--rounds 9]

Prints, as medians with the least and the most in milliseconds: from opening the link in a new tab until the last
message is there; from a click in the list until then; and from Enter until the first word of the answer is there.
The offline rules wait 30 ms before each word. Needs Chromium, and warm-server for the second half.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path += [str(Path(__file__).parents[1] / folder) for folder in ("examples", "tests")]

from playwright.sync_api import Browser, Page

from demo.running import App, chromium
from local_server import LocalServer
from warm_integrations.core import WarmConfig
from warm_integrations.openai_agents import WarmSession, user_memory

ID, USER, MESSAGE = "chat:long", "ada", '[data-testid="stChatMessage"]'

# Waits in the page itself, so that nothing is added to what is measured.
FIRST_WORD = """() => new Promise(resolve => {
    let start
    document.addEventListener("keydown", () => start ??= performance.now(), {capture: true})
    const look = () => {
        const last = [...document.querySelectorAll('[data-testid="stChatMessage"]')].at(-1)
        if (start && last?.querySelector('[data-testid="stMarkdown"]')?.innerText.startsWith("1"))
            resolve(performance.now() - start)
        else
            requestAnimationFrame(look)
    }
    look()
})"""


def items(count: int) -> list[Any]:
    """Questions, each with a tool call, its output and an answer."""
    found: list[Any] = []
    for number in range(count // 4):
        call = {"type": "function_call", "call_id": f"call_{number}", "name": "recall", "arguments": '{"query": "tea"}'}
        output = {"type": "function_call_output", "call_id": f"call_{number}", "output": '{"memories": []}'}
        text = f"Answer {number}: " + "the quick brown fox jumps over the lazy dog; " * 8
        content = [{"type": "output_text", "text": text, "annotations": []}]
        answer = {"type": "message", "role": "assistant", "status": "completed", "content": content}
        found += [{"role": "user", "content": f"What is the answer to question {number}?"}, call, output, answer]
    return found


async def fill(config: WarmConfig, count: int) -> str:
    """Make the conversation, another one, and some memories. Returns the words that end the conversation."""
    for id, title, said in ((ID, "Long", items(count)), ("chat:other", "Other", items(4))):
        session = WarmSession(id, config, searchable=True)
        await session.set_metadata({"user": USER, "title": title})
        await session.add_items(said)
    for number in range(20):
        await user_memory(config, USER).remember(f"I like the number {number}")
    return f"Answer {count // 4 - 1}:"


def since(start: float) -> float:
    return (time.perf_counter() - start) * 1000


def measure(browser: Browser, app: App, last: str, rounds: int) -> dict[str, list[float]]:
    times: dict[str, list[float]] = {"open the link": [], "open from the list": [], "first word": []}
    link = f"{app.url}/?u={USER}&c={ID}"
    context = browser.new_context(viewport={"width": 1000, "height": 800})

    def shown(page: Page, text: str) -> None:
        page.locator(MESSAGE).filter(has_text=text).first.wait_for()

    def open_link() -> Page:
        page = context.new_page()
        page.goto(link, wait_until="commit")
        shown(page, last)
        return page

    open_link().close()  # the browser has the page's scripts from here on
    for _ in range(rounds):
        page = context.new_page()
        start = time.perf_counter()
        page.goto(link, wait_until="commit")
        shown(page, last)
        times["open the link"].append(since(start))
        page.get_by_role("button", name="Other").click()
        shown(page, "Answer 0:")
        start = time.perf_counter()
        page.get_by_role("button", name="Long").click()
        shown(page, last)
        times["open from the list"].append(since(start))
        page.close()
    page = open_link()
    for number in range(rounds):
        # The first answer begins with the wanted word; the second one is there so that the next round begins anew.
        for text in (f"count to {number + 5}", f"hello for the time {number}"):
            box = page.get_by_test_id("stChatInputTextArea")
            box.fill(text)
            page.evaluate(f"() => {{ window.first = ({FIRST_WORD})() }}")
            box.press("Enter")
            if text.startswith("count"):
                times["first word"].append(page.evaluate("window.first"))
            shown(page, text)
            page.locator(MESSAGE).last.get_by_text("tokens (").wait_for()
            page.locator('[data-test-script-state="notRunning"]').wait_for()
    context.close()
    return times


@contextlib.contextmanager
def store(kind: str, directory: str) -> Iterator[str]:
    if kind == "SQLite":
        yield f"sqlite:///{directory}/warm.db"
    else:
        with LocalServer(f"{directory}/server") as server:
            yield server.url


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--items", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=9)
    options = parser.parse_args()
    for kind in ("SQLite", "warm-server"):
        with tempfile.TemporaryDirectory() as directory, store(kind, directory) as url:
            last = asyncio.run(fill(WarmConfig(url=url), options.items))
            app = App(Path(directory), {"WARM_URL": url, "OPENAI_API_KEY": "", "OPENAI_BASE_URL": ""})
            try:
                with chromium() as browser:
                    times = measure(browser, app, last, options.rounds)
            finally:
                app.terminate()
        print(f"{kind}, a conversation of {options.items} items")
        for name, values in times.items():
            print(f"  {name:20}{statistics.median(values):7.0f} ms  ({min(values):.0f} to {max(values):.0f})")


if __name__ == "__main__":
    main()
