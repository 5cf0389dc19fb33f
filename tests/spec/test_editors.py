"""The TextMate grammar knows the words of the language."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fairlane.spec.declarations import DECLARATIONS
from fairlane.spec.declarations.declaration import SettingCodec, Settings
from fairlane.spec.declarations.webhook import HMAC
from fairlane.spec.settings import SCALARS, SHAPES

GRAMMAR: dict[str, Any] = json.loads((Path(__file__).parents[2] / "editors/fairlane.tmLanguage.json").read_text())


def patterns(node: object) -> list[str]:
    if isinstance(node, dict):
        own = [node[key] for key in ("match", "begin", "end") if key in node]
        return own + [found for value in node.values() for found in patterns(value)]
    return [found for each in node for found in patterns(each)] if isinstance(node, list) else []


def named(word: str, following: str) -> set[str]:
    """Return the scopes of the patterns that match a word with the text after it."""
    rules = [GRAMMAR["repository"][name] for name in ("types", "section")]
    rules += [GRAMMAR["repository"]["setting"]["patterns"][0], *GRAMMAR["repository"]["value"]["patterns"]]
    return {rule["name"] for rule in rules if re.match(rule["match"], word + following)}


def forms(settings: Settings) -> Iterator[tuple[str, str]]:
    for word, setting in settings.items():
        if isinstance(setting, SettingCodec):
            yield word, setting.form
        else:
            yield word, "section"
            yield from forms(setting)


def test_its_patterns_are_regular_expressions() -> None:
    assert all(re.compile(pattern) for pattern in patterns(GRAMMAR))


def test_it_knows_every_declaration_section_setting_and_type() -> None:
    declaration = GRAMMAR["repository"]["declaration"]["match"]
    for kind in ("app", *(declaration.word for declaration in DECLARATIONS)):
        assert re.match(declaration, f"{kind} Name {{")
    for settings in (HMAC, *(declaration.settings for declaration in DECLARATIONS)):
        for word, form in forms(settings):
            assert named(word, ": 1" if form == "setting" else " {"), word
    for word in (*SCALARS, *SHAPES):
        assert "support.type.fairlane" in named(word, " ")
