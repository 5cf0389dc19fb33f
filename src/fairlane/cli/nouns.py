"""All nouns and verbs of the command line. The module of each is imported when it is asked for: no command waits for
those of others."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from typing import cast

from fairlane.cli.command import Command, Noun

VERBS = {
    "serve": "serve",
    "push": "push",
    "pop": "pop",
    "ack": "pop",
    "tail": "tail",
    "poll": "poll",
    "status": "status",
    "top": "status",
    "doctor": "doctor",
    "completion": "completion",
}
"""Verbs without a noun, each with its module."""

NOUNS = {
    "queue": "List, show, create, set, pause, explain, clear and delete queues.",
    "message": "List, show, retry, give up and delete stored messages, and read their results.",
    "group": "List, seek and delete consumer groups.",
    "dlq": "List, show, replay and purge dead letters.",
    "retention": "Delete what retention rules cover, and see what went.",
    "spec": "Check, plan and apply specs: files that declare queues.",
    "hook": "Webhooks that a spec declares.",
    "schedule": "Define, list, pause and run schedules, which push a message at every tick.",
    "worker": "Run the handlers of an app: `fairlane worker module:app`. List the workers that are alive.",
    "source": "List and forget sources, which `fairlane poll` reads.",
    "trace": "Messages of a trace, and notes of consumers on their work.",
    "maintenance": "Pause and resume all pops, or all pushes.",
    "key": "Make, list, rotate and revoke keys, by which a broker knows its callers.",
    "audit": "List who did what, and verify that nobody changed the list.",
    "tenant": "Make, limit and delete tenants, which share a broker and nothing else.",
    "operation": "Pushes and acks that were accepted and wait, and those of them that failed.",
}


def noun(module: str) -> Noun:
    return cast(Noun, import_module(f"fairlane.cli.{module}").app)


def verb(name: str) -> Command:
    """A verb without a noun."""
    return noun(VERBS[name]).verbs[name]


def commands() -> Iterator[Command]:
    """All of them."""
    yield from map(verb, VERBS)
    for name in NOUNS:
        yield from noun(name).verbs.values()
