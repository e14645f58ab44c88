"""A real Chromium, the system's own, driven as a person would."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import cast

import pytest
from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Error, Page, expect, sync_playwright

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
SCREENS = Path(__file__).parents[2] / "artifacts" / "screens"

_FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
_INSTALL_S = 300
_PATIENCE_MS = 30_000  # this machine may be busy
FIRST_QUERY_MS = 90_000  # the first one waits until the SQL engine has started, 13 s at a load of 15
expect.set_options(timeout=_PATIENCE_MS)


def chromium() -> str:
    """Where Chromium is. Where it is missing and cannot be had, the test is skipped; under CI it fails."""
    found = _found() or _installed()
    if found is None:
        missing = "Chromium is not installed, and this user cannot install it with apt-get"
        if os.environ.get("CI") == "true":
            pytest.fail(missing)
        pytest.skip(missing)
    return found


def _found() -> str | None:
    return next((path for path in map(shutil.which, NAMES) if path), None)


def _installed() -> str | None:
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        return None
    command = ["apt-get", "install", "-y", "--no-install-recommends", "chromium"]
    subprocess.run(command, timeout=_INSTALL_S, check=False, capture_output=True)
    return _found()


class Watched:
    """A page, and whatever it complained about."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.complaints: list[str] = []
        self.requested: set[str] = set()
        page.on("console", self._on_console)
        page.on("pageerror", lambda error: self.complaints.append(f"error: {error}"))
        page.on("request", lambda request: self.requested.add(request.url))

    def _on_console(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self.complaints.append(f"{message.type}: {message.text} {message.location.get('url', '')}")

    def violations(self) -> list[str]:
        """What axe finds wrong for people who cannot see or point: WCAG 2.2, levels A and AA."""
        import axe_playwright_python

        axe = Path(axe_playwright_python.__file__).with_name("axe.min.js")
        self.page.evaluate(axe.read_text(encoding="utf-8"))
        found = self.page.evaluate(
            "axe.run(document, {runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa']})"
        )
        return [f"{one['id']}: {one['nodes'][0]['html'][:200]}" for one in found["violations"]]

    def notes(self) -> list[str]:
        """The last key presses and changes of the focus and the address that the page saw."""
        try:
            return cast("list[str]", self.page.evaluate("window.notes ?? []"))
        except Error:  # it is gone
            return []

    def shot(self, name: str) -> None:
        SCREENS.mkdir(parents=True, exist_ok=True)
        self.page.screenshot(path=SCREENS / f"{name}.png")


@contextmanager
def running() -> Iterator[Browser]:
    """A browser with an empty profile of its own."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium(), headless=True, args=list(_FLAGS))
        try:
            yield browser
        finally:
            browser.close()


_NOTES = """
const notes = (window.notes = []), name = (at) => at?.tagName ? `${at.tagName}.${at.className}#${at.id}` : "window";
const note = (event) => {
  const now = `${Math.round(performance.now())} ms`, active = name(document.activeElement);
  notes.push([now, event.type, event.key ?? "", "at", name(event.target), "focus", active, location.hash].join(" "));
  if (notes.length > 60) notes.shift();
};
for (const type of ["keydown", "focusin", "focusout", "blur", "hashchange"]) addEventListener(type, note, true);
"""
# Answers come late and in another order than they were asked for.
_SLOW_ANSWERS = """
const real = window.fetch, some = () => new Promise((done) => setTimeout(done, 600 * Math.random() ** 2));
window.fetch = async (...asked) => { await some(); const answer = await real(...asked); await some(); return answer; };
"""


@contextmanager
def browsing(browser: Browser, scheme: str = "light", *, slow: bool = False) -> Iterator[BrowserContext]:
    """As a person who was never here before; with `slow`, far from the server."""
    context = browser.new_context(
        viewport={"width": 1360, "height": 860},
        color_scheme="dark" if scheme == "dark" else "light",
        accept_downloads=True,
        permissions=["clipboard-read", "clipboard-write"],
    )
    context.set_default_timeout(_PATIENCE_MS)
    context.add_init_script(_NOTES)
    if slow:
        context.add_init_script(_SLOW_ANSWERS)
    try:
        yield context
    finally:
        context.close()
