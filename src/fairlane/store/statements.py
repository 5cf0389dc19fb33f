"""SQL statements by name, from a `.sql` file beside the code that runs them.

A file may serve both dialects. A statement without a mark is written once, in the SQL of PostgreSQL; a few replacements
make it SQLite's. A statement marked `(sqlite)` or `(postgres)` is for that dialect alone, as it stands.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from importlib.resources import files
from importlib.util import find_spec
from typing import Final

PACKAGES: Final = ["fairlane.store.families", *(["fairlane.queen.store"] if find_spec("fairlane.queen") else [])]
"""Packages of families that both dialects share. Queen's is optional."""
_NAME = re.compile(r"^-- (name|part): (\w+)(?: \((.*)\))?$", re.MULTILINE)
_PART = re.compile(r"\{(\w+)\}")
_ONLY = re.compile(r"sqlite\b|postgres\b")


def _unnest(call: re.Match[str]) -> str:
    """Return the rows of several lists of one length as a subquery over JSON."""
    first, *others = zip((arg.split("::")[0] for arg in call[1].split(", ")), call[3].split(", "), strict=True)
    columns = [f"n.value AS {first[1]}", *(f"{list} ->> n.key AS {name}" for list, name in others)]
    return f"(SELECT {', '.join(columns)} FROM json_each({first[0]}) n) {call[2]}"  # noqa: S608  # ours


_FOR_SQLITE: Final[list[tuple[re.Pattern[str], str | Callable[[re.Match[str]], str]]]] = [
    (re.compile(pattern), replacement)
    for pattern, replacement in (
        (r"\bunnest\(([^()]+)\)\s+(\w+)\(([^()]+)\)", _unnest),
        (r"coalesce\(:now, (?:clock_timestamp|now)\(\)\)", ":now"),
        (r"fairlane\.never\(\)", ":never"),
        (r"\bfairlane\.", ""),
        (r"::(double precision|\w+)(\[\])?", ""),  # casts
        (r"(?ms)= ANY \(ARRAY\((.+?)\)\)$", r"IN (\1)"),
        (r"\bARRAY\(SELECT ([\w.]+)", r"(SELECT json_group_array(\1)"),
        (r"\bjson_each_text\(", "json_each("),
        (r"\bgreatest\(", "max("),
        (r"\bleast\(", "min("),
        (r"= ANY \((:\w+)\)", r"IN (SELECT value FROM json_each(\1))"),
        (r"make_interval\(secs => (:\w+)\)", r"\1 * 1000000"),
        (r"'-infinity'", "0"),
        (r"'infinity'", ":never"),
        (r"\bstrpos\(", "instr("),
        (r' COLLATE "C"', ""),
        (r"\s+FOR (UPDATE|SHARE)( OF \w+)?$", ""),
    )
]
"""Replacements in a statement that is written once. Times are microseconds on SQLite, lists JSON."""


def read(package: str, file: str) -> str:
    return files(package).joinpath(file).read_text(encoding="utf-8")


def load(package: str, file: str, dialect: str | None = None) -> dict[str, str]:
    """Return the text of each statement by its name, of one `dialect` if the file serves both.

    A statement begins at its `-- name: x` line and ends before the next one. `{y}` in it is replaced by the text of an
    earlier `-- part: y`.
    """
    _, *pieces = _NAME.split(read(package, file))
    parts: dict[str, str] = {}
    found: dict[str, str] = {}
    for kind, name, mark, text in zip(pieces[::4], pieces[1::4], pieces[2::4], pieces[3::4], strict=True):
        only = _ONLY.match(mark or "")
        if only is not None and only[0] != dialect:
            continue
        whole = text.strip().removesuffix(";")
        if dialect == "sqlite" and only is None:
            whole = for_sqlite(whole)
        (parts if kind == "part" else found)[name] = _PART.sub(lambda match: parts[match[1]], whole)
    return found


def for_sqlite(text: str) -> str:
    """Translate a statement that is written once."""
    for pattern, replacement in _FOR_SQLITE:
        text = pattern.sub(replacement, text)
    return text
