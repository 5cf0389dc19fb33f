"""The routes, one file per family."""

from __future__ import annotations

from fairlane.http.router import Route
from fairlane.http.routes import acks, leases, pops, pushes, queues, transactions

ROUTES: list[Route] = [
    *pushes.ROUTES,
    *pops.ROUTES,
    *acks.ROUTES,
    *leases.ROUTES,
    *transactions.ROUTES,
    *queues.ROUTES,
]
