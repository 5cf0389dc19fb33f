"""`fairlane spec ...`"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import msgspec
import typer

from fairlane.cli.connection import DEFAULT, Server, connected
from fairlane.cli.exits import REFUSED
from fairlane.cli.output import AsJson, Yes, confirm, echo, print_json, print_table, printable, shown_time
from fairlane.errors import InvalidRequest, SpecError

if TYPE_CHECKING:
    from fairlane.client.views import SpecPlan
    from fairlane.spec.ir import Spec
    from fairlane.spec.plan import Change

app = typer.Typer(help="Check, plan and apply specs: files that declare queues.", no_args_is_help=True)

File = Annotated[str, typer.Argument(metavar="FILE", help="A spec, usually NAME.fairlane.", show_default=False)]
Files = Annotated[list[str], typer.Argument(metavar="FILE...", help="Specs; - for a stream.", show_default=False)]


@app.command()
def check(file: File) -> None:
    """Say what is wrong with a spec and what it imports. Nothing is sent anywhere."""
    spec = compiled(file)
    counts = {
        "queue": len(spec.queues),
        "command": len(spec.commands),
        "webhook": len(spec.webhooks),
        "schedule": len(spec.schedules),
        "poller": len(spec.pollers),
    }
    declared = ", ".join(f"{count} {noun}{'' if count == 1 else 's'}" for noun, count in counts.items() if count)
    echo(f"{spec.app} is well: {declared or 'nothing is declared'}.")


@app.command("compile")
def compile_file(file: File) -> None:
    """Print the JSON document that a spec stands for."""
    sys.stdout.write(msgspec.json.format(msgspec.json.encode(compiled(file))).decode() + "\n")


@app.command("plan")
def plan_changes(
    file: File,
    against: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="A spec, or the JSON that compile printed of it, instead of a broker.",
            show_default=False,
        ),
    ] = None,
    server: Server = DEFAULT,
    json: AsJson = False,
) -> None:
    """Show what applying a spec would change, and by what of that messages may be lost or refused."""
    from fairlane.spec.plan import plan

    spec = compiled(file)
    if against is not None:
        changes = plan(_document(against), spec)
        if json:
            print_json(changes)
        else:
            _print_changes(changes)
        return
    with connected(server) as client:
        planned = client.plan_spec(msgspec.json.encode(spec))
    if json:
        print_json(planned)
    else:
        _print_plan(planned)


@app.command("apply")
def apply_file(file: File, yes: Yes = False, server: Server = DEFAULT, json: AsJson = False) -> None:
    """Put a spec in force: its queues, types and webhooks, all in one transaction.

    The plan is shown first, and asked about if messages may be lost or refused by it.
    """
    document = msgspec.json.encode(compiled(file))
    with connected(server) as client:
        planned = client.plan_spec(document)
        if not json:
            _print_plan(planned)
        if planned.dangers:
            confirm("Messages may be lost or refused by what is marked with !. Apply all the same?", yes)
        applied = client.apply_spec(
            document,
            source="" if file == "-" else _text(file),
            applied_by=_who(),
            consent=bool(planned.dangers),
            version=planned.version,
        )
    if json:
        print_json(applied)
    else:
        done = "is in force" if applied.changes else "was in force already"
        echo(f"{applied.app} {done}: version {applied.version}, {applied.hash[:12]}.")


@app.command("versions")
def list_versions(
    name: Annotated[
        str | None, typer.Argument(metavar="APP", help="Only those of one app.", show_default=False)
    ] = None,
    server: Server = DEFAULT,
    json: AsJson = False,
) -> None:
    """List what was applied, newest first."""
    with connected(server) as client:
        found = client.spec_versions(name)
    if json:
        print_json(found)
        return
    rows = [(one.version, one.app, one.hash[:12], one.applied_by, shown_time(one.applied_at)) for one in found]
    print_table(("version", "app", "hash", "by", "at"), rows, empty="No spec was applied yet.")


@app.command("export")
def export_app(
    name: Annotated[str, typer.Argument(metavar="APP", help="One that was applied.", show_default=False)],
    server: Server = DEFAULT,
    json: AsJson = False,
) -> None:
    """Print the spec of an app as its queues are now, also if they were changed otherwise."""
    from fairlane.spec.export import export_text
    from fairlane.spec.ir import Spec

    with connected(server) as client:
        document = client.export_spec(name)
    if json:
        print_json(document)
    else:
        sys.stdout.write(export_text(msgspec.convert(document, Spec)))


@app.command("try")
def try_message(
    file: File,
    queue: Annotated[str, typer.Argument(metavar="QUEUE", help="A queue that it declares.", show_default=False)],
    message: Annotated[str, typer.Argument(metavar="JSON", help="A message; - for a stream.", show_default=False)],
) -> None:
    """Show what a message would become: its partition, and its command with the input."""
    from fairlane.spec.compiled_queue import preview
    from fairlane.spec.text.source import suggestion

    spec = compiled(file)
    if queue not in spec.queues:
        raise InvalidRequest(f"there is no queue `{queue}` in {file}; {suggestion(queue, spec.queues)}")
    print_json(preview(spec, queue, (sys.stdin.read() if message == "-" else message).encode()))


@app.command()
def schema() -> None:
    """Print the JSON Schema of that document."""
    from fairlane.spec import ir

    print_json(ir.schema())


@app.command()
def fmt(
    files: Files,
    check: Annotated[bool, typer.Option("--check", help="Change nothing; name what would change, and exit 1.")] = False,
) -> None:
    """Write specs in their one form. Of - the result goes to the standard output."""
    changed = False
    for file in files:
        before = _text(file)
        after = _formatted(file, before)
        if file == "-" and not check:
            sys.stdout.write(after)
        elif after != before:
            changed = True
            echo(f"{file} would change." if check else f"{file} is formatted.")
            if not check:
                _replace(Path(file), after)
    if check and changed:
        raise typer.Exit(1)


def _who() -> str:
    import getpass

    try:
        return getpass.getuser()
    except (ImportError, KeyError, OSError):  # a container need not have users
        return ""


def _print_plan(planned: SpecPlan) -> None:
    from fairlane.spec.plan import Change

    if planned.drift:
        echo("Changed otherwise since it was last applied:")
        _print_changes(msgspec.convert(planned.drift, list[Change]))
        echo("To be changed now:")
    _print_changes(msgspec.convert(planned.changes, list[Change]))


def _print_changes(changes: list[Change]) -> None:
    from fairlane.spec.plan import render

    if changes:
        sys.stdout.write("".join(f"{printable(line)}\n" for line in render(changes).splitlines()))
    else:
        echo("Nothing changes.")


def _document(file: str) -> Spec:
    """A spec, or a document that was compiled before."""
    if not file.endswith(".json"):
        return compiled(file)
    from fairlane.spec.check import check
    from fairlane.spec.ir import Spec

    try:
        spec = msgspec.json.decode(_text(file), type=Spec)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise InvalidRequest(f"{file} is no document of a spec: {error}") from None
    for finding in check(spec):
        raise InvalidRequest(f"{file}: {finding.render()}")
    return spec


def compiled(file: str) -> Spec:
    """The document of a file that nothing is wrong with; else it says what is, and the command ends."""
    from fairlane.spec.check import problems, warnings
    from fairlane.spec.compile import compile_spec
    from fairlane.spec.text.source import Source

    try:
        read = compile_spec(Source(file, _text(file)), _read)
    except SpecError as error:
        _refuse([error])
    found = problems(read)
    if found:
        _refuse(found)
    for warning in warnings(read):
        echo(f"warning: {warning.render()}")
    return read.spec


def _formatted(file: str, text: str) -> str:
    from fairlane.spec.text.format import format_spec
    from fairlane.spec.text.source import Source

    try:
        return format_spec(Source(file, text))
    except SpecError as error:
        _refuse([error])


def _refuse(problems: list[SpecError]) -> NoReturn:
    for problem in problems:
        echo(problem.render())
    if len(problems) > 1:
        echo(f"{len(problems)} problems.")
    raise typer.Exit(REFUSED)


def _text(file: str) -> str:
    """The text of the file that the command names."""
    try:
        return sys.stdin.read() if file == "-" else _read(file)
    except OSError as error:
        raise InvalidRequest(f"{file} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise InvalidRequest(f"{file} is not UTF-8 text") from None


def _read(file: str) -> str:
    return Path(file).read_text(encoding="utf-8")


def _replace(path: Path, text: str) -> None:
    """The file is whole at every moment, the old one or the new."""
    path = path.resolve()
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    beside.write_text(text, encoding="utf-8")
    shutil.copymode(path, beside)
    beside.replace(path)
