"""Checks of a document: everything that can be known to be wrong before any of it is applied.

The checks work on the document alone, so that a server checks what it is sent just as the command line does. Where it
came from a file, each finding is told at its place there.
"""

from __future__ import annotations

from typing import get_args

from fairlane.errors import InvalidRequest, SpecError
from fairlane.model.names import check_name
from fairlane.spec import ir, tree
from fairlane.spec.builder import DEPTH_MAX
from fairlane.spec.check_flow import check_flow
from fairlane.spec.check_mapping import Expressions
from fairlane.spec.check_poller import check_poller
from fairlane.spec.check_schedule import check_schedule
from fairlane.spec.check_webhook import check_command, check_open, check_webhook
from fairlane.spec.compile import Compiled
from fairlane.spec.finding import Finding
from fairlane.spec.fits import family
from fairlane.spec.spec_file import Path

_EXPRESSION_NODES = get_args(tree.Expression)


def check(spec: ir.Spec, trees: dict[Path, tree.Expression] | None = None) -> list[Finding]:
    """All that is wrong. `trees` are expressions that were parsed already, by where they stand."""
    expressions = Expressions(trees or {})
    findings = expressions.findings
    strange = _check_types(spec)
    if strange:
        return strange
    for name, queue in spec.queues.items():
        findings += _check_queue(spec, name, queue, expressions)
    for name, command in spec.commands.items():
        findings += check_command(spec, name, command)
    for name, webhook in spec.webhooks.items():
        findings += check_webhook(spec, name, webhook, expressions)
    for name, schedule in spec.schedules.items():
        findings += check_schedule(spec, name, schedule)
    for name, poller in spec.pollers.items():
        findings += check_poller(spec, name, poller)
    return findings + check_flow(spec)


def _check_types(spec: ir.Spec) -> list[Finding]:
    """What no file can say but a document that comes from elsewhere can. Nothing more is looked at then."""
    roots: list[tuple[Path, ir.Type | None]] = [
        *((("queues", name, "message_type"), queue.message_type) for name, queue in spec.queues.items()),
        *((("commands", name, "input"), command.input) for name, command in spec.commands.items()),
    ]
    findings: list[Finding] = []
    for path, root in roots:
        level: list[ir.Type] = [root] if root else []
        for _ in range(DEPTH_MAX):
            if any(isinstance(type_, ir.EnumType) and not type_.choices for type_ in level):
                findings.append(Finding(path, "an enum without choices fits nothing"))
            level = [inner for type_ in level for inner in _inner(type_)]
        if level:
            findings.append(Finding(path, f"the type is nested more than {DEPTH_MAX} deep"))
    return findings


def _inner(type_: ir.Type) -> list[ir.Type]:
    match type_:
        case ir.ListType(items=items):
            return [items]
        case ir.MapType(values=values):
            return [values]
        case ir.RecordType(fields=fields):
            return list(fields.values())
    return []


def problems(compiled: Compiled) -> list[SpecError]:
    """All that is wrong with a spec from files, at its places. Where a part could not be read, what others say of it is
    not told: they may be right."""
    trees = {path: at.node for path, at in compiled.locations.items() if isinstance(at.node, _EXPRESSION_NODES)}
    findings = check(compiled.spec, trees)
    if compiled.problems:
        findings = [finding for finding in findings if not finding.reference]
    unread = {(problem.file, problem.line) for problem in compiled.problems}
    found = [*compiled.problems, *(_located(compiled, finding) for finding in findings)]
    found = [one for one in found if one in compiled.problems or (one.file, one.line) not in unread]
    return sorted(found, key=lambda problem: (problem.file, problem.line, problem.column))


def warnings(compiled: Compiled) -> list[SpecError]:
    """What is allowed and seldom meant, at its places."""
    return [
        _located(compiled, finding)
        for name, webhook in compiled.spec.webhooks.items()
        for finding in check_open(name, webhook)
    ]


def _located(compiled: Compiled, finding: Finding) -> SpecError:
    path = finding.path
    while path not in compiled.locations:
        path = path[:-1]
    source, node = compiled.locations[path]
    node = finding.node or node
    return source.error(finding.message, node.start, node.end, hint=finding.hint)


def _check_queue(spec: ir.Spec, name: str, queue: ir.QueueSpec, expressions: Expressions) -> list[Finding]:
    path = ("queues", name)
    findings = [*_check_options(path, queue), *_unreachable(path, queue)]
    try:
        check_name("the name of a queue", name)
    except InvalidRequest as error:
        findings.append(Finding(path, str(error)))
    if queue.key is not None:
        type_ = expressions.type((*path, "key"), queue.key, queue.message_type)
        if family(type_) not in ("string", "int", "json"):
            findings.append(Finding((*path, "key"), "a key is a string or a whole number"))
    if queue.map_to is not None:
        expressions.mapping(spec, (*path, "map_to"), queue.map_to, queue.message_type)
    return findings


def _check_options(path: Path, queue: ir.QueueSpec) -> list[Finding]:
    try:
        queue.options.check()
    except InvalidRequest as error:
        message = str(error)
        return [Finding((*path, "options", message.split()[0]), message)]
    return []


def _unreachable(path: Path, queue: ir.QueueSpec) -> list[Finding]:
    """Settings that can never have an effect beside the others."""
    options = queue.options
    age, completed = options.retention_seconds, options.completed_retention_seconds
    ttl, wait, delay = options.ttl_seconds, options.max_wait_seconds, options.delay_seconds
    rules = [
        ("retry_delay_max_ms", options.retry_delay_max_ms < options.retry_delay_ms, "is less than the first backoff"),
        ("retry_jitter", options.retry_jitter and not options.retry_delay_ms, "spreads a backoff, and there is none"),
        ("completed_retention_seconds", age and completed >= age, "has no effect: messages go at `max_age_seconds`"),
        ("max_wait_seconds", ttl and wait >= ttl, "has no effect: messages expire at `ttl_seconds`"),
        ("delay_seconds", ttl and delay >= ttl, "is not less than `ttl_seconds`: every message would expire unread"),
        ("on_expiry", options.on_expiry == "drop" and not (ttl or wait), "has no effect: nothing expires"),
    ]
    findings = [Finding((*path, "options", option), f"this {why}") for option, wrong, why in rules if wrong]
    if queue.key is not None and options.ordering != "per_key":
        findings.append(Finding((*path, "key"), f"a key is for `ordering: per_key`; this queue is {options.ordering}"))
    return findings
