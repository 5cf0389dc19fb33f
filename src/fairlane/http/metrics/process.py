"""Metrics of one process: its own counters, and the journal if it drains it."""

from __future__ import annotations

import platform
from typing import TYPE_CHECKING

import msgspec

from fairlane.http.metrics.families import Families, Flat, Labels, capped
from fairlane.queue_counters import QueueTotals
from fairlane.runtime.process import cpu_seconds, descriptors, resident_bytes, virtual_bytes

if TYPE_CHECKING:
    from fairlane.broker.broker import Broker
    from fairlane.http.app import HttpApp


class ProcessMetrics(msgspec.Struct, array_like=True):
    """A snapshot of the counters of one process."""

    process: list[Flat]
    journal: list[Flat]
    """Metrics of the journal that all processes share, from the process that drains it."""
    queues: dict[int, QueueTotals] = {}
    """Totals by the id of the queue. The names are known to the process that answers the scrape."""
    other_queues: QueueTotals = msgspec.field(default_factory=QueueTotals)


def snapshot(app: HttpApp) -> ProcessMetrics:
    process, journal = Families(), Families()
    add_process(process, app)
    add_journal(journal, app)
    return ProcessMetrics(process.flat(), journal.flat(), *app.broker.process.telemetry.totals())


def add_process(out: Families, app: HttpApp) -> None:
    _process(out, app)
    _load(out, app.broker)
    _verbs(out, app.broker)
    _tenants(out, app.broker)
    _spec(out, app.broker)


def add_journal(out: Families, app: HttpApp) -> None:
    """Add the metrics of the journal, in the process that drains it."""
    found = app.broker.status.journal()
    if found is None or (app.peer_processes is not None and not app.broker.status.drains_journal()):
        return
    out.gauge("journal_messages", "Messages and acks that wait in the journal.", found.messages)
    out.gauge("journal_backlogs", "Backlogs in the journal.", found.lanes)
    out.gauge("journal_size_bytes", "Size of the journal.", found.bytes)
    out.gauge(
        "journal_max_bytes", "Size limit of the journal. A full journal refuses pushes and acks.", found.bytes_max
    )
    out.gauge(
        "journal_failed_operations", "Operations in the journal that the store refused permanently.", found.failed
    )
    out.gauge("journal_oldest_age_seconds", "Age of the oldest operation in the journal.", found.oldest_seconds or 0.0)
    out.counter(
        "journal_acks_lost_total",
        "Acks in the journal that were applied after their lease had expired, and therefore refused.",
        found.acks_lost,
    )


def _process(out: Families, app: HttpApp) -> None:
    user, system = cpu_seconds()
    broker = app.broker
    store = broker.status.connections()
    connections, active = app.http_load()
    info = {"version": app.version, "store": broker.status.store_kind, "python": platform.python_version()}
    out.gauge(
        "build_info",
        "Always 1. Its labels are the versions of the broker and Python, and the kind of store.",
        [(info, 1)],
    )
    started, (files, files_max) = broker.process.telemetry.started_at / 1e6, descriptors()
    for name, kind, help, value in (
        ("start_time_seconds", "gauge", "Start time of the process, in seconds since 1970.", started),
        ("cpu_seconds_total", "counter", "CPU time of the process, user and system.", user + system),
        ("resident_memory_bytes", "gauge", "Resident memory of the process.", resident_bytes()),
        ("virtual_memory_bytes", "gauge", "Virtual memory of the process.", virtual_bytes()),
        ("open_fds", "gauge", "Open file descriptors of the process.", files),
        ("max_fds", "gauge", "Maximum number of open file descriptors.", files_max),
    ):
        out.standard(f"process_{name}", kind, help, value)
    by_state = [({"state": "busy"}, store.busy), ({"state": "idle"}, store.total - store.busy)]
    out.gauge("store_connections", "Connections to the database.", by_state)
    if (outages := broker.status.outages()) is not None:
        out.counter("store_outages_total", "Outages of the store.", outages)
    out.gauge("http_connections", "Open client connections.", connections)
    out.gauge("http_requests_active", "Requests being answered.", active)
    out.gauge("requests_pending", "Pushes, pops and acks that are not answered yet.", broker.status.pending)
    out.gauge("polls_waiting", "Long polls that wait for a message.", sum(broker.status.parked().values()))


