"""The check for the `server` extra, imported first by what needs its libraries: who has a base install is told how to
get them."""

from __future__ import annotations

from importlib.util import find_spec

from fairlane.errors import InvalidRequest

_missing = [name for name in ("apsw", "asyncpg", "cryptography", "httptools") if find_spec(name) is None]


class MissingExtra(InvalidRequest, ImportError):
    code = "missing_extra"


if _missing:
    raise MissingExtra(
        f"the broker needs the server extra, which is not installed ({_missing[0]} is missing): "
        "pip install 'fairlane[server]'"
    )
