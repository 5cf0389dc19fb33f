"""The declaration of a webhook: its target, its signature, and its idempotency key."""

from __future__ import annotations

import re
from typing import ClassVar

import msgspec

from fairlane.model.limits import COUNT_MAX, MESSAGE_BYTES_MAX
from fairlane.spec import ir
from fairlane.spec import settings as readers
from fairlane.spec.declarations import declaration
from fairlane.spec.declarations.declaration import Declaration, SettingCodec, Settings
from fairlane.spec.diagnostics import Diagnostics
from fairlane.spec.settings import Path, SpecFile
from fairlane.spec.text import tree
from fairlane.spec.text.source import suggestion
from fairlane.spec.types import STRING, quoted

HOOK_MESSAGE = ir.RecordType(
    fields={
        "payload": ir.Scalar(of="json"),
        "headers": ir.MapType(values=STRING),
        "source_ip": STRING,
        "received_at": ir.Scalar(of="time"),
    }
)
"""The type of the messages that a webhook pushes to its queue."""

DAY_SECONDS = 86_400
PRESETS = ("github", "pagerduty", "shopify", "slack", "standard_webhooks", "stripe")
HMAC: Settings = {
    "header": declaration.STRING,
    "secret_env": declaration.STRINGS,
    "prefix": declaration.STRING,
    "algorithm": declaration.choice("sha256", "sha512"),
    "encoding": declaration.choice("hex", "base64"),
}
_PRESET: Settings = {"secret_env": declaration.STRINGS}
_HOOK_NAME = re.compile(r"[A-Za-z0-9_.-]{1,100}")
_HEADER = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,100}")


def _read_preset(file: SpecFile, setting: tree.Assignment, path: Path) -> ir.Verify | None:
    call = setting.value
    if not (isinstance(call, tree.BlockValue) and isinstance(call.head, tree.Name) and not call.command):
        file.note(setting.value, 'a preset is written `verify: github { secret_env: "NAME" }`')
        return None
    if call.head.name not in PRESETS:
        hint = suggestion(call.head.name, PRESETS)
        file.note(call.head, f"there is no preset `{call.head.name}`", hint=f"{hint}; or use `verify_hmac {{ ... }}`")
        return None
    return _read_verify(file, call.body, call.head.name, _PRESET, path, of=f"`{call.head.name}`")


def _read_hmac(file: SpecFile, section: tree.Section, path: Path) -> ir.Verify | None:
    file.locate(path, section.kind)
    return _read_verify(file, section.body, "hmac", HMAC, path, of="`verify_hmac`")


def _read_verify(
    file: SpecFile, body: tree.Block, scheme: str, known: Settings, path: Path, *, of: str
) -> ir.Verify | None:
    before = len(file.problems)
    given = declaration.read_settings(file, body, known, path, of=of)
    for needed in ("secret_env", "header"):
        if needed in known and not given.get(needed) and len(file.problems) == before:
            file.note(body, f"{of} needs `{needed}`")
    return msgspec.convert(given | {"scheme": scheme}, ir.Verify) if len(file.problems) == before else None


def _write_verify(verify: ir.Verify, scheme: str, settings: Settings) -> str:
    return declaration.block(
        scheme, declaration.write_settings(settings, verify, ir.Verify(scheme=verify.scheme, secret_env=()))
    )


def _read_key(
    file: SpecFile, setting: tree.Assignment, path: Path
) -> ir.HeaderKey | ir.ExpressionKey | ir.BodyKey | None:
    match setting.value:
        case tree.Header(name=name):
            return ir.HeaderKey(header=str(name.value))
        case tree.Name(name="body"):
            return ir.BodyKey()
    text = readers.expression(file, setting, path)
    return None if text is None else ir.ExpressionKey(expression=text)


def _write_key(key: ir.HeaderKey | ir.ExpressionKey | ir.BodyKey) -> str:
    match key:
        case ir.HeaderKey(header=header):
            return f"header {quoted(header)}"
        case ir.ExpressionKey(expression=text):
            return text
        case ir.BodyKey():
            return "body"


