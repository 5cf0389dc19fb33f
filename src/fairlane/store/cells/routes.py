"""Routes of the verbs of every family. `tests/unit/test_cell_routes.py` checks that none is missing."""

from __future__ import annotations

from typing import Any, Final

from fairlane.store.cells import cross_cell, fan_ins, placement, staged, unique_keys
from fairlane.store.cells.router import (
    Route,
    at_home,
    by,
    concatenated,
    each_found_again,
    everywhere_and,
    first_found,
    found_again,
    in_order,
    read_and,
    sorted_by,
    split_and,
)
from fairlane.store.contract.operations import Lost
from fairlane.store.contract.values import AckResult, PartitionLocked

HOME: Final = ("flags", "leadership", "history", "data_keys", "api_keys", "sessions", "audit", "workers", "snoozes")
"""Families that are in the home alone."""


def _joined(answers: list[dict[Any, Any]]) -> dict[Any, Any]:
    return {key: value for answer in answers for key, value in answer.items()}


def _united(answers: list[set[Any]]) -> set[Any]:
    return set[Any]().union(*answers)


def _soonest(answers: list[int | None]) -> int | None:
    return min((at for at in answers if at is not None), default=None)


def _added(answers: list[tuple[int, ...]]) -> tuple[int, ...]:
    return tuple(map(sum, zip(*answers, strict=True)))


def _nothing(answers: list[None]) -> None: ...


def _locked() -> AckResult:
    return AckResult("locked")


def _all(route: Route, *verbs: str) -> dict[str, Route]:
    return dict.fromkeys(verbs, route)


SUMS: Final = read_and(sum)
SUMS_OF_AVAILABLE: Final = everywhere_and(sum, partly=True)
ANY_OF_AVAILABLE: Final = everywhere_and(any, partly=True)
LISTS: Final = read_and(concatenated)
ACKS: Final = each_found_again(in_order(_locked), lambda ack: ack.state in ("lost", "gone"), _locked)

