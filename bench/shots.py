"""Pushes and pops over HTTP, driven by wrk."""

from __future__ import annotations

import resource
import tempfile
from collections.abc import Awaitable

import msgspec

from bench.figures import Run
from bench.load import PARTITIONS, PAYLOAD
from bench.meter import Meter
from bench.workloads import GROUP, QUEUE
from bench.wrk import Shot, shoot

CONNECTIONS = 64


def push_bodies(
    batch: int, spread: int, *, queue: str = QUEUE, payload: bytes = PAYLOAD, partitions: int = PARTITIONS
) -> list[bytes]:
    """Bodies that between them reach every partition alike."""
    bodies = []
    for first in range(0, partitions, spread):
        names = [f"lane-{first + number % spread}" for number in range(batch)]
        items = [{"queue": queue, "partition": name, "payload": msgspec.Raw(payload)} for name in names]
        bodies.append(msgspec.json.encode({"items": items}))
    return bodies


def pop_path(batch: int, *, queue: str = QUEUE, group: str = GROUP, more: str = "") -> str:
    return f"/api/v1/pop/queue/{queue}?batch={batch}&consumerGroup={group}{more}"


async def push_shot(url: str, bodies: list[bytes], *, seconds: int, connections: int = CONNECTIONS) -> Shot:
    with tempfile.NamedTemporaryFile() as file:
        file.write(b"\n".join(bodies))
        file.flush()
        shot = await shoot(url, ["post", "/api/v1/push", file.name], connections=connections, seconds=seconds)
    shot.messages = shot.requests * bodies[0].count(b'"payload"')
    return shot


LAST_ACKS_SECONDS_MAX = 5


async def pop_shot(
    url: str, path: str, *, ack: bool = True, seconds: int, connections: int = CONNECTIONS, stay: bool = False
) -> Shot:
    """Until there is nothing left; with `stay` for the whole time. What was popped is acked in the end."""
    told = ["stay" if stay else "pop", path, *(["ack", str(seconds)] if ack else [])]
    return await shoot(url, told, connections=connections, seconds=seconds + LAST_ACKS_SECONDS_MAX if ack else seconds)


async def fan_shot(url: str, bodies: list[bytes], paths: list[str], *, seconds: int) -> Shot:
    """A push, then a pop of each path, over and over; its messages are those that were popped."""
    with tempfile.NamedTemporaryFile() as file:
        file.write(b"\n".join(bodies))
        file.flush()
        told = ["fan", "/api/v1/push", file.name, *paths]
        return await shoot(url, told, connections=CONNECTIONS, seconds=seconds)


async def measured(meter: Meter, shooting: Awaitable[Shot]) -> Run:
    """What the shot found, with what it cost. wrk is the only child that ends meanwhile."""
    await meter.begin()
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    shot = await shooting
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    await meter.end()
    client = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return meter.cost(shot.messages)._replace(
        rate=shot.messages / shot.seconds,
        client_us=client / max(1, shot.messages) * 1e6,
        p50=shot.p50_ms,
        p99=shot.p99_ms,
        p999=shot.p999_ms,
    )
