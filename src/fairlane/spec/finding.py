"""A finding of a check."""

from __future__ import annotations

from typing import NamedTuple

from fairlane.spec import tree
from fairlane.spec.spec_file import Path


class Finding(NamedTuple):
    path: Path
    """Where in the document: ("queues", "Orders", "key")."""
    message: str
    hint: str | None = None
    node: tree.Node | None = None
    """The part of an expression that is meant."""
    reference: bool = False
    """It is about a name that is not declared: perhaps because what declares it could not be read."""

    def render(self) -> str:
        """For who has the document and no file."""
        hint = f" ({self.hint})" if self.hint else ""
        return f"{'.'.join(self.path)}: {self.message}{hint}"
