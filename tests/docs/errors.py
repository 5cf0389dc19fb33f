"""The tables of docs/errors.md. `python -m tests.docs` writes them anew."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fairlane import errors
from fairlane.http.problems import problem

PAGE = Path(__file__).parents[2] / "docs/errors.md"
BEGIN, END = "<!-- errors: begin -->\n", "<!-- errors: end -->\n"

# What each code means, and what to do about it.
CODES: dict[str, tuple[str, str]] = {
    "invalid_request": ("something in the request is wrong; the sentence names it", "mend the request"),
    "spec_error": (
        "a spec is wrong, at the line and column that it names",
        "mend the spec; `fairlane spec check` says all of it",
    ),
    "payload_invalid": (
        "a message does not fit the type of its queue; `path` says where. Nothing was stored",
        "mend the message, or the `message_type` of the queue",
    ),
    "expression_failed": ("a message has not what an expression of a spec names", "mend the message or the expression"),
    "expression_too_costly": ("an expression would take too much work for this message", "send less, or ask for less"),
    "not_found": ("the queue, group, partition, message or other thing is not there", "look at the name"),
    "conflict": ("the state does not allow it; the sentence says why", "read it, and decide"),
    "lease_lost": (
        "the lease of an ack, renewal or commit ended, or was never this group's",
        "let it go: the message comes again to somebody. Take a longer lease, or renew",
    ),
    "already_exists": ("something of this name is there", "change it instead, or choose another name"),
    "options_changed": ("somebody else changed the options of the queue meanwhile", "read them and try again"),
    "config_hash_mismatch": (
        "a stream of this name was registered with another configuration",
        "register it with `reset`, which drops its state, or under another name",
    ),
    "not_available": ("this broker was not started with what it takes", "start it with that; the sentence names it"),
    "consent_needed": (
        "applying the spec may lose or refuse messages; the sentence names what",
        "look at the plan, and apply with `consent` (`--yes`)",
    ),
    "transaction_refused": (
        "a step of the transaction cannot be done; nothing was applied. The answer is 200 with `success: false`",
        "look at the step, `failedIndex`",
    ),
    "state_moved": (
        "a cycle without an ack met a consumer of its stream, or deletes state that is gone",
        "read the state again when the partition is free",
    ),
    "already_applied": ("an earlier try of this transaction was applied, its pushes too", "nothing: it is done"),
    "ack_refused": ("the ack of one message was refused", "read the sentence"),
    "unresolvable": (
        "no such message in the lease or the partition. The code of one ack in its answer, as the next three",
        "look at transactionId and partitionId",
    ),
    "not_delivered": ("the message was not handed out yet", "pop it first"),
    "committed": ("a failed ack came too late: the message is finished", "nothing"),
    "redelivered": ("an earlier message of the same call failed, so this one comes again", "nothing: it comes again"),
    "operation_failed": (
        "what was accepted with 202 was given up on later. Raised by a client that waited for it",
        "`fairlane operation show`; mend the cause and retry it, or discard it",
    ),
    "unauthenticated": (
        "the signature of a webhook, or the credential of a caller, is missing or not good",
        "send the key; of a webhook see [webhooks](webhooks.md#signatures)",
    ),
    "forbidden": ("the caller is known and has not the scope for this", "use another key, or widen this one"),
    "quota_reached": (
        "the tenant has as many queues, partitions, groups or schedules as it may",
        "delete some, or ask whoever runs the broker for more; see [tenants](tenants.md#quotas)",
    ),
    "command_failed": (
        "what carries out a command refused it, or did not answer",
        "look at the one who was called; `retryable` says whether again may help",
    ),
    "overloaded": (
        "as much waits as may, or more came than is allowed. Nothing was done",
        "try again after `Retry-After`; see [load](load.md)",
    ),
    "QUEUE_FULL": (
        "the queue has its `max_size`; `queueDepth` and `capacity` say how full. Nothing was stored",
        "try again after `Retry-After`; let consumers catch up",
    ),
    "over_quota": (
        "the tenant has as many messages, bytes, requests or waiting pops as it may. Nothing was done",
        "try again after `Retry-After`; see [tenants](tenants.md#quotas)",
    ),
    "journal_full": (
        "the store is away and the journal has no room. Nothing was stored",
        "try again after `Retry-After`; bring the store back",
    ),
    "internal_error": (
        "the broker met a defect of its own",
        "look into its log for the `X-Request-Id` of the answer, and report it",
    ),
    "unavailable": ("the store or the broker cannot answer now", "try again"),
    "store_unavailable": ("the store does not answer, and this cannot wait for it", "try again"),
    "store_refused": (
        "the database, the role or the URL is wrong",
        "mend the `--store` or the privileges; `fairlane doctor` looks at them",
    ),
    "store_full": ("the disk of the store has no room", "make room"),
    "store_unsafe": (
        "the store would lose what it committed, or is none of this version's",
        "the broker refuses to start and says what to set",
    ),
    "store_corrupt": ("stored bytes do not match their checksum", "look at the disk; restore a backup"),
    "sealed": (
        "a message is encrypted, and this broker has no key or not the right one",
        "start the broker with the [encryption key](security.md#encryption-at-rest)",
    ),
    "lane_waiting": ("operations wait in a partition that the transaction or replay would append to", "try again"),
    "lane_locked": ("somebody holds the partition in the database for too long. Nothing was applied", "try again"),
    "shutting_down": ("the broker is stopping", "try again, at another broker if there is one"),
    "too_many_polls": ("as many long polls wait as the broker lets (`--polls-max`)", "ask without waiting, or later"),
    "outcome_unknown": (
        "it may be done or not",
        "try again with the same transactionId: it is stored once",
    ),
}

# Those of HTTP itself: the request never became a verb.
OF_HTTP: dict[str, tuple[int, str, str]] = {
    "bad_request": (400, "it is no HTTP that this server reads", "mend the client"),
    "host_not_allowed": (403, "the broker does not go by the name in `Host`", "name it in `--allowed-hosts`"),
    "cross_site": (403, "a browser says that a page of another site asked", "name the origin in `--cors-origin`"),
    "no_such_route": (404, "there is no such path", "look at `/docs`"),
    "not_live": (404, "this path cannot be watched by `/api/v1/live`", "ask for it by itself"),
    "method_not_allowed": (405, "the path has other methods, which `Allow` lists", "use one of them"),
    "too_slow": (408, "the header or the body did not arrive in time", "send faster; the connection is closed"),
    "body_too_large": (413, "the body has more bytes than its route takes", "send less at once"),
    "url_too_long": (414, "the URL has too many bytes", "ask for less at once"),
    "unsupported_media_type": (
        415,
        "the body is not said to be JSON, or has a content encoding",
        "send `content-type: application/json`, and the body uncompressed",
    ),
    "too_many_requests": (429, "a webhook, or an address, sends more than it may", "try again after `Retry-After`"),
    "header_too_large": (431, "the header has too many bytes", "send fewer"),
    "not_implemented": (501, "a transfer coding other than `chunked`", "leave it off"),
    "too_many_connections": (503, "as many clients are connected as may be", "try again after `Retry-After`"),
}


def tree() -> Iterator[type[errors.FairlaneError]]:
    """Every error with a code of its own, from general to special."""

    def walk(kind: type[errors.FairlaneError]) -> Iterator[type[errors.FairlaneError]]:
        for one in kind.__subclasses__():
            if one.__module__ == errors.__name__:
                yield one
                yield from walk(one)

    return walk(errors.FairlaneError)


def status(kind: type[errors.FairlaneError]) -> int:
    """Of the answer to a request that raised it."""
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
    """The page with the tables as they should be."""
    before, rest = PAGE.read_text(encoding="utf-8").split(BEGIN)
    return f"{before}{BEGIN}{tables()}{END}{rest.split(END)[1]}"
