"""`fairlane spec ...`"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import msgspec
import typer

from fairlane.cli.exits import REFUSED
from fairlane.cli.output import AsJson, print_json, say
from fairlane.errors import InvalidRequest, SpecError

if TYPE_CHECKING:
    from fairlane.spec.ir import Spec

app = typer.Typer(help="Check, format and compile specs: files that declare queues.", no_args_is_help=True)

File = Annotated[str, typer.Argument(metavar="FILE", help="A spec, usually NAME.fairlane.", show_default=False)]
Files = Annotated[list[str], typer.Argument(metavar="FILE...", help="Specs; - for a stream.", show_default=False)]


@app.command()
def check(file: File) -> None:
    """Say what is wrong with a spec and what it imports. Nothing is sent anywhere."""
    spec = compiled(file)
    counts = ((len(spec.queues), "queue"), (len(spec.commands), "command"), (len(spec.webhooks), "webhook"))
    declared = ", ".join(f"{count} {noun}{'' if count == 1 else 's'}" for count, noun in counts if count)
    say(f"{spec.app} is well: {declared or 'nothing is declared'}.")


@app.command("compile")
def compile_file(file: File) -> None:
    """Print the JSON document that a spec stands for."""
    sys.stdout.write(msgspec.json.format(msgspec.json.encode(compiled(file))).decode() + "\n")


@app.command("plan")
def plan_changes(
    file: File,
    against: Annotated[
        str, typer.Option(metavar="FILE", help="The spec before, or the JSON that compile printed of it.")
    ],
    json: AsJson = False,
) -> None:
    """Show what a spec changes of another, and by what of that messages may be lost or refused."""
    from fairlane.spec.plan import plan, render

    changes = plan(_document(against), compiled(file))
    if json:
        print_json(changes)
    elif changes:
        sys.stdout.write(render(changes) + "\n")
    else:
        say("Nothing changes.")


@app.command("try")
def try_message(
    file: File,
    queue: Annotated[str, typer.Argument(metavar="QUEUE", help="A queue that it declares.", show_default=False)],
    message: Annotated[str, typer.Argument(metavar="JSON", help="A message; - for a stream.", show_default=False)],
) -> None:
    """Show what a message would become: its partition, and its command with the input."""
    from fairlane.spec.program import preview
    from fairlane.spec.source import suggestion

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
            say(f"{file} would change." if check else f"{file} is formatted.")
            if not check:
                _replace(Path(file), after)
    if check and changed:
        raise typer.Exit(1)


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
    from fairlane.spec.check import problems
    from fairlane.spec.compile import compile_spec
    from fairlane.spec.source import Source

    try:
        read = compile_spec(Source(file, _text(file)), _read)
    except SpecError as error:
        _refuse([error])
    found = problems(read)
    if found:
        _refuse(found)
    return read.spec


def _formatted(file: str, text: str) -> str:
    from fairlane.spec.format import format_spec
    from fairlane.spec.source import Source

    try:
        return format_spec(Source(file, text))
    except SpecError as error:
        _refuse([error])


def _refuse(problems: list[SpecError]) -> NoReturn:
    for problem in problems:
        say(problem.render())
    if len(problems) > 1:
        say(f"{len(problems)} problems.")
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
