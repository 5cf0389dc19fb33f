"""The compiler: reads a file and all its imports into one document, and collects every problem.

The caller reads the files, so this module does no I/O.
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable
from typing import Any, NamedTuple

from fairlane.errors import SpecError
from fairlane.spec import ir
from fairlane.spec.declarations import DECLARATIONS
from fairlane.spec.settings import Location, Path, SpecFile, word_of
from fairlane.spec.text import tree
from fairlane.spec.text.parser import parse
from fairlane.spec.text.source import SourceText, suggestion

FILES_MAX = 100
Read = Callable[[str], str]
"""Function that returns the text of a file. Raises OSError or UnicodeDecodeError if the file cannot be read."""
_DECLARATIONS = {declaration.word: declaration for declaration in DECLARATIONS}


class Compiled(NamedTuple):
    """A spec as a document, with the place of each of its parts and its problems."""

    spec: ir.Spec
    locations: dict[Path, Location]
    problems: list[SpecError]


def compile_spec(source: SourceText, read: Read) -> Compiled:
    """Compile a file and all its imports to one document. Raises SpecError if a file cannot be parsed."""
    loaded: dict[str, tuple[SourceText, tree.File]] = {}
    _load(source, read, loaded, opened=(source.name,))
    problems: list[SpecError] = []
    locations: dict[Path, Location] = {}
    declared: dict[str, Any] = {declaration.family: {} for declaration in DECLARATIONS}
    app = ""
    for origin, parsed in loaded.values():
        file = SpecFile(origin, problems, locations)
        for item in parsed.items:
            if isinstance(item, tree.Import):
                continue
            if item.kind.text != "app" or item.label is None:
                file.note(item.kind, "a file has only imports and `app Name { ... }` blocks at the top level")
                continue
            app = app or item.label.text
            if item.label.text != app:
                file.note(item.label, f"a spec describes one app: `{item.label.text}` here, `{app}` before")
            for entry in item.body.entries:
                _declare(file, entry, declared)
    if not app and not problems:
        problems.append(source.error("there is no `app Name { ... }` here", 0))
    return Compiled(ir.Spec(app=app, **declared), locations, problems)


def _declare(file: SpecFile, entry: tree.Entry, declared: dict[str, Any]) -> None:
    word = word_of(entry)
    declaration = _DECLARATIONS.get(word.text)
    if declaration is None:
        file.note(word, f"an app has no `{word.text}`", hint=suggestion(word.text, _DECLARATIONS))
    elif not isinstance(entry, tree.Section) or entry.label is None:
        file.note(word, f"a {word.text} is declared as `{word.text} Name {{ ... }}`")
    elif first := file.locations.get((declaration.family, entry.label.text)):
        line, _ = first.source.position(first.node.start)
        hint = f"first in {first.source.name}, line {line}"
        file.note(entry.label, f"the {word.text} `{entry.label.text}` is declared twice", hint=hint)
    else:
        path = (declaration.family, entry.label.text)
        file.locate(path, entry.label)
        declared[declaration.family][entry.label.text] = declaration.read(file, entry, path)


def _load(
    source: SourceText, read: Read, loaded: dict[str, tuple[SourceText, tree.File]], *, opened: tuple[str, ...]
) -> None:
    file = parse(source)
    for item in file.items:
        if not isinstance(item, tree.Import):
            continue
        name = _resolved(source, item.path)
        if name in opened:
            circle = " -> ".join([*opened[opened.index(name) :], name])
            raise source.error(f"the imports form a cycle: {circle}", item.path.start, item.path.end)
        if name not in loaded:
            if len(loaded) + len(opened) >= FILES_MAX:
                raise source.error(f"more than {FILES_MAX} files are imported", item.path.start, item.path.end)
            try:
                text = read(name)
            except (OSError, UnicodeDecodeError) as error:
                why = error.strerror or type(error).__name__ if isinstance(error, OSError) else "it is not UTF-8 text"
                message = f"{item.path.text} cannot be read: {why}"
                raise source.error(message, item.path.start, item.path.end) from None
            _load(SourceText(name, text), read, loaded, opened=(*opened, name))
    loaded[source.name] = source, file


def _resolved(source: SourceText, path: tree.Literal) -> str:
    """Return the name of an imported file, relative to the directory of the importing file."""
    text = str(path.value)
    if not text or text.startswith("/") or "\\" in text or "\0" in text:
        hint = "write it relative to the directory of this file, with `/` as the separator"
        raise source.error("an import must be a relative path", path.start, path.end, hint=hint)
    return posixpath.normpath(posixpath.join(posixpath.dirname(source.name), text))
