"""The HTTP ceiling: the broker's own server with a handler that only decodes requests and sends canned answers.

No broker on this server can be faster. `python -m bench.ceiling` prints its address.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec

from bench.load import BATCH, PAYLOAD
from fairlane.http.server import Request, Response, Server
from fairlane.runtime.memory import collect_rarely, exempt_from_collection
from fairlane.runtime.process import new_event_loop

ROOT = Path(__file__).resolve().parents[1]
_ID = b"01890a5d-ac96-774b-bcce-b302099a8057"
_LEASE = b"1.00000000-0000-7000-8000-000000000000"
_PUSHED = (
    b'{"index":0,"transaction_id":"%b","status":"queued","message_id":"%b","partition_id":"0-1","trace_id":null,'
    b'"queueName":"bench"}' % (_ID, _ID)
)
_ACKED = (
    b'{"index":0,"transactionId":"%b","success":true,"error":null,"queueName":"bench","partitionName":"lane-1",'
    b'"leaseReleased":true,"dlq":false}' % _ID
)
_WHERE = b'"partitionId":"0-1","leaseId":"%b","consumerGroup":"workers"' % _LEASE
_MESSAGE = (
    b'{"id":"%b","transactionId":"%b","traceId":null,"data":%b,"createdAt":"2026-01-31T12:00:00.000000Z",'
    b'"partition":"lane-1",%b,"producerSub":null}' % (_ID, _ID, PAYLOAD, _WHERE)
)
_POPPED = b'{"success":true,"queue":"bench","partition":"lane-1",%b,"partitionsClaimed":1,"messages":[%b]}' % (
    _WHERE,
    b",".join([_MESSAGE] * BATCH),
)


class _Item(msgspec.Struct):
    queue: str
    partition: str
    payload: msgspec.Raw


class _Push(msgspec.Struct):
    items: list[_Item]


class _Ack(msgspec.Struct, rename="camel"):
    transaction_id: str
    partition_id: str
    lease_id: str


class _Acks(msgspec.Struct, rename="camel"):
    consumer_group: str
    acknowledgments: list[_Ack]


_decode_items, _decode_acks = msgspec.json.Decoder(_Push).decode, msgspec.json.Decoder(_Acks).decode


async def handle(request: Request) -> Response:
    """Decode the request, and send an answer of the same size as the broker's."""
    if request.path == b"/api/v1/push":
        items = _decode_items(request.body).items
        return Response(201, b"[%b]" % b",".join([_PUSHED] * len(items)))
    if request.path == b"/api/v1/ack/batch":
        acks = _decode_acks(request.body).acknowledgments
        return Response(200, b"[%b]" % b",".join([_ACKED] * len(acks)))
    if request.path == b"/livez":
        return Response(200, b"{}")
    if not request.query:
        return Response(400)
    return Response(200, _POPPED)


@contextlib.contextmanager
def ceiling_process() -> Iterator[tuple[str, int]]:
    """Run the server in its own process, and yield its URL and process id."""
    process = subprocess.Popen([sys.executable, "-m", "bench.ceiling"], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        assert re.fullmatch(r"http://127\.0\.0\.1:\d+", url), url
        yield url, process.pid
    finally:
        process.terminate()
        process.communicate()


async def main() -> None:
    server = Server(handle)
    collect_rarely()
    exempt_from_collection()
    print(f"http://127.0.0.1:{await server.start('127.0.0.1', 0)}", flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        runner.run(main())
