"""`fairlane tail`: print the newest messages of a queue."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from fairlane.cli.toolkit.command import AsJson, Client, CommandGroup, QueueName, check_queue, client_command, opt
from fairlane.cli.toolkit.output import MessageLine, print_message
from fairlane.errors import NotFound

if TYPE_CHECKING:
    from fairlane.client import MessageHead

PAGE = 500
POLL_SECONDS = 0.5
OVERLAP = 5_000_000
"""Overlap of consecutive polls in microseconds, because commits of different lanes may become visible out of order."""


app = CommandGroup()


@client_command(app)
async def tail(
    client: Client,
    queue: QueueName,
    follow: Annotated[bool, opt("Print new messages until Ctrl-C.", "--follow", "-f")] = False,
    lines: Annotated[int, opt("Number of stored messages to print first.", "--lines", "-n")] = 10,
    partition: Annotated[str | None, opt("Only messages of this partition.", "--partition", "-p")] = None,
    json: AsJson = False,
) -> None:
    """Print the newest messages of a queue without consuming them."""
    import asyncio

    tail = _Tail(client, queue, partition)
    newest = await tail.newest(lines)
    if not newest and not follow:
        await check_queue(client, queue)
    for message in newest:
        print_message(message, json=json)
    while follow:
        await asyncio.sleep(POLL_SECONDS)
        for message in await tail.new():
            print_message(message, json=json)


class _Tail:
    """A tail of one queue. Remembers which messages it has returned."""

    def __init__(self, client: Client, queue: str, partition: str | None) -> None:
        self._client = client
        self._queue = queue
        self._partition = partition
        self._seen: dict[str, int] = {}
        self._newest = 0

    async def newest(self, count: int) -> list[MessageLine]:
        """Return the newest messages. Reads at least one, because its time is where `new` starts."""
        page = await self._client.messages.page(self._queue, partition=self._partition, limit=max(1, count))
        self._remember(page.messages)
        return await self._read(page.messages[:count])

    async def new(self) -> list[MessageLine]:
        """Return the messages that arrived since the last call."""
        found: list[MessageHead] = []
        since, before = max(0, self._newest - OVERLAP), None
        while True:
            page = await self._client.messages.page(
                self._queue, partition=self._partition, since=since, limit=PAGE, before=before
            )
            found += [head for head in page.messages if head.id not in self._seen]
            before = page.next
            if before is None:
                break
        self._remember(found)
        return await self._read(found)

    def _remember(self, heads: list[MessageHead]) -> None:
        self._newest = max([self._newest, *(head.created_at for head in heads)])
        self._seen |= {head.id: head.created_at for head in heads}
        # Messages older than the overlap are not read again.
        self._seen = {id: at for id, at in self._seen.items() if at >= self._newest - 2 * OVERLAP}

    async def _read(self, heads: list[MessageHead]) -> list[MessageLine]:
        lines = []
        for head in heads[::-1]:
            try:
                message = await self._client.messages.get(head.partition_id, head.transaction_id)
            except NotFound:
                continue  # deleted since
            lines.append(MessageLine.of(head, message))
        return lines
