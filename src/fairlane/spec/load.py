"""Loading of files, and of those they import, as trees. Reading is the caller's, so that this stays pure."""

from __future__ import annotations

import posixpath
from collections.abc import Callable
from typing import NamedTuple

from fairlane.errors import SpecError
from fairlane.spec import tree
from fairlane.spec.parser import parse
from fairlane.spec.source import Source

FILES_MAX = 100
Read = Callable[[str], str]
"""The text of the file of this name; OSError or UnicodeDecodeError if it cannot be read."""


class Loaded(NamedTuple):
    source: Source
    file: tree.File


def load(source: Source, read: Read) -> list[Loaded]:
    """A file and all it imports, each once, the imported first. SpecError where one cannot be read or parsed."""
    loaded: dict[str, Loaded] = {}
    _load(source, read, loaded, opened=(source.name,))
    return list(loaded.values())


def _load(source: Source, read: Read, loaded: dict[str, Loaded], *, opened: tuple[str, ...]) -> None:
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
            _load(_read(source, item.path, name, read), read, loaded, opened=(*opened, name))
    loaded[source.name] = Loaded(source, file)


def _resolved(source: Source, path: tree.Literal) -> str:
    """An import counts from the directory of the file it stands in."""
    text = str(path.value)
    if not text or text.startswith("/") or "\\" in text or "\0" in text:
        hint = "write it from the directory of this file on, with `/` between its parts"
        raise source.error("an import names a file by a relative path", path.start, path.end, hint=hint)
    return posixpath.normpath(posixpath.join(posixpath.dirname(source.name), text))


def _read(source: Source, path: tree.Literal, name: str, read: Read) -> Source:
    try:
        return Source(name, read(name))
    except OSError as error:
        raise _unreadable(source, path, error.strerror or type(error).__name__) from None
    except UnicodeDecodeError:
        raise _unreadable(source, path, "it is not UTF-8 text") from None


def _unreadable(source: Source, path: tree.Literal, why: str) -> SpecError:
    return source.error(f"{path.text} cannot be read: {why}", path.start, path.end)
