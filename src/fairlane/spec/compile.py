"""Source to document: load, parse, read every section, and note everything that is wrong."""

from __future__ import annotations

from typing import Any, NamedTuple

from fairlane.errors import SpecError
from fairlane.spec import ir, tree
from fairlane.spec.compile_poller import compile_poller
from fairlane.spec.compile_queue import compile_queue
from fairlane.spec.compile_schedule import compile_schedule
from fairlane.spec.compile_webhook import compile_command, compile_webhook
from fairlane.spec.load import Loaded, Read, load
from fairlane.spec.source import Source, suggestion
from fairlane.spec.spec_file import Location, Path, SpecFile

KINDS: dict[str, tuple[str, Any]] = {
    "queue": ("queues", compile_queue),
    "command": ("commands", compile_command),
    "webhook": ("webhooks", compile_webhook),
    "schedule": ("schedules", compile_schedule),
    "poller": ("pollers", compile_poller),
}


class Compiled(NamedTuple):
    """A spec, where each part of it was said, and what is wrong with it."""

    spec: ir.Spec
    locations: dict[Path, Location]
    problems: list[SpecError]


def compile_spec(source: Source, read: Read) -> Compiled:
    """The document of a file and all it imports. SpecError if one cannot even be parsed."""
    return _Compiler().compile(load(source, read))


class _Compiler:
    def __init__(self) -> None:
        self._problems: list[SpecError] = []
        self._locations: dict[Path, Location] = {}
        self._app = ""
        self._declared: dict[str, dict[str, Any]] = {family: {} for family, _ in KINDS.values()}

    def compile(self, loaded: list[Loaded]) -> Compiled:
        for source, parsed in loaded:
            self._file(SpecFile(source, self._problems, self._locations), parsed)
        if not self._app and not self._problems:
            self._problems.append(loaded[-1].source.error("there is no `app Name { ... }` here", 0))
        spec = ir.Spec(
            app=self._app,
            queues=self._declared["queues"],
            commands=self._declared["commands"],
            webhooks=self._declared["webhooks"],
            schedules=self._declared["schedules"],
            pollers=self._declared["pollers"],
        )
        return Compiled(spec, self._locations, self._problems)

    def _file(self, file: SpecFile, parsed: tree.File) -> None:
        for item in parsed.items:
            if isinstance(item, tree.Import):
                continue
            if item.kind.text != "app" or item.label is None:
                file.note(item.kind, "a file holds imports and `app Name { ... }`, and all else inside of it")
                continue
            if self._app and item.label.text != self._app:
                message = f"a spec is one app: `{item.label.text}` here, `{self._app}` before"
                file.note(item.label, message)
            self._app = self._app or item.label.text
            for entry in item.body.entries:
                self._declaration(file, entry)

    def _declaration(self, file: SpecFile, entry: tree.Entry) -> None:
        word = entry.kind if isinstance(entry, tree.Section) else entry.name
        if word.text not in KINDS:
            file.note(word, f"an app has no `{word.text}`", hint=suggestion(word.text, KINDS))
        elif not isinstance(entry, tree.Section) or entry.label is None:
            file.note(word, f"a {word.text} is declared as `{word.text} Name {{ ... }}`")
        else:
            family, compiled = KINDS[word.text]
            path = (family, entry.label.text)
            if path in self._locations:
                first = self._locations[path]
                line, _ = first.source.position(first.node.start)
                hint = f"first in {first.source.name}, line {line}"
                file.note(entry.label, f"the {word.text} `{entry.label.text}` is declared twice", hint=hint)
                return
            self._locations[path] = Location(file.source, entry.label)
            self._declared[family][entry.label.text] = compiled(file, entry, path)
