"""The answer to a scrape: the counters of each process, and metrics read from the store."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import msgspec

from fairlane.http.metrics.families import Families, Flat
from fairlane.http.metrics.process import ProcessMetrics, add_journal, add_process, snapshot
from fairlane.http.metrics.queues import add_findings, add_queues, add_store_up

if TYPE_CHECKING:
    from fairlane.http.app import HttpApp

_decode = msgspec.json.Decoder(ProcessMetrics).decode


async def exposition(app: HttpApp) -> bytes:
    """Return the metrics. Leaves out the store or a process if it does not answer."""
    out, queues = Families(), Families()
    from_store, _ = await asyncio.gather(app.store_metrics.text(), add_findings(queues, app.broker))
    names = app.store_metrics.names
    add_store_up(out, app.broker, from_store is not None)
    if app.peer_processes is None:
        add_process(out, app)
        add_journal(out, app)
        add_queues(queues, [({}, *app.broker.process.telemetry.totals())], names)
        return out.text() + await queues.written() + (from_store or b"")
    answers = await app.peer_processes.query("metrics")
    found = {number: read for number, answer in answers.items() if (read := _read(answer)) is not None}
    found[app.peer_processes.number] = snapshot(app)
    up = [({"worker": str(number)}, int(number in found)) for number in sorted({*answers, *found})]
    out.gauge("process_up", "1 for each process of this broker that answers.", up)
    for number in sorted(found):  # labelled by process, so that a restarted process resets only its own counters
        out.add(found[number].process, {"worker": str(number)})
    out.add(next((one.journal for one in found.values() if one.journal), []), {})
    counted = [({"worker": str(number)}, found[number].queues, found[number].other_queues) for number in sorted(found)]
    add_queues(queues, counted, names)
    return out.text() + await queues.written() + (from_store or b"")


async def own_families(app: HttpApp) -> list[Flat]:
    """Return the metrics of this process; the first process adds the shared ones. Leaves out the store's metrics."""
    number = None if app.peer_processes is None else app.peer_processes.number
    own, out = snapshot(app), Families()
    out.add(own.process, {} if number is None else {"worker": str(number)})
    out.add(own.journal, {})
    if not number:
        up = await app.store_metrics.count()
        add_store_up(out, app.broker, up)
        out.add(app.store_metrics.counted.flat() if up else [], {})
        await add_findings(out, app.broker)
    labels = {} if number is None else {"worker": str(number)}
    add_queues(out, [(labels, own.queues, own.other_queues)], await app.store_metrics.known_names())
    return out.flat()


def _read(answer: bytes | None) -> ProcessMetrics | None:
    try:
        return None if answer is None else _decode(answer)
    except msgspec.MsgspecError:  # cut off, or from a process of another version
        return None
