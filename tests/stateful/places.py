"""Where a machine keeps its queues: somewhere empty for each example, cheaply."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Protocol

from fairlane.broker import Broker, open_store
from fairlane.runtime.clock import Clock

_numbers = itertools.count(1)


class Place(Protocol):
    """One example's. `ordered`: a pop finds the lane that is ready longest, not only that of some shard."""

    prefix: str
    ordered: bool

    async def open(self, clock: Clock) -> Broker: ...

    def remove(self) -> None: ...


class SqlitePlace:
    """A file of its own."""

    prefix = ""
    ordered = True

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._name = f"{next(_numbers)}.db"

    async def open(self, clock: Clock) -> Broker:
        return Broker(await open_store(f"sqlite:///{self._directory / self._name}", clock=clock))

    def remove(self) -> None:
        for file in self._directory.glob(f"{self._name}*"):
            file.unlink()


class PostgresPlace:
    """Names of its own in a database that all examples share: as good as empty, and free."""

    def __init__(self, url: str, *, shards: int) -> None:
        self._url = url
        self._shards = shards
        self.ordered = shards == 1
        self.prefix = f"{next(_numbers)}."

    async def open(self, clock: Clock) -> Broker:
        return Broker(await open_store(self._url, clock=clock, shards=self._shards))

    def remove(self) -> None:
        pass
