"""Checks of a document: everything that can be known to be wrong before any of it is applied.

The checks work on the document alone, so that a server checks what it is sent just as the command line does. Where it
came from a file, each finding is told at its place there.
"""

from __future__ import annotations

from typing import get_args

from fairlane.errors import SpecError
from fairlane.spec import ir
from fairlane.spec.compile import Compiled
from fairlane.spec.findings import Finding, Findings
from fairlane.spec.nouns import NOUNS
from fairlane.spec.nouns.queue import check_flow
from fairlane.spec.reader import Path
from fairlane.spec.text import tree
from fairlane.spec.text.parser import DEPTH_MAX

_EXPRESSION_NODES = get_args(tree.Expression)


def check(spec: ir.Spec, trees: dict[Path, tree.Expression] | None = None) -> list[Finding]:
    """All that is wrong. `trees` are expressions that were parsed already, by where they stand."""
    found = Findings(spec, trees or {})
    _check_types(found)
    if found:  # the others could not even look at such types
        return found
    for noun in NOUNS:
        for name, part in getattr(spec, noun.family).items():
            noun.check(found, (noun.family, name), name, part)
    check_flow(found)
    return found


def _check_types(found: Findings) -> None:
    """What no file can say but a document that comes from elsewhere can."""
    spec = found.spec
    roots: list[tuple[Path, ir.Type | None]] = [
        *((("queues", name, "message_type"), queue.message_type) for name, queue in spec.queues.items()),
        *((("commands", name, "input"), command.input) for name, command in spec.commands.items()),
    ]
    for path, root in roots:
        level: list[ir.Type] = [root] if root else []
        for _ in range(DEPTH_MAX):
            if any(isinstance(type_, ir.EnumType) and not type_.choices for type_ in level):
                found.add(path, "an enum without choices fits nothing")
            level = [inner for type_ in level for inner in _inner(type_)]
        if level:
            found.add(path, f"the type is nested more than {DEPTH_MAX} deep")


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
    """Return what is allowed and seldom meant, at its places."""
    spec = compiled.spec
    found = []
    hint = 'ask for a signature: `verify: github { secret_env: "..." }`, or another of the presets'
    message = "whoever knows the URL of this webhook may send to it"
    found += [Finding(("webhooks", name), message, hint) for name, hook in spec.webhooks.items() if not hook.verify]
    hint = "name in `data` nothing that the queue is encrypted for"
    for name, schedule in spec.schedules.items():
        queue = spec.queues.get(schedule.queue)
        if schedule.data is not None and queue is not None and queue.options.encryption_enabled:
            message = f"the data of this schedule is stored in clear, although queue `{schedule.queue}` is encrypted"
            found.append(Finding(("schedules", name, "data"), message, hint))
    return [_located(compiled, finding) for finding in found]


def _located(compiled: Compiled, finding: Finding) -> SpecError:
    path = finding.path
    while path not in compiled.locations:
        path = path[:-1]
    source, node = compiled.locations[path]
    node = finding.node or node
    return source.error(finding.message, node.start, node.end, hint=finding.hint)
