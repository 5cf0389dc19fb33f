"""What a distributed PostgreSQL needs of the SQL, as far as reading it can tell: docs/architecture.md, "Sharding"."""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib.resources import files

import pytest

from fairlane.store import schema
from fairlane.store.postgres.migrate import functions

PACKAGE = "fairlane.store.postgres"

# The same on every node: written seldom, or by one broker for all.
REFERENCE = {
    *("migrations", "functions", "shards", "tenants", "queues", "groups", "purges", "catalogue", "catalogue_changes"),
    *("retention_rules", "stream_queries", "schedules", "sources", "specs", "workers", "data_keys", "flags"),
    *("leadership", "declared_queues", "api_keys", "sessions", "audit_entries", "audit_head"),
}


def text() -> str:
    return re.sub(r"--.*", "", schema.load(PACKAGE).text)


def tables() -> dict[str, str]:
    return dict(re.findall(r"CREATE TABLE fairlane\.(\w+) \((.*?)\)(?: WITH [^;]*)?;", text(), re.DOTALL))


def keys() -> Iterator[tuple[str, str]]:
    """(table, columns) of every primary key and every unique constraint or index."""
    for table, body in tables().items():
        yield from ((table, key) for key in re.findall(r"(?:PRIMARY KEY|UNIQUE) \(([^)]*)\)", body))
        yield from ((table, key) for key in re.findall(r"(\w+) [^,\n]*?(?:PRIMARY KEY|UNIQUE)(?! \()", body))
    yield from re.findall(r"CREATE UNIQUE INDEX \w+ ON fairlane\.(\w+) \(([^)]*)\)", text())


def test_a_table_is_sharded_or_the_same_everywhere() -> None:
    sharded = {table for table, body in tables().items() if re.match(r"\s*shard int NOT NULL,", body)}
    assert not sharded & REFERENCE
    assert set(tables()) == sharded | REFERENCE


def test_every_key_of_a_sharded_table_begins_with_the_shard() -> None:
    found = [(table, key) for table, key in keys() if table not in REFERENCE]
    assert len(found) > 20
    assert [(table, key) for table, key in found if not key.startswith("shard,")] == []


@pytest.mark.parametrize("form", ["REFERENCES", "CREATE TRIGGER", r"\bint GENERATED", r"\bserial\b"])
def test_the_schema_has_nothing_that_cannot_be_distributed(form: str) -> None:
    assert re.findall(form, text()) == []


def statements() -> Iterator[tuple[str, str]]:
    """(function, statement) of all functions."""
    for source in (re.sub(r"--.*", "", source) for source in functions()):
        for name, body in re.findall(r"FUNCTION fairlane\.(\w+)\(.*?AS \$\$(.*?)\$\$;", source, re.DOTALL):
            begun = re.split(r"^BEGIN\n", body, maxsplit=1, flags=re.MULTILINE)[-1]
            yield from ((name, one.strip()) for one in re.split(r";|\bTHEN\n|\bELSE\n|\bLOOP\n", begun))


SET = r"\bSET\b(?:(?!\bWHERE\b|\bFROM\b).)*?"
FORMS = {
    "an element of an array in SET": (SET + r"=\s*\w+\[", set()),
    "the time in a statement that writes": (r"^(?:WITH .*?)?(?:INSERT|UPDATE|DELETE)\b.*\bclock_timestamp\(\)", set()),
    "a subquery in VALUES": (r"\bVALUES \((?:(?!\)\s*ON CONFLICT).)*\bSELECT\b", set()),
    # Those below are still there; none may be added.
    "an INSERT in a CTE": (r"\bAS \(\s*INSERT\b", {"ack", "trim_log"}),
    "a function called for each row that is set": (
        SET + r"\bfairlane\.(?!never\(|at_us\(|earlier\()\w+\(",
        {"delete_message", "forget_below", "resume_lanes", "ack_unordered"},
    ),
}


@pytest.mark.parametrize("form", FORMS)
def test_functions_avoid_what_a_distributed_database_refuses(form: str) -> None:
    pattern, known = FORMS[form]
    assert {name for name, statement in statements() if re.search(pattern, statement, re.DOTALL)} == known


def test_parameters_are_cast_inside_functions() -> None:
    found = set()
    own = [file for file in files(PACKAGE).iterdir() if file.name.endswith(".sql")]
    shared = [file for file in files("fairlane.store.families").iterdir() if file.name.endswith(".postgres.sql")]
    for file in [*own, *shared]:
        for part in file.read_text(encoding="utf-8").split("-- name: ")[1:]:
            if re.search(r"\bfairlane\.\w+\((?!\))[^;]*(?:\$\d+|[ (]:\w+)::", part):
                found.add(f"{file.name.partition('.')[0]}.{part.split()[0]}")
    # Arrays of numbers that the broker sends as text, and values whose type only the call tells.
    assert found == {"messages.push", "queues.set_priority", "scheduled.add", "scheduled.born"}
