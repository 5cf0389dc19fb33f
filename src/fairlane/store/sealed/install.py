"""Installation of encryption at rest over a store that was opened."""

from __future__ import annotations

from typing import Any

from fairlane.store.contract.store import Store
from fairlane.store.sealed.families import (
    SealedDeadLetters,
    SealedEffects,
    SealedGroups,
    SealedMessages,
    SealedScheduled,
    SealedSteps,
    SealedStreams,
    SealedTraces,
)
from fairlane.store.sealed.keyring import Keyring
from fairlane.store.sealed.operations import SealedOperations
from fairlane.store.sealed.vault import Vault


async def install(store: Store, keyring: Keyring | None) -> None:
    """Let the store seal and open messages of encrypted queues. Without a keyring it refuses to store any, and to
    deliver those that are there. Data keys that are under another key than the active one are wrapped anew."""
    vault = Vault(store.keys, keyring, store.id_time)
    opened: Any = store
    opened.vault = opened.dead_letters.vault = vault
    opened.messages = SealedMessages(store.messages, vault, store)
    opened.dead_letters = SealedDeadLetters(store.dead_letters, vault, store)
    opened.groups = SealedGroups(store.groups, vault, store)
    opened.traces = SealedTraces(store.traces, vault, store)
    opened.operations = SealedOperations(store.operations, vault, store)
    opened.scheduled = SealedScheduled(store.scheduled, vault, store)
    opened.schedules = SealedSteps(store.schedules, vault, store)
    opened.effects = SealedEffects(store.effects, vault, store)
    opened.sources = SealedSteps(store.sources, vault, store)
    opened.streams = SealedStreams(store.streams, vault, store)
    await vault.rewrap()
