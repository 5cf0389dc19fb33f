"""A flag for the package for Queen's clients. Without it, tests of all routes leave out its routes."""

from __future__ import annotations

from importlib.util import find_spec

INSTALLED = find_spec("fairlane.queen") is not None
