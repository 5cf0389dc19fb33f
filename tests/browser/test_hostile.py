"""Script in names, payloads and errors is shown as text, on every page, and never runs."""

from __future__ import annotations

from urllib.parse import quote

from tests.browser.filled import kill
from tests.browser.watched import Watched
from tests.http.wire import Wire

CORPUS = [
    "<script>hurt('script')</script>",
    "<img src=x onerror=hurt('img')>",
    "\"><svg onload=hurt('svg')>",
    "'><iframe srcdoc=\"<script>parent.hurt('frame')</script>\">",
    "</textarea></title><script>hurt('escape')</script>",
    "<a href=\"javascript:hurt('link')\">x</a>",
    "javascript:hurt('url')",
    "{{constructor.constructor('hurt(1)')()}}${hurt('template')}",
    "<style>@import '//evil.example'</style><base href='//evil.example/'>",
    "<details open ontoggle=hurt('details')><math><mtext></form><form><mglyph><style><img src onerror=hurt('math')>",
    "__proto__",
    "\u202e<\u200bscript>\u2028hurt('odd')",
]
_STRANGE = """() => [...document.querySelectorAll("script, iframe, img, object, embed, base, style, a")]
    .filter((one) => one.tagName === "SCRIPT" ? !one.src.startsWith(location.origin)
        : one.tagName === "A" ? !["http:", "https:"].includes(one.protocol) : true)
    .map((one) => one.outerHTML)"""


async def test_a_corpus_in_every_name_and_payload_runs_nothing(page: Watched, wire: Wire) -> None:
    for n, text in enumerate(CORPUS):
        queue, group, partition = f"{text} q", f"{text} g", f"{text} p"
        await wire.configure(queue)
        payload = {text: text, "deep": [text, {"x": text}]}
        await kill(wire, queue, [payload], f"{text} error", group=group, partition=partition)
        await wire.push(queue, payload, partition=partition, traceId=f"0192f3a1-7c5e-7d1a-9b1f-{n:012}", type=text)
        await wire.pop(queue, partition=partition, consumerGroup=group)
        (await wire.post("/api/v1/schedules", f"{text} s", body={"queue": queue, "everySeconds": 60})).ok()
        (await wire.post("/api/v1/sources", f"{text} s", "lease", body={"seconds": 60})).ok()
        counts = {"concurrency": 1, "inHand": 1, "handled": 1, "failed": 1}
        report = {"app": text, "hostname": text, "pid": 1, "queues": [{"queue": queue, "group": group, **counts}]}
        assert (await wire.post("/api/v1/workers", f"w{n}", body={**report, "current": [text]})).status == 204

    lists = ["/", "/queues", "/groups", "/dead-letters", "/operations", "/workers", "/schedules", "/sources", "/system"]
    for route in lists:
        await page.open(route)
        assert await page.page.evaluate(_STRANGE) == [], route
    await page.open("/dead-letters")
    assert CORPUS[0] in await page.text()
    for text in CORPUS[:6]:
        queue, group, partition = (quote(f"{text} {kind}", safe="") for kind in "qgp")
        [letter] = (await wire.get("/api/v1/dlq", queue=f"{text} q")).ok()["messages"]
        for route in (
            f"/groups/{queue}/{group}",
            f"/dead-letters/{queue}/{letter['id']}",
            f"/dead-letters?queue={queue}&error={quote(text, safe='')}",
            f"/queues/{queue}",
            f"/queues/{queue}/partitions/{partition}?group={group}",
            f"/messages/{letter['partitionId']}/{quote(letter['transactionId'], safe='')}",
        ):
            await page.open(route)
            assert await page.page.evaluate(_STRANGE) == [], route
    assert await page.problems() == []


async def test_an_address_that_somebody_sends_runs_nothing(page: Watched) -> None:
    for text in CORPUS:
        for route in (
            f"/{quote(text, safe='')}",
            f"/groups?search={quote(text)}&sort={quote(text)}",
            f"/operations?status={quote(text)}",
        ):
            page.expected += ["/api/v1/operations", "/api/v1/live"]
            await page.open(route)
            assert await page.page.evaluate(_STRANGE) == [], route
