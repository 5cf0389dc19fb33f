"""Source to document: a file and all it imports, every section of them read, and everything that is wrong noted.

Reading files is the caller's, so that this stays pure.
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable
from typing import Any, NamedTuple

from fairlane.errors import SpecError
from fairlane.spec import ir
from fairlane.spec.nouns import NOUNS
from fairlane.spec.reader import Location, Path, SpecFile, word_of
from fairlane.spec.text import tree
from fairlane.spec.text.parser import parse
from fairlane.spec.text.source import Source, suggestion

FILES_MAX = 100
Read = Callable[[str], str]
"""The text of the file of this name; OSError or UnicodeDecodeError if it cannot be read."""
_NOUNS = {noun.word: noun for noun in NOUNS}


class Compiled(NamedTuple):
    """A spec, where each part of it was said, and what is wrong with it."""

    spec: ir.Spec
    locations: dict[Path, Location]
    problems: list[SpecError]


def compile_spec(source: Source, read: Read) -> Compiled:
    """The document of a file and all it imports. SpecError if one cannot even be parsed."""
    loaded: dict[str, tuple[Source, tree.File]] = {}
    _load(source, read, loaded, opened=(source.name,))
    problems: list[SpecError] = []
    locations: dict[Path, Location] = {}
    declared: dict[str, Any] = {noun.family: {} for noun in NOUNS}
    app = ""
    for origin, parsed in loaded.values():
        file = SpecFile(origin, problems, locations)
        for item in parsed.items:
            if isinstance(item, tree.Import):
                continue
            if item.kind.text != "app" or item.label is None:
                file.note(item.kind, "a file holds imports and `app Name { ... }`, and all else inside of it")
                continue
            app = app or item.label.text
            if item.label.text != app:
                file.note(item.label, f"a spec is one app: `{item.label.text}` here, `{app}` before")
            for entry in item.body.entries:
                _declare(file, entry, declared)
    if not app and not problems:
        problems.append(source.error("there is no `app Name { ... }` here", 0))
    return Compiled(ir.Spec(app=app, **declared), locations, problems)


def _declare(file: SpecFile, entry: tree.Entry, declared: dict[str, Any]) -> None:
    word = word_of(entry)
    noun = _NOUNS.get(word.text)
    if noun is None:
        file.note(word, f"an app has no `{word.text}`", hint=suggestion(word.text, _NOUNS))
    elif not isinstance(entry, tree.Section) or entry.label is None:
        file.note(word, f"a {word.text} is declared as `{word.text} Name {{ ... }}`")
    elif first := file.locations.get((noun.family, entry.label.text)):
        line, _ = first.source.position(first.node.start)
        hint = f"first in {first.source.name}, line {line}"
        file.note(entry.label, f"the {word.text} `{entry.label.text}` is declared twice", hint=hint)
    else:
        path = (noun.family, entry.label.text)
        file.locate(path, entry.label)
        declared[noun.family][entry.label.text] = noun.read(file, entry, path)


def _load(source: Source, read: Read, loaded: dict[str, tuple[Source, tree.File]], *, opened: tuple[str, ...]) -> None:
    file = parse(source)
    for item in file.items:
        if not isinstance(item, tree.Import):
            continue
        name = _resolved(source, item.path)
        if name in opened:
            circle = " -> ".join([*opened[opened.index(name) :], name])
            raise source.error(f"the imports go in a circle: {circle}", item.path.start, item.path.end)
        if name not in loaded:
            if len(loaded) + len(opened) >= FILES_MAX:
                raise source.error(f"more than {FILES_MAX} files are imported", item.path.start, item.path.end)
            try:
                text = read(name)
            except (OSError, UnicodeDecodeError) as error:
                why = error.strerror or type(error).__name__ if isinstance(error, OSError) else "it is not UTF-8 text"
                message = f"{item.path.text} cannot be read: {why}"
                raise source.error(message, item.path.start, item.path.end) from None
            _load(Source(name, text), read, loaded, opened=(*opened, name))
    loaded[source.name] = source, file


def _resolved(source: Source, path: tree.Literal) -> str:
    """An import counts from the directory of the file it stands in."""
    text = str(path.value)
    if not text or text.startswith("/") or "\\" in text or "\0" in text:
        hint = "write it from the directory of this file on, with `/` between its parts"
        raise source.error("an import names a file by a relative path", path.start, path.end, hint=hint)
    return posixpath.normpath(posixpath.join(posixpath.dirname(source.name), text))
