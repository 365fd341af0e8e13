"""An installed Chromium, and pages of it that fail their test on any error."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, Playwright, expect

CHROMIUM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
DESK = {"width": 1280, "height": 900}
_FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


# Everything is on this machine; loaded as it is, it may be slow.
_PATIENCE_MS = 60_000
expect.set_options(timeout=_PATIENCE_MS)


def launch(playwright: Playwright) -> Browser:
    assert CHROMIUM is not None
    return playwright.chromium.launch(executable_path=CHROMIUM, args=_FLAGS)


@contextmanager
def watched_page(browser: Browser, base: str, **options: Any) -> Iterator[Any]:
    """A page in a new profile. At the end of the block: no error was seen in it.

    A test that provokes an answer such as 404 takes it out of `page.errors` itself.
    """
    context = browser.new_context(base_url=base, **{"viewport": DESK} | options)
    context.set_default_timeout(_PATIENCE_MS)
    page = context.new_page()
    errors: list[str] = []
    page.on("console", lambda each: errors.append(each.text) if each.type == "error" else None)
    page.on("pageerror", lambda each: errors.append(str(each)))
    page.on("requestfailed", lambda each: errors.append(f"{each.url}: {each.failure}"))
    page.__dict__["errors"] = errors
    yield page
    context.close()
    # Leaving a page ends what it had asked for by itself.
    assert [each for each in errors if "net::ERR_ABORTED" not in each] == []


def assert_accessible(page: Page) -> None:
    """Axe finds no serious violation, in neither theme."""
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
        found = Axe().run(page)
        grave = [
            (each["id"], each["help"], [node["html"] for node in each["nodes"]][:3])
            for each in found.response["violations"]
            if each["impact"] in ("serious", "critical")
        ]
        assert not grave, (scheme, grave)


def assert_fits(page: Page) -> None:
    """Nothing makes the page wider than the screen: tables scroll in their own boxes."""
    page.set_viewport_size({"width": 360, "height": 800})
    overhang = page.evaluate(
        "document.documentElement.scrollWidth - document.documentElement.clientWidth"
    )
    assert overhang <= 0
    page.set_viewport_size(DESK)
