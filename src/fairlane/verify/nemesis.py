"""The nemesis: breaks brokers, clients, connections and the store at random, one at a time, and mends them."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Literal, NamedTuple

from fairlane.errors import InvalidRequest
from fairlane.verify.history import FaultSpan
from fairlane.verify.libraries import PreloadedLibraries
from fairlane.verify.processes import LocalBroker, LocalClients
from fairlane.verify.proxy import Proxy
from fairlane.verify.server import ServerTarget

Need = Literal["", "preload", "disk", "postgres", "server", "server preload", "cells"]
"""The requirement of a fault: the preloaded library, PostgreSQL, or a PostgreSQL server that belongs to the run."""
NEEDS: dict[str, str] = {
    "": "",
    "preload": "a C compiler (cc) on Linux",
    "disk": "a C compiler (cc) on Linux, and no file of this name before the run",
    "postgres": "a PostgreSQL store",
    "server": "--store postgres or cells",
    "server preload": "--store postgres or cells, and a C compiler (cc) on Linux",
    "cells": "--store cells",
}


@dataclass
class FaultTargets:
    """Everything that a fault may break."""

    random: Random
    url: str
    brokers: list[LocalBroker]
    clients: LocalClients
    fronts: list[Proxy]
    """One proxy in front of each broker."""
    libraries: list[PreloadedLibraries] = field(default_factory=list)
    """The preloaded libraries of each broker. Empty without a compiler."""
    servers: list[ServerTarget] = field(default_factory=list)
    """The servers of the run: the home and the other cells. Empty if the store belongs to others."""
    own_file: bool = True
    """False if the store is a file that was there before the run."""
    queues: list[str] = field(default_factory=list)
    """Names of the queues of the run."""

    async def wait(self, most: float = 5.0) -> None:
        """Wait for a random time while a fault lasts, up to `most` seconds."""
        await asyncio.sleep(self.random.uniform(0.2, most))

    def server(self) -> ServerTarget:
        return self.random.choice(self.servers)

    def broker(self) -> LocalBroker:
        return self.random.choice(self.brokers)

    def has(self, need: str) -> bool:
        """Return True if this run meets the requirement of a fault."""
        met = {
            "preload": bool(self.libraries),
            "disk": bool(self.libraries) and self.own_file,
            "postgres": not self.url.startswith("sqlite"),
            "server": bool(self.servers),
            "cells": len(self.servers) > 1,
        }
        return all(met[word] for word in need.split())

    def knows(self, need: str) -> bool:
        """Return True unless the requirement has no meaning here: an SQLite file has no server."""
        return not self.url.startswith("sqlite") or not {"postgres", "server", "cells"}.intersection(need.split())

    async def mend(self) -> None:
        """Undo every fault, and restart the processes that have ended."""
        for libraries in self.libraries:
            libraries.preload.heal()
        for front in self.fronts:
            front.heal()
        for server in self.servers:
            await server.mend()
        for broker in self.brokers:
            if not broker.running:
                await broker.start()


FaultAction = Callable[[FaultTargets], Awaitable[None]]


class FaultKind(NamedTuple):
    """A fault that the nemesis knows, by its name."""

    name: str
    help: str
    need: Need
    usual: bool
    """True if it is injected unless `--faults` names others."""
    inject: FaultAction


FAULTS: dict[str, FaultKind] = {}


def fault(need: Need = "", *, usual: bool = True) -> Callable[[FaultAction], FaultAction]:
    """Register a function as the fault of its name. The docstring is its description."""

    def register(inject: FaultAction) -> FaultAction:
        name = inject.__name__
        FAULTS[name] = FaultKind(name, " ".join((inject.__doc__ or "").split()), need, usual, inject)
        return inject

    return register


def choose(names: Sequence[str]) -> list[FaultKind]:
    """Return the faults of these names, or the usual ones. Raises InvalidRequest for an unknown name."""
    for name in names:
        if name not in FAULTS and name != "none":
            raise InvalidRequest(f"there is no fault {name!r:.40}; `fairlane verify --list-faults` lists them")
    if not names:
        return [one for one in FAULTS.values() if one.usual]
    return [FAULTS[name] for name in names if name != "none"]


class Nemesis:
    """Injects the chosen faults in random order. Each comes once in every round."""

    def __init__(self, targets: FaultTargets, chosen: Sequence[FaultKind], notify: Callable[[str], None]) -> None:
        self._targets = targets
        self._notify = notify
        self.chosen = [one for one in chosen if targets.has(one.need)]
        self.skipped = [one for one in chosen if not targets.has(one.need) and targets.knows(one.need)]
        self.spans: list[FaultSpan] = []

    @property
    def counts(self) -> Counter[str]:
        """Number of times each fault was injected."""
        return Counter(span.name for span in self.spans)

    async def run(self, seconds: float) -> None:
        """Make faults for `seconds`, then mend everything."""
        ends_at = time.monotonic() + seconds
        random = self._targets.random
        while time.monotonic() < ends_at:
            random.shuffle(self.chosen)
            for one in self.chosen:
                await asyncio.sleep(random.uniform(0.2, 2.5))
                if time.monotonic() > ends_at:
                    break
                await self._inject(one)
            if not self.chosen:
                await asyncio.sleep(max(0.0, ends_at - time.monotonic()))
        self._notify("")
        await self._targets.mend()

    async def _inject(self, one: FaultKind) -> None:
        self._notify(one.name)
        began = time.monotonic()
        try:
            await one.inject(self._targets)
        finally:
            self.spans.append(FaultSpan(one.name, began, time.monotonic()))
            self._notify("")
