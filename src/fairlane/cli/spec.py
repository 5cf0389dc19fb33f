"""`fairlane spec ...`"""

from __future__ import annotations

import getpass
import os
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import msgspec

from fairlane.cli import REFUSED, Exit
from fairlane.cli.output import confirm, counted, echo, print_json, printable
from fairlane.cli.verb import AsJson, Client, Noun, Server, Shown, Yes, arg, ask, columns_of, opt, print_shown, verb
from fairlane.errors import InvalidRequest, NotFound, SpecError
from fairlane.model.names import DEFAULT_SERVER
from fairlane.spec import check as checks
from fairlane.spec import ir
from fairlane.spec.compile import Compiled, compile_spec
from fairlane.spec.compiled_queue import preview
from fairlane.spec.export import export_text
from fairlane.spec.nouns import NOUNS
from fairlane.spec.plan import plan, render
from fairlane.spec.text.format import format_spec
from fairlane.spec.text.source import Source, suggestion

if TYPE_CHECKING:
    from fairlane.wire.specs import Change, SpecPlan

app = Noun("spec")

File = Annotated[str, arg("FILE", "A spec, usually NAME.fairlane.")]
Anyway = Annotated[bool, opt("It is JSON anyway.", "--json")]
_VERSIONS = columns_of("version app hash by=applied_by at=applied_at", hash=lambda one: one.hash[:12])


@app.command()
def check(file: File, json: AsJson = False) -> None:
    """Say what is wrong with a spec and what it imports. Nothing is sent anywhere."""
    if json:
        problems, read = _checked(file)
        warnings = [] if read is None or problems else checks.warnings(read)
        print_json({"problems": [_plain(one) for one in problems], "warnings": [_plain(one) for one in warnings]})
        raise Exit(REFUSED if problems else 0)
    spec = compiled(file)
    counts = [(noun.word, len(getattr(spec, noun.family))) for noun in NOUNS]
    declared = ", ".join(counted(count, word) for word, count in counts if count)
    echo(f"{spec.app} is well: {declared or 'nothing is declared'}.")


@app.command("compile")
def compile_file(file: File, json: Anyway = False) -> None:
    """Print the JSON document that a spec stands for."""
    sys.stdout.write(msgspec.json.format(msgspec.json.encode(compiled(file))).decode() + "\n")


@app.command("plan")
def plan_changes(
    file: File,
    against: Annotated[
        str | None, opt("A spec, or the JSON that compile printed of it, instead of a broker.", metavar="FILE")
    ] = None,
    server: Server = DEFAULT_SERVER,
    json: AsJson = False,
) -> None:
    """Show what applying a spec would change, and by what of that messages may be lost, refused or exposed."""
    spec = compiled(file)
    if against is not None:
        changes = plan(_document(against), spec)
        print_shown(Shown(changes, lambda: _print_changes(changes)), json)
        return
    planned = ask(server, lambda client: client.specs.plan(msgspec.json.encode(spec)))
    print_shown(Shown(planned, lambda: _print_plan(planned)), json)


@verb(app, "apply")
async def apply_file(client: Client, file: File, yes: Yes = False, json: AsJson = False) -> Shown:
    """Put a spec in force: its queues, types and webhooks, all in one transaction.

    The plan is shown first, and asked about if messages may be lost, refused or exposed by it.
    """
    document = msgspec.json.encode(compiled(file))
    planned = await client.specs.plan(document)
    if not json:
        _print_plan(planned)
    if planned.dangers:
        confirm("Messages may be lost, refused or exposed by what is marked with !. Apply all the same?", yes)
    applied = await client.specs.apply(
        document,
        source="" if file == "-" else _text(file),
        by=_who(),
        consent=bool(planned.dangers),
        version=planned.version,
    )
    done = "is in force" if applied.version > planned.version else "was in force already"
    return Shown(applied, f"{applied.app} {done}: version {applied.version}, {applied.hash[:12]}.")


@verb(app, "versions", columns=_VERSIONS, empty="No spec was applied yet.")
async def list_versions(
    client: Client, name: Annotated[str | None, arg("APP", "Only those of one app.")] = None
) -> Any:
    """List what was applied, newest first."""
    return await client.specs.versions(name)


