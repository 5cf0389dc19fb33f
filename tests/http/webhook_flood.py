"""Many webhooks over many connections, some of them redelivered, and consumers that read the messages."""

from __future__ import annotations

import asyncio
import time
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from datetime import datetime
from random import Random

import aiohttp
import msgspec

from fairlane import Client, Message
from fairlane.webhooks.schemes import PRESETS
from fairlane.webhooks.signatures import sign
from tests.spec.samples import compiled

SECRET = "the secret of all floods, long enough"
REDELIVERED = 0.2
SPEC = """
app Flood% {
  queue Flood% {
    message_type {
      payload: { incident: { id: string  number: int } }
      headers: map<string, string>
      source_ip: string
      received_at: time
    }
    key: payload.incident.id
  }
  webhook Flood% { queue: Flood%  verify: pagerduty { secret_env: "FLOOD_SECRET" } }
}
"""


@dataclass
class Flood:
    """The webhooks sent, their answers, and the numbers of each incident in the order of delivery."""

    count: int
    connections: int
    answers: Counter[int] = field(default_factory=Counter)
    came: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))
    visible_ms: list[float] = field(default_factory=list)
    seconds: float = 0.0

    def check(self) -> None:
        """Check that each message is delivered once, and in order by incident."""
        assert set(self.answers) <= {200, 202}, self.answers
        sent = self.answers.total()
        assert self.count < sent < self.count * 1.5
        share = self.count // self.connections
        assert len(self.came) == self.connections
        for numbers in self.came.values():
            assert numbers == list(range(len(numbers)))
            assert len(numbers) in (share, share + 1)
        assert sum(map(len, self.came.values())) == self.count

    def visible_p99_ms(self) -> float:
        """Return the time from receipt to delivery."""
        return sorted(self.visible_ms)[int(len(self.visible_ms) * 0.99)]


async def run_flood(url: str, tag: str, *, count: int, connections: int = 64) -> Flood:
    """Send one incident per connection. Its webhooks follow one another, as a sender that keeps order sends them."""
    flood = Flood(count, connections)
    document = msgspec.json.encode(compiled(SPEC.replace("%", tag)).spec)
    async with Client(url) as client, aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=connections)
    ) as session:  # fmt: skip
        await client.specs.apply(document)
        consumers = [asyncio.create_task(_consume(client, f"Flood{tag}", flood)) for _ in range(4)]
        began = time.perf_counter()
        shares = [range(number, count, connections) for number in range(connections)]
        target = f"{url}/hook/Flood{tag}"
        await asyncio.gather(
            *(_send(session, target, f"i-{number}", len(share), flood) for number, share in enumerate(shares))
        )
        flood.seconds = time.perf_counter() - began
        async with asyncio.timeout(60):
            await asyncio.gather(*consumers)
    return flood


async def _send(session: aiohttp.ClientSession, target: str, incident: str, count: int, flood: Flood) -> None:
    random = Random(incident)
    for number in range(count):
        body = b'{"incident":{"id":"%b","number":%d}}' % (incident.encode(), number)
        signed = sign(PRESETS["pagerduty"], SECRET.encode(), body, delivery_id=f"{incident}-{number}", now=0)
        headers = {"content-type": "application/json"} | {name.decode(): text.decode() for name, text in signed.items()}
        for _ in range(2 if random.random() < REDELIVERED else 1):
            while await _refused(session, target, body, headers, flood):  # noqa: ASYNC110
                await asyncio.sleep(0.1)


async def _refused(
    session: aiohttp.ClientSession, target: str, body: bytes, headers: dict[str, str], flood: Flood
) -> bool:
    """Return True if the sender must redeliver the webhook."""
    async with session.post(target, data=body, headers=headers) as response:
        await response.read()
        refused = response.status in (429, 503)
        if not refused:
            flood.answers[response.status] += 1
        return refused


async def _consume(client: Client, queue: str, flood: Flood) -> None:
    async def handle(message: Message[dict[str, object]]) -> None:
        payload, received_at = message.data["payload"], message.data["received_at"]
        assert isinstance(payload, dict)
        flood.came[payload["incident"]["id"]].append(payload["incident"]["number"])
        assert isinstance(received_at, str)
        flood.visible_ms.append((time.time() - datetime.fromisoformat(received_at).timestamp()) * 1000)

    while len(flood.visible_ms) < flood.count:
        await client.consume(queue, handle, batch=50, partitions=20, idle_seconds=0.3)
