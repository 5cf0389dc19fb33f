"""The broker's metrics in the text format of Prometheus."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from fairlane.http.routes.status import journal_status
from fairlane.http.routes.workers import ALIVE_SECONDS
from fairlane.http.wire_queues import counts_out
from fairlane.http.wire_workers import worker_out
from fairlane.telemetry import cpu_seconds, resident_bytes

if TYPE_CHECKING:
    from fairlane.http.app import App

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
STUCK_SECONDS = 60
QUEUES_MAX = 1000  # a family with more lines is of no use to anybody

Sample = tuple[Mapping[str, str], float]


class Exposition:
    """Families one after another, each with its help and type. `labels` go with every sample."""

    def __init__(self, labels: dict[str, str]) -> None:
        self._common = labels
        self._lines: list[str] = []

    def family(self, name: str, kind: str, help: str, samples: Iterable[Sample]) -> None:
        self._lines += [f"# HELP fairlane_{name} {help}", f"# TYPE fairlane_{name} {kind}"]
        self._lines += [f"fairlane_{name}{self._labels(labels)} {_number(value)}" for labels, value in samples]

    def one(self, name: str, kind: str, help: str, value: float) -> None:
        self.family(name, kind, help, [({}, value)])

    def histogram(self, name: str, help: str, series: Iterable[tuple[Mapping[str, str], _Histogram]]) -> None:
        self._lines += [f"# HELP fairlane_{name} {help}", f"# TYPE fairlane_{name} histogram"]
        for labels, (found, count, total) in series:
            for bound, below in [*found, (float("inf"), count)]:
                text = self._labels({**labels, "le": "+Inf" if bound == float("inf") else repr(bound)})
                self._lines.append(f"fairlane_{name}_bucket{text} {below}")
            self._lines.append(f"fairlane_{name}_sum{self._labels(labels)} {_number(total)}")
            self._lines.append(f"fairlane_{name}_count{self._labels(labels)} {count}")

    def _labels(self, labels: Mapping[str, str]) -> str:
        inside = ",".join(f'{name}="{_escaped(value)}"' for name, value in {**self._common, **labels}.items())
        return f"{{{inside}}}" if inside else ""

    def body(self) -> bytes:
        return ("\n".join(self._lines) + "\n").encode()


_Histogram = tuple[list[tuple[float, int]], int, float]


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _number(value: float) -> str:
    return str(value) if isinstance(value, int) else repr(float(value))


async def exposition(app: App) -> bytes:
    # Who scrapes one port of several workers meets now this one, now that one: they are different series.
    out = Exposition({} if app.worker is None else {"worker": str(app.worker)})
    _process(out, app)
    _operations(out, app)
    _load(out, app)
    _hooks(out, app)
    _commands(out, app)
    await _waiting(out, app)
    await _queues(out, app)
    await _workers(out, app)
    return out.body()


def _process(out: Exposition, app: App) -> None:
    user, system = cpu_seconds()
    total, busy = app.engine.store.connections()
    out.one("uptime_seconds", "gauge", "Since the broker started.", app.uptime_seconds())
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
    out.one("operations_pending", "gauge", "Operations handed over and not answered yet.", app.engine.pending)
    out.one("polls_waiting", "gauge", "Long polls parked until there is something.", len(app.engine.waiters))


def _load(out: Exposition, app: App) -> None:
    out.one("store_use", "gauge", "How much of the store admission counts as used, 0 to 1.", app.engine.load().use)
    out.family(
        "admission_decisions_total",
        "counter",
        "Operations executed, queued and refused for the load.",
        [
            ({"op": kind, "verdict": verdict}, count)
            for kind, verdicts in app.engine.admission.decisions.items()
            for verdict, count in verdicts.items()
        ],
    )
    journal = journal_status(app)
    if journal is None or app.engine.shelter is None:
        return
    out.one("store_up", "gauge", "1 while the store answers, 0 while pushes go to the journal.", int(journal.store_up))
    out.one("store_outages_total", "counter", "How often it did not.", app.engine.shelter.watch.outages)
    out.one("journal_messages", "gauge", "Messages and acks that wait in the journal.", journal.messages)
    out.one("journal_lanes", "gauge", "Partitions they belong to.", journal.lanes)
    out.one("journal_bytes", "gauge", "Size of the journal.", journal.bytes)
    out.one("journal_bytes_max", "gauge", "Its limit; past it pushes are refused.", journal.bytes_max)
    out.one("journal_failed", "gauge", "Entries the store refused for good.", journal.failed)
    out.one("journal_oldest_seconds", "gauge", "Age of the oldest entry.", journal.oldest_seconds or 0.0)
    out.one("journal_acks_lost_total", "counter", "Acks that came after their lease had ended.", journal.acks_lost)


def _operations(out: Exposition, app: App) -> None:
    kinds = app.engine.telemetry.operations
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
        [({"op": k}, (list(o.histogram()), o.count, o.seconds)) for k, o in kinds.items()],
    )


def _hooks(out: Exposition, app: App) -> None:
    out.family(
        "hook_requests_total",
        "counter",
        "Webhooks that came, by what became of them.",
        [({"hook": hook, "outcome": outcome}, count) for (hook, outcome), count in app.engine.telemetry.hooks.items()],
    )


def _commands(out: Exposition, app: App) -> None:
    commands = app.engine.telemetry.commands
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
        [
            ({"command": name}, (list(counts.done.histogram()), counts.done.count, counts.done.seconds))
            for name, counts in commands.items()
        ],
    )


async def _waiting(out: Exposition, app: App) -> None:
    """Operations that were accepted and are applied later."""
    processor = app.engine.processor
    depth = await app.engine.store.operations.depth()
    stuck = 0
    if depth:
        before = await app.engine.store.now() - STUCK_SECONDS * 1_000_000
        lanes = await app.engine.store.operations.lanes(app.tenant, limit=10_000)
        stuck = sum(lane.moved_at < before for lane in lanes)
    out.one("operation_queue_depth", "gauge", "Operations accepted and not applied yet, of all brokers.", depth)
    out.one("operation_queue_stuck_lanes", "gauge", f"Lanes of them that have not moved for {STUCK_SECONDS} s.", stuck)
    out.one("operation_queue_drain_rate", "gauge", "Operations a second applied here lately.", processor.drain_rate)
    out.one("operation_queue_applied_total", "counter", "Operations applied here.", processor.completed)
    out.one("operation_queue_failed_total", "counter", "Operations given up on here.", processor.failed)


async def _queues(out: Exposition, app: App) -> None:
    counted = (await app.census.queues(app.tenant))[:QUEUES_MAX]
    states = [(queue.name, counts_out(stats)) for queue, stats in counted]
    out.family(
        "queue_messages",
        "gauge",
        "Retained messages by where they stand.",
        [
            ({"queue": name, "state": state}, getattr(counts, field))
            for name, counts in states
            for state, field in (("pending", "pending"), ("processing", "processing"), ("completed", "completed"))
        ],
    )
    out.family(
        "dead_letters", "gauge", "Dead letters not replayed.", [({"queue": name}, c.dead_letter) for name, c in states]
    )
    out.family(
        "queue_partitions", "gauge", "Partitions.", [({"queue": q.name}, stats.partitions) for q, stats in counted]
    )


async def _workers(out: Exposition, app: App) -> None:
    """As the workers that are alive told it last."""
    seen = await app.engine.store.workers.list(app.tenant, seconds=ALIVE_SECONDS)
    workers = [worker_out(one) for one in seen][:QUEUES_MAX]
    parts = [
        ({"app": one.app, "host": one.hostname, "pid": str(one.pid), "queue": part.queue, "group": part.group}, part)
        for one in workers
        for part in one.queues
    ]
    apps = Counter(one.app for one in workers)
    out.family("workers", "gauge", "Workers that are alive.", [({"app": name}, count) for name, count in apps.items()])
    out.family(
        "worker_concurrency", "gauge", "Messages at once.", [(labels, part.concurrency) for labels, part in parts]
    )
    out.family("worker_in_hand", "gauge", "Messages held now.", [(labels, part.in_hand) for labels, part in parts])
    out.family(
        "worker_handled_total", "counter", "Messages handled.", [(labels, part.handled) for labels, part in parts]
    )
    out.family(
        "worker_failed_total",
        "counter",
        "Of them, those that failed.",
        [(labels, part.failed) for labels, part in parts],
    )
