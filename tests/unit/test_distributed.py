"""The SQL forms that a distributed PostgreSQL accepts, checked by reading the SQL: docs/architecture.md, "Cells"."""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib.resources import files

import pytest

from fairlane.store import schema
from fairlane.store.postgres.migrate import functions
from fairlane.store.statements import load
from tests.queen_package import INSTALLED

PACKAGE = "fairlane.store.postgres"


def text() -> str:
    return re.sub(r"--.*", "", schema.load(PACKAGE).text)


@pytest.mark.parametrize("form", ["REFERENCES", "CREATE TRIGGER", r"\bint GENERATED", r"\bserial\b"])
def test_the_schema_has_nothing_that_cannot_be_distributed(form: str) -> None:
    assert re.findall(form, text()) == []


def statements() -> Iterator[tuple[str, str]]:
    """Yield (function, statement) for all functions."""
    for source in (re.sub(r"--.*", "", source) for source in functions()):
        for name, body in re.findall(r"FUNCTION fairlane\.(\w+)\(.*?AS \$\$(.*?)\$\$;", source, re.DOTALL):
            begun = re.split(r"^BEGIN\n", body, maxsplit=1, flags=re.MULTILINE)[-1]
            yield from ((name, one.strip()) for one in re.split(r";|\bTHEN\n|\bELSE\n|\bLOOP\n", begun))


# Their rows come from arrays, and EXISTS decides on each.
READ_BY_EXISTS = {"ack", "ack_unordered"}
SET = r"\bSET\b(?:(?!\bWHERE\b|\bFROM\b).)*?"
TABLE = r"fairlane\.\w+(?![\w(])"
CHANGED = r"^UPDATE fairlane\.\w+ \w+\s+SET\b"
TIME = r"(?: [-+] \w+\.\w*(?:lead|delay|window)\b|\binterval '|make_interval\()"
FORMS = {
    "an element of an array in SET": (SET + r"=\s*\w+\[", set()),
    "the time in a statement that writes": (r"^(?:WITH .*?)?(?:INSERT|UPDATE|DELETE)\b.*\bclock_timestamp\(\)", set()),
    "a subquery in VALUES": (r"\bVALUES \((?:(?!\)\s*ON CONFLICT).)*\bSELECT\b", set()),
    # The home is never distributed.
    "an INSERT of what a statement reads from tables": (
        rf"^INSERT INTO.*\bSELECT\b.*\b(?:FROM|JOIN) {TABLE}",
        {"place"} | READ_BY_EXISTS,
    ),
    "a function called for each row that is set": (
        SET + r"\bfairlane\.(?!never\(|at_us\(|add_to_history\()\w+\(",
        set(),
    ),
    "a time computed in an UPDATE": (rf"{CHANGED}.*{TIME}", set()),
    "a time computed in RETURNING": (rf"\bRETURNING\b[^)]*{TIME}", set()),
    # Existing exceptions, which insert from another CTE. None may be added.
    "an INSERT in a CTE": (r"\bAS \(\s*INSERT\b", {"ack", "trim_log"}),
}


@pytest.mark.parametrize("form", FORMS)
def test_functions_avoid_what_a_distributed_database_refuses(form: str) -> None:
    pattern, known = FORMS[form]
    assert {name for name, statement in statements() if re.search(pattern, statement, re.DOTALL)} == known


def brokers_statements() -> Iterator[tuple[str, str]]:
    """Yield (name, statement) for all statements of the broker."""
    packages = [(PACKAGE, None), ("fairlane.store.families", "postgres")]
    packages += [("fairlane.queen.store", "postgres")] if INSTALLED else []
    for package, dialect in packages:
        for file in [file.name for file in files(package).iterdir() if file.name.endswith(".sql")]:
            for name, statement in load(package, file, dialect).items():
                yield f"{file.removesuffix('.sql')}.{name}", statement


BROKERS_FORMS = {
    # These statements are of the home.
    "the time in DO UPDATE": (r"\bDO UPDATE SET\b.*\bclock_timestamp\(\)", {"leadership.lead", "sources.lease"}),
    "the time in an INSERT of what a statement reads from tables": (
        rf"\bINSERT INTO\b(?=.*\bclock_timestamp\(\)).*\bSELECT\b.*\b(?:FROM|JOIN) {TABLE}",
        {"specs.record", "streams.insert"},
    ),
}


@pytest.mark.parametrize("form", BROKERS_FORMS)
def test_statements_of_the_broker_avoid_what_a_distributed_database_refuses(form: str) -> None:
    pattern, known = BROKERS_FORMS[form]
    assert {name for name, statement in brokers_statements() if re.search(pattern, statement, re.DOTALL)} <= known


def test_no_rows_are_compared_with_rows_that_a_subquery_reads_from_tables() -> None:
    """They are joined instead: `WITH o AS MATERIALIZED (...) DELETE ... USING o`."""
    pattern = r"(?s)\(\w+\.\w+, [\w., ]+\) IN \(\s*SELECT\b(?:(?!\bunnest\().)*?\bFROM fairlane\."
    assert [name for name, statement in (*brokers_statements(), *statements()) if re.search(pattern, statement)] == []


def test_views_call_no_function_that_reads_tables() -> None:
    """Other sessions do not allow nested execution."""
    [views] = [source for source in functions() if "CREATE VIEW fairlane.lanes" in source]
    assert set(re.findall(r"\bfairlane\.(\w+)\(", re.sub(r"--.*", "", views))) == {"never"}


def test_parameters_are_cast_inside_functions() -> None:
    pattern = r"\bfairlane\.\w+\((?!\))[^;]*(?:\$\d+|[ (]:\w+)::"
    found = {name for name, statement in brokers_statements() if re.search(pattern, statement)}
    # Arrays of numbers that the broker sends as text, and values whose type only the call tells.
    assert found == {"messages.push", "queues.set_priority", "scheduled.add", "scheduled.ensure_partition"}
