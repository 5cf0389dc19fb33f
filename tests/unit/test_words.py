"""Words and sentences: public names use the glossary of docs/concepts.md, and prose avoids stilted phrases."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from tests import prose
from tests.prose import ROOT

SOURCE = ROOT / "src" / "fairlane"

REPLACED = {
    "partition": {"place", "places", "address"},
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
"""Words that public names must not use, by the word of the glossary."""

EXCEPTIONS = {
    "address": "a network address",
    "addresses": "network addresses",
    "Address": "a network address",
    "buffered_messages": "a field on the wire",
    "on_exhausted": "an option of a queue, on the wire and in specs",
    "seconds_held": "a field on the wire",
    "SharedState": "state that the processes of a broker share",
    "threads_exhausted": "a worker without threads",
}
"""Public names that use such a word in another sense, each with that sense."""

FILES = sorted(SOURCE.rglob("*.py"))


def words(name: str) -> set[str]:
    return {word.lower() for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", name)}


def public_names(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """Yield the public functions, classes, parameters and attributes of a module, each with its line."""
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                yield name, node.lineno
            case ast.arg(arg=name) | ast.Attribute(attr=name, ctx=ast.Store()):
                yield name, node.lineno
            case ast.Module(body=body):
                for one in body:
                    yield from assigned(one)
        if isinstance(node, ast.ClassDef):
            for one in node.body:
                yield from assigned(one)


def assigned(node: ast.stmt) -> Iterator[tuple[str, int]]:
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
    for target in targets:
        if isinstance(target, ast.Name):
            yield target.id, node.lineno


def wrong_words(name: str) -> Iterator[str]:
    if name.startswith("_") or name in EXCEPTIONS:
        return
    for word, others in REPLACED.items():
        for other in sorted(words(name) & others):
            yield f"{name!r} has the word {other!r}; the glossary has {word!r}"


def test_public_names_use_the_words_of_the_glossary() -> None:
    wrong = []
    for path in FILES:
        names = [(path.stem, 1), *public_names(ast.parse(path.read_text()))]
        wrong += [f"{path.relative_to(SOURCE)}:{line}: {one}" for name, line in names for one in wrong_words(name)]
    assert not wrong, "\n".join(wrong)


def test_every_exception_of_the_glossary_is_still_a_name() -> None:
    names = {name for path in FILES for name, _ in public_names(ast.parse(path.read_text()))}
    assert set(EXCEPTIONS) <= names | {path.stem for path in FILES}


def test_prose_avoids_phrases_that_readers_stumble_over() -> None:
    everything = [ROOT / name for name in ("src", "tests", "docs", "bench", "examples")]
    pages = [file for file in ROOT.glob("*.md") if file.name != "CHANGELOG.md"]
    found = [line for file in prose.files(*everything, *pages) for line in prose.findings(file)]
    assert not found, "\n".join(found)


def test_the_prose_check_finds_openings_and_phrases(tmp_path: Path) -> None:
    file = tmp_path / "sample.py"
    file.write_text('"""Of the first."""\n\n"""The number of so many items."""\nx = 1  # whoever asks\n"""A lane."""\n')
    assert [line.split(": ")[1] for line in prose.findings(file)] == ["'Of'", "'so many'", "'whoever'"]
