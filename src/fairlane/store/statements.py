"""SQL statements by name, from a `.sql` file beside the code that runs them."""

from __future__ import annotations

import re
from importlib.resources import files

_NAME = re.compile(r"^-- (name|part): (\w+)(?: \(.*\))?$", re.MULTILINE)
_PART = re.compile(r"\{(\w+)\}")


def read(package: str, file: str) -> str:
    return files(package).joinpath(file).read_text(encoding="utf-8")


def load(package: str, file: str) -> dict[str, str]:
    """Statement text by name; a statement begins at its `-- name: x` line and ends before the next one. `{y}` in it
    stands for the text of `-- part: y`, which stands before it."""
    _, *pieces = _NAME.split(read(package, file))
    parts: dict[str, str] = {}
    found: dict[str, str] = {}
    for kind, name, text in zip(pieces[::3], pieces[1::3], pieces[2::3], strict=True):
        whole = _PART.sub(lambda match: parts[match[1]], text.strip().removesuffix(";"))
        (parts if kind == "part" else found)[name] = whole
    return found
