"""A document as text of the language: what compiles to it again.

Options that no setting stands for (`dead_letter_queue: true` of old clients, and a retention that is turned off beside
its ages) cannot be said, and are left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec

from fairlane.model.queue import QueueOptions
from fairlane.spec import ir
from fairlane.spec.format import format_spec
from fairlane.spec.settings import DECLARED, QUEUE_SETTINGS, QueueSetting
from fairlane.spec.source import Source

_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*")


def export_text(spec: ir.Spec) -> str:
    blocks = [
        *(_block(f"queue {_name(name)}", _queue(queue)) for name, queue in spec.queues.items()),
        *(_block(f"command {_name(name)}", _command(command)) for name, command in spec.commands.items()),
        *(_block(f"webhook {_name(name)}", _webhook(hook)) for name, hook in spec.webhooks.items()),
        *(_block(f"schedule {_name(name)}", _schedule(schedule)) for name, schedule in spec.schedules.items()),
        *(_block(f"poller {_name(name)}", _poller(poller)) for name, poller in spec.pollers.items()),
    ]
    return format_spec(Source("export", _block(f"app {_name(spec.app)}", blocks)))


def _block(head: str, entries: list[str]) -> str:
    return "\n".join([f"{head} {{", *entries, "}"]) if entries else f"{head} {{}}"


def _name(name: str) -> str:
    return name if _WORD.fullmatch(name) else _quoted(name)


def _quoted(text: str) -> str:
    return msgspec.json.encode(text).decode()


def _queue(queue: ir.QueueSpec) -> list[str]:
    entries = [_types("message_type", queue.message_type)] if queue.message_type else []
    if queue.key is not None:
        entries.append(f"key: {queue.key}")
    for section, settings in QUEUE_SETTINGS.items():
        lines = list(_settings(queue.options, settings))
        entries += [_block(section, lines)] if section and lines else lines
    if queue.map_to is not None:
        entries.append(f"map_to: command {_mapping(queue.map_to)}")
    return entries


def _settings(options: QueueOptions, settings: dict[str, QueueSetting]) -> Iterator[str]:
    for name, setting in settings.items():
        value = getattr(options, setting.option)
        if value == getattr(DECLARED, setting.option) or (setting.kind == "queue" and not isinstance(value, str)):
            continue
        if setting.kind == "queue":
            yield f"{name}: {_name(value)}"
        elif setting.kind == "flag":
            yield f"{name}: {'true' if value else 'false'}"
        else:
            yield f"{name}: {value + 1 if setting.option == 'retry_limit' else value}"


def _mapping(mapping: ir.Mapping) -> str:
    return _block(mapping.command, [f"{name}: {text}" for name, text in mapping.fields.items()])


def _types(name: str, record: ir.RecordType) -> str:
    return f"{name} {_record(record)}"


def _record(record: ir.RecordType) -> str:
    inside = "\n".join(f"{name}: {_type(type_)}" for name, type_ in record.fields.items())
    return f"{{\n{inside}\n}}" if inside else "{}"


def _type(type_: ir.Type) -> str:
    return f"{_present(type_)}?" if type_.optional else _present(type_)


def _present(type_: ir.Type) -> str:
    match type_:
        case ir.Scalar(of=of):
            return of
        case ir.ListType(items=items):
            return f"list<{_type(items)}>"
        case ir.MapType(values=values):
            return f"map<string, {_type(values)}>"
        case ir.EnumType(choices=choices):
            return f"enum({', '.join(map(_quoted, choices))})"
        case ir.RecordType():
            return _record(type_)


def _command(command: ir.CommandSpec) -> list[str]:
    entries = [_types("input", command.input)] if command.input else []
    if isinstance(command.run, ir.HttpRun):
        entries.append(f"run: http {command.run.method} {_quoted(command.run.url)}")
    elif isinstance(command.run, ir.QueueRun):
        entries.append(f"run: queue {_name(command.run.queue)}")
    if command.secret_env is not None:
        entries.append(f"secret_env: {_quoted(command.secret_env)}")
    return entries


def _webhook(hook: ir.WebhookSpec) -> list[str]:
    entries = [f"queue: {_name(hook.queue)}"] if hook.queue is not None else []
    if hook.on_type is not None:
        entries.append(f"on_type: {_quoted(hook.on_type)}")
    if hook.command is not None:
        entries.append(f"command: {_mapping(hook.command)}")
    if hook.verify is not None:
        entries.append(_verify(hook.verify))
    match hook.idempotency:
        case ir.HeaderKey(header=header):
            entries.append(f"idempotency: header {_quoted(header)}")
        case ir.ExpressionKey(expression=text):
            entries.append(f"idempotency: {text}")
        case ir.BodyKey():
            entries.append("idempotency: body")
    if hook.headers:
        entries.append(f"headers: {_strings(hook.headers)}")
    usual = ir.WebhookSpec()
    for name in ("max_body_bytes", "max_per_second"):
        if getattr(hook, name) != getattr(usual, name):
            entries.append(f"{name}: {getattr(hook, name)}")
    return entries


def _strings(texts: tuple[str, ...]) -> str:
    return _quoted(texts[0]) if len(texts) == 1 else f"[{', '.join(map(_quoted, texts))}]"


def _verify(verify: ir.Verify) -> str:
    secrets = f"secret_env: {_strings(verify.secret_env)}"
    if verify.scheme != "hmac":
        return _block(f"verify: {verify.scheme}", [secrets])
    entries = [f"header: {_quoted(verify.header or '')}", secrets]
    if verify.prefix:
        entries.append(f"prefix: {_quoted(verify.prefix)}")
    if verify.algorithm != "sha256":
        entries.append(f"algorithm: {verify.algorithm}")
    if verify.encoding != "hex":
        entries.append(f"encoding: {verify.encoding}")
    return _block("verify_hmac", entries)


def _schedule(schedule: ir.ScheduleSpec) -> list[str]:
    entries = [f"queue: {_name(schedule.queue)}"]
    usual = ir.ScheduleSpec(queue="")
    for name in ("every_seconds", "cron", "timezone", "missed", "data", "partition", "type"):
        value = getattr(schedule, name)
        if value != getattr(usual, name):
            text = value if name == "missed" else msgspec.json.encode(value).decode()
            entries.append(f"{name}: {text}")
    return entries


def _poller(poller: ir.PollerSpec) -> list[str]:
    entries = [f"url: {_quoted(poller.url)}", f"queue: {_name(poller.queue)}"]
    usual = ir.PollerSpec(url="", queue="")
    for name in poller.__struct_fields__[2:]:
        value = getattr(poller, name)
        if value != getattr(usual, name):
            text = value if name == "paging" else msgspec.json.encode(value).decode()
            entries.append(f"{name}: {text}")
    return entries
