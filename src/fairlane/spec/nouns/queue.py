"""A queue of the language: its settings, which option each is, and where messages go from it."""

from __future__ import annotations

from typing import Any, ClassVar, get_args

import msgspec

from fairlane.errors import InvalidRequest
from fairlane.model.names import check_name
from fairlane.model.queue import AfterLastAttempt, OnExpiry, Ordering, QueueOptions
from fairlane.spec import ir, reader
from fairlane.spec.findings import Findings
from fairlane.spec.nouns import noun
from fairlane.spec.nouns.noun import Leaves, Noun, Setting, Settings
from fairlane.spec.reader import Path, SpecFile
from fairlane.spec.text import tree
from fairlane.spec.types import INT, STRING

# What a declared queue has unless it says otherwise: five deliveries, with growing pauses between them.
DECLARED = QueueOptions(retry_limit=4, retry_delay_ms=1000, retry_delay_max_ms=60_000)

# Options without a setting: the first follows from the ages below, the second does nothing in any queue.
IMPLIED = ("retention_enabled", "dlq_after_max_retries")

DEAD_LETTER = ir.RecordType(
    fields={
        "original_message": ir.Scalar(of="json"),
        "failed_at": ir.Scalar(of="time"),
        "error": STRING,
        "attempts": INT,
    }
)
"""What a queue gets of another whose `dead_letter_queue` it is."""


def _option(option: str, setting: Setting) -> Setting:
    return setting._replace(at=("options", option))


def _attempts(file: SpecFile, setting: tree.Setting, path: Path) -> int | None:
    value = reader.number(file, setting, path)
    if value is None or value >= 1:
        return None if value is None else value - 1
    file.note(setting.value, "`max_attempts` counts deliveries in all, and one is the least")
    return None


class Queue(Noun[ir.QueueSpec]):
    word, family = "queue", "queues"
    gone = "its messages and dead letters are deleted"
    usual = ir.QueueSpec(options=DECLARED)
    settings: ClassVar[Settings] = {
        "message_type": noun.TYPES,
        "key": noun.EXPRESSION,
        "ordering": _option("ordering", noun.choice(*get_args(Ordering))),
        "priority": _option("priority", noun.NUMBER),
        "encrypted": _option("encryption_enabled", noun.FLAG),
        "retention": {
            "max_age_seconds": _option("retention_seconds", noun.SECONDS),
            "completed_max_age_seconds": _option("completed_retention_seconds", noun.SECONDS),
            "dead_letter_max_age_seconds": _option("dead_letter_retention_seconds", noun.SECONDS),
            "max_depth": _option("max_size", noun.NUMBER),
        },
        "delivery": {
            "max_attempts": _option("retry_limit", Setting(_attempts, lambda retries: str(retries + 1))),
            "initial_backoff_ms": _option("retry_delay_ms", noun.MILLISECONDS),
            "max_backoff_ms": _option("retry_delay_max_ms", noun.MILLISECONDS),
            "jitter": _option("retry_jitter", noun.FLAG),
            "dead_letter_queue": _option("dead_letter_queue", noun.NAME),
            "on_exhausted": _option("on_exhausted", noun.choice(*get_args(AfterLastAttempt))),
            "lease_seconds": _option("lease_seconds", noun.SECONDS),
            "dedup_seconds": _option("dedup_seconds", noun.SECONDS),
            "delay_seconds": _option("delay_seconds", noun.SECONDS),
            "window_seconds": _option("window_seconds", noun.SECONDS),
            "ttl_seconds": _option("ttl_seconds", noun.SECONDS),
            "max_wait_seconds": _option("max_wait_seconds", noun.SECONDS),
            "on_expiry": _option("on_expiry", noun.choice(*get_args(OnExpiry))),
        },
        "map_to": Setting(reader.mapping, lambda mapping: f"command {noun.as_mapping(mapping)}"),
    }

    def build(self, given: dict[str, Any]) -> ir.QueueSpec:
        own = {name: given.pop(name) for name in ir.QueueSpec.__struct_fields__ if name in given}
        options = msgspec.structs.replace(DECLARED, **given)
        return ir.QueueSpec(options=msgspec.structs.replace(options, retention_enabled=_aged(options)), **own)

    def check(self, found: Findings, path: Path, name: str, queue: ir.QueueSpec) -> None:
        try:
            queue.options.check()
        except InvalidRequest as error:
            found.add((*path, "options", str(error).split()[0]), str(error))
        _check_unreachable(found, path, queue)
        try:
            check_name("the name of a queue", name)
        except InvalidRequest as error:
            found.add(path, str(error))
        if queue.key is not None:
            found.key((*path, "key"), queue.key, queue.message_type)
        if queue.map_to is not None:
            found.mapping((*path, "map_to"), queue.map_to, queue.message_type)

    def leaves(self, queue: ir.QueueSpec) -> Leaves:
        """What a queue says, without what every declared queue has."""
        leaves = noun.type_leaves("message_type", queue.message_type) if queue.message_type else {}
        for section, settings in sections().items():
            for name, option in settings.items():
                value = getattr(queue.options, option)
                if value != getattr(DECLARED, option):
                    leaves[f"{section}.{name}" if section else name] = value + 1 if name == "max_attempts" else value
        if queue.options.retention_enabled != _aged(queue.options):  # which no file can say
            leaves["retention_enabled"] = queue.options.retention_enabled
        if queue.options.dlq_after_max_retries:
            leaves["dlq_after_max_retries"] = True
        if queue.key is not None:
            leaves["key"] = queue.key
        return leaves | (noun.mapping_leaves("map_to", queue.map_to) if queue.map_to else {})


