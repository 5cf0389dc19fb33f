"""A browser page that records what must not happen: errors, policy violations, and script from data."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

from fairlane.http.route_table import ROUTES

if TYPE_CHECKING:
    from playwright.async_api import ConsoleMessage, Locator, Page, Response

SCREENS = Path(__file__).parents[2] / "build" / "screens"
"""Directory for screenshots, for people to look at."""
SIZES = {"wide": (1440, 900), "phone": (390, 844)}
PATIENCE_MILLISECONDS = 60_000
"""Timeout in milliseconds, far above what anything here takes on a busy machine."""
_AT_FIRST = """
window.__found = [];
document.addEventListener("securitypolicyviolation",
    (event) => window.__found.push(`CSP ${event.violatedDirective}: ${event.blockedURI} ${event.sample}`));
// Called by every sample of the stored-XSS corpus, if it runs.
window.hurt = (why) => { window.__found.push(`script of data ran: ${why}`); };
window.alert = window.confirm = window.prompt = () => window.hurt("a dialog of the browser");
"""
_UNSERVED = {"/api/v1/findings", "/api/v1/hooks"} - {route.path for route in ROUTES}
"""Paths that pages request although this broker does not offer them. The pages handle that."""
_AXE_RULES = {
    "runOnly": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"],
    "rules": {"label-content-name-mismatch": {"enabled": True}},
}


class Watched:
    """A page of the broker at `base`; `page` is playwright's."""

    def __init__(self, page: Page, base: str) -> None:
        self.page = page
        self.base = base
        self.found: list[str] = []
        """The problems so far."""
        self.expected: list[str] = list(_UNSERVED)
        """Parts of console errors that the test provokes, such as the status of a refused request."""
        page.set_default_timeout(PATIENCE_MILLISECONDS)
        page.on("console", self._said)
        page.on("pageerror", lambda error: self.found.append(f"page error: {error}"))
        page.on("crash", lambda _: self.found.append("the page crashed"))
        page.on("response", self._answered)

    async def watch(self) -> None:
        await self.page.add_init_script(_AT_FIRST)

    def watches(self, paths: list[str]) -> None:
        """Record the API paths that the page watches from now on."""
        self.page.on("request", lambda request: paths.extend(parse_qs(urlsplit(request.url).query).get("watch", ())))

    async def open(self, route: str = "/") -> None:
        """Open a page of the dashboard by its route, such as `/queues/orders`, and wait for its data."""
        target = f"{self.base}/#{route}"
        if self.page.url.startswith(f"{self.base}/#"):
            await self.page.evaluate("route => { location.hash = route; }", route)
        else:
            await self.page.goto(target)
        await self.ready()

    async def ready(self) -> None:
        """Wait until the page of the current address is drawn with all its data."""
        await self.page.wait_for_function(
            "() => { const main = document.querySelector('main');"
            " return main?.dataset.shown === location.hash && !main.querySelector('.waiting'); }"
        )

    async def text(self, selector: str = "main") -> str:
        return await self.page.inner_text(selector)

    def see(self, text: str, *, inside: str = "main") -> Locator:
        return self.page.locator(inside).get_by_text(text).first

    async def shows(self, text: str, *, inside: str = "main") -> None:
        """Wait until the page shows this text."""
        await self.see(text, inside=inside).wait_for()

    async def click(self, name: str, *, role: str = "button", inside: str = "body") -> None:
        where = self.page.locator(inside)
        await where.get_by_role(role, name=name, exact=True).first.click()  # type: ignore[arg-type]

    async def violations(self) -> list[str]:
        """Return accessibility problems of the current page, as sentences."""
        from axe_playwright_python.async_playwright import Axe

        results: dict[str, Any] = (await Axe().run(self.page, options=_AXE_RULES)).response
        return [
            f"{rule['id']}: {rule['help']}: {node['html'][:200]} {node.get('failureSummary', '')[:400]}"
            for rule in results["violations"]
            for node in rule["nodes"][:3]
        ]

    def screen(self, name: str) -> Path:
        """Return the file for a screenshot."""
        SCREENS.mkdir(parents=True, exist_ok=True)
        return SCREENS / f"{name}.png"

    async def photograph(self, name: str) -> None:
        """Save screenshots as `NAME-light.png`, `NAME-dark.png` and `NAME-phone.png`."""
        for suffix, size, scheme in (("light", "wide", "light"), ("dark", "wide", "dark"), ("phone", "phone", "light")):
            width, height = SIZES[size]
            await self.page.set_viewport_size({"width": width, "height": height})
            await self.page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
            await self.page.screenshot(path=self.screen(f"{name}-{suffix}"))
        await self.page.set_viewport_size({"width": SIZES["wide"][0], "height": SIZES["wide"][1]})
        await self.page.emulate_media(color_scheme="light")

    async def problems(self) -> list[str]:
        """Return all problems so far."""
        inside = [] if self.page.is_closed() else await self.page.evaluate("window.__found || []")
        every = [*self.found, *inside]
        return [one for one in every if not any(part in one for part in self.expected)]

    async def seconds_until(self, text: str, started: float) -> float:
        """Return the seconds from `started` (of `time.monotonic`) until the page shows a text."""
        await self.shows(text)
        return time.monotonic() - started

    def _said(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self.found.append(f"console {message.type}: {message.text} {json.dumps(message.location)}")

    def _answered(self, response: Response) -> None:
        if response.status >= 400:
            self.found.append(f"{response.request.method} {response.url} answered {response.status}")
