"""Commands and webhooks of a document: whether what they name is there, and can be what they need."""

from __future__ import annotations

import re

from fairlane.model.limits import COUNT_MAX, MESSAGE_BYTES_MAX
from fairlane.outbound.addresses import is_plain_url
from fairlane.spec import ir
from fairlane.spec.check_mapping import Expressions
from fairlane.spec.finding import Finding
from fairlane.spec.fits import STRING, family, misfit
from fairlane.spec.source import suggestion
from fairlane.spec.spec_file import Path

HOOK_MESSAGE = ir.RecordType(
    fields={
        "payload": ir.Scalar(of="json"),
        "headers": ir.MapType(values=STRING),
        "source_ip": STRING,
        "received_at": ir.Scalar(of="time"),
    }
)
"""What a webhook puts into its queue."""

DAY_SECONDS = 86_400
_METHODS = ("PATCH", "POST", "PUT")
_HOOK_NAME = re.compile(r"[A-Za-z0-9_.-]{1,100}")
_HEADER = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,100}")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,254}")


def check_command(spec: ir.Spec, name: str, command: ir.CommandSpec) -> list[Finding]:
    path = ("commands", name)
    run = command.run
    findings: list[Finding] = []
    if isinstance(run, ir.HttpRun):
        findings += _check_http((*path, "run"), run)
        if command.secret_env is None:
            hint = 'say where its secret is: `secret_env: "NAME"`'
            findings.append(Finding((*path, "run"), "a call over HTTP is signed, and there is no secret for it", hint))
    elif command.secret_env is not None:
        findings.append(Finding((*path, "secret_env"), "this has no effect: only calls over HTTP are signed"))
    if command.secret_env is not None:
        findings += check_variables((*path, "secret_env"), (command.secret_env,))
    if isinstance(run, ir.QueueRun):
        findings += unknown_queue(spec, (*path, "run"), run.queue) or _check_push((*path, "run"), spec, command, run)
    return findings


def _check_push(path: Path, spec: ir.Spec, command: ir.CommandSpec, run: ir.QueueRun) -> list[Finding]:
    """What a command pushes is its input, and must fit the queue."""
    wanted = spec.queues[run.queue].message_type
    if wanted is None or command.input is None or not (why := misfit(command.input, wanted)):
        return []
    return [Finding(path, f"the input of the command does not fit the messages of `{run.queue}`: {why}")]


def _check_http(path: Path, run: ir.HttpRun) -> list[Finding]:
    if run.method not in _METHODS:
        return [Finding(path, f"a command is sent by {', '.join(_METHODS)}, not {run.method}")]
    # Whether it may be called is for the broker to say, which knows what it was allowed, when the spec is applied.
    if not is_plain_url(run.url):
        return [Finding(path, "a command is sent to a URL like https://host/path, without user, password and fragment")]
    return []


def check_webhook(spec: ir.Spec, name: str, hook: ir.WebhookSpec, expressions: Expressions) -> list[Finding]:
    path = ("webhooks", name)
    findings: list[Finding] = []
    if not _HOOK_NAME.fullmatch(name):
        findings.append(Finding(path, "the name of a webhook is part of its URL: letters, digits, `_`, `.` and `-`"))
    if (hook.queue is None) is (hook.command is None):
        message = "a webhook has a queue, or a command that runs at once, and not both"
        findings.append(Finding(path, message, "messages of a queue become commands by its `map_to`"))
    if not 1 <= hook.max_body_bytes <= MESSAGE_BYTES_MAX:
        findings.append(Finding((*path, "max_body_bytes"), f"this must be between 1 and {MESSAGE_BYTES_MAX}"))
    if not 0 <= hook.max_per_second <= COUNT_MAX:
        findings.append(Finding((*path, "max_per_second"), f"this must be between 0, for no limit, and {COUNT_MAX}"))
    findings += [*_check_queue(spec, path, hook), *_check_headers(path, hook)]
    scope = _scope(spec, hook)
    if hook.command is not None:
        expressions.mapping(spec, (*path, "command"), hook.command, scope)
    if isinstance(hook.idempotency, ir.ExpressionKey):
        type_ = expressions.type((*path, "idempotency"), hook.idempotency.expression, scope)
        if family(type_) not in ("string", "int", "json"):
            findings.append(Finding((*path, "idempotency"), "a key is a string or a whole number"))
    return findings


def _check_queue(spec: ir.Spec, path: Path, hook: ir.WebhookSpec) -> list[Finding]:
    if hook.queue is None:
        return []
    unknown = unknown_queue(spec, (*path, "queue"), hook.queue)
    if unknown:
        return unknown
    wanted = spec.queues[hook.queue].message_type
    if spec.queues[hook.queue].options.dedup_seconds < DAY_SECONDS:
        hint = f"`dedup_seconds` of `{hook.queue}` must be a day or more"
        return [Finding((*path, "queue"), "a webhook that is sent again within a day must be known", hint)]
    if wanted is not None and (why := misfit(HOOK_MESSAGE, wanted)):
        hint = "a webhook's message has `payload`, `headers`, `source_ip` and `received_at`"
        return [Finding((*path, "queue"), f"messages of this webhook never fit `{hook.queue}`: {why}", hint)]
    return []


def _scope(spec: ir.Spec, hook: ir.WebhookSpec) -> ir.RecordType:
    """What the expressions of a webhook see: its message, with what the queue says of it."""
    queue = spec.queues.get(hook.queue or "")
    if queue is None or queue.message_type is None:
        return HOOK_MESSAGE
    declared = queue.message_type.fields
    return ir.RecordType(fields={name: declared.get(name, type_) for name, type_ in HOOK_MESSAGE.fields.items()})


def _check_headers(path: Path, hook: ir.WebhookSpec) -> list[Finding]:
    findings: list[Finding] = []
    named = [("headers", header) for header in hook.headers]
    if isinstance(hook.idempotency, ir.HeaderKey):
        named.append(("idempotency", hook.idempotency.header))
    if hook.verify is not None:
        if not hook.verify.secret_env or (hook.verify.scheme == "hmac" and hook.verify.header is None):
            findings.append(Finding((*path, "verify"), "a signature needs a secret, and one without a preset a header"))
        findings += check_variables((*path, "verify"), hook.verify.secret_env)
        if hook.verify.header is not None:
            named.append(("verify", hook.verify.header))
        if not (hook.verify.prefix.isascii() and hook.verify.prefix.isprintable() and len(hook.verify.prefix) <= 100):
            findings.append(Finding((*path, "verify"), "the prefix of a signature is printable ASCII"))
    return findings + [
        Finding((*path, where), f'"{header[:100]}" is no name of a header')
        for where, header in named
        if not _HEADER.fullmatch(header)
    ]


def check_variables(path: Path, names: tuple[str, ...]) -> list[Finding]:
    strange = [name for name in names if not _VARIABLE.fullmatch(name)]
    return [Finding(path, f'"{name[:100]}" is no name of an environment variable') for name in strange]


def check_open(name: str, hook: ir.WebhookSpec) -> list[Finding]:
    """A webhook that asks nobody for a signature."""
    if hook.verify is not None:
        return []
    hint = 'ask for a signature: `verify: github { secret_env: "..." }`, or another of the presets'
    return [Finding(("webhooks", name), "whoever knows the URL of this webhook may send to it", hint)]


def unknown_queue(spec: ir.Spec, path: Path, name: str) -> list[Finding]:
    if name in spec.queues:
        return []
    return [Finding(path, f"there is no queue `{name}`", suggestion(name, spec.queues) or None, reference=True)]
