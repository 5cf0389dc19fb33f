"""`fairlane spec`: check, plan and apply specs."""

from __future__ import annotations

import getpass
import os
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import click
import msgspec
from click.exceptions import Exit

from fairlane.cli import REFUSED
from fairlane.cli.toolkit.command import (
    AsJson,
    Client,
    CommandGroup,
    Output,
    Server,
    Yes,
    arg,
    call_broker,
    client_command,
    columns_of,
    command,
    opt,
    print_output,
)
from fairlane.cli.toolkit.output import confirm, echo, plural, print_json, printable
from fairlane.errors import InvalidRequest, NotFound, SpecError
from fairlane.model.names import DEFAULT_SERVER
from fairlane.spec import check as checks
from fairlane.spec import ir
from fairlane.spec.compile import Compiled, compile_spec
from fairlane.spec.compiled_queue import preview
from fairlane.spec.declarations import DECLARATIONS
from fairlane.spec.export import export_text
from fairlane.spec.plan import plan, render
from fairlane.spec.text.format import format_spec
from fairlane.spec.text.source import SourceText, suggestion

if TYPE_CHECKING:
    from fairlane.wire.specs import Change, SpecPlan

app = CommandGroup("spec")

File = Annotated[str, arg("FILE", "Spec file, usually NAME.fairlane; - for standard input.", type=click.Path())]
AlwaysJson = Annotated[bool, opt("Accepted for consistency; the output is always JSON.", "--json")]
_VERSIONS = columns_of("version app hash by=applied_by at=applied_at", hash=lambda one: one.hash[:12])


@command(app)
def check(file: File, json: AsJson = False) -> None:
    """Check a spec and its imports, and print every problem. Calls no broker."""
    if json:
        problems, read = _checked(file)
        warnings = [] if read is None or problems else checks.warnings(read)
        print_json({"problems": [_plain(one) for one in problems], "warnings": [_plain(one) for one in warnings]})
        raise Exit(REFUSED if problems else 0)
    spec = compiled(file)
    counts = [(declaration.word, len(getattr(spec, declaration.family))) for declaration in DECLARATIONS]
    declared = ", ".join(plural(count, word) for word, count in counts if count)
    echo(f"{spec.app} is valid: {declared or 'nothing is declared'}.")


@command(app, "compile")
def compile_file(file: File, json: AlwaysJson = False) -> None:
    """Print the JSON document of a spec."""
    sys.stdout.write(msgspec.json.format(msgspec.json.encode(compiled(file))).decode() + "\n")


@command(app, "plan")
def plan_changes(
    file: File,
    against: Annotated[
        str | None,
        opt("Spec, or its compiled JSON, to compare with instead of the broker.", metavar="FILE", type=click.Path()),
    ] = None,
    server: Server = DEFAULT_SERVER,
    json: AsJson = False,
) -> None:
    """Show the changes that a spec would make, and mark those that may lose, refuse or expose messages."""
    spec = compiled(file)
    if against is not None:
        changes = plan(_document(against), spec)
        print_output(Output(changes, lambda: _print_changes(changes)), json)
        return
    planned = call_broker(server, lambda client: client.specs.plan(msgspec.json.encode(spec)))
    print_output(Output(planned, lambda: _print_plan(planned)), json)


@client_command(app, "apply")
async def apply_file(client: Client, file: File, yes: Yes = False, json: AsJson = False) -> Output:
    """Apply a spec, with its queues, types and webhooks, in one transaction.

    Prints the plan first, and asks for confirmation if messages may be lost, refused or exposed.
    """
    document = msgspec.json.encode(compiled(file))
    planned = await client.specs.plan(document)
    if not json:
        _print_plan(planned)
    if planned.dangers:
        confirm("The changes marked with ! may lose, refuse or expose messages. Apply them?", yes)
    applied = await client.specs.apply(
        document,
        source="" if file == "-" else _text(file),
        by=_user_name(),
        consent=bool(planned.dangers),
        version=planned.version,
    )
    done = "is applied" if applied.version > planned.version else "was already applied"
    return Output(applied, f"{applied.app} {done}: version {applied.version}, {applied.hash[:12]}.")


@client_command(app, "versions", columns=_VERSIONS, empty="No spec has been applied.")
async def list_versions(
    client: Client, name: Annotated[str | None, arg("APP", "Only versions of this app.")] = None
) -> Any:
    """List applied versions of specs, newest first."""
    return await client.specs.versions(name)


@client_command(app)
async def show(
    client: Client,
    name: Annotated[str, arg("APP", "Name of the app.")],
    version: Annotated[int | None, opt("Version to print; the current one by default.")] = None,
) -> Output:
    """Print the applied spec of an app."""
    found = [one for one in await client.specs.all() if one.app == name] if version is None else []
    detail = await client.specs.get(version) if version is not None else found[0] if found else None
    if detail is None or detail.app != name:
        raise NotFound(f"app {name!r:.80} has no {'spec' if version is None else f'version {version}'}")
    text = detail.source or export_text(msgspec.convert(detail.spec, ir.Spec))
    return Output(detail, lambda: sys.stdout.write(text))


