"""Schema versions. `schema*.sql` creates a new database at the newest one; `migrations/` upgrades a released one.

Brokers of two successive releases use one database. So a migration only adds, and what it makes superfluous is removed
one release later, by a migration that begins with `-- needs: n`: brokers of a schema before `n` cannot use the result.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import NamedTuple

from fairlane.errors import StoreUnsafe
from fairlane.store.statements import read

FIRST = 1  # version of the first release; files in migrations/ start at the next
_FILE = re.compile(r"(\d{4})_(\w+)\.sql")
_NEEDS = re.compile(r"^-- needs: (\d+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Migration:
    version: int
    name: str
    text: str

    @property
    def needs(self) -> int:
        """Return the oldest schema whose brokers can use the migrated database."""
        found = _NEEDS.search(self.text)
        return int(found[1]) if found else FIRST


class Applied(NamedTuple):
    """A row of the table `migrations`: a schema that a database has or had."""

    version: int
    hash: str | None
    """Hash of the schema, if it created the tables. None for a migration."""
    needs: int | None
    """Oldest schema whose brokers can use the database. None if an unreleased version wrote the row."""


@dataclass(frozen=True, slots=True)
class Schema:
    text: str
    migrations: tuple[Migration, ...] = ()

    @property
    def version(self) -> int:
        return self.migrations[-1].version if self.migrations else FIRST

    @property
    def needs(self) -> int:
        """Return the oldest schema whose brokers can use a database of this one."""
        return max((migration.needs for migration in self.migrations), default=FIRST)

    @property
    def hash(self) -> str:
        """Return the hash of its statements, without comments and line ends."""
        return hashlib.sha256(" ".join(re.sub(r"--.*", "", self.text).split()).encode()).hexdigest()

    def missing(self, applied: Sequence[Applied], database: str) -> list[Migration]:
        """Return the migrations that a database lacks, given its rows in order. A newer database lacks none.

        A first row without a hash, or a newest version with another text, comes from an unreleased version. Raises
        StoreUnsafe if this version cannot use the database.
        """
        newest, text_hash, _ = applied[-1]
        if applied[0].hash is None or (newest == self.version and text_hash not in (None, self.hash)):
            raise StoreUnsafe(
                f"{database} was made by an unreleased version of Fairlane and cannot be migrated: open an empty"
                " database instead, or go on with the version that made this one; nothing was changed"
            )
        if (needs := max(row.needs or FIRST for row in applied)) > self.version:
            raise StoreUnsafe(
                f"{database} has schema {newest}, which needs schema {needs}, and this Fairlane knows only"
                f" {self.version}: upgrade Fairlane"
            )
        return [migration for migration in self.migrations if migration.version > newest]


def load(package: str) -> Schema:
    """Return the schema of a dialect, from its files in the order of their names.

    `migrations/` is missing until the first release.
    """
    names = sorted(file.name for file in files(package).iterdir() if re.fullmatch(r"schema\w*\.sql", file.name))
    directory = files(package).joinpath("migrations")
    found = []
    for file in directory.iterdir() if directory.is_dir() else ():
        if match := _FILE.fullmatch(file.name):
            found.append(Migration(int(match[1]), match[2], file.read_text(encoding="utf-8")))
    text = "\n".join(read(package, name) for name in names)
    return Schema(text, tuple(sorted(found, key=lambda migration: migration.version)))
