"""Named SQL statements: each exists, is used, and has the same name in both dialects unless marked with a reason."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import apsw
import pytest

import fairlane.store
from fairlane.store.postgres.migrate import functions
from fairlane.store.statements import for_sqlite

STORE = Path(fairlane.store.__file__).parent
DIALECTS = ("sqlite", "postgres")
_NAME = re.compile(r"^-- name: (\w+)(?: \((.*)\))?$", re.MULTILINE)


def of_families(suffix: str) -> list[Path]:
    """Return the files of the families, including those of Queen's package if it is installed."""
    folders = (STORE / "families", STORE.parent / "queen" / "store")
    return [file for folder in folders for file in folder.glob(f"*.{suffix}")]


@cache
def named(dialect: str) -> dict[str, dict[str, tuple[str, str]]]:
    """Return {family: {statement: (mark, text)}}. The mark is the text after the dialect, if any."""
    found: dict[str, dict[str, tuple[str, str]]] = {}
    [other] = set(DIALECTS) - {dialect}
    for file in [*(STORE / dialect).glob("*.sql"), *of_families("sql")]:
        parts = _NAME.split(file.read_text(encoding="utf-8"))
        names = {
            name: ((mark or "").removeprefix(dialect).removeprefix(", "), text)
            for name, mark, text in zip(parts[1::3], parts[2::3], parts[3::3], strict=True)
            if not (mark or "").startswith(other)
        }
        if names:
            found[file.stem] = found.get(file.stem, {}) | names
    return found


class Module:
    """Names that a module of a dialect uses for the statements of each file."""

    def __init__(self, dialect: str, name: str) -> None:
        self.tree = ast.parse((STORE / dialect / f"{name}.py").read_text(encoding="utf-8"))
        self.families: dict[str, str] = {}
        package = f"fairlane.store.{dialect}."
        for node in self.tree.body:
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(package):
                there = module(dialect, (node.module or "").removeprefix(package)).families
                self.families |= {one.asname or one.name: there[one.name] for one in node.names if one.name in there}
            if isinstance(node, ast.Assign | ast.AnnAssign) and isinstance(node.value, ast.Call):
                target = node.targets[0] if isinstance(node, ast.Assign) else node.target
                called = ast.unparse(node.value.func)
                if called in ("load", "statements.load") and isinstance(target, ast.Name):
                    self.families[target.id] = ast.literal_eval(node.value.args[1]).removesuffix(".sql")

    def asked(self) -> Iterator[tuple[str, ast.expr]]:
        """Return (family, key) of every statement lookup."""
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Subscript) and ast.unparse(node.value) in self.families:
                yield self.families[ast.unparse(node.value)], node.slice


@cache
def module(dialect: str, name: str) -> Module:
    return Module(dialect, name)


def modules(dialect: str) -> list[Module]:
    return [module(dialect, file.stem) for file in sorted((STORE / dialect).glob("*.py"))]


@cache
def strings(dialect: str) -> set[str]:
    """Return every string in the Python code of the dialect and of the shared code."""
    trees = [one.tree for one in modules(dialect)]
    trees += [
        ast.parse(file.read_text(encoding="utf-8"))
        for folder in (STORE, STORE / "contract")
        for file in folder.glob("*.py")
    ]
    nodes = (node for tree in trees for node in ast.walk(tree))
    return {node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)}


def keys(dialect: str, key: ast.expr, among: set[str]) -> set[str]:
    """Return the statements that a lookup may mean: by name, by a name with placeholders, or by any string."""
    if isinstance(key, ast.Constant):
        return {str(key.value)}
    if isinstance(key, ast.JoinedStr):
        parts = [re.escape(str(part.value)) if isinstance(part, ast.Constant) else "(.+)" for part in key.values]
        matches = {name: re.fullmatch("".join(parts), name) for name in among}
        return {name for name, match in matches.items() if match and set(match.groups()) <= strings(dialect)}
    return among & strings(dialect)


def asked_by(file: Path) -> set[str]:
    """Return the statements that a family looks up by a name, parts of which may be placeholders."""
    return set(re.findall(r'"(\w+\.[\w{}]+)"', file.read_text(encoding="utf-8")))