class WebhookDeclaration(Declaration[ir.WebhookSpec]):
    word, family = "webhook", "webhooks"
    removal_danger = "its senders are refused"
    defaults = ir.WebhookSpec()
    settings: ClassVar[Settings] = {
        "queue": declaration.NAME,
        "on_type": declaration.STRING,
        "command": SettingCodec(readers.mapping, declaration.as_mapping),
        "verify": SettingCodec(
            _read_preset, lambda one: None if one.scheme == "hmac" else _write_verify(one, one.scheme, _PRESET)
        ),
        "verify_hmac": SettingCodec(
            _read_hmac,
            lambda one: _write_verify(one, "", HMAC) if one.scheme == "hmac" else None,
            at=("verify",),
            form="section",
        ),
        "idempotency": SettingCodec(_read_key, _write_key),
        "format": declaration.choice("plain", "cloudevents"),
        "headers": declaration.STRINGS,
        "max_body_bytes": declaration.NUMBER,
        "max_per_second": declaration.NUMBER,
        "redelivery": declaration.choice("replay", "ignore"),
    }

    def read(self, file: SpecFile, section: tree.Section, path: Path) -> ir.WebhookSpec:
        words = {word.text: word for word in map(readers.word_of, section.body.entries)}
        if "verify" in words and "verify_hmac" in words:
            file.note(words["verify_hmac"], "use either `verify` or `verify_hmac`, not both")
        return super().read(file, section, path)

    def check(self, found: Diagnostics, path: Path, name: str, hook: ir.WebhookSpec) -> None:
        if not _HOOK_NAME.fullmatch(name):
            found.add(path, "the name of a webhook is part of its URL: letters, digits, `_`, `.` and `-`")
        if (hook.queue is None) is (hook.command is None):
            message = "a webhook needs either a queue or a command that runs at once"
            found.add(path, message, "messages of a queue become commands by its `map_to`")
        if not 1 <= hook.max_body_bytes <= MESSAGE_BYTES_MAX:
            found.add((*path, "max_body_bytes"), f"this must be between 1 and {MESSAGE_BYTES_MAX}")
        if not 0 <= hook.max_per_second <= COUNT_MAX:
            found.add((*path, "max_per_second"), f"this must be between 0, for no limit, and {COUNT_MAX}")
        _check_queue(found, (*path, "queue"), hook)
        _check_headers(found, path, hook)
        scope = _scope(found.spec, hook)
        if hook.command is not None:
            found.mapping((*path, "command"), hook.command, scope)
        if isinstance(hook.idempotency, ir.ExpressionKey):
            found.key((*path, "idempotency"), hook.idempotency.expression, scope)


def _check_queue(found: Diagnostics, path: Path, hook: ir.WebhookSpec) -> None:
    if hook.queue is None or not found.has_queue(path, hook.queue):
        return
    if found.spec.queues[hook.queue].options.dedup_seconds < DAY_SECONDS:
        hint = f"`dedup_seconds` of `{hook.queue}` must be a day or more"
        found.add(path, "redeliveries of a webhook within a day must be recognised", hint)
        return
    hint = "a webhook's message has `payload`, `headers`, `source_ip` and `received_at`"
    found.fit(path, HOOK_MESSAGE, hook.queue, what="messages of this webhook never fit", hint=hint)


def _scope(spec: ir.Spec, hook: ir.WebhookSpec) -> ir.RecordType:
    """Return the type of a webhook's message, with the type that its queue declares, to check expressions against."""
    queue = spec.queues.get(hook.queue or "")
    if queue is None or queue.message_type is None:
        return HOOK_MESSAGE
    declared = queue.message_type.fields
    return ir.RecordType(fields={name: declared.get(name, type_) for name, type_ in HOOK_MESSAGE.fields.items()})


def _check_headers(found: Diagnostics, path: Path, hook: ir.WebhookSpec) -> None:
    named = [("headers", header) for header in hook.headers]
    if isinstance(hook.idempotency, ir.HeaderKey):
        named.append(("idempotency", hook.idempotency.header))
    if (verify := hook.verify) is not None:
        if not verify.secret_env or (verify.scheme == "hmac" and verify.header is None):
            found.add((*path, "verify"), "a signature needs a secret, and without a preset also a header")
        found.variables((*path, "verify"), verify.secret_env)
        if verify.header is not None:
            named.append(("verify", verify.header))
        if not (verify.prefix.isascii() and verify.prefix.isprintable() and len(verify.prefix) <= 100):
            found.add((*path, "verify"), "the prefix of a signature is printable ASCII")
    for where, header in named:
        if not _HEADER.fullmatch(header):
            found.add((*path, where), f'"{header[:100]}" is not the name of a header')
