"""The base of shapes."""

from __future__ import annotations

import msgspec


class Wire(msgspec.Struct, rename="camel", kw_only=True, forbid_unknown_fields=True):
    """camelCase on the wire."""
