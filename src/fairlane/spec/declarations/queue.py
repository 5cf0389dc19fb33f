"""The declaration of a queue: its settings, their options, and the flow between queues."""

from __future__ import annotations

from typing import Any, ClassVar, get_args

import msgspec

from fairlane.errors import InvalidRequest
from fairlane.model.names import check_name
from fairlane.model.queue import AfterLastAttempt, OnExpiry, Ordering, QueueOptions
from fairlane.spec import ir
from fairlane.spec import settings as readers
from fairlane.spec.declarations import declaration
from fairlane.spec.declarations.declaration import Declaration, Leaves, SettingCodec, Settings
from fairlane.spec.diagnostics import Diagnostics
from fairlane.spec.settings import Path, SpecFile
from fairlane.spec.text import tree
from fairlane.spec.types import INT, STRING

# Defaults of a declared queue: five deliveries with increasing delays between them.
DECLARED = QueueOptions(retry_limit=4, retry_delay_ms=1000, retry_delay_max_ms=60_000)

# Options without a setting. The first follows from the ages below; the second has no effect in any queue.
IMPLIED = ("retention_enabled", "dlq_after_max_retries")

DEAD_LETTER = ir.RecordType(
    fields={
        "original_message": ir.Scalar(of="json"),
        "failed_at": ir.Scalar(of="time"),
        "error": STRING,
        "attempts": INT,
    }
)
"""The type of the messages that arrive in the `dead_letter_queue` of another queue."""


def _option(option: str, setting: SettingCodec) -> SettingCodec:
    return setting._replace(at=("options", option))


def _attempts(file: SpecFile, setting: tree.Assignment, path: Path) -> int | None:
    value = readers.number(file, setting, path)
    if value is None or value >= 1:
        return None if value is None else value - 1
    file.note(setting.value, "`max_attempts` counts all deliveries and must be at least 1")
    return None


class QueueDeclaration(Declaration[ir.QueueSpec]):
    word, family = "queue", "queues"
    removal_danger = "its messages and dead letters are deleted"
    defaults = ir.QueueSpec(options=DECLARED)
    settings: ClassVar[Settings] = {
        "message_type": declaration.TYPES,
        "key": declaration.EXPRESSION,
        "ordering": _option("ordering", declaration.choice(*get_args(Ordering))),
        "priority": _option("priority", declaration.NUMBER),
        "cell": _option("cell", declaration.STRING),
        "encrypted": _option("encryption_enabled", declaration.FLAG),
        "retention": {
            "max_age_seconds": _option("retention_seconds", declaration.SECONDS),
            "completed_max_age_seconds": _option("completed_retention_seconds", declaration.SECONDS),
            "dead_letter_max_age_seconds": _option("dead_letter_retention_seconds", declaration.SECONDS),
            "max_depth": _option("max_size", declaration.NUMBER),
        },
        "delivery": {
            "max_attempts": _option("retry_limit", SettingCodec(_attempts, lambda retries: str(retries + 1))),
            "initial_backoff_ms": _option("retry_delay_ms", declaration.MILLISECONDS),
            "max_backoff_ms": _option("retry_delay_max_ms", declaration.MILLISECONDS),
            "jitter": _option("retry_jitter", declaration.FLAG),
            "dead_letter_queue": _option("dead_letter_queue", declaration.NAME),
            "on_exhausted": _option("on_exhausted", declaration.choice(*get_args(AfterLastAttempt))),
            "max_running": _option("max_running", declaration.NUMBER),
            "rate": _option("rate", declaration.STRING),
            "max_running_per_key": _option("max_running_per_key", declaration.NUMBER),
            "rate_per_key": _option("rate_per_key", declaration.STRING),
            "lease_seconds": _option("lease_seconds", declaration.SECONDS),
            "dedup_seconds": _option("dedup_seconds", declaration.SECONDS),
            "delay_seconds": _option("delay_seconds", declaration.SECONDS),
            "window_seconds": _option("window_seconds", declaration.SECONDS),
            "ttl_seconds": _option("ttl_seconds", declaration.SECONDS),
            "max_wait_seconds": _option("max_wait_seconds", declaration.SECONDS),
            "on_expiry": _option("on_expiry", declaration.choice(*get_args(OnExpiry))),
        },
        "map_to": SettingCodec(readers.mapping, lambda mapping: f"command {declaration.as_mapping(mapping)}"),
    }

    def build(self, given: dict[str, Any]) -> ir.QueueSpec:
        own = {name: given.pop(name) for name in ir.QueueSpec.__struct_fields__ if name in given}
        options = msgspec.structs.replace(DECLARED, **given)
        return ir.QueueSpec(options=msgspec.structs.replace(options, retention_enabled=_aged(options)), **own)

    def check(self, found: Diagnostics, path: Path, name: str, queue: ir.QueueSpec) -> None:
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
        """Return the option values that differ from the defaults of a declared queue."""
        leaves = declaration.type_leaves("message_type", queue.message_type) if queue.message_type else {}
        for section, settings in sections().items():
            for name, option in settings.items():
                value = getattr(queue.options, option)
                if value != getattr(DECLARED, option):
                    leaves[f"{section}.{name}" if section else name] = value + 1 if name == "max_attempts" else value
        if queue.options.retention_enabled != _aged(queue.options):  # no file can express this
            leaves["retention_enabled"] = queue.options.retention_enabled
        if queue.options.dlq_after_max_retries:
            leaves["dlq_after_max_retries"] = True
        if queue.key is not None:
            leaves["key"] = queue.key
        return leaves | (declaration.mapping_leaves("map_to", queue.map_to) if queue.map_to else {})


