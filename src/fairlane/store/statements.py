"""SQL statements by name, from a `.sql` file beside the code that runs them."""

from __future__ import annotations

import re
from importlib.resources import files

_NAME = re.compile(r"^-- name: (\w+)(?: \(.*\))?$", re.MULTILINE)


def read(package: str, file: str) -> str:
    return files(package).joinpath(file).read_text(encoding="utf-8")


def load(package: str, file: str) -> dict[str, str]:
    """Statement text by name; a statement begins at its `-- name: x` line and ends before the next one."""
    parts = _NAME.split(read(package, file))
    return {name: text.strip().removesuffix(";") for name, text in zip(parts[1::2], parts[2::2], strict=True)}
