"""A window on the web page: Chromium, driven by Playwright. Skips, saying so, where one of them is missing."""

import shutil
from typing import Any

import pytest

sync_api = pytest.importorskip(
    "playwright.sync_api", reason="the page is tested with Playwright: pip install playwright"
)
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
if CHROMIUM is None:
    pytest.skip("the page is tested in Chromium, which is not installed", allow_module_level=True)

expect = sync_api.expect
PATIENCE = 120_000  # milliseconds after which a test gives up on the page: a first search compiles, maybe on busy cores
expect.set_options(timeout=PATIENCE)
DESKTOP, PHONE = {"width": 1280, "height": 860}, {"width": 390, "height": 844}


class Visit:
    """A window on the page; what goes wrong in it is noted."""

    def __init__(self, browser: Any, **options: Any) -> None:
        self.context = browser.new_context(**{"viewport": DESKTOP, **options})
        self.context.set_default_timeout(PATIENCE)
        self.page = self.context.new_page()
        self.troubles: list[str] = []
        self.asked: list[str] = []
        self.page.on("pageerror", lambda error: self.troubles.append(str(error)))
        self.page.on("console", self._note)
        self.page.on("request", lambda request: self.asked.append(request.url))

    def _note(self, message: Any) -> None:
        refused = "Failed to load resource" in message.text  # an answer with an error, which the page has told
        if message.type == "error" and not refused:
            self.troubles.append(message.text)

    def open(self, url: str) -> Any:
        self.page.goto(url)
        return self.page


def upload(page: Any, data: bytes, name: str = "mine.jpg", kind: str = "image/jpeg") -> None:
    page.set_input_files("#file", {"name": name, "mimeType": kind, "buffer": data})


def settled(page: Any) -> Any:
    """Waits for an answer; gives the cards of all hits."""
    expect(page.locator("#results")).to_have_attribute("aria-busy", "false")
    cards = page.locator(".card:not(.waiting)")
    expect(cards.first).to_be_visible(timeout=PATIENCE)
    return cards
