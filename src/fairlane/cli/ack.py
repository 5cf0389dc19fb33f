"""`fairlane ack`"""

from __future__ import annotations

import sys
from collections import defaultdict
from typing import Annotated

import msgspec
import typer

from fairlane.cli.connection import DEFAULT, Server, connected
from fairlane.cli.output import AsJson, echo, print_json
from fairlane.errors import InvalidRequest
from fairlane.model.ids import PartitionId
from fairlane.model.names import QUEUE_MODE
from fairlane.model.outcome import AckItem, AckStatus


class _Taken(msgspec.Struct, rename="camel"):
    """The fields of a line of `fairlane pop --no-ack --json` that name a message."""

    transaction_id: str
    partition_id: str
    lease_id: str | None = None
    consumer_group: str = QUEUE_MODE


_decode = msgspec.json.Decoder(_Taken).decode


def ack(
    partition_id: Annotated[
        str | None, typer.Argument(metavar="[PARTITION_ID", help="As a pop shows it.", show_default=False)
    ] = None,
    ids: Annotated[
        list[str] | None, typer.Argument(metavar="ID...]", help="The transactionIds.", show_default=False)
    ] = None,
    status: Annotated[str, typer.Option("--status", help="completed, failed, retry or dlq.")] = "completed",
    error: Annotated[str | None, typer.Option("--error", help="Why it failed.", show_default=False)] = None,
    lease: Annotated[
        str | None, typer.Option("--lease", "-l", help="The lease they are held by.", show_default=False)
    ] = None,
    group: Annotated[str, typer.Option("--group", "-g", help="The consumer group.", show_default=False)] = QUEUE_MODE,
    server: Server = DEFAULT,
    json: AsJson = False,
) -> None:
    """Say what became of messages that a pop left leased.

    Without arguments they are read from standard input, as pop prints them:
    fairlane pop orders --no-ack --json | fairlane ack
    """
    if partition_id is None:
        taken = _lines()
    elif not ids:
        raise InvalidRequest("name the transactionId of a message behind the id of its partition")
    else:
        taken = [_Taken(id, partition_id, lease, group) for id in ids]
    if status not in _STATUSES:
        raise InvalidRequest(f"{status!r:.40} is no status of an ack; it is one of {', '.join(_STATUSES)}")
    groups: dict[str, list[AckItem]] = defaultdict(list)
    for one in taken:
        item = AckItem(
            transaction_id=one.transaction_id,
            partition=PartitionId.parse(one.partition_id),
            status=status,
            lease=one.lease_id,
            error=error,
        )
        groups[one.consumer_group].append(item)
    with connected(server) as client:
        outcomes = [outcome for name, items in groups.items() for outcome in client.ack_many(items, group=name)]
    refused = [outcome for outcome in outcomes if not outcome.success]
    if json:
        shown = [{"transactionId": one.transaction_id, "success": one.success, "error": one.error} for one in outcomes]
        print_json(shown)
    else:
        for outcome in refused:
            echo(f"{outcome.transaction_id}: {outcome.error}")
        echo(f"{len(outcomes) - len(refused)} of {len(outcomes)} said to be {status}.")
    if refused:
        raise typer.Exit(1)


_STATUSES: tuple[AckStatus, ...] = ("completed", "failed", "retry", "dlq")


def _lines() -> list[_Taken]:
    if sys.stdin.isatty():
        raise InvalidRequest(
            "name a partition and transactionIds, or give lines of `fairlane pop --no-ack --json` on standard input"
        )
    try:
        return [_decode(line) for line in sys.stdin.buffer if line.strip()]
    except msgspec.DecodeError as error:
        raise InvalidRequest(f"standard input has no lines of `fairlane pop --no-ack --json`: {error}") from None
