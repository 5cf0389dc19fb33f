"""The schema of both dialects: creation, migration of older versions, and versions that are refused."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

import apsw
import asyncpg
import pytest

from fairlane.errors import StoreUnsafe
from fairlane.store import schema
from fairlane.store.postgres.migrate import migrate as migrate_postgres
from fairlane.store.schema import FIRST, Migration, Schema
from fairlane.store.sqlite.migrate import migrate as migrate_sqlite
from tests.catalogue import postgres_schema, sqlite_schema
from tests.conftest import FreshDatabase
from tests.postgres import PostgresServer

T = TypeVar("T")
DIALECTS = ("sqlite", "postgres")
RELEASED = Path(__file__).parent.parent / "released"
"""The schema.sql of each release with its own tables, as <dialect>/<version>.sql."""


class Sqlite:
    def __init__(self, path: Path) -> None:
        self._path = path

    async def run(self, *statements: str) -> None:
        def work(db: apsw.Connection) -> None:
            for statement in statements:
                db.execute(statement.replace("fairlane.", ""))

        await asyncio.to_thread(self._with, work)

    async def migrate(self) -> dict[str, Any]:
        await asyncio.to_thread(self._with, migrate_sqlite)
        return await asyncio.to_thread(self._with, sqlite_schema)

    def _with(self, work: Callable[[apsw.Connection], T]) -> T:
        with contextlib.closing(apsw.Connection(str(self._path))) as db:
            return work(db)


class Postgres:
    def __init__(self, url: str) -> None:
        self._url = url

    async def run(self, *statements: str) -> None:
        connection = await asyncpg.connect(self._url)
        try:
            for statement in statements:
                await connection.execute(statement)
        finally:
            await connection.close()

    async def migrate(self) -> dict[str, Any]:
        connection = await asyncpg.connect(self._url)
        try:
            await migrate_postgres(connection)
            return await postgres_schema(connection)
        finally:
            await connection.close()


Made = Sqlite | Postgres
Make = Callable[[], Awaitable[Made]]


@pytest.fixture(params=DIALECTS)
def dialect(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def known(dialect: str) -> Schema:
    return schema.load(f"fairlane.store.{dialect}")


@pytest.fixture
def make(dialect: str, tmp_path: Path, request: pytest.FixtureRequest) -> Make:
    """A function that creates an empty database of the dialect."""
    if dialect == "sqlite":
        paths = (tmp_path / f"{n}.db" for n in range(10))

        async def make_file() -> Made:
            return Sqlite(next(paths))

        return make_file
    server: PostgresServer = request.getfixturevalue("postgres18")
    fresh: FreshDatabase = request.getfixturevalue("fresh_database")

    async def make_database() -> Made:
        return Postgres(await fresh(server))

    return make_database


def as_released(text: str, version: int) -> tuple[str, str]:
    """Create the tables as an earlier release did."""
    return text, (
        "INSERT INTO fairlane.migrations (version, name, hash, applied_at, needs)"
        f" VALUES ({version}, 'schema', '{Schema(text).hash}', '2026-01-01', 1)"
    )


async def test_a_migrated_database_is_as_a_fresh_one(dialect: str, known: Schema, make: Make) -> None:
    releases = {int(file.stem): file.read_text() for file in RELEASED.glob(f"{dialect}/*.sql")}
    assert releases or not known.migrations, (
        "a migration is made from a release, whose schema is kept in tests/released"
    )
    fresh = await (await make()).migrate()
    for version, text in (releases or {FIRST: known.text}).items():
        database = await make()
        await database.run(*as_released(text, version))
        assert await database.migrate() == fresh


async def test_a_release_behind_is_migrated(
    dialect: str, known: Schema, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    database = await make()
    await database.migrate()
    await database.run("DROP VIEW fairlane.messages")
    later = next_schema(dialect, known)
    monkeypatch.setattr(schema, "load", lambda package: later)
    migrated = await database.migrate()
    assert migrated == await (await make()).migrate()
    assert migrated == await database.migrate(), "and again, which changes nothing"
    assert any("notes" in row for row in migrated["tables"])
    monkeypatch.undo()
    assert migrated == await database.migrate(), "the previous version can use it, and changes nothing"


def next_schema(dialect: str, known: Schema, header: str = "") -> Schema:
    """Return the schema after one more migration."""
    notes = f"{header}CREATE TABLE {'fairlane.' if dialect == 'postgres' else ''}notes (id integer PRIMARY KEY);"
    return Schema(known.text + notes, (*known.migrations, Migration(known.version + 1, "notes", notes)))


async def test_a_schema_that_needs_a_newer_version_is_refused_by_older_ones(
    dialect: str, known: Schema, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    migrated, new = await make(), await make()
    await migrated.migrate()
    later = next_schema(dialect, known, f"-- needs: {known.version + 1}\n")
    monkeypatch.setattr(schema, "load", lambda package: later)
    before = [await migrated.migrate(), await new.migrate()]
    monkeypatch.undo()
    for database in (migrated, new):
        with pytest.raises(StoreUnsafe, match="upgrade Fairlane"):
            await database.migrate()
    monkeypatch.setattr(schema, "load", lambda package: later)
    assert before == [await migrated.migrate(), await new.migrate()]


@pytest.mark.parametrize(
    "made",
    ["ALTER TABLE fairlane.migrations DROP COLUMN hash", "UPDATE fairlane.migrations SET hash = 'other'"],
    ids=["long ago", "of another text"],
)
async def test_the_database_of_an_unreleased_version_is_refused(make: Make, made: str) -> None:
    database = await make()
    await database.migrate()
    await database.run(made)
    with pytest.raises(StoreUnsafe, match="open an empty database instead"):
        await database.migrate()


def test_comments_do_not_make_another_schema() -> None:
    assert Schema("create table a (\n  b text -- c\n);").hash == Schema("-- A.\ncreate table a ( b text );").hash
    assert Schema("create table a (b text);").hash != Schema("create table a (c text);").hash


BREAKING = re.compile(
    r"\bdrop (table|column|function|type|default)\b|\brename\b|\bset (data )?type\b|alter column \w+ type\b"
    r"|\bset not null\b|\badd (constraint|check|unique|foreign|primary)\b"
    r"|\badd column [^;,]* not null(?![^;,]*\bdefault\b)"
    r"|\bcreate (unique index|trigger|rule)\b|\btruncate\b"
)
"""Statements after which a broker of the previous version would fail, or would not read what it wrote."""


def breaks(migration: Migration) -> bool:
    statements = " ".join(re.sub(r"--.*", "", migration.text).lower().split())
    return migration.needs == FIRST and BREAKING.search(statements) is not None


def test_migrations_only_add_or_say_which_brokers_they_need(dialect: str, known: Schema) -> None:
    """A release removes nothing that brokers of the previous release use."""
    assert [migration.name for migration in known.migrations if breaks(migration)] == []
    released = [int(file.stem) for file in RELEASED.glob(f"{dialect}/*.sql")]
    assert known.needs <= max(released, default=FIRST), "brokers of the previous release must be able to go on"


@pytest.mark.parametrize(
    ("statement", "breaking"),
    [
        ("CREATE TABLE a (b int NOT NULL, UNIQUE (b)); CREATE INDEX c ON a (b); DROP VIEW v; DROP INDEX d", False),
        ("ALTER TABLE a ADD COLUMN b int; ALTER TABLE a ADD COLUMN c int NOT NULL DEFAULT 0", False),
        ("ALTER TABLE a ADD COLUMN b int NOT NULL", True),
        ("ALTER TABLE a ADD COLUMN b int DEFAULT 0, ADD COLUMN c text\n NOT NULL", True),
        ("ALTER TABLE a DROP COLUMN b", True),
        ("ALTER TABLE a RENAME b TO c", True),
        ("ALTER TABLE a ALTER COLUMN b TYPE bigint", True),
        ("ALTER TABLE a ALTER b SET NOT NULL", True),
        ("ALTER TABLE a ADD CONSTRAINT c CHECK (b > 0)", True),
        ("CREATE UNIQUE INDEX c ON a (b)", True),
        ("DROP FUNCTION a(int)", True),
        ("DROP TABLE a", True),
    ],
)
def test_a_migration_that_would_stop_running_brokers_is_found(statement: str, breaking: bool) -> None:
    assert breaks(Migration(2, "next", statement)) is breaking
    assert not breaks(Migration(3, "next", f"-- needs: 2\n{statement}"))


def test_every_migration_has_its_own_number(known: Schema) -> None:
    assert [one.version for one in known.migrations] == list(range(FIRST + 1, known.version + 1))


def test_every_table_view_and_index_says_what_it_is_for(known: Schema) -> None:
    lines = known.text.splitlines()
    made = [n for n, line in enumerate(lines) if re.match(r"create( unique)? (table|index|view)", line, re.IGNORECASE)]
    assert len(made) > 60
    assert [lines[n] for n in made if not lines[n - 1].startswith("-- ") and "  -- " not in lines[n]] == []
