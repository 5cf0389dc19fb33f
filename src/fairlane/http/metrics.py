"""Metrics of the broker as Prometheus text: what each process counts by itself, and what is read from the store when
somebody scrapes. Written by prometheus-client."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final

import msgspec
from prometheus_client import CONTENT_TYPE_PLAIN_0_0_4 as CONTENT_TYPE
from prometheus_client import Metric, generate_latest
from prometheus_client.registry import Collector
from prometheus_client.samples import Sample

from fairlane.broker.statistics import counts, serves_until
from fairlane.errors import FairlaneError
from fairlane.telemetry import VerbStats, cpu_seconds, resident_bytes

if TYPE_CHECKING:
    from fairlane.broker.broker import Broker
    from fairlane.http.app import App

__all__ = ["CONTENT_TYPE", "Families", "StoreMetrics", "exposition", "snapshot"]

STUCK_SECONDS: Final = 60
LINES_MAX: Final = 1000  # queues, groups or workers; a family with more lines is of no use to anybody
COUNT_SECONDS: Final = 5.0
"""Counting that takes longer goes on, and what was counted before is shown meanwhile."""
Labels = dict[str, str]
Samples = Iterable[tuple[Labels, float]]
Flat = tuple[str, str, str, list[tuple[str, Labels, int | float]]]
"""Name, help, kind and samples of a family, as one process sends it to another."""


class Families(Collector):
    """Families of metrics, collected in the order in which they come."""

    def __init__(self) -> None:
        self._found: dict[str, Metric] = {}

    def collect(self) -> Iterator[Metric]:
        return iter(self._found.values())

    def gauge(self, name: str, help: str, value: float | Samples) -> None:
        self._add(name, "gauge", help, value)

    def counter(self, name: str, help: str, value: float | Samples) -> None:
        self._add(name, "counter", help, value)

    def _add(self, name: str, kind: str, help: str, value: float | Samples) -> None:
        name = f"fairlane_{name}"
        some = [({}, value)] if isinstance(value, int | float) else value
        self._samples(name, help, kind).extend([Sample(name, labels, one) for labels, one in some])

    def histogram(
        self, name: str, help: str, series: Iterable[tuple[Labels, VerbStats]], first: int = 5, upto: int = 25
    ) -> None:
        name = f"fairlane_{name}"
        samples = self._samples(name, help, "histogram")
        for labels, of in series:
            bounds = [*((repr(bound), below) for bound, below in of.histogram(first, upto)), ("+Inf", of.count)]
            samples += [Sample(f"{name}_bucket", {**labels, "le": bound}, below) for bound, below in bounds]
            samples += [Sample(f"{name}_sum", labels, of.seconds), Sample(f"{name}_count", labels, of.count)]

    def add(self, families: Iterable[Flat], labels: Labels) -> None:
        """What another process counted, each sample with these labels too."""
        for name, help, kind, samples in families:
            self._samples(name, help, kind).extend(
                [Sample(one, {**labels, **own}, value) for one, own, value in samples]
            )

    def flat(self) -> list[Flat]:
        return [
            (each.name, each.documentation, each.type, [(one.name, one.labels, one.value) for one in each.samples])
            for each in self.collect()
        ]

    def text(self) -> bytes:
        return generate_latest(self)

    async def written(self) -> bytes:
        """The text, with a pause after each family: a thousand queues take ten milliseconds."""
        parts = []
        for name, metric in self._found.items():
            one = Families()
            one._found[name] = metric
            parts.append(one.text())
            await asyncio.sleep(0)
        return b"".join(parts)

    def _samples(self, name: str, help: str, kind: str) -> list[Sample]:
        name = name.removesuffix("_total")  # which a counter gets again when it is written
        return self._found.setdefault(name, Metric(name, help, kind)).samples


class Snapshot(msgspec.Struct, array_like=True):
    """A snapshot of what one process counts."""

    process: list[Flat]
    journal: list[Flat]
    """Of the journal that all processes share, by the one that drains it."""


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
    out.gauge("store_up", "1 while the store answers, 0 while it does not.", int(from_store is not None))
    if app.siblings is None:
        _counted(out, app)
        _journal(out, app)
        return out.text() + (from_store or b"")
    answers = await app.siblings.ask()
    found = {number: read for number, answer in answers.items() if (read := _read(answer)) is not None}
    found[app.siblings.number] = snapshot(app)
    up = [({"worker": str(number)}, int(number in found)) for number in sorted({*answers, *found})]
    out.gauge("process_up", "1 for each process of this broker that answers.", up)
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
    _load(out, app.broker)
    _passed(out, app.broker)


def _process(out: Families, app: App) -> None:
    user, system = cpu_seconds()
    store = app.broker.status.connections()
    connections, active = app.http_load()
    out.gauge("uptime_seconds", "Since the broker started.", app.broker.status.uptime_seconds())
    cpu = [({"mode": "user"}, user), ({"mode": "system"}, system)]
    out.counter("process_cpu_seconds_total", "CPU time of the broker.", cpu)
    out.gauge("process_resident_memory_bytes", "Memory of the broker.", resident_bytes())
    by_state = [({"state": "busy"}, store.busy), ({"state": "idle"}, store.total - store.busy)]
    out.gauge("store_connections", "Connections to the database.", by_state)
    out.gauge("http_connections", "Open connections of clients.", connections)
    out.gauge("http_requests_active", "Requests being answered.", active)
    out.gauge("operations_pending", "Requests handed over and not answered yet.", app.broker.pending)
    out.gauge("polls_waiting", "Long polls parked until there is something.", sum(app.broker.status.parked().values()))


def _load(out: Families, broker: Broker) -> None:
    admission, (rate, applied, failed) = broker.admission, broker.status.drained()
    delays = [({"op": kind}, admission.wait_seconds(kind)) for kind in ("push", "ack")]
    out.gauge("admission_wait_seconds", "How long one more would wait for the store.", delays)
    decided: list[tuple[Labels, float]] = [
        ({"op": kind, "verdict": verdict}, count)
        for kind, verdicts in admission.decisions.items()
        for verdict, count in verdicts.items()
    ]
    out.counter("admission_decisions_total", "Operations executed, queued and refused for the load.", decided)
    out.gauge("operation_queue_drain_rate", "Operations a second applied here lately.", rate)
    out.counter("operation_queue_applied_total", "Operations applied here.", applied)
    out.counter("operation_queue_failed_total", "Operations given up on here.", failed)
    if (outages := broker.status.outages()) is not None:
        out.counter("store_outages_total", "How often the store went away.", outages)


def _journal(out: Families, app: App) -> None:
    """The journal is told of by the process that drains it."""
    found = app.broker.status.journal()
    if found is None or (app.siblings is not None and not app.broker.status.drains_journal()):
        return
    out.gauge("journal_messages", "Messages and acks that wait in the journal.", found.messages)
    out.gauge("journal_lanes", "Partitions they belong to.", found.lanes)
    out.gauge("journal_bytes", "Size of the journal.", found.bytes)
    out.gauge("journal_bytes_max", "Its limit; past it pushes are refused.", found.bytes_max)
    out.gauge("journal_failed", "Entries the store refused for good.", found.failed)
    out.gauge("journal_oldest_seconds", "Age of the oldest entry.", found.oldest_seconds or 0.0)
    out.counter("journal_acks_lost_total", "Acks that came after their lease had ended.", found.acks_lost)


def _passed(out: Families, broker: Broker) -> None:
    """Verbs, messages, webhooks and commands that passed here."""
    telemetry, commands = broker.telemetry, broker.telemetry.commands.items()
    verbs = [({"op": kind}, verb) for kind, verb in telemetry.verbs.items()]
    out.counter("operations_total", "Operations done.", [(op, verb.count) for op, verb in verbs])
    out.counter("operation_items_total", "Messages in them.", [(op, verb.items) for op, verb in verbs])
    out.counter("operation_errors_total", "Operations failed.", [(op, verb.errors) for op, verb in verbs])
    handing = "From handing over to the answer; of a pop, without the time parked."
    out.histogram("operation_duration_seconds", handing, verbs)
    out.counter("redeliveries_total", "Messages handed out after a failed attempt.", telemetry.redelivered)
    out.counter("lease_expiries_total", "Leases that ran out, as pops found them.", telemetry.leases_lost)
    out.counter("messages_dead_lettered_total", "Messages given up on.", telemetry.dead)
    age = "Age of the first message of each pop when it was handed out."
    out.histogram("time_in_queue_seconds", age, [({}, telemetry.time_in_queue)], first=10, upto=37)
    came = [({"hook": hook, "outcome": outcome}, count) for (hook, outcome), count in telemetry.hooks.items()]
    out.counter("hook_requests_total", "Webhooks that came, by what became of them.", came)
    ended = [
        ({"command": name, "outcome": outcome}, count)
        for name, found in commands
        for outcome, count in (("done", found.done.count), ("failed", found.failed), ("dead", found.dead))
    ]
    out.counter("commands_total", "Commands that this broker carried out, by what became of them.", ended)
    done = [({"command": name}, found.done) for name, found in commands]
    out.histogram("command_duration_seconds", "From the mapping of a message to the end of its command.", done)


class StoreMetrics:
    """Metrics of the store: what queues hold, how far groups are, what waits. Counted once for all that ask at the same
    time, and as seldom as `Statistics` where it is dear."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._counting: asyncio.Task[None] | None = None
        self._last = b""
        self._counted_at = self._serves_until = 0.0

    async def text(self) -> bytes | None:
        """None while the store does not answer."""
        if not await self._broker.status.healthy():
            return None
        if time.monotonic() >= self._serves_until:
            if self._counting is None or self._counting.done():
                self._counting = asyncio.create_task(self._count(), name="fairlane metrics")
                # Whoever waited for it may have gone before it failed.
                self._counting.add_done_callback(lambda task: task.cancelled() or task.exception())
            await asyncio.wait({self._counting}, timeout=COUNT_SECONDS)
            try:
                if self._counting.done():
                    self._counting.result()
            except FairlaneError:
                return None
        out = Families()
        age = time.monotonic() - self._counted_at
        out.gauge("store_metrics_age_seconds", "Since what follows was counted in the store.", age)
        return out.text() + self._last

    async def _count(self) -> None:
        out = Families()
        began = time.monotonic()
        await self._operations(out)
        await self._queues(out)
        await self._workers(out)
        self._last, self._counted_at, self._serves_until = await out.written(), began, serves_until(began)

    async def _operations(self, out: Families) -> None:
        depth, failed, stuck = await self._broker.status.operations(stuck_seconds=STUCK_SECONDS)
        out.gauge("operation_queue_depth", "Operations accepted and not applied yet, of all brokers.", depth)
        out.gauge("operations_failed", "Operations that failed and wait for somebody to decide.", failed)
        out.gauge("operation_queue_stuck_lanes", f"Lanes of them that have not moved for {STUCK_SECONDS} s.", stuck)

    async def _queues(self, out: Families) -> None:
        statistics = self._broker.statistics
        now = await statistics.now()
        counted = (await statistics.queues())[:LINES_MAX]
        groups = await statistics.groups()
        oldest = await statistics.oldest(counted, [found for _, found in groups])
        queues = [({"queue": queue.name}, queue.id, found, counts(found)) for queue, found in counted]
        standing = [
            ({**name, "state": state}, getattr(by_state, state))
            for name, _, _, by_state in queues
            for state in ("pending", "processing", "completed")
        ]
        out.gauge("queue_messages", "Retained messages by where they stand.", standing)
        out.gauge("dead_letters", "Dead letters not replayed.", [(name, found.dead) for name, _, found, _ in queues])
        out.gauge("queue_partitions", "Partitions.", [(name, found.partitions) for name, _, found, _ in queues])
        age = "Age of the oldest message that some group has not finished; 0 if there is none."
        ages = [(name, max(0.0, (now - oldest.get(id, now)) / 1e6)) for name, id, _, _ in queues]
        out.gauge("queue_oldest_seconds", age, ages)
        lags = [({"queue": queue.name, "group": one.group.name}, one) for queue, one in groups[:LINES_MAX]]
        out.gauge("group_lag", "Messages that a group has not finished.", [(at, one.lag) for at, one in lags])
        delays = [(at, 0.0 if one.oldest_at is None else max(0.0, (now - one.oldest_at) / 1e6)) for at, one in lags]
        out.gauge("group_lag_seconds", "Age of the oldest of them.", delays)
        out.gauge("group_leases", "Partitions under a live lease.", [(at, one.leases) for at, one in lags])
        out.gauge("group_leased_messages", "Messages in them.", [(at, one.leased) for at, one in lags])

    async def _workers(self, out: Families) -> None:
        """As the workers that are alive told it last."""
        workers = (await self._broker.workers.list())[:LINES_MAX]
        apps = Counter(one.app for one in workers)
        parts: list[tuple[Labels, Any]] = [
            ({"app": one.app, "host": one.hostname, "pid": str(one.pid), "queue": own.queue, "group": own.group}, own)
            for one in workers
            for own in one.queues
        ]
        out.gauge("workers", "Workers that are alive.", [({"app": name}, count) for name, count in apps.items()])
        out.gauge("worker_concurrency", "Messages at once.", [(at, own.concurrency) for at, own in parts])
        out.gauge("worker_in_hand", "Messages held now.", [(at, own.in_hand) for at, own in parts])
        out.counter("worker_handled_total", "Messages handled.", [(at, own.handled) for at, own in parts])
        out.counter("worker_failed_total", "Of them, those that failed.", [(at, own.failed) for at, own in parts])
