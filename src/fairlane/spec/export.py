"""A document as text of the language: what compiles to it again.

Options that no setting stands for (`dead_letter_queue: true` of old clients, and a retention that is turned off beside
its ages) cannot be said, and are left out.
"""

from __future__ import annotations

from fairlane.spec import ir
from fairlane.spec.nouns import NOUNS
from fairlane.spec.nouns.noun import as_name, block
from fairlane.spec.text.format import format_spec
from fairlane.spec.text.source import Source


def export_text(spec: ir.Spec) -> str:
    blocks = [noun.write(name, part) for noun in NOUNS for name, part in getattr(spec, noun.family).items()]
    return format_spec(Source("export", block(f"app {as_name(spec.app)}", blocks)))
