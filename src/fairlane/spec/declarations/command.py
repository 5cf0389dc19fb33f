"""The declaration of a command: its input, and what runs it."""

from __future__ import annotations

from typing import ClassVar

from fairlane.outbound.addresses import is_plain_url
from fairlane.spec import ir
from fairlane.spec.declarations.declaration import STRING, TYPES, Declaration, SettingCodec, Settings, as_name
from fairlane.spec.diagnostics import Diagnostics
from fairlane.spec.settings import Path, SpecFile
from fairlane.spec.text import tree
from fairlane.spec.types import quoted

_METHODS = ("PATCH", "POST", "PUT")


def _read_run(file: SpecFile, setting: tree.Assignment, path: Path) -> ir.HttpRun | ir.QueueRun | None:
    match setting.value:
        case tree.QueueTarget(queue=queue):
            return ir.QueueRun(queue=queue.text)
        case tree.HttpTarget(method=method, url=url):
            return ir.HttpRun(method=method.text, url=str(url.value))
    hint = "without `run`, the worker that registered the command's name runs it"
    file.note(setting.value, '`run` is `http POST "https://..."` or `queue Name`', hint=hint)
    return None


def _write_run(run: ir.HttpRun | ir.QueueRun) -> str:
    return f"queue {as_name(run.queue)}" if isinstance(run, ir.QueueRun) else f"http {run.method} {quoted(run.url)}"


class CommandDeclaration(Declaration[ir.CommandSpec]):
    word, family = "command", "commands"
    defaults = ir.CommandSpec()
    settings: ClassVar[Settings] = {"input": TYPES, "run": SettingCodec(_read_run, _write_run), "secret_env": STRING}

    def check(self, found: Diagnostics, path: Path, name: str, command: ir.CommandSpec) -> None:
        run, at = command.run, (*path, "run")
        if isinstance(run, ir.HttpRun):
            if run.method not in _METHODS:
                found.add(at, f"a command must use {', '.join(_METHODS)}, not {run.method}")
            # The broker decides whether the URL may be called: it knows the allowed destinations.
            elif not is_plain_url(run.url):
                found.add(
                    at, "the URL of a command must look like https://host/path, without user, password or fragment"
                )
            if command.secret_env is None:
                hint = 'name the variable that has the secret: `secret_env: "NAME"`'
                found.add(at, "an HTTP call must be signed, but there is no secret for it", hint)
        elif command.secret_env is not None:
            found.add((*path, "secret_env"), "this has no effect: only calls over HTTP are signed")
        if command.secret_env is not None:
            found.variables((*path, "secret_env"), (command.secret_env,))
        if isinstance(run, ir.QueueRun) and found.has_queue(at, run.queue) and command.input is not None:
            # A command pushes its input.
            found.fit(at, command.input, run.queue, what="the input of the command does not fit the messages of")
