"""The tables of docs/http-api.md. `python -m tests.docs` rewrites them."""

from __future__ import annotations

from itertools import groupby
from pathlib import Path

from fairlane.http.route_table import ROUTES
from fairlane.http.router import Route

PAGE = Path(__file__).parents[2] / "docs/http-api.md"
BEGIN, END = "<!-- routes: begin -->\n", "<!-- routes: end -->\n"

# The families in the order of the page, each with its subject.
FAMILIES = {
    "messages": "Push, pop, ack, leases, transactions, scheduled messages. [Load](load.md) explains 202 and 429.",
    "queues": "Options, depth, lanes, pauses: [queues](queues.md).",
    "groups": "[Consumer groups](consumer-groups.md).",
    "dead letters": "[After the last attempt](queues.md#after-the-last-attempt).",
    "browse": "Stored messages, and [results](workers.md#results).",
    "traces": "Notes of consumers about their work.",
    "fan-ins": "[Fan-ins](fan-ins.md). Transactions create them.",
    "schedules": "[Schedules](schedules.md).",
    "operations": "[Operations](load.md#operations) that were accepted and wait.",
    "retention": "[Retention](queues.md#retention).",
    "specs": "[The spec language](spec-language.md).",
    "webhooks": "[Webhooks](webhooks.md).",
    "workers": "Heartbeats of [workers](workers.md).",
    "effects": "Storage for `ctx.once` of a [worker](workers.md#context).",
    "sources": "State of [pollers](polling.md).",
    "staged": "Messages that are [enqueued in your own transaction](enqueue.md).",
    "streams": "[Streams](streams.md).",
    "health": "Probes and Prometheus, see [monitoring](monitoring.md).",
    "status": "Data for people and dashboards.",
    "cells": "The databases of a store that [spans several](scaling.md).",
    "live": "Live updates of the same data.",
    "pauses": "[Pausing all pops or pushes](load.md#pausing-all-pops-or-pushes).",
    "maintenance": "Endpoints for Queen's clients.",
    "analytics": "History of this broker, in the shapes of Queen's dashboard.",
    "admin": "A [small API](serving.md#the-admin-api) for scripts.",
    "keys": "API keys: [security](security.md).",
    "tenants": "[Tenants](tenants.md), and the caller's own tenant.",
    "audit": "The audit log, see [security](security.md).",
    "docs": "The description of the API.",
    "dashboard": "The files of the dashboard.",
}


def families() -> dict[str, list[Route]]:
    """Return the routes by family, in the order of the page. A family that the page does not know is last."""
    order = list(FAMILIES)
    found = sorted(ROUTES, key=lambda route: order.index(route.tag) if route.tag in order else len(order))
    return {tag: list(routes) for tag, routes in groupby(found, key=lambda route: route.tag)}


def tables() -> str:
    parts = []
    for tag, routes in families().items():
        rows = [f"| `{one.method} {one.path}` | {_cell(one.summary)} | {_cell(one.needs)} |\n" for one in routes]
        about = FAMILIES.get(tag, "")
        parts.append(f"### {tag.capitalize()}\n\n{about}\n\n| route | does | needs |\n|---|---|---|\n{''.join(rows)}")
    return "\n".join(parts)


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def written() -> str:
    """Return the page with up-to-date tables."""
    before, rest = PAGE.read_text(encoding="utf-8").split(BEGIN)
    return f"{before}{BEGIN}\n{tables()}\n{END}{rest.split(END)[1]}"
