"""`fairlane tail`"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from fairlane.cli.output import Line, print_line
from fairlane.cli.verb import AsJson, Client, Noun, QueueName, opt, verb
from fairlane.errors import NotFound

if TYPE_CHECKING:
    from fairlane.client import MessageHead

PAGE = 500
LOOK_SECONDS = 0.5
OVERLAP = 5_000_000  # microseconds; a lane's commit may show later than a younger one of another lane


app = Noun()


@verb(app)
async def tail(
    client: Client,
    queue: QueueName,
    follow: Annotated[bool, opt("Go on with what comes, until Ctrl-C.", "--follow", "-f")] = False,
    lines: Annotated[int, opt("Of the messages that are there, the last so many.", "--lines", "-n")] = 10,
    partition: Annotated[str | None, opt("Only of this lane.", "--partition", "-p")] = None,
    json: AsJson = False,
) -> None:
    """Print the newest messages of a queue without taking them."""
    import asyncio

    watch = _Watch(client, queue, partition)
    for message in await watch.last(lines):
        print_line(message, json=json)
    while follow:
        await asyncio.sleep(LOOK_SECONDS)
        for message in await watch.fresh():
            print_line(message, json=json)


class _Watch:
    """The watch of a queue: remembers what was seen of it."""

    def __init__(self, client: Client, queue: str, partition: str | None) -> None:
        self._client = client
        self._queue = queue
        self._partition = partition
        self._seen: dict[str, int] = {}
        self._newest = 0

    async def last(self, count: int) -> list[Line]:
        """The newest messages, of which at least one is looked at: it says where what comes begins."""
        page = await self._client.messages.list(self._queue, partition=self._partition, limit=max(1, count))
        self._remember(page.messages)
        return await self._whole(page.messages[:count])

    async def fresh(self) -> list[Line]:
        """What came since the last look."""
        found: list[MessageHead] = []
        since, before = max(0, self._newest - OVERLAP), None
        while True:
            page = await self._client.messages.list(
                self._queue, partition=self._partition, since=since, limit=PAGE, before=before
            )
            found += [head for head in page.messages if head.id not in self._seen]
            before = page.next
            if before is None:
                break
        self._remember(found)
        return await self._whole(found)

    def _remember(self, heads: list[MessageHead]) -> None:
        self._newest = max([self._newest, *(head.created_at for head in heads)])
        self._seen |= {head.id: head.created_at for head in heads}
        # What is older than the overlap is not looked at again.
        self._seen = {id: at for id, at in self._seen.items() if at >= self._newest - 2 * OVERLAP}

    async def _whole(self, heads: list[MessageHead]) -> list[Line]:
        lines = []
        for head in heads[::-1]:
            try:
                message = await self._client.messages.get(head.partition_id, head.transaction_id)
            except NotFound:
                continue  # deleted since
            lines.append(Line.of(head, message))
        return lines
