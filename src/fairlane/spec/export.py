"""Writes a document as text of the language that compiles to it again.

Options without a setting are left out: `dead_letter_queue: true` of old clients, and retention that is disabled
although ages are set.
"""

from __future__ import annotations

from fairlane.spec import ir
from fairlane.spec.declarations import DECLARATIONS
from fairlane.spec.declarations.declaration import as_name, block
from fairlane.spec.text.format import format_spec
from fairlane.spec.text.source import SourceText


def export_text(spec: ir.Spec) -> str:
    blocks = [
        declaration.write(name, part)
        for declaration in DECLARATIONS
        for name, part in getattr(spec, declaration.family).items()
    ]
    return format_spec(SourceText("export", block(f"app {as_name(spec.app)}", blocks)))