@pytest.mark.parametrize("dialect", DIALECTS)
def test_every_statement_is_used_and_every_one_used_is_there(dialect: str) -> None:
    used = set()
    for one in modules(dialect):
        for family, key in one.asked():
            used |= {f"{family}.{name}" for name in keys(dialect, key, set(named(dialect)[family]))}
    there = {f"{family}.{name}" for family, names in named(dialect).items() for name in names}
    asking = [*of_families("py"), STORE / dialect / "dialect.py"]
    asked = set().union(*(asked_by(file) for file in asking))
    used |= {name for name in asked if "{" not in name}
    used |= {name for name in there for one in asked if re.fullmatch(re.sub(r"\{.*?\}", r"\\w+", one), name)}
    if dialect == "sqlite":
        used -= {
            f"{family}.{name}"
            for family, names in named("postgres").items()
            for name in names
            if names[name][0] == "lock"
        }
    assert sorted(there - used) == [], "not used"
    assert sorted(used - there) == [], "not there"


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_statement_has_the_same_name_in_both_dialects_or_is_marked_why_not(dialect: str) -> None:
    """CONTRIBUTING.md describes the marks behind a name."""
    [other] = set(DIALECTS) - {dialect}
    elsewhere = {name for names in named(other).values() for name in names}
    if other == "postgres":
        elsewhere |= set(re.findall(r"FUNCTION fairlane\.(\w+)\(", "".join(functions())))
    wrong = []
    for family, names in named(dialect).items():
        alone = (STORE / dialect / f"{family}.sql").exists() and not (STORE / other / f"{family}.sql").exists()
        if alone and (STORE / dialect / f"{family}.sql").read_text(encoding="utf-8").startswith("-- Only here: "):
            continue
        for name, (mark, text) in names.items():
            if name in named(other).get(family, {}):
                right = not mark
            elif mark == "lock":
                locks = r"\bFOR (NO KEY |KEY )?(UPDATE|SHARE)\b|\bpg_advisory_xact_lock\("
                right = re.search(locks, text) is not None
            elif mark == "steps":
                right = dialect == "postgres" and re.search(r"\bfairlane\.\w+\(", text) is not None
            else:
                kind, _, where = (mark or "").partition(" ")
                right = (kind == "in" and where in elsewhere) or (mark or "").startswith("only here: ")
            if not right:
                wrong.append((family, name, mark))
    assert wrong == []


NEWER = {
    "pg_input_is_valid": "16",
    "STORAGE EXTERNAL NOT": "16: of a column in CREATE TABLE; ALTER TABLE has it",
    "STORAGE EXTERNAL,": "16",
    "any_value": "16",
    "MERGE": "15 has it without RETURNING",
    "json_table": "17",
    "uuidv7": "18",
}
"""SQL forms that PostgreSQL 15, the oldest supported version, does not have."""


def test_no_statement_needs_a_newer_postgresql_than_the_broker_accepts() -> None:
    found = [
        f"{file.name}: {form} ({since})"
        for file in [*(STORE / "postgres").rglob("*.sql"), *of_families("sql")]
        for form, since in NEWER.items()
        if re.search(rf"\b{form}", re.sub(r"--.*|SET STORAGE EXTERNAL", "", file.read_text(encoding="utf-8")))
    ]
    assert found == []


def test_functions_and_their_callers_speak_in_words() -> None:
    """A state such as `stored` or `gone` is readable in SQL and in Python. A letter is not."""
    sql = list((STORE / "postgres" / "functions").glob("*.sql"))
    letters = [
        f"{file.name}: {letter}"
        for file in [*sql, STORE / "families" / "browse.sql"]
        for letter in re.findall(r"'[a-z]'(?!\w)", file.read_text(encoding="utf-8"))
    ]
    for file in (STORE / "postgres").glob("*.py"):
        tree = ast.parse(file.read_text(encoding="utf-8"))
        formats = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
        values = [node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and id(node) not in formats]
        letters += [
            f"{file.name}: {value!r}"
            for value in values
            if isinstance(value, str | bytes) and len(value) == 1 and value.islower()
        ]
    assert letters == []


def test_most_statements_of_families_are_written_once(capsys: pytest.CaptureFixture[str]) -> None:
    texts = [file.read_text(encoding="utf-8") for file in of_families("sql")]
    marks = [(name, mark) for text in texts for name, mark in _NAME.findall(text)]
    once = sum(not mark for _, mark in marks)
    twice = sum(mark.startswith("sqlite") for _, mark in marks)
    with capsys.disabled():
        sys.stdout.write(f"\n{once} of {once + twice} statements that both dialects have are written once\n")
    assert once >= 0.6 * (once + twice)


def test_several_lists_become_the_rows_of_one_subquery_on_sqlite() -> None:
    text = for_sqlite("SELECT u.id, u.name FROM unnest(:ids::bigint[], :names::text[]) u(id, name)")
    rows = apsw.Connection(":memory:").execute(text, {"ids": "[7, 9]", "names": '["a", "b"]'}).fetchall()
    assert rows == [(7, "a"), (9, "b")]
