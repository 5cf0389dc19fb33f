"""Metrics of queues that each process counts itself, and the findings."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterable, Mapping

from fairlane.broker.broker import Broker
from fairlane.errors import FairlaneError
from fairlane.http.metrics.families import OTHER, Families, Labels
from fairlane.queue_counters import QueueTotals
from fairlane.wire.monitoring import Finding

_EVENTS = {
    "pushed": "Messages stored in a queue.",
    "popped": "Messages delivered to consumers.",
    "acked": "Messages that were acked, with any status.",
    "failed": "Failed attempts of messages.",
    "dead_lettered": "Messages that became dead letters.",
    "expired": "Messages that were too old to be delivered. They are dropped or dead-lettered.",
}


def add_queues(
    out: Families,
    processes: Iterable[tuple[Labels, Mapping[int, QueueTotals], QueueTotals]],
    names: Mapping[int, Labels],
) -> None:
    """Add the totals of queues of some processes, each with its labels. Leaves out queues without a name."""
    found: list[tuple[Labels, QueueTotals]] = []
    for labels, queues, other in processes:
        joined: dict[tuple[str, ...], tuple[Labels, QueueTotals]] = {}
        named = [(names[queue_id], one) for queue_id, one in queues.items() if queue_id in names]
        for name, one in (*named, *([({"queue": OTHER}, other)] if other != QueueTotals() else ())):
            known = joined.setdefault(tuple(name.values()), ({**name, **labels}, QueueTotals()))
            known[1].add(one)
        found += joined.values()
    for event, help in _EVENTS.items():
        out.counter(f"queue_messages_{event}_total", help, [(labels, getattr(one, event)) for labels, one in found])
    age = "Age of the first message of each pop of a queue when it was delivered."
    out.histogram(
        "queue_time_in_queue_seconds", age, [(labels, one.times_in_queue) for labels, one in found], first=0, upto=14
    )


def add_store_up(out: Families, broker: Broker, up: bool) -> None:
    """Add whether the store answers, and each of its cells."""
    out.gauge("store_up", "1 while the store answers, 0 while it does not.", int(up))
    cells = [({"cell": str(cell)}, int(up and not why)) for cell, why in broker.status.cell_health().items()]
    out.gauge("cell_up", "1 while the cell of the store answers, 0 while it does not.", cells)


async def add_findings(out: Families, broker: Broker) -> None:
    """Add the findings of the default tenant, which the dashboard shows."""
    findings: list[Finding] = []
    with contextlib.suppress(FairlaneError):  # a scrape shows what is known
        findings = await broker.findings.all()
    counts = Counter(
        (one.kind, one.severity, one.queue or "", "false" if one.snoozed_until is None else "true") for one in findings
    )
    found = [
        ({"kind": kind, "severity": severity, "queue": queue, "snoozed": snoozed}, count)
        for (kind, severity, queue, snoozed), count in counts.items()
    ]
    help = "Problems that need attention, as the dashboard shows them to the default tenant, also snoozed ones."
    out.gauge("findings", help, found)