ROUTES: Final[dict[str, dict[str, Route]]] = {
    "messages": {
        **_all(by(), "pop", "expire", "read"),
        **_all(found_again(), "release", "leased", "find"),
        "push": in_order(PartitionLocked),
        "ack": ACKS,
        "ack_and_pop": cross_cell.ack_and_pop(ACKS),
        "renew": each_found_again(in_order(), lambda outcome: not outcome.renewed, None),
        "expiring": everywhere_and(concatenated, partly=True),
        "transact": cross_cell.transact,
    },
    "operations": {
        "enqueue": in_order(PartitionLocked),
        "apply": in_order(Lost),
        "claim": everywhere_and(concatenated, partly=True),
        **_all(SUMS_OF_AVAILABLE, "release", "depth", "clean"),
        "postpone": split_and(sum),
        **_all(by(), "fail", "acks"),
        "get": first_found,
        "page": sorted_by(lambda one: one.id, read_and),
        "newest": sorted_by(lambda one: -one.id.int, read_and),
        "failed": SUMS,
        "retry": by(2),
        "discard": first_found,
        "counts": read_and(cross_cell.operation_counts),
        "backlogs": sorted_by(lambda one: -one.open, read_and),
    },
    "scheduled": {
        "add": in_order(),
        "append_due": everywhere_and(cross_cell.appended, partly=True),
        **_all(by(), "cancel", "reschedule", "page"),
        "next_in": everywhere_and(_soonest, partly=True),
    },
    "tenants": {
        **_all(at_home, "all", "get", "make", "limit"),
        "delete": placement.delete_tenant,
        "counts": read_and(_added),
        **_all(SUMS, "stored_bytes", "other_bytes"),
    },
    "queues": {
        **_all(by(), "ensure_partitions", "named", "depth"),
        **_all(found_again(), "set_priority", "partition"),
        "get": placement.get,
        "all": placement.all_queues,
        "stamp": cross_cell.stamp,
        "ensure": placement.ensure,
        "ensure_all": placement.ensure_all,
        "configure": placement.configure,
        **_all(at_home, "declared", "note_cells"),
        "delete": placement.delete,
        "purge": everywhere_and(_nothing, partly=True),
        "ensure_partitions_of": placement.ensure_partitions_of,
        "changes": placement.changes,
    },
    "groups": {
        **_all(by(), "get", "all", "subscribe", "results", "failed"),
        **_all(by(group=True), "seed", "lanes", "urgent", "seek", "preview_seek", "delete", "resubscribe", "result"),
        "queue_of": found_again(1, group=True),
        "by_name": LISTS,
        "repair_wakes": cross_cell.repair_wakes,
    },
    "dead_letters": {
        **_all(by(), "page", "get", "count", "errors", "replay", "purge"),
        "queues": read_and(_united),
        "forward": everywhere_and(cross_cell.appended, partly=True),
    },
    "browse": {
        **_all(by(), "delete", "dead_letter", "clear"),
        "active": sorted_by(lambda one: (-one.last_at, -one.id.id), split_and),
        "newest": cross_cell.newest,
        "named_like": sorted_by(lambda one: one.name, split_and),
        **_all(split_and(concatenated), "traced", "with_id"),
        "trim": everywhere_and(_nothing, partly=True),
        "trim_some": ANY_OF_AVAILABLE,
    },
    "cancellations": {
        **_all(by(), "cancel", "at", "cancel_scheduled", "was_scheduled"),
        "among": split_and(_joined),
        "of_leases": split_and(concatenated),
    },
    "staged": {
        **_all(at_home, "check", "by_queue", "grant", "revoke", "grants", "publish_sealed"),
        "move": staged.move,
    },
    "limits": _all(by(group=True), "state"),
    "progress_reports": {"report": split_and(sum), "of_message": by()},
    "fan_ins": {
        "commit": fan_ins.commit,
        "callback": fan_ins.callback,
        "get": first_found,
        "newest": fan_ins.newest,
        "parts": LISTS,
        "result": fan_ins.result,
        "settle": fan_ins.settle,
        "open_queues": everywhere_and(_united, partly=True),
        "ready": everywhere_and(concatenated, partly=True),
        "end": fan_ins.end,
        "refuse": everywhere_and(_nothing, partly=True),
        "delete": first_found,
        "forget": SUMS_OF_AVAILABLE,
    },
    "unique_keys": {
        "holders": unique_keys.holders,
        "commit": unique_keys.commit,
    },
    "retention": {
        "due": ANY_OF_AVAILABLE,
        "step": cross_cell.retention_step,
        "history": sorted_by(lambda one: one.at, split_and),
    },
    "statistics": {
        "queues": cross_cell.statistics_of_queues,
        "partitions": by(),
        "oldest": split_and(_joined),
        "groups": split_and(concatenated),
        "lagging": sorted_by(lambda one: (one.oldest_unconsumed_at, one.partition_name, one.consumer_group), split_and),
        "leases": sorted_by(lambda one: (one.expires_at, one.partition_id, one.consumer_group), split_and),
        "stopped": sorted_by(lambda one: (one.queue_id, one.group, one.partition), split_and),
        "standings": sorted_by(lambda one: (one.partition, one.group), split_and),
        "dead_among": split_and(_united),
    },
    "pauses": {
        **_all(by(), "pause", "resume", "paused"),
        "resume_lanes": by(group=True),
        "queues": split_and(_united),
    },
    "effects": _all(by(2), "get", "keep"),
    "schedules": {
        **_all(at_home, "put", "get", "all", "delete", "set_next", "due", "next_in", "advance"),
        "commit": cross_cell.commit,
    },
    "sources": {
        **_all(at_home, "lease", "keep", "release", "get", "all", "delete", "hashes", "not_seen_since", "copies"),
        "commit": cross_cell.commit,
    },
    "specs": {
        **_all(at_home, "in_force", "heads", "get", "versions"),
        "apply": placement.apply_spec,
    },
}
"""Routes by family and verb. Verbs that take a transaction are called inside a cell only."""
