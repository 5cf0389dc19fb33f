"""The routes of Queen's API. `http/route_table.py` adds them to Fairlane's own."""

from __future__ import annotations

from fairlane.http.request_body import IGNORED_PARAMETERS
from fairlane.http.router import Route
from fairlane.http.routes.queues import IGNORED_OPTIONS
from fairlane.queen.routes import analytics, maintenance, status, streams, traces

ROUTES: list[Route] = [
    *traces.routes,
    *status.routes,
    *maintenance.routes,
    *analytics.routes,
    *streams.routes,
]

IGNORED_PARAMETERS.update(("namespace", "task", "frames"))  # added to every pop, and a request for another encoding
IGNORED_OPTIONS.update(("maxQueueSize", "description"))
