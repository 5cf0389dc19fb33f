"""Whether the package for Queen's clients is there. Tests of all routes leave out its routes without it."""

from __future__ import annotations

from importlib.util import find_spec

INSTALLED = find_spec("fairlane.queen") is not None