@verb(app)
async def show(
    client: Client,
    name: Annotated[str, arg("APP", "One that was applied.")],
    version: Annotated[int | None, opt("That was in force then; the one in force.")] = None,
) -> Shown:
    """Print the spec of an app as it was applied."""
    found = [one for one in await client.specs.list() if one.app == name] if version is None else []
    detail = await client.specs.get(version) if version is not None else found[0] if found else None
    if detail is None or detail.app != name:
        raise NotFound(f"there is no {'spec' if version is None else f'version {version}'} of app {name!r:.80}")
    text = detail.source or export_text(msgspec.convert(detail.spec, ir.Spec))
    return Shown(detail, lambda: sys.stdout.write(text))


@verb(app, "export")
async def export_app(client: Client, name: Annotated[str, arg("APP", "One that was applied.")]) -> Shown:
    """Print the spec of an app as its queues are now, also if they were changed otherwise."""
    document = await client.specs.export(name)
    return Shown(document, lambda: sys.stdout.write(export_text(msgspec.convert(document, ir.Spec))))


@app.command("try")
def try_message(
    file: File,
    queue: Annotated[str, arg("QUEUE", "A queue that it declares.")],
    message: Annotated[str, arg("JSON", "A message; - for a stream.")],
    json: Anyway = False,
) -> None:
    """Show what a message would become: its partition, and its command with the input."""
    spec = compiled(file)
    if queue not in spec.queues:
        raise InvalidRequest(f"there is no queue `{queue}` in {file}; {suggestion(queue, spec.queues)}")
    print_json(preview(spec, queue, (sys.stdin.read() if message == "-" else message).encode()))


@app.command()
def schema(json: Anyway = False) -> None:
    """Print the JSON Schema of that document."""
    print_json(ir.schema())


@app.command()
def fmt(
    files: Annotated[list[str], arg("FILE", "Specs; - for a stream.")],
    check: Annotated[bool, opt("Change nothing; name what would change, and exit 1.", "--check")] = False,
    json: AsJson = False,
) -> None:
    """Write specs in their one form. Of - the result goes to the standard output."""
    changed = []
    for file in files:
        before = _text(file)
        try:
            after = format_spec(Source(file, before))
        except SpecError as error:
            _refuse([error])
        if file == "-" and not check:
            sys.stdout.write(after)
        elif after != before:
            changed.append(file)
            if not json:
                echo(f"{file} would change." if check else f"{file} is formatted.")
            if not check:
                _replace(Path(file), after)
    if json:
        print_json({"changed": changed})
    if check and changed:
        raise Exit(1)


def _who() -> str:
    try:
        return getpass.getuser()
    except (ImportError, KeyError, OSError):  # a container need not have users
        return ""


def _print_plan(planned: SpecPlan) -> None:
    if planned.drift:
        echo("Changed otherwise since it was last applied:")
        _print_changes(planned.drift)
        echo("To be changed now:")
    _print_changes(planned.changes)


def _print_changes(changes: list[Change]) -> None:
    if changes:
        sys.stdout.write("".join(f"{printable(line)}\n" for line in render(changes).splitlines()))
    else:
        echo("Nothing changes.")


def _document(file: str) -> ir.Spec:
    """A spec, or a document that was compiled before."""
    if not file.endswith(".json"):
        return compiled(file)
    try:
        spec = msgspec.json.decode(_text(file), type=ir.Spec)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise InvalidRequest(f"{file} is no document of a spec: {error}") from None
    for finding in checks.check(spec):
        raise InvalidRequest(f"{file}: {finding.render()}")
    return spec


def compiled(file: str) -> ir.Spec:
    """The document of a file that nothing is wrong with; else it says what is, and the command ends."""
    problems, read = _checked(file)
    if read is None or problems:
        _refuse(problems)
    for warning in checks.warnings(read):
        echo(f"warning: {warning.render()}")
    return read.spec


def _checked(file: str) -> tuple[list[SpecError], Compiled | None]:
    """All that is wrong with a file, and its document, if it could be read so far."""
    try:
        read = compile_spec(Source(file, _text(file)), _read)
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
