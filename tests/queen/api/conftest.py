"""The fixtures of tests/http. The directory is not called http: the suite of a client has tests/queen in its path."""

from __future__ import annotations

from tests.http.conftest import backend, wire
from tests.http.test_narrow_keys import narrow

__all__ = ["backend", "narrow", "wire"]
