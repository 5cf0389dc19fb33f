"""The places of queues as a broker knows them, to be put back after a move."""

from __future__ import annotations

from typing import Any

from fairlane.broker.broker import Broker


def directory_of(broker: Broker) -> tuple[Any, ...]:
    """Return what the broker knows."""
    router = broker._engine.store.router  # type: ignore[attr-defined]
    return dict(router.moved), router.on_the_way, dict(router._partitions), dict(router.directory.placed)


def restore_directory(broker: Broker, known: tuple[Any, ...]) -> None:
    """Put back what `directory_of` returned earlier, as if the broker had heard of no later move."""
    router = broker._engine.store.router  # type: ignore[attr-defined]
    router.moved, router.on_the_way, router._partitions, router.directory.placed = known
