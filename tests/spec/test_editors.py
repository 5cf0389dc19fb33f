"""The TextMate grammar knows the words of the language."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from fairlane.spec import compile, compile_poller, compile_queue, compile_schedule, compile_types, compile_webhook
from fairlane.spec.settings import QUEUE_SETTINGS

GRAMMAR: dict[str, Any] = json.loads((Path(__file__).parents[2] / "editors/fairlane.tmLanguage.json").read_text())


def patterns(node: object) -> list[str]:
    if isinstance(node, dict):
        own = [node[key] for key in ("match", "begin", "end") if key in node]
        return own + [found for value in node.values() for found in patterns(value)]
    return [found for each in node for found in patterns(each)] if isinstance(node, list) else []


def named(word: str, following: str) -> set[str]:
    """The scopes of the patterns that match a word before what follows it."""
    rules = [GRAMMAR["repository"][name] for name in ("types", "section")]
    rules += [GRAMMAR["repository"]["setting"]["patterns"][0], *GRAMMAR["repository"]["value"]["patterns"]]
    return {rule["name"] for rule in rules if re.match(rule["match"], word + following)}


def test_its_patterns_are_regular_expressions() -> None:
    assert all(re.compile(pattern) for pattern in patterns(GRAMMAR))


def test_it_knows_every_declaration_section_setting_and_type() -> None:
    declaration = GRAMMAR["repository"]["declaration"]["match"]
    for kind in ("app", *compile.KINDS):
        assert re.match(declaration, f"{kind} Name {{")
    forms = compile_queue.QUEUE | compile_webhook.COMMAND | compile_webhook.WEBHOOK | compile_webhook.HMAC
    forms |= compile_schedule.SCHEDULE | compile_poller.POLLER
    for section in QUEUE_SETTINGS.values():
        forms |= dict.fromkeys(section, "setting")
    for word, form in forms.items():
        assert named(word, ": 1" if form == "setting" else " {"), word
    for word in (*compile_types.SCALARS, *compile_types.OTHERS):
        assert "support.type.fairlane" in named(word, " ")