def sections() -> dict[str, dict[str, str]]:
    """Return the settings that are options, by section, with the option's name. Section "" is the queue itself."""
    found: dict[str, dict[str, str]] = {"": {}}
    for name, setting in QueueDeclaration.settings.items():
        if not isinstance(setting, SettingCodec):
            found[name] = {inner: of.at[1] for inner, of in setting.items() if isinstance(of, SettingCodec)}
        elif setting.at:
            found[""][name] = setting.at[1]
    return found


def _aged(options: QueueOptions) -> bool:
    return bool(options.retention_seconds or options.completed_retention_seconds)


def _check_unreachable(found: Diagnostics, path: Path, queue: ir.QueueSpec) -> None:
    """Report settings that can never have an effect, given the others."""
    options = queue.options
    age, completed = options.retention_seconds, options.completed_retention_seconds
    ttl, wait, delay = options.ttl_seconds, options.max_wait_seconds, options.delay_seconds
    once = "has no effect: with `max_attempts: 1` nothing is retried"
    # 0 and the default also stand for a setting that is not given.
    rules = [
        *(
            (option, not options.retry_limit and getattr(options, option) not in (0, getattr(DECLARED, option)), once)
            for option in ("retry_delay_ms", "retry_delay_max_ms", "retry_jitter")
        ),
        ("retry_delay_max_ms", options.retry_delay_max_ms < options.retry_delay_ms, "is less than the first backoff"),
        ("retry_jitter", options.retry_jitter and not options.retry_delay_ms, "has no effect: there is no backoff"),
        (
            "completed_retention_seconds",
            age and completed >= age,
            "has no effect: messages are deleted at `max_age_seconds`",
        ),
        ("max_wait_seconds", ttl and wait >= ttl, "has no effect: messages expire at `ttl_seconds`"),
        ("delay_seconds", ttl and delay >= ttl, "is not less than `ttl_seconds`: every message would expire unread"),
        ("on_expiry", options.on_expiry == "drop" and not (ttl or wait), "has no effect: nothing expires"),
    ]
    for option, wrong, why in rules:
        if wrong:
            found.add((*path, "options", option), f"this {why}")
    if queue.key is not None and options.ordering != "per_key":
        found.add((*path, "key"), f"a key is for `ordering: per_key`; this queue is {options.ordering}")


def check_flow(found: Diagnostics) -> None:
    """Check where each queue sends messages and dead letters, and report loops."""
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


def _check_circles(found: Diagnostics, targets: dict[str, str], *part: str, what: str) -> None:
    """Report each loop once, at its first queue. A queue has at most one target."""
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
            found.add(("queues", circle[0], *part), f"{what} would loop: {' -> '.join([*circle, circle[0]])}")
