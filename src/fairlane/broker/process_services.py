"""Services of a broker process that all tenants share, for the server in front of it."""

from __future__ import annotations

from fairlane.broker.cells import Cells
from fairlane.broker.engine import Engine
from fairlane.store.tail_cache import TailCache


class ProcessServices:
    def __init__(self, engine: Engine) -> None:
        self._store = engine.store
        self.credentials = engine.credentials
        self.admission = engine.admission
        self.telemetry = engine.telemetry
        self.budget = engine.budget
        """Bytes of requests and answers in flight."""
        self.peer_stats = engine.peer_stats
        self.specs = engine.all_specs
        self.statistics = engine.statistics
        self.cells = Cells(engine.store)
        self.staged = engine.store.staged
        """Staged messages of all tenants."""

    @property
    def tail_cache(self) -> TailCache:
        """Cache of new messages. An empty one while the store is not open."""
        return self._store.tail_cache
