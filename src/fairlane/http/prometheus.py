"""The broker's metrics: what each process counts by itself, and what is read from the store when somebody scrapes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from fairlane.http.families import Families, Flat, Histogram
from fairlane.telemetry import VerbStats, cpu_seconds, resident_bytes

if TYPE_CHECKING:
    from fairlane.http.app import App


class Snapshot(msgspec.Struct, array_like=True):
    """A snapshot of what one process counts."""

    process: list[Flat]
    journal: list[Flat]
    """Of the journal that all processes share, by the one that keeps it."""


_decode = msgspec.json.Decoder(Snapshot).decode


def snapshot(app: App) -> Snapshot:
    process, journal = Families(), Families()
    _counted(process, app)
    _journal(journal, app)
    return Snapshot(process.flat(), journal.flat())


async def exposition(app: App) -> bytes:
    """Always an answer: what the store does not say is left out, and so is a process that does not answer."""
    from_store = await app.store_metrics.text()
    out = Families()
    out.one("store_up", "gauge", "1 while the store answers, 0 while it does not.", int(from_store is not None))
    if app.siblings is None:
        _counted(out, app)
        _journal(out, app)
        return out.text() + (from_store or b"")
    answers = await app.siblings.ask()
    found = {number: read for number, answer in answers.items() if (read := _read(answer)) is not None}
    found[app.siblings.number] = snapshot(app)
    out.family(
        "process_up",
        "gauge",
        "1 for each process of this broker that answers.",
        [({"worker": str(number)}, int(number in found)) for number in sorted({*answers, *found})],
    )
    for number in sorted(found):  # labelled, so that a process which begins anew is a counter that does
        out.add(found[number].process, {"worker": str(number)})
    out.add(next((one.journal for one in found.values() if one.journal), []), {})
    return out.text() + (from_store or b"")


def _read(answer: bytes | None) -> Snapshot | None:
    try:
        return None if answer is None else _decode(answer)
    except msgspec.MsgspecError:  # cut off, or a process of another version
        return None


def _counted(out: Families, app: App) -> None:
    _process(out, app)
    _verbs(out, app)
    _load(out, app)
    _messages(out, app)
    _hooks(out, app)
    _commands(out, app)


def _process(out: Families, app: App) -> None:
    user, system = cpu_seconds()
    total, busy = app.broker.store.connections()
    out.one("uptime_seconds", "gauge", "Since the broker started.", app.broker.status.uptime_seconds())
    out.family(
        "process_cpu_seconds_total",
        "counter",
        "CPU time of the broker.",
        [({"mode": "user"}, user), ({"mode": "system"}, system)],
    )
    out.one("process_resident_memory_bytes", "gauge", "Memory of the broker.", resident_bytes())
    out.family(
        "store_connections",
        "gauge",
        "Connections to the database.",
        [({"state": "busy"}, busy), ({"state": "idle"}, total - busy)],
    )
    connections, active = app.http_load()
    out.one("http_connections", "gauge", "Open connections of clients.", connections)
    out.one("http_requests_active", "gauge", "Requests being answered.", active)
    out.one("operations_pending", "gauge", "Requests handed over and not answered yet.", app.broker.pending)
    out.one("polls_waiting", "gauge", "Long polls parked until there is something.", len(app.broker.waiters))


def _load(out: Families, app: App) -> None:
    out.family(
        "admission_wait_seconds",
        "gauge",
        "How long one more would wait for the store.",
        [({"op": kind}, app.broker.admission.wait_seconds(kind)) for kind in ("push", "ack")],
    )
    out.family(
        "admission_decisions_total",
        "counter",
        "Operations executed, queued and refused for the load.",
        [
            ({"op": kind, "verdict": verdict}, count)
            for kind, verdicts in app.broker.admission.decisions.items()
            for verdict, count in verdicts.items()
        ],
    )
    drain = app.broker.operation_drain
    out.one("operation_queue_drain_rate", "gauge", "Operations a second applied here lately.", drain.rate.a_second)
    out.one("operation_queue_applied_total", "counter", "Operations applied here.", drain.completed)
    out.one("operation_queue_failed_total", "counter", "Operations given up on here.", drain.failed)
    if app.broker.journal is not None:
        out.one("store_outages_total", "counter", "How often the store went away.", app.broker.route.watch.outages)


def _journal(out: Families, app: App) -> None:
    """Processes that hand theirs over know its state only as it was when they did."""
    journal = app.broker.status.journal()
    if journal is None or app.broker.journal is None:
        return
    if app.siblings is not None and not app.broker.journal.drains():
        return
    out.one("journal_messages", "gauge", "Messages and acks that wait in the journal.", journal.messages)
    out.one("journal_lanes", "gauge", "Partitions they belong to.", journal.lanes)
    out.one("journal_bytes", "gauge", "Size of the journal.", journal.bytes)
    out.one("journal_bytes_max", "gauge", "Its limit; past it pushes are refused.", journal.bytes_max)
    out.one("journal_failed", "gauge", "Entries the store refused for good.", journal.failed)
    out.one("journal_oldest_seconds", "gauge", "Age of the oldest entry.", journal.oldest_seconds or 0.0)
    out.one("journal_acks_lost_total", "counter", "Acks that came after their lease had ended.", journal.acks_lost)


def _verbs(out: Families, app: App) -> None:
    kinds = app.broker.telemetry.verbs
    out.family("operations_total", "counter", "Operations done.", [({"op": k}, o.count) for k, o in kinds.items()])
    out.family(
        "operation_items_total", "counter", "Messages in them.", [({"op": k}, o.items) for k, o in kinds.items()]
    )
    out.family(
        "operation_errors_total", "counter", "Operations failed.", [({"op": k}, o.errors) for k, o in kinds.items()]
    )
    out.histogram(
        "operation_duration_seconds",
        "From handing over to the answer; of a pop, without the time parked.",
        [({"op": kind}, _histogram(each)) for kind, each in kinds.items()],
    )


def _messages(out: Families, app: App) -> None:
    telemetry = app.broker.telemetry
    out.one("redeliveries_total", "counter", "Messages handed out after a failed attempt.", telemetry.redelivered)
    out.one("lease_expiries_total", "counter", "Leases that ran out, as pops found them.", telemetry.leases_lost)
    out.one("messages_dead_lettered_total", "counter", "Messages given up on.", telemetry.dead)
    out.histogram(
        "time_in_queue_seconds",
        "Age of the first message of each pop when it was handed out.",
        [({}, _histogram(telemetry.time_in_queue, first=10, upto=37))],
    )


def _histogram(of: VerbStats, first: int = 5, upto: int = 25) -> Histogram:
    return list(of.histogram(first, upto)), of.count, of.seconds


def _hooks(out: Families, app: App) -> None:
    out.family(
        "hook_requests_total",
        "counter",
        "Webhooks that came, by what became of them.",
        [({"hook": hook, "outcome": outcome}, count) for (hook, outcome), count in app.broker.telemetry.hooks.items()],
    )


def _commands(out: Families, app: App) -> None:
    commands = app.broker.telemetry.commands
    outcomes = [
        (name, {"done": counts.done.count, "failed": counts.failed, "dead": counts.dead})
        for name, counts in commands.items()
    ]
    out.family(
        "commands_total",
        "counter",
        "Commands that this broker carried out, by what became of them.",
        [({"command": name, "outcome": end}, count) for name, ends in outcomes for end, count in ends.items()],
    )
    out.histogram(
        "command_duration_seconds",
        "From the mapping of a message to the end of its command.",
        [({"command": name}, _histogram(counts.done)) for name, counts in commands.items()],
    )
