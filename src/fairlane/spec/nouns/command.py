"""A command of the language: what it takes, and what carries it out."""

from __future__ import annotations

from typing import ClassVar

from fairlane.outbound.addresses import is_plain_url
from fairlane.spec import ir
from fairlane.spec.findings import Findings
from fairlane.spec.nouns.noun import STRING, TYPES, Noun, Setting, Settings, as_name
from fairlane.spec.reader import Path, SpecFile
from fairlane.spec.text import tree
from fairlane.spec.types import quoted

_METHODS = ("PATCH", "POST", "PUT")


def _read_run(file: SpecFile, setting: tree.Setting, path: Path) -> ir.HttpRun | ir.QueueRun | None:
    match setting.value:
        case tree.Target(queue=queue):
            return ir.QueueRun(queue=queue.text)
        case tree.Request(method=method, url=url):
            return ir.HttpRun(method=method.text, url=str(url.value))
    hint = "without `run`, the worker that registered the command's name runs it"
    file.note(setting.value, '`run` is `http POST "https://..."` or `queue Name`', hint=hint)
    return None


def _write_run(run: ir.HttpRun | ir.QueueRun) -> str:
    return f"queue {as_name(run.queue)}" if isinstance(run, ir.QueueRun) else f"http {run.method} {quoted(run.url)}"


class Command(Noun[ir.CommandSpec]):
    word, family = "command", "commands"
    usual = ir.CommandSpec()
    settings: ClassVar[Settings] = {"input": TYPES, "run": Setting(_read_run, _write_run), "secret_env": STRING}

    def check(self, found: Findings, path: Path, name: str, command: ir.CommandSpec) -> None:
        run, at = command.run, (*path, "run")
        if isinstance(run, ir.HttpRun):
            if run.method not in _METHODS:
                found.add(at, f"a command is sent by {', '.join(_METHODS)}, not {run.method}")
            # Whether it may be called is for the broker to say, which knows what it was allowed.
            elif not is_plain_url(run.url):
                found.add(at, "a command is sent to a URL like https://host/path, without user, password and fragment")
            if command.secret_env is None:
                hint = 'say where its secret is: `secret_env: "NAME"`'
                found.add(at, "a call over HTTP is signed, and there is no secret for it", hint)
        elif command.secret_env is not None:
            found.add((*path, "secret_env"), "this has no effect: only calls over HTTP are signed")
        if command.secret_env is not None:
            found.variables((*path, "secret_env"), (command.secret_env,))
        if isinstance(run, ir.QueueRun) and found.has_queue(at, run.queue) and command.input is not None:
            # What a command pushes is its input.
            found.fit(at, command.input, run.queue, what="the input of the command does not fit the messages of")
