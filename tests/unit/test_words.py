"""One word for one thing: names, docstrings' first sentences and log lines use the words of docs/concepts.md."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src" / "fairlane"

GONE = {
    "partition": {"home", "homes", "place", "places", "address"},
    "operation": {"kept", "waits", "behind", "held", "buffered"},
    "journal": {"shelter", "sheltered", "aside", "diverted", "buffers"},
    "scheduled": {"timed", "later", "bundle", "bundles", "firing", "firings"},
    "schedule": {"recurring", "definition", "definitions"},
    "pause": {"halt", "halts", "halted", "switch", "switches", "switchboard"},
    "priority": {"rank", "ranks", "boost", "boosts"},
    "dead letter": {"bury", "buried", "exhausted"},
    "browse": {"contents", "reading"},
    "verdict": {"say", "says", "said", "told", "judge", "judged", "settlement", "settlements"},
    "compiled spec": {"programs"},
    "unordered": {"shared", "hands", "handout", "singles"},
}
"""Words that went, by the word that stands for them now."""

EVERYDAY = {
    *("home", "place", "places", "address", "kept", "waits", "behind", "held", "buffered", "aside", "timed", "later"),
    *(
        "definition",
        "contents",
        "reading",
        "say",
        "says",
        "said",
        "told",
        "judge",
        "judged",
        "programs",
        "shared",
        "hands",
    ),
}
"""Sentences may use these as everybody does; names may not."""

STAYS = {
    "address": "of a machine in the network",
    "addresses": "the same",
    "Address": "the same",
    "buffered_messages": "a field on the wire",
    "on_exhausted": "an option of a queue, on the wire and in specs",
    "seconds_held": "a field on the wire",
    "SharedState": "the same",
}
"""Names that hold such a word in another meaning, each with that meaning."""

FILES = sorted(SOURCE.rglob("*.py"))


def words(name: str) -> set[str]:
    return {word.lower() for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", name)}


def names_of(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """What a module defines or binds, with the line."""
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                yield name, node.lineno
            case ast.arg(arg=name):
                yield name, node.lineno
            case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
                yield name, node.lineno


def first_sentences(tree: ast.Module) -> Iterator[tuple[str, int]]:
    """Of the docstrings of a module and its classes."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef) and (text := ast.get_docstring(node)):
            yield re.split(r"(?<=[.:!?])\s", text, maxsplit=1)[0], getattr(node, "lineno", 1)


def log_lines(tree: ast.Module) -> Iterator[tuple[str, int]]:
    levels = {"debug", "info", "warning", "error", "exception", "critical"}
    for node in ast.walk(tree):
        match node:
            case ast.Call(
                func=ast.Attribute(value=ast.Name(id="log" | "_log"), attr=level),
                args=[ast.Constant(value=str(text)), *_],
            ) if level in levels:
                yield text, node.lineno


def gone(text: str, *, sentence: bool = False) -> Iterator[str]:
    found = words(text) - (EVERYDAY if sentence else set())
    for word, others in GONE.items():
        for other in sorted(found & others):
            if text.lstrip("_") not in STAYS:
                yield f"{text!r} has the word {other!r}; the glossary's is {word!r}"


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_a_module_uses_the_words_of_the_glossary(path: Path) -> None:
    tree = ast.parse(path.read_text())
    wrong = [f"{path.name}: {one}" for one in gone(path.stem)]
    for name, line in names_of(tree):
        wrong += [f"{path.name}:{line}: {one}" for one in gone(name)]
    for text, line in (*first_sentences(tree), *log_lines(tree)):
        wrong += [f"{path.name}:{line}: {one}" for one in gone(text, sentence=True)]
    for text, line in first_sentences(tree):
        if re.match(r"(What|Who)\b", text):
            wrong.append(f"{path.name}:{line}: {text!r} does not name the thing first")
    assert not wrong, "\n".join(sorted(set(wrong)))


def test_every_name_that_stays_is_there() -> None:
    there = {name for path in FILES for name, _ in names_of(ast.parse(path.read_text()))} | {
        path.stem for path in FILES
    }
    assert set(STAYS) <= there, "a name that went needs no exception"
