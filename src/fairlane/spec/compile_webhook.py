"""A command's and a webhook's section to their parts of the document."""

from __future__ import annotations

from typing import Any

import msgspec

from fairlane.spec import ir, tree
from fairlane.spec.compile_queue import compile_mapping
from fairlane.spec.compile_types import compile_record
from fairlane.spec.source import suggestion
from fairlane.spec.spec_file import Form, Location, Path, SpecFile

PRESETS = ("github", "pagerduty", "shopify", "slack", "standard_webhooks", "stripe")
COMMAND: dict[str, Form] = {"input": "types", "run": "setting", "secret_env": "setting"}
WEBHOOK: dict[str, Form] = {
    "queue": "setting",
    "command": "setting",
    "on_type": "setting",
    "verify": "setting",
    "verify_hmac": "section",
    "idempotency": "setting",
    "headers": "setting",
    "max_body_bytes": "setting",
    "max_per_second": "setting",
}
_PRESET: dict[str, Form] = {"secret_env": "setting"}
HMAC: dict[str, Form] = dict.fromkeys(("header", "prefix", "secret_env", "algorithm", "encoding"), "setting")


def compile_command(file: SpecFile, section: tree.Section, path: Path) -> ir.CommandSpec:
    given: dict[str, Any] = {}
    for name, entry in file.entries(section.body, COMMAND, of="a command").items():
        file.locations[(*path, name)] = Location(file.source, entry)
        if isinstance(entry, tree.Types):
            given[name] = compile_record(file, entry.body)
        elif isinstance(entry, tree.Setting):
            given[name] = _run(file, entry) if name == "run" else file.string(entry)
    return ir.CommandSpec(**given)


def _run(file: SpecFile, setting: tree.Setting) -> ir.HttpRun | ir.QueueRun | None:
    match setting.value:
        case tree.Target(queue=queue):
            return ir.QueueRun(queue=queue.text)
        case tree.Request(method=method, url=url):
            return ir.HttpRun(method=method.text, url=str(url.value))
    hint = "without `run`, the worker that registered the command's name runs it"
    file.note(setting.value, '`run` is `http POST "https://..."` or `queue Name`', hint=hint)
    return None


def compile_webhook(file: SpecFile, section: tree.Section, path: Path) -> ir.WebhookSpec:
    given: dict[str, Any] = {}
    entries = file.entries(section.body, WEBHOOK, of="a webhook")
    for name, entry in entries.items():
        file.locations.setdefault((*path, name), Location(file.source, entry))
        if isinstance(entry, tree.Section):
            if "verify" in entries:
                file.note(entry.kind, "a webhook is verified in one way: `verify` or `verify_hmac`")
            file.locations[(*path, "verify")] = Location(file.source, entry.kind)
            given["verify"] = _verify(file, entry.body, "hmac", HMAC, of="`verify_hmac`")
        elif isinstance(entry, tree.Setting):
            given[name] = _webhook_setting(file, entry, (*path, name))
    return ir.WebhookSpec(**{name: value for name, value in given.items() if value is not None})


def _webhook_setting(file: SpecFile, setting: tree.Setting, path: Path) -> Any:
    match setting.name.text:
        case "queue":
            return file.reference(setting)
        case "command":
            return compile_mapping(file, setting, path, command=False)
        case "verify":
            return _preset(file, setting)
        case "idempotency":
            return _idempotency(file, setting, path)
        case "headers":
            return file.strings(setting)
        case "max_body_bytes" | "max_per_second":
            return file.number(setting)
    return file.string(setting)


def _preset(file: SpecFile, setting: tree.Setting) -> ir.Verify | None:
    call = setting.value
    if not (isinstance(call, tree.Call) and isinstance(call.head, tree.Name) and not call.command):
        file.note(setting.value, 'a preset is written `verify: github { secret_env: "NAME" }`')
        return None
    if call.head.name not in PRESETS:
        hint = suggestion(call.head.name, PRESETS)
        file.note(call.head, f"there is no preset `{call.head.name}`", hint=f"{hint}; or use `verify_hmac {{ ... }}`")
        return None
    return _verify(file, call.body, call.head.name, _PRESET, of=f"`{call.head.name}`")


def _verify(file: SpecFile, body: tree.Body, scheme: str, known: dict[str, Form], *, of: str) -> ir.Verify | None:
    before = len(file.problems)
    given: dict[str, Any] = {"scheme": scheme}
    for name, entry in file.entries(body, known, of=of).items():
        assert isinstance(entry, tree.Setting)
        if name == "secret_env":
            given[name] = file.strings(entry)
        elif name in ("algorithm", "encoding"):
            choices = ("sha256", "sha512") if name == "algorithm" else ("hex", "base64")
            given[name] = file.choice(entry, choices)
        else:
            given[name] = file.string(entry)
    for needed in ("secret_env", "header"):
        if needed in known and not given.get(needed) and len(file.problems) == before:
            file.note(body, f"{of} needs `{needed}`")
    return msgspec.convert(given, ir.Verify) if len(file.problems) == before else None


def _idempotency(
    file: SpecFile, setting: tree.Setting, path: Path
) -> ir.HeaderKey | ir.ExpressionKey | ir.BodyKey | None:
    match setting.value:
        case tree.Header(name=name):
            return ir.HeaderKey(header=str(name.value))
        case tree.Name(name="body"):
            return ir.BodyKey()
    text = file.expression(setting, path)
    return None if text is None else ir.ExpressionKey(expression=text)
