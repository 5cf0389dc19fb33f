"""Static checks of a document: finds every error before anything is applied.

The checks only need the document, so the server checks what it receives exactly as the command line does. If the
document came from a file, each diagnostic has its place in that file.
"""

from __future__ import annotations

from typing import get_args

from fairlane.errors import SpecError
from fairlane.spec import ir
from fairlane.spec.compile import Compiled
from fairlane.spec.declarations import DECLARATIONS
from fairlane.spec.declarations.queue import check_flow
from fairlane.spec.diagnostics import Diagnostic, Diagnostics
from fairlane.spec.settings import Path
from fairlane.spec.text import tree
from fairlane.spec.text.parser import DEPTH_MAX

_EXPRESSION_NODES = get_args(tree.Expression)


def check(spec: ir.Spec, trees: dict[Path, tree.Expression] | None = None) -> list[Diagnostic]:
    """Return all diagnostics of a document. `trees` holds expressions that are already parsed, by path."""
    found = Diagnostics(spec, trees or {})
    _check_types(found)
    if found:  # the other checks cannot handle such types
        return found
    for declaration in DECLARATIONS:
        for name, part in getattr(spec, declaration.family).items():
            declaration.check(found, (declaration.family, name), name, part)
    check_flow(found)
    return found


def _check_types(found: Diagnostics) -> None:
    """Check a document's types for errors that a spec file cannot contain."""
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
    """Return all errors of a spec from files, with their places.

    If a part could not be read, references to it are not reported: they may be right.
    """
    trees = {path: at.node for path, at in compiled.locations.items() if isinstance(at.node, _EXPRESSION_NODES)}
    diagnostics = check(compiled.spec, trees)
    if compiled.problems:
        diagnostics = [diagnostic for diagnostic in diagnostics if not diagnostic.reference]
    unread = {(problem.file, problem.line) for problem in compiled.problems}
    found = [*compiled.problems, *(_located(compiled, diagnostic) for diagnostic in diagnostics)]
    found = [one for one in found if one in compiled.problems or (one.file, one.line) not in unread]
    return sorted(found, key=lambda problem: (problem.file, problem.line, problem.column))


def warnings(compiled: Compiled) -> list[SpecError]:
    """Return warnings, with their places: settings that are valid but probably a mistake."""
    spec = compiled.spec
    found = []
    hint = 'ask for a signature: `verify: github { secret_env: "..." }`, or another of the presets'
    message = "anyone who knows the URL of this webhook can send to it"
    found += [Diagnostic(("webhooks", name), message, hint) for name, hook in spec.webhooks.items() if not hook.verify]
    hint = "name in `data` nothing that the queue is encrypted for"
    for name, schedule in spec.schedules.items():
        queue = spec.queues.get(schedule.queue)
        if schedule.data is not None and queue is not None and queue.options.encryption_enabled:
            message = f"the data of this schedule is stored unencrypted, although queue `{schedule.queue}` is encrypted"
            found.append(Diagnostic(("schedules", name, "data"), message, hint))
    return [_located(compiled, diagnostic) for diagnostic in found]


def _located(compiled: Compiled, diagnostic: Diagnostic) -> SpecError:
    path = diagnostic.path
    while path not in compiled.locations:
        path = path[:-1]
    source, node = compiled.locations[path]
    node = diagnostic.node or node
    return source.error(diagnostic.message, node.start, node.end, hint=diagnostic.hint)