@client_command(app, "export")
async def export_app(client: Client, name: Annotated[str, arg("APP", "Name of the app.")]) -> Output:
    """Print a spec of the queues of an app as they are now, including changes made outside of specs."""
    document = await client.specs.export(name)
    return Output(document, lambda: sys.stdout.write(export_text(msgspec.convert(document, ir.Spec))))


@command(app, "try")
def try_message(
    file: File,
    queue: Annotated[str, arg("QUEUE", "Name of a queue in the spec.")],
    message: Annotated[str, arg("JSON", "A message; - for standard input.")],
    json: AlwaysJson = False,
) -> None:
    """Show the partition and the command that a spec gives a message, without a broker."""
    spec = compiled(file)
    if queue not in spec.queues:
        raise InvalidRequest(f"there is no queue `{queue}` in {file}; {suggestion(queue, spec.queues)}")
    print_json(preview(spec, queue, (sys.stdin.read() if message == "-" else message).encode()))


@command(app)
def schema(json: AlwaysJson = False) -> None:
    """Print the JSON Schema of compiled specs."""
    print_json(ir.schema())


@command(app)
def fmt(
    files: Annotated[tuple[str, ...], arg("FILE", "Spec files; - for standard input.", type=click.Path())],
    check: Annotated[bool, opt("Change nothing; list the files that would change and exit 1.", "--check")] = False,
    json: AsJson = False,
) -> None:
    """Format spec files in place. With - prints the result to standard output."""
    changed = []
    for file in files:
        before = _text(file)
        try:
            after = format_spec(SourceText(file, before))
        except SpecError as error:
            _refuse([error])
        if file == "-" and not check:
            sys.stdout.write(after)
        elif after != before:
            changed.append(file)
            if not json:
                echo(f"{file} would change." if check else f"Formatted {file}.")
            if not check:
                _replace(Path(file), after)
    if json:
        print_json({"changed": changed})
    if check and changed:
        raise Exit(1)


def _user_name() -> str:
    try:
        return getpass.getuser()
    except (ImportError, KeyError, OSError):  # containers may have no user database
        return ""


def _print_plan(planned: SpecPlan) -> None:
    if planned.drift:
        echo("Changed outside of specs since the last apply:")
        _print_changes(planned.drift)
        echo("Changes to apply:")
    _print_changes(planned.changes)


def _print_changes(changes: list[Change]) -> None:
    if changes:
        sys.stdout.write("".join(f"{printable(line)}\n" for line in render(changes).splitlines()))
    else:
        echo("No changes.")


def _document(file: str) -> ir.Spec:
    """Return the document of a spec file, or of a compiled spec in JSON."""
    if not file.endswith(".json"):
        return compiled(file)
    try:
        spec = msgspec.json.decode(_text(file), type=ir.Spec)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise InvalidRequest(f"{file} is not a compiled spec: {error}") from None
    for finding in checks.check(spec):
        raise InvalidRequest(f"{file}: {finding.render()}")
    return spec


def compiled(file: str) -> ir.Spec:
    """Return the document of a valid spec. Prints the problems of an invalid one and exits."""
    problems, read = _checked(file)
    if read is None or problems:
        _refuse(problems)
    for warning in checks.warnings(read):
        echo(f"warning: {warning.render()}")
    return read.spec


def _checked(file: str) -> tuple[list[SpecError], Compiled | None]:
    """Return the problems of a file, and its compiled document unless it cannot be parsed."""
    try:
        read = compile_spec(SourceText(file, _text(file)), _read)
    except SpecError as error:
        return [error], None
    return checks.problems(read), read


def _plain(problem: SpecError) -> dict[str, Any]:
    return {name: getattr(problem, name) for name in ("file", "line", "column", "hint")} | {"message": str(problem)}


def _refuse(problems: list[SpecError]) -> NoReturn:
    for problem in problems:
        echo(problem.render())
    if len(problems) > 1:
        echo(f"{len(problems)} problems.")
    raise Exit(REFUSED)


def _text(file: str) -> str:
    """Return the text of a file or of standard input."""
    try:
        return sys.stdin.read() if file == "-" else _read(file)
    except OSError as error:
        raise InvalidRequest(f"cannot read {file}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise InvalidRequest(f"{file} is not UTF-8 text") from None


def _read(file: str) -> str:
    return Path(file).read_text(encoding="utf-8")


def _replace(path: Path, text: str) -> None:
    """Replace a file atomically."""
    path = path.resolve()
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    beside.write_text(text, encoding="utf-8")
    shutil.copymode(path, beside)
    beside.replace(path)
