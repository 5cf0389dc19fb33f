"""The shapes on the wire. camelCase and old spellings live here and nowhere else."""

from __future__ import annotations

import msgspec


class ExtendBody(msgspec.Struct, forbid_unknown_fields=True):
    seconds: int = 60
