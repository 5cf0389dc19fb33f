"""All routes of a broker: Fairlane's own, and Queen's if its package is installed."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec

from msgspec.structs import replace

from fairlane.http.router import Route
from fairlane.http.routes import ROUTES as OWN_ROUTES

_QUEEN = "fairlane.queen.routes"
_OF_QUEEN: list[Route] = import_module(_QUEEN).ROUTES if find_spec("fairlane.queen") else []
ROUTES: list[Route] = [*OWN_ROUTES, *(replace(route, queen=True) for route in _OF_QUEEN)]
