"""`fairlane tail`"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

from fairlane.cli.output import Line, print_line
from fairlane.cli.verb import AsJson, Client, QueueName, opt
from fairlane.errors import NotFound

if TYPE_CHECKING:
    from fairlane.client import MessageHead

PAGE = 500
LOOK_SECONDS = 0.5
OVERLAP = 5_000_000  # microseconds; a lane's commit may show later than a younger one of another lane


def tail(
    client: Client,
    queue: QueueName,
    follow: Annotated[bool, opt("Go on with what comes, until Ctrl-C.", "--follow", "-f")] = False,
    lines: Annotated[int, opt("Of the messages that are there, the last so many.", "--lines", "-n")] = 10,
    partition: Annotated[str | None, opt("Only of this lane.", "--partition", "-p")] = None,
    json: AsJson = False,
) -> None:
    """Print the newest messages of a queue without taking them."""
    watch = _Watch(client, queue, partition)
    for message in watch.last(lines):
        print_line(message, json=json)
    while follow:
        time.sleep(LOOK_SECONDS)
        for message in watch.fresh():
            print_line(message, json=json)


class _Watch:
    """The watch of a queue: remembers what was seen of it."""

    def __init__(self, client: Client, queue: str, partition: str | None) -> None:
        self._client = client
        self._queue = queue
        self._partition = partition
        self._seen: dict[str, int] = {}
        self._newest = 0

    def last(self, count: int) -> Iterator[Line]:
        """The newest messages, of which at least one is looked at: it says where what comes begins."""
        page = self._client.messages(self._queue, partition=self._partition, limit=max(1, count))
        self._remember(page.messages)
        yield from self._whole(page.messages[:count])

    def fresh(self) -> Iterator[Line]:
        """What came since the last look."""
        found: list[MessageHead] = []
        since, before = max(0, self._newest - OVERLAP), None
        while True:
            page = self._client.messages(self._queue, partition=self._partition, since=since, limit=PAGE, before=before)
            found += [head for head in page.messages if head.id not in self._seen]
            before = page.next
            if before is None:
                break
        self._remember(found)
        yield from self._whole(found)

    def _remember(self, heads: list[MessageHead]) -> None:
        self._newest = max([self._newest, *(head.created_at for head in heads)])
        self._seen |= {head.id: head.created_at for head in heads}
        # What is older than the overlap is not looked at again.
        self._seen = {id: at for id, at in self._seen.items() if at >= self._newest - 2 * OVERLAP}

    def _whole(self, heads: list[MessageHead]) -> Iterator[Line]:
        for head in heads[::-1]:
            try:
                message = self._client.message(head.partition_id, head.transaction_id)
            except NotFound:
                continue  # deleted since
            yield Line.of(head, message)
