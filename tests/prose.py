"""A check of the prose in docstrings, comments and pages for turns of phrase that readers stumble over.

`python -m tests.prose [PATH...]` prints every place. The rules behind the
patterns are in CONTRIBUTING.md, "How we write".
"""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]

OPENINGS = {
    r"Of\b|Nor\b|Neither\b|Than\b|And\b|Or\b|But\b|Until\b|Also\b": "begin a whole sentence",
    r"Those\b|That of\b|The same(?: back| of|[.,:])": "name the thing",
    r"What\b|Which\b|Where\b": "use a noun, or Return and what is returned",
    r"Who\b|Whom\b|Whose\b|Whoever\b|Nobody\b|Somebody\b|Everybody\b": "name the caller, client or user",
    r"Whether\b": "write True if, or Return True if",
    r"How (?:many|much|long|often)\b": "write number, size or seconds",
    r"As (?:the|who|what|it|they|one|those|if|far|many)\b": "say what it is",
    r"(?:By|For) (?:its|their|our|which|whom|what|who|those)\b": "say what it is",
    r"Nothing (?:of|is|more)\b|Known is\b|Everything about\b": "name the thing",
}
"""Openings of a docstring, with what to write instead."""

INSIDE = {
    r"so (?:many|much)\b(?!.* that\b)|for so long\b": "name the number: `limit`, this many",
    r"whoever\b|(?:^|[.;:] )who (?!are\b)\w+": "name the caller, client or user",
    r"who (?:asks|waits|calls|came|made|holds|pops|pushes|reads)\b": "name the caller, client or user",
    r"what (?:became|came|is there|there is|it (?:has|is|says|knows|met))\b": "use a noun: the result, the contents",
    r"(?:is|are) told\b|tells (?:that|what|how|of|it|them)\b": "use show, report, return or notify",
    r"as is usual\b|like nearly\b|is (?:no|none) \w+ but": "say when it applies",
    r"(?:that|those) of (?:a|an|the|its)\b|of whom\b": "name the thing",
    r"to and fro\b|at hand\b|in (?:its|their|somebody's) hands\b|a look\b": "use the word of the trade",
    r"of its own accord\b|goes on by itself\b|anew\b|beforehand\b|henceforth\b": "use again, in advance, automatically",
}
"""Turns of phrase anywhere in a text, with what to write instead."""

_OPENINGS = [(re.compile(pattern), hint) for pattern, hint in OPENINGS.items()]
_INSIDE = [(re.compile(rf"(?:\b|(?<=\W)){pattern}", re.IGNORECASE), hint) for pattern, hint in INSIDE.items()]


def files(*paths: Path) -> Iterator[Path]:
    """Yield the files below `paths` that have prose. The changelog and licences are not checked."""
    for path in paths:
        for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
            if file.suffix in {".py", ".md", ".sql", ".js"} and not {"__pycache__", "vendor", "golden"} & {*file.parts}:
                yield file


def prose(file: Path) -> Iterator[tuple[int, str, bool]]:
    """Yield (line, text, True if it opens a docstring) for each line of prose in a file."""
    text = file.read_text(encoding="utf-8")
    if file.suffix == ".py":
        for node in ast.walk(ast.parse(text)):
            match node:
                case ast.Expr(value=ast.Constant(value=str(docstring))):
                    for number, line in enumerate(docstring.splitlines()):
                        yield node.lineno + number, line.strip(), number == 0
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type == tokenize.COMMENT and not re.match(r"# ?(?:type:|noqa|!)", token.string):
                yield token.start[0], token.string.lstrip("#: "), False
    elif file.suffix == ".md":
        fenced = False
        for number, line in enumerate(text.splitlines(), 1):
            fenced ^= line.startswith("```")
            if not fenced:
                # Names of tests, fields and commands are not prose.
                yield number, re.sub(r"`[^`]*`", "`", line), False
    else:
        for number, line in enumerate(text.splitlines(), 1):
            if found := re.match(r"\s*(?:--|//) (?!name: )(.*)", line):
                yield number, found[1], False


def findings(file: Path) -> Iterator[str]:
    """Yield one line of report for each place in a file that breaks a pattern."""
    for number, text, opens in prose(file):
        patterns = [*_INSIDE, *(_OPENINGS if opens else [])]
        for pattern, hint in patterns:
            if found := (pattern.match(text) if (pattern, hint) in _OPENINGS else pattern.search(text)):
                name = file.relative_to(ROOT) if file.is_relative_to(ROOT) else file.name
                yield f"{name}:{number}: {found[0].strip()!r}: {hint}: {text[:100]}"
                break


def main(*paths: str) -> None:
    """Print the findings of all given paths, and their number."""
    chosen = [Path(path).resolve() for path in paths] or [ROOT / "src", ROOT / "docs", ROOT / "README.md"]
    found = [line for file in files(*chosen) for line in findings(file)]
    sys.stdout.write("".join(f"{line}\n" for line in found) + f"{len(found)} findings\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