def _load(out: Families, broker: Broker) -> None:
    admission, (_, applied, failed) = broker.process.admission, broker.status.drained()
    delays = [({"verb": kind}, admission.wait_seconds(kind)) for kind in ("push", "ack")]
    out.gauge("admission_wait_seconds", "Estimated time that one more request would wait for the store.", delays)
    decided: list[tuple[Labels, float]] = [
        ({"verb": kind, "decision": decision}, count)
        for kind, decisions in admission.decisions.items()
        for decision, count in decisions.items()
    ]
    out.counter(
        "admission_decisions_total",
        "Requests that were executed, became operations, or were refused because of the load.",
        decided,
    )
    out.counter("operations_applied_total", "Operations applied by this process.", applied)
    out.counter("operations_failed_total", "Operations that failed for good in this process.", failed)


def _verbs(out: Families, broker: Broker) -> None:
    telemetry = broker.process.telemetry
    verbs = [({"verb": kind}, verb) for kind, verb in telemetry.verbs.items()]
    out.counter("requests_total", "Successful requests.", [(label, verb.count) for label, verb in verbs])
    out.counter(
        "request_messages_total",
        "Messages in successful requests.",
        [(label, verb.items) for label, verb in verbs],
    )
    out.counter("request_errors_total", "Failed requests.", [(label, verb.errors) for label, verb in verbs])
    handing = "Duration of requests inside the broker. For a pop, the wait of a long poll is not included."
    out.histogram("request_duration_seconds", handing, verbs)
    age = "Age of the first message of each pop when it was delivered."
    out.histogram("time_in_queue_seconds", age, [({}, telemetry.time_in_queue)], first=10, upto=37)
    out.counter("messages_redelivered_total", "Messages delivered again after a failed attempt.", telemetry.redelivered)
    out.counter("messages_dead_lettered_total", "Messages that became dead letters.", telemetry.dead)
    out.counter("leases_expired_total", "Expired leases, counted when a pop finds them.", telemetry.leases_lost)
    cache = broker.process.tail_cache
    found = [({"found": "true"}, cache.counts.hits), ({"found": "false"}, cache.counts.misses)]
    out.counter("tail_cache_segments_total", "Segments that pops looked up in the cache of new messages.", found)
    out.counter(
        "tail_cache_read_bytes_total",
        "Bytes that pops took from this cache.",
        cache.counts.hit_bytes,
    )
    out.gauge("tail_cache_bytes", "Bytes in this cache.", cache.bytes)
    gone = [
        ({"unread": "false"}, telemetry.deleted - telemetry.deleted_unread),
        ({"unread": "true"}, telemetry.deleted_unread),
    ]
    out.counter(
        "retention_messages_deleted_total",
        "Messages deleted by retention. `unread` is true if a group had not finished them.",
        gone,
    )


def _tenants(out: Families, broker: Broker) -> None:
    """Add the pushes of each tenant. Tenants beyond the limit of series are combined."""
    counts = broker.process.telemetry.tenants.counts
    labels = capped(counts)
    for name, event, help in (
        ("pushes", "pushes", "Pushes of a tenant."),
        ("messages", "messages_pushed", "Messages that a tenant pushed."),
        ("bytes", "bytes_pushed", "Bytes of the payloads that a tenant pushed."),
    ):
        found: list[tuple[Labels, float]] = [
            ({"tenant": labels[tenant]}, getattr(one, name)) for tenant, one in counts.items()
        ]
        out.counter(f"tenant_{event}_total", help, found)


def _spec(out: Families, broker: Broker) -> None:
    """Add the webhooks and commands that this process handled."""
    telemetry = broker.process.telemetry
    webhooks = capped(dict.fromkeys(hook for hook, _ in telemetry.webhooks))
    came = [
        ({"hook": webhooks[hook], "outcome": outcome}, count) for (hook, outcome), count in telemetry.webhooks.items()
    ]
    out.counter("hook_requests_total", "Received webhook requests, by outcome.", came)
    labels, commands = capped(telemetry.commands), telemetry.commands.items()
    ended = [
        ({"command": labels[name], "outcome": outcome}, count)
        for name, found in commands
        for outcome, count in (("done", found.done.count), ("failed", found.failed), ("dead", found.dead))
    ]
    out.counter("commands_total", "Commands executed by this process, by outcome.", ended)
    done = [({"command": name}, found.done) for name, found in commands if labels[name] == name]
    out.histogram("command_duration_seconds", "Duration of commands, including the mapping of the message.", done)
