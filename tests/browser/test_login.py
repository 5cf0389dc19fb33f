"""Login, API keys and the audit log in the browser, on a broker that begins without a key."""

from __future__ import annotations

from tests.browser.watched import Watched
from tests.http.wire import Wire


async def test_keys_are_made_used_and_revoked_by_clicking(page: Watched, wire: Wire) -> None:
    page.expected += ["401"]  # from the browser that was logged out
    await page.open("/keys")
    await page.shows("There is no key, so the broker requires none.")
    await page.shows("Open, no key required", inside="body")
    await page.click("Create a key")
    await page.page.fill("input[name=name]", "root")
    await page.click("Create the key")
    root = (await page.page.locator("dialog .copyable").inner_text()).strip()
    await page.click("Close", inside="dialog footer")
    await page.shows("root")
    await page.shows("key:root", inside="body")
    (await wire.get("/api/v1/keys")).refused(401, "unauthenticated")

    await page.click("Create a key")
    await page.page.fill("input[name=name]", "looker")
    await page.page.select_option("select[name=role]", "read-only")
    await page.click("Create the key")
    looker = (await page.page.locator("dialog .copyable").inner_text()).strip()
    await page.click("Close", inside="dialog footer")
    await page.shows("read-only")
    await page.photograph("keys")
    assert await page.violations() == []

    await page.click("Log out")
    field = page.page.locator("dialog.login input")
    await field.fill("fl_mistyped")
    await page.photograph("login")
    assert await page.violations() == []
    await page.click("Log in")
    await page.shows("the key is incomplete", inside="dialog.login")
    await field.fill(looker)
    await page.page.keyboard.press("Enter")
    await page.shows("key:looker", inside="body")
    page.expected += ["403"]  # this key may not list keys
    await page.open("/queues")
    await page.shows("There are no queues yet.")
    await page.open("/keys")
    await page.shows("it needs the scope keys")

    await page.click("Log out")
    await field.fill(root)
    await page.page.keyboard.press("Enter")
    await page.shows("looker")
    await page.page.get_by_role("row", name="looker").get_by_role("button", name="Revoke").click()
    await page.page.locator("dialog input").fill("looker")
    await page.page.keyboard.press("Enter")
    await page.shows("revoked")
    (await wire.get("/api/v1/whoami", headers={"authorization": f"Bearer {looker}"})).refused(401, "unauthenticated")

    await page.open("/audit")
    for part in ("keys.create", "keys.revoke", "keys looker", "refused", "key:looker"):
        await page.shows(part)
    await page.click("Verify")
    await page.shows("entries are unchanged.", inside="body")
    await page.photograph("audit")
    assert await page.violations() == []
