"""OpenTelemetry in the processes of the command line: sets it up, and sends the metrics of a broker."""

from __future__ import annotations

import asyncio
import atexit
import logging
from typing import TYPE_CHECKING

from fairlane.config import wants_otel
from fairlane.errors import InvalidRequest
from fairlane.runtime.service import Service

if TYPE_CHECKING:
    from fairlane.http.app import HttpApp

log = logging.getLogger("fairlane")


def start_otel(setting: str, service: str) -> bool:
    """Set up OpenTelemetry if the setting or the environment asks for it. Returns True if this process makes spans.

    A missing package is an error only if the setting is `on`; otherwise it is logged.
    """
    if not wants_otel(setting):
        return False
    try:
        from fairlane.otel.export import start
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
    """Sends the metrics of a broker by OTLP, with the names of /metrics.

    Each process sends its own metrics. The first process also sends the metrics of the store.
    """

    def __init__(self, app: HttpApp) -> None:
        super().__init__("metrics by OTLP")
        self._app = app

    async def _run(self) -> None:
        from fairlane.http.metrics.exposition import own_families
        from fairlane.otel.export import metrics_exporter, metrics_seconds

        export = metrics_exporter("fairlane")
        while export is not None and not self._stopping:
            await asyncio.to_thread(export, await own_families(self._app))
            await self._rest(metrics_seconds())
