"""Schema versions. `schema*.sql` creates a new database at the newest one; `migrations/` upgrades a released one."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files

from fairlane.errors import StoreUnsafe
from fairlane.store.statements import read

FIRST = 1  # version of the first release; files in migrations/ start at the next
_FILE = re.compile(r"(\d{4})_(\w+)\.sql")


@dataclass(frozen=True, slots=True)
class Migration:
    version: int
    name: str
    text: str


@dataclass(frozen=True, slots=True)
class Schema:
    text: str
    migrations: tuple[Migration, ...] = ()

    @property
    def version(self) -> int:
        return self.migrations[-1].version if self.migrations else FIRST

    @property
    def hash(self) -> str:
        """Return the hash of its statements, without comments and line ends."""
        return hashlib.sha256(" ".join(re.sub(r"--.*", "", self.text).split()).encode()).hexdigest()

    def missing(self, applied: Sequence[tuple[int, str | None]], database: str) -> list[Migration]:
        """Return the migrations that a database lacks, given its (version, hash) rows in order.

        Migrated rows have no hash. So a first row without one, or a newest version with another text, comes from an
        unreleased version. Raises StoreUnsafe if the database cannot be upgraded.
        """
        newest, text_hash = applied[-1]
        if applied[0][1] is None or (newest == self.version and text_hash not in (None, self.hash)):
            raise StoreUnsafe(
                f"{database} was made by an unreleased version of Fairlane and cannot be migrated: open an empty"
                " database instead, or go on with the version that made this one; nothing was changed"
            )
        if newest > self.version:
            raise StoreUnsafe(
                f"{database} has schema {newest} and this Fairlane knows only {self.version}: upgrade Fairlane"
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
