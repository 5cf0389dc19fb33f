"""OpenTelemetry in the processes of the command line: set up where it is asked for."""

from __future__ import annotations

import asyncio
import atexit
import logging
from typing import TYPE_CHECKING

from fairlane.config import wants_otel
from fairlane.errors import InvalidRequest
from fairlane.runtime.service import Service

if TYPE_CHECKING:
    from fairlane.http.app import App

log = logging.getLogger("fairlane")


def start_spans(setting: str, service: str) -> bool:
    """Whether this process makes spans from now on. Where only the environment asks for them, as it may for all
    services of a machine, a missing package is told and no more."""
    if not wants_otel(setting):
        return False
    try:
        from fairlane.otel import start
    except ModuleNotFoundError as error:
        if not (error.name or "").startswith("opentelemetry"):
            raise
        text = "OpenTelemetry is asked for and not installed: pip install 'fairlane[otel]'"
        if setting == "on":
            raise InvalidRequest(text) from None
        log.warning("%(text)s", {"text": text})
        return False
    atexit.register(start(service))
    return True


class MetricsSender(Service):
    """A sender of the metrics of a broker by OTLP, by the names that /metrics has. Of several processes each sends its
    own, and the first what all share."""

    def __init__(self, app: App) -> None:
        super().__init__("metrics by OTLP")
        self._app = app

    async def _run(self) -> None:
        from fairlane.http.metrics.exposition import own_families
        from fairlane.otel import metrics_exporter, metrics_seconds

        export = metrics_exporter("fairlane")
        while export is not None and not self._stopping:
            await asyncio.to_thread(export, await own_families(self._app))
            await self._rest(metrics_seconds())