def sections() -> dict[str, dict[str, str]]:
    """The settings that are options, by section, and which option each is; "" is the queue itself."""
    found: dict[str, dict[str, str]] = {"": {}}
    for name, setting in Queue.settings.items():
        if not isinstance(setting, Setting):
            found[name] = {inner: of.at[1] for inner, of in setting.items() if isinstance(of, Setting)}
        elif setting.at:
            found[""][name] = setting.at[1]
    return found


def _aged(options: QueueOptions) -> bool:
    return bool(options.retention_seconds or options.completed_retention_seconds)


def _check_unreachable(found: Findings, path: Path, queue: ir.QueueSpec) -> None:
    """Settings that can never have an effect beside the others."""
    options = queue.options
    age, completed = options.retention_seconds, options.completed_retention_seconds
    ttl, wait, delay = options.ttl_seconds, options.max_wait_seconds, options.delay_seconds
    once = "has no effect: with `max_attempts: 1` nothing is tried again"
    # 0 and the default are what a queue has that does not name the setting.
    rules = [
        *(
            (option, not options.retry_limit and getattr(options, option) not in (0, getattr(DECLARED, option)), once)
            for option in ("retry_delay_ms", "retry_delay_max_ms", "retry_jitter")
        ),
        ("retry_delay_max_ms", options.retry_delay_max_ms < options.retry_delay_ms, "is less than the first backoff"),
        ("retry_jitter", options.retry_jitter and not options.retry_delay_ms, "spreads a backoff, and there is none"),
        ("completed_retention_seconds", age and completed >= age, "has no effect: messages go at `max_age_seconds`"),
        ("max_wait_seconds", ttl and wait >= ttl, "has no effect: messages expire at `ttl_seconds`"),
        ("delay_seconds", ttl and delay >= ttl, "is not less than `ttl_seconds`: every message would expire unread"),
        ("on_expiry", options.on_expiry == "drop" and not (ttl or wait), "has no effect: nothing expires"),
    ]
    for option, wrong, why in rules:
        if wrong:
            found.add((*path, "options", option), f"this {why}")
    if queue.key is not None and options.ordering != "per_key":
        found.add((*path, "key"), f"a key is for `ordering: per_key`; this queue is {options.ordering}")


def check_flow(found: Findings) -> None:
    """Where messages go from each queue, and that none goes in a circle."""
    dead: dict[str, str] = {}
    following: dict[str, str] = {}
    for name, queue in found.spec.queues.items():
        path, target = ("queues", name, "options", "dead_letter_queue"), queue.options.dead_letter_queue
        if isinstance(target, str) and found.has_queue(path, target):
            dead[name] = target
            hint = "a dead letter has `original_message`, `failed_at`, `error` and `attempts`"
            found.fit(path, DEAD_LETTER, target, what="dead letters never fit", hint=hint)
        command = found.spec.commands.get(queue.map_to.command) if queue.map_to else None
        if command and isinstance(command.run, ir.QueueRun):
            following[name] = command.run.queue
    _check_circles(found, dead, "options", "dead_letter_queue", what="dead letters")
    _check_circles(found, following, "map_to", what="messages")


def _check_circles(found: Findings, targets: dict[str, str], *part: str, what: str) -> None:
    """Each circle once, told at the first of its queues. Every queue leads to one other at most."""
    seen: set[str] = set()
    for start in targets:
        way: list[str] = []
        name = start
        while name in targets and name not in seen:
            seen.add(name)
            way.append(name)
            name = targets[name]
        if name in way:
            circle = way[way.index(name) :]
            found.add(("queues", circle[0], *part), f"{what} would go in a circle: {' -> '.join([*circle, circle[0]])}")
