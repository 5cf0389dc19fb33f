"""Import guard for the `server` extra: importing this module raises MissingExtra if one of its libraries is missing.

Modules of the broker import it before they import those libraries, so that users of a base install learn how to get
them.
"""

from __future__ import annotations

from importlib.util import find_spec

from fairlane.extras import MissingExtra

_missing = [name for name in ("apsw", "asyncpg", "cryptography", "httptools") if find_spec(name) is None]

if _missing:
    raise MissingExtra("the broker", "server", _missing[0])
