"""Pages in headless Chromium, for the tests of reports."""

import shutil
from typing import Any

from waiting import PATIENCE_S, wait_until

PHONE = {"viewport": {"width": 390, "height": 844}}
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


class OpenPage:
    """A page with the report at an address.

    `problems` has what it logged or threw, and what it requested from addresses that do not begin as `allowed`.
    """

    def __init__(self, browser: Any, address: str, allowed: tuple[str, ...] = ("file:", "data:"), **options: Any):
        self.problems: list[str] = []
        self._allowed = allowed
        self.page = browser.new_page(**options)
        self.page.set_default_timeout(PATIENCE_S * 1000)
        self.page.on("console", lambda message: self.problems.append(message.text))
        self.page.on("pageerror", lambda error: self.problems.append(str(error)))
        self.page.on("requestfailed", lambda request: self.problems.append(request.url))
        self.page.on("request", self._note)
        self.page.goto(address)

    def _note(self, request: Any) -> None:
        if not request.url.startswith(self._allowed):
            self.problems.append(request.url)

    def scrolling(self) -> list[str]:
        """What is wider than its place, so that it scrolls sideways or is cut."""
        return self.page.evaluate(
            """() => [document.documentElement, ...document.querySelectorAll("body *")]
            .filter((each) => each.clientWidth && each.scrollWidth > each.clientWidth + 1)
            .map((each) => each.outerHTML.slice(0, 80))"""
        )

    def names(self) -> list[str]:
        """The questions that the table shows, in its order."""
        self.page.locator("#table .tabulator-row").first.wait_for()
        return self.page.locator("#table .tabulator-row a").all_inner_texts()

    def until(self, condition: str) -> None:
        """Wait for a JavaScript condition, without the `eval` in the page that its policy forbids."""
        wait_until(lambda: self.page.evaluate(condition), every_s=0.02)

    def drawn(self) -> None:
        """Wait until the page has drawn what it was asked for before: a frame begins after the one that is due."""
        self.page.evaluate("new Promise((next) => requestAnimationFrame(() => requestAnimationFrame(next)))")

    def until_heading(self, name: str) -> None:
        """Wait for the page of a question."""
        self.until(f"document.querySelector('#question h1').textContent === '{name}'")

    def heading(self) -> str:
        """The heading of the question that is open."""
        self.page.wait_for_selector("#question .asked")
        return self.page.inner_text("#question h1")
