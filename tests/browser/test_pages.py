"""Every page of the dashboard loads without an error, shows what the API says, and can be used by everybody."""

from __future__ import annotations

import pytest

from tests.browser.watched import Watched
from tests.http.wire import Wire

PAGES = {
    "overview": "/",
    "groups": "/groups",
    "group": "/groups/orders/billing",
    "dead-letters": "/dead-letters",
    "operations": "/operations",
    "workers": "/workers",
    "schedules": "/schedules",
    "hooks": "/hooks",
    "sources": "/sources",
    "specs": "/specs",
    "spec": "/specs/2?show=changes",
    "system": "/system",
}


@pytest.mark.parametrize("name", PAGES)
async def test_a_page_loads_and_looks(page: Watched, filled_wire: Wire, name: str) -> None:
    await page.open(PAGES[name])
    await page.photograph(name)
    assert await page.violations() == []
