"""The tables of docs/errors.md. `python -m tests.docs` rewrites them."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fairlane import errors
from fairlane.http.problems import problem

PAGE = Path(__file__).parents[2] / "docs/errors.md"
BEGIN, END = "<!-- errors: begin -->\n", "<!-- errors: end -->\n"

# The meaning of each code, and what to do about it.
CODES: dict[str, tuple[str, str]] = {
    "invalid_request": ("the request is invalid; the sentence says why", "fix the request"),
    "spec_error": (
        "a spec has an error at the given line and column",
        "fix the spec; `fairlane spec check` lists all errors",
    ),
    "payload_invalid": (
        "a message does not match the type of its queue; `path` says where. Nothing was stored",
        "fix the message, or the `message_type` of the queue",
    ),
    "expression_failed": (
        "a message lacks a field that an expression of a spec names",
        "fix the message or the expression",
    ),
    "expression_too_costly": (
        "an expression needs too much work for this message",
        "send a smaller message, or simplify the expression",
    ),
    "not_found": ("the queue, group, partition, message or other object does not exist", "check the name"),
    "conflict": ("the state does not allow it; the sentence says why", "read the sentence"),
    "lease_lost": (
        "the lease of an ack, renewal or commit expired, or belongs to another group",
        "stop: the message is delivered again. Use a longer lease, or renew it",
    ),
    "cancelled": ("the message was cancelled", "stop: it is not delivered again, and its ack is ignored"),
    "already_exists": ("an object with this name exists", "change it instead, or choose another name"),
    "options_changed": ("the options of the queue were changed concurrently", "read them and retry"),
    "config_hash_mismatch": (
        "a stream of this name was registered with another configuration",
        "register it with `reset`, which deletes its state, or under another name",
    ),
    "not_available": (
        "this broker was started without the required setting",
        "start it with the setting that the sentence names",
    ),
    "consent_needed": (
        "applying the spec may lose or refuse messages; the sentence says which",
        "check the plan, and apply with `consent` (`--yes`)",
    ),
    "transaction_refused": (
        "a step of the transaction failed; nothing was applied. The answer is 200 with `success: false`",
        "check the step `failedIndex`",
    ),
    "transaction_spans_cells": (
        "the queues of a transaction are in several cells; nothing was done",
        "create one beside the other with `cell: same-as ...`, or use several transactions",
    ),
    "queue_elsewhere": (
        "another broker placed the queue in another cell at the same moment",
        "try again",
    ),
    "state_moved": (
        "a cycle without an ack met a consumer of its stream, or deletes state that no longer exists",
        "read the state again when the partition is free",
    ),
    "already_applied": ("an earlier attempt of this transaction was applied, including its pushes", "nothing"),
    "ack_refused": ("the ack of one message was refused", "read the sentence"),
    "unresolvable": (
        "the lease or partition has no such message. A code of single acks, like the next three",
        "check transactionId and partitionId",
    ),
    "not_delivered": ("the message was not delivered yet", "pop it first"),
    "committed": ("a failed ack came too late; the message is done", "nothing"),
    "redelivered": ("an earlier message of the same call failed, so this one is delivered again", "nothing"),
    "operation_failed": (
        "an operation accepted with 202 failed later. Raised by a client that waits for it",
        "`fairlane operation show`; fix the cause and retry it, or discard it",
    ),
    "unauthenticated": (
        "the signature of a webhook, or the credential of a caller, is missing or invalid",
        "send the key; for webhooks see [webhooks](webhooks.md#signatures)",
    ),
    "forbidden": ("the caller lacks the scope for this request", "use another key, or extend this one"),
    "quota_reached": (
        "the tenant has reached its quota of queues, partitions, groups or schedules",
        "delete some, or ask the operator for more; see [tenants](tenants.md#quotas)",
    ),
    "command_failed": (
        "the target of a command refused it, or did not answer",
        "check the target; `retryable` says whether a retry may help",
    ),
    "overloaded": (
        "too much is waiting, or a rate limit was exceeded. Nothing was done",
        "retry after `Retry-After`; see [load](load.md)",
    ),
    "QUEUE_FULL": (
        "the queue has reached its `max_size`; see `queueDepth` and `capacity`. Nothing was stored",
        "retry after `Retry-After`; let consumers catch up",
    ),
    "over_quota": (
        "the tenant has reached its quota of messages, bytes, requests or waiting pops. Nothing was done",
        "retry after `Retry-After`; see [tenants](tenants.md#quotas)",
    ),
    "journal_full": (
        "the store is unavailable and the journal is full. Nothing was stored",
        "retry after `Retry-After`; make the store available again",
    ),
    "internal_error": (
        "the broker has a bug",
        "find the `X-Request-Id` of the answer in its log, and report it",
    ),
    "unavailable": ("the store or the broker cannot answer now", "retry"),
    "store_unavailable": ("the store is unavailable, and the request cannot be deferred", "retry"),
    "store_refused": (
        "the database, the role or the URL is wrong",
        "fix `--store` or the privileges; `fairlane doctor` checks them",
    ),
    "store_full": ("the disk of the store is full", "free disk space"),
    "store_unsafe": (
        "the store may lose committed data, or belongs to another version",
        "the broker refuses to start and says what to set",
    ),
    "store_corrupt": ("stored bytes do not match their checksum", "check the disk; restore a backup"),
    "sealed": (
        "a message is encrypted, and this broker lacks the key",
        "start the broker with the [encryption key](security.md#encryption-at-rest)",
    ),
    "lane_waiting": ("operations wait in a partition that the transaction or replay would write to", "retry"),
    "lane_locked": ("another session locks the partition in the database for too long. Nothing was applied", "retry"),
    "shutting_down": ("the broker is stopping", "retry, at another broker if there is one"),
    "too_many_polls": (
        "the broker has reached its limit of long polls (`--polls-max`)",
        "pop without waiting, or retry later",
    ),
    "outcome_unknown": (
        "the request may or may not have been applied",
        "retry with the same transactionId; it is stored once",
    ),
}

# Codes of HTTP itself: the request never reached a verb.
OF_HTTP: dict[str, tuple[int, str, str]] = {
    "bad_request": (400, "the request is not valid HTTP", "fix the client"),
    "host_not_allowed": (403, "the name in `Host` is not allowed", "add it to `--allowed-hosts`"),
    "cross_site": (403, "the request comes from a web page of another site", "add the origin to `--cors-origin`"),
    "no_such_route": (404, "the path does not exist", "see `/docs`"),
    "not_live": (404, "`/api/v1/live` cannot watch this path", "request it directly"),
    "method_not_allowed": (405, "the path has only the methods in `Allow`", "use one of them"),
    "too_slow": (408, "the header or the body did not arrive in time", "send faster; the connection is closed"),
    "body_too_large": (413, "the body is too large for its route", "send less per request"),
    "url_too_long": (414, "the URL is too long", "request less at once"),
    "unsupported_media_type": (
        415,
        "the content type is not JSON, or the body is compressed",
        "send `content-type: application/json` and an uncompressed body",
    ),
    "too_many_requests": (429, "a webhook or an address exceeds its rate limit", "retry after `Retry-After`"),
    "header_too_large": (431, "the header is too large", "send a smaller header"),
    "not_implemented": (501, "a transfer coding other than `chunked`", "do not use it"),
    "too_many_connections": (503, "the broker has reached its limit of connections", "retry after `Retry-After`"),
}


def tree() -> Iterator[type[errors.FairlaneError]]:
    """Return every error that has its own code, from general to special."""

    def walk(kind: type[errors.FairlaneError]) -> Iterator[type[errors.FairlaneError]]:
        for one in kind.__subclasses__():
            if one.__module__ == errors.__name__:
                yield one
                yield from walk(one)

    return walk(errors.FairlaneError)


def status(kind: type[errors.FairlaneError]) -> int:
    """Return the status of the answer to a request that raised this error."""
    given: Any = {"message": "", "file": "", "line": 1, "column": 1, "index": 0, "depth": 0, "capacity": 0, "queue": ""}
    takes = inspect.signature(kind.__init__).parameters
    needed = [name for name, one in takes.items() if one.default is inspect.Parameter.empty and name in given]
    if "args" in takes:  # the constructor of every exception
        return 500 if kind is errors.BrokerFailed else problem(kind("")).status
    return problem(kind(**{name: given[name] for name in needed})).status


def tables() -> str:
    lines = ["| code | status | retry | class | means | what to do |\n", "|---|---|---|---|---|---|\n"]
    for kind in tree():
        means, do = CODES[kind.code]
        again = "yes" if kind.retryable else "no"
        lines.append(f"| `{kind.code}` | {status(kind)} | {again} | `{kind.__name__}` | {means} | {do} |\n")
    lines += ["\n## Of HTTP itself\n\n", "| code | status | means | what to do |\n", "|---|---|---|---|\n"]
    lines += [f"| `{code}` | {number} | {means} | {do} |\n" for code, (number, means, do) in OF_HTTP.items()]
    return "".join(lines)


def written() -> str:
    """Return the page with up-to-date tables."""
    before, rest = PAGE.read_text(encoding="utf-8").split(BEGIN)
    return f"{before}{BEGIN}{tables()}{END}{rest.split(END)[1]}"
