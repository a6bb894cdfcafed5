"""Screenshots of the chat, made by its own page in a browser: `make screenshots` writes docs/screenshots/*.png.

A conversation is held with the offline rules on a new embedded store. Needs Chromium.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.append(str(ROOT / "tests"))

from playwright.sync_api import Page, expect  # noqa: E402

from demo.running import App, chromium  # noqa: E402

WIDE, NARROW = {"width": 1100, "height": 760}, {"width": 390, "height": 760}
SAID = (
    "Remember that my sister Mary lives in Oslo #family",
    "Remember that I like green tea #drinks",
    "Remember that I am allergic to peanuts #health",
)
ASKED = ("Where does Mary live?", "What do you know about me?")


def say(page: Page, text: str) -> None:
    box = page.get_by_test_id("stChatInputTextArea")
    expect(box).to_be_enabled()
    before = page.get_by_test_id("stChatMessage").count()
    box.fill(text)
    box.press("Enter")
    expect(page.get_by_test_id("stChatMessage")).to_have_count(before + 2)
    shield(page)


def shield(page: Page) -> None:
    """Wait until the answer is complete and the page rests."""
    expect(page.get_by_role("button", name="Stop")).to_have_count(0)
    expect(page.locator('[data-test-script-state="notRunning"]')).to_be_visible()
    page.mouse.move(600, 5)
    page.wait_for_timeout(500)


def take(page: Page, name: str) -> None:
    path = ROOT / "docs" / "screenshots" / f"{name}.png"
    page.screenshot(path=path)
    print(f"{path.relative_to(ROOT)}: {path.stat().st_size // 1000} kB")


def main() -> None:
    with tempfile.TemporaryDirectory() as directory, chromium() as browser:
        app = App(Path(directory), {"WARM_URL": "sqlite:///chat.db", "OPENAI_API_KEY": "", "OPENAI_BASE_URL": ""})
        try:
            page = browser.new_page(viewport=WIDE, reduced_motion="reduce")
            page.goto(f"{app.url}/?u=Ada")
            say(page, "Count to 20")
            page.get_by_role("button", name="New chat").click()
            expect(page.get_by_text("what is on your mind?")).to_be_visible()
            shield(page)
            take(page, "greeting")
            for text in SAID + ASKED:
                say(page, text)
            link = page.url
            take(page, "light")
            page.get_by_role("tab", name="Memory").click()
            shield(page)
            take(page, "memory")

            for name, size in {"dark": WIDE, "narrow": NARROW}.items():
                other = browser.new_page(viewport=size, color_scheme="dark" if name == "dark" else "light")
                other.goto(link)
                expect(other.get_by_test_id("stChatMessage")).to_have_count(2 * len(SAID + ASKED))
                shield(other)
                if name == "dark":
                    other.get_by_role("tab", name="Memory").click()
                    other.get_by_text("list_memories").click()
                    shield(other)
                take(other, name)
        finally:
            app.terminate()


if __name__ == "__main__":
    main()
