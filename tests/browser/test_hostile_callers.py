"""Script in data of callers is shown as text: names of keys, subjects, traces, audit log entries."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

from tests.browser.test_hostile import _STRANGE, CORPUS
from tests.browser.watched import Watched
from tests.http.wire import Wire

NAMES = [text for text in CORPUS if len(text) <= 100]  # longer texts are not valid key names
PUSHED = "0192f3a1-7c5e-7d1a-9b1f-00000000abcd"


async def test_a_corpus_in_the_names_of_callers_and_what_they_are_noted_for_runs_nothing(
    page: Watched, wire: Wire
) -> None:
    root = (await wire.post("/api/v1/keys", body={"name": "root", "role": "admin"})).ok(201)["key"]
    admin = {"authorization": f"Bearer {root}"}
    messages = []
    for n, text in enumerate(NAMES):
        made = await wire.ask(
            "POST", "/api/v1/keys", body={"name": text, "scopes": ["push", "create", "pop"]}, headers=admin
        )
        hostile = {"authorization": f"Bearer {made.ok(201)['key']}", "user-agent": text.encode().decode("latin-1")}
        item = {"queue": "orders", "partition": f"p{n}", "payload": 1, "transactionId": f"{PUSHED} {text}"}
        (await wire.ask("POST", "/api/v1/push", body={"items": [item]}, headers=hostile)).ok(201)
        [message] = (await wire.get("/api/v1/pop/queue/orders", headers=hostile)).ok()["messages"]
        assert message["producerSub"] == text
        noted = {"transactionId": message["transactionId"], "partitionId": message["partitionId"]}
        trace = {**noted, "traceNames": [text], "eventType": text, "data": {text: text}}
        (await wire.ask("POST", "/api/v1/traces", body=trace, headers=hostile)).ok(201)
        (await wire.ask("DELETE", f"/api/v1/queues/{quote(text, safe='')}/clear", headers=hostile)).refused(403)
        messages.append(message)

    page.expected += ["401"]  # from the browser that is not logged in yet
    await page.page.goto(page.base)
    await page.page.locator("dialog.login input").fill(root)
    await page.page.keyboard.press("Enter")
    await page.shows("key:root", inside="body")
    for route, shown in (("/keys", NAMES[0]), ("/audit", f"key:{NAMES[0]}")):
        await page.open(route)
        assert shown in await page.text(), route
        assert await page.page.evaluate(_STRANGE) == [], route
    for text, message in zip(NAMES, messages, strict=True):
        await page.open(_of(message))
        assert await page.page.evaluate(_STRANGE) == [], text
    await page.open(_of(messages[0]))
    assert NAMES[0] in await page.text()
    assert await page.problems() == []


def _of(message: dict[str, Any]) -> str:
    return f"/messages/{message['partitionId']}/{quote(message['transactionId'], safe='')}"
