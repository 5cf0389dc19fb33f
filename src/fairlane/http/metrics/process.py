"""Metrics of one process: what it counts by itself, and the journal that it drains."""

from __future__ import annotations

import platform
from typing import TYPE_CHECKING

import msgspec

from fairlane.http.metrics.families import Families, Flat, Labels, capped
from fairlane.runtime.process import cpu_seconds, resident_bytes

if TYPE_CHECKING:
    from fairlane.broker.broker import Broker
    from fairlane.http.app import App


class Snapshot(msgspec.Struct, array_like=True):
    """A snapshot of what one process counts."""

    process: list[Flat]
    journal: list[Flat]
    """Of the journal that all processes share, by the one that drains it."""


def snapshot(app: App) -> Snapshot:
    process, journal = Families(), Families()
    add_process(process, app)
    add_journal(journal, app)
    return Snapshot(process.flat(), journal.flat())


def add_process(out: Families, app: App) -> None:
    _process(out, app)
    _load(out, app.broker)
    _verbs(out, app.broker)
    _spec(out, app.broker)


def add_journal(out: Families, app: App) -> None:
    """The journal is told of by the process that drains it."""
    found = app.broker.status.journal()
    if found is None or (app.siblings is not None and not app.broker.status.drains_journal()):
        return
    out.gauge("journal_messages", "Messages and acks that wait in the journal.", found.messages)
    out.gauge("journal_backlogs", "Backlogs in the journal.", found.lanes)
    out.gauge("journal_size_bytes", "Size of the journal.", found.bytes)
    out.gauge("journal_max_bytes", "Limit of the journal; past it pushes are refused.", found.bytes_max)
    out.gauge("journal_failed_operations", "Operations in the journal that the store refused for good.", found.failed)
    out.gauge("journal_oldest_age_seconds", "Age of the oldest operation in the journal.", found.oldest_seconds or 0.0)
    out.counter(
        "journal_acks_lost_total", "Acks of the journal that came after their lease had ended.", found.acks_lost
    )


def _process(out: Families, app: App) -> None:
    user, system = cpu_seconds()
    broker = app.broker
    store = broker.status.connections()
    connections, active = app.http_load()
    info = {"version": app.version, "store": broker.status.store_kind, "python": platform.python_version()}
    out.gauge("build_info", "1, labelled with the version of the broker and its kind of store.", [(info, 1)])
    started = broker.telemetry.started_at / 1e6
    out.gauge("process_start_time_seconds", "When the process started, in seconds since 1970.", started)
    cpu = [({"mode": "user"}, user), ({"mode": "system"}, system)]
    out.counter("process_cpu_seconds_total", "CPU time of the process.", cpu)
    out.gauge("process_resident_memory_bytes", "Memory of the process.", resident_bytes())
    by_state = [({"state": "busy"}, store.busy), ({"state": "idle"}, store.total - store.busy)]
    out.gauge("store_connections", "Connections to the database.", by_state)
    if (outages := broker.status.outages()) is not None:
        out.counter("store_outages_total", "How often the store went away.", outages)
    out.gauge("http_connections", "Open connections of clients.", connections)
    out.gauge("http_requests_active", "Requests being answered.", active)
    out.gauge("requests_pending", "Pushes, pops and acks handed over and not answered yet.", broker.pending)
    out.gauge("polls_waiting", "Long polls parked until there is something.", sum(broker.status.parked().values()))


def _load(out: Families, broker: Broker) -> None:
    admission, (_, applied, failed) = broker.admission, broker.status.drained()
    delays = [({"verb": kind}, admission.wait_seconds(kind)) for kind in ("push", "ack")]
    out.gauge("admission_wait_seconds", "How long one more request would wait for the store.", delays)
    decided: list[tuple[Labels, float]] = [
        ({"verb": kind, "decision": decision}, count)
        for kind, decisions in admission.decisions.items()
        for decision, count in decisions.items()
    ]
    out.counter("admission_decisions_total", "Requests executed, made operations and refused for the load.", decided)
    out.counter("operations_applied_total", "Operations that this process applied.", applied)
    out.counter("operations_failed_total", "Operations that this process gave up on.", failed)


def _verbs(out: Families, broker: Broker) -> None:
    telemetry = broker.telemetry
    verbs = [({"verb": kind}, verb) for kind, verb in telemetry.verbs.items()]
    out.counter("requests_total", "Requests that were done.", [(label, verb.count) for label, verb in verbs])
    out.counter(
        "request_messages_total",
        "Messages in the requests that were done.",
        [(label, verb.items) for label, verb in verbs],
    )
    out.counter("request_errors_total", "Requests that failed.", [(label, verb.errors) for label, verb in verbs])
    handing = "Duration of requests, from handing over to the answer; of a pop, without the time parked."
    out.histogram("request_duration_seconds", handing, verbs)
    age = "Age of the first message of each pop when it was handed out."
    out.histogram("time_in_queue_seconds", age, [({}, telemetry.time_in_queue)], first=10, upto=37)
    out.counter("messages_redelivered_total", "Messages handed out after a failed attempt.", telemetry.redelivered)
    out.counter("messages_dead_lettered_total", "Messages given up on.", telemetry.dead)
    out.counter("leases_expired_total", "Leases that ran out, as pops found them.", telemetry.leases_lost)
    gone = [
        ({"unread": "false"}, telemetry.deleted - telemetry.deleted_unread),
        ({"unread": "true"}, telemetry.deleted_unread),
    ]
    out.counter(
        "retention_messages_deleted_total", "Messages that retention deleted, by whether a group missed them.", gone
    )


def _spec(out: Families, broker: Broker) -> None:
    """Webhooks and commands that passed here."""
    telemetry = broker.telemetry
    hooks = capped(dict.fromkeys(hook for hook, _ in telemetry.hooks))
    came = [({"hook": hooks[hook], "outcome": outcome}, count) for (hook, outcome), count in telemetry.hooks.items()]
    out.counter("hook_requests_total", "Webhooks that came, by what became of them.", came)
    labels, commands = capped(telemetry.commands), telemetry.commands.items()
    ended = [
        ({"command": labels[name], "outcome": outcome}, count)
        for name, found in commands
        for outcome, count in (("done", found.done.count), ("failed", found.failed), ("dead", found.dead))
    ]
    out.counter("commands_total", "Commands that this broker carried out, by what became of them.", ended)
    done = [({"command": name}, found.done) for name, found in commands if labels[name] == name]
    out.histogram("command_duration_seconds", "Duration of commands, from the mapping of a message to the end.", done)
