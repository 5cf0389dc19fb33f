"""The routes, one file per family."""

from __future__ import annotations

from fairlane.http.router import Route
from fairlane.http.routes import (
    acks,
    analytics,
    dead_letters,
    docs,
    groups,
    halts,
    health,
    leases,
    maintenance,
    messages,
    namespaces,
    operations,
    pops,
    pushes,
    queues,
    retention,
    schedules,
    status,
    status_queues,
    streams,
    traces,
    transactions,
)

ROUTES: list[Route] = [
    *pushes.ROUTES,
    *pops.ROUTES,
    *acks.ROUTES,
    *leases.ROUTES,
    *transactions.ROUTES,
    *queues.ROUTES,
    *schedules.ROUTES,
    *namespaces.ROUTES,
    *messages.ROUTES,
    *dead_letters.ROUTES,
    *groups.ROUTES,
    *halts.ROUTES,
    *traces.ROUTES,
    *status.ROUTES,
    *status_queues.ROUTES,
    *analytics.ROUTES,
    *streams.ROUTES,
    *operations.ROUTES,
    *maintenance.ROUTES,
    *retention.ROUTES,
    *health.ROUTES,
    *docs.ROUTES,
]
