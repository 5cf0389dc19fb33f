"""Previews of messages in lists: JSON that is short however large the message is."""

from __future__ import annotations

import contextlib
from typing import Any

import msgspec

WHOLE_BYTES_MAX = 200
"""Size up to which a message is its own preview."""
_DECODED_BYTES_MAX = 16 * 1024
"""Size above which messages are not decoded, because a list may have thousands."""
_TEXT_CHARS = 80
_FIELDS = 20
_ITEMS = 5


def preview_of(raw: msgspec.Raw) -> msgspec.Raw:
    """Return a message as JSON, shortened.

    An object keeps its first fields and a list its first items. Long texts are cut, and so is all that is nested deeper
    than two levels. The preview of a message that is very large or cannot be decoded is a text, its beginning.
    """
    text = bytes(raw)
    if len(text) <= WHOLE_BYTES_MAX:
        return raw
    if len(text) <= _DECODED_BYTES_MAX:
        with contextlib.suppress(msgspec.DecodeError):  # a number may be out of range
            return _encoded(_shortened(msgspec.json.decode(text), levels=2))
    return _encoded(_cut(text[: 4 * _TEXT_CHARS].decode("utf-8", "replace")))


def _shortened(value: Any, *, levels: int) -> Any:
    if isinstance(value, str):
        return _cut(value)
    if isinstance(value, dict):
        if not levels:
            return "{...}"
        fields = list(value.items())[:_FIELDS]
        shown = {_cut(name): _shortened(one, levels=levels - 1) for name, one in fields}
        return shown if len(value) <= _FIELDS else shown | {"...": f"{len(value) - _FIELDS} more fields"}
    if isinstance(value, list):
        if not levels:
            return "[...]"
        items = [_shortened(one, levels=levels - 1) for one in value[:_ITEMS]]
        return items if len(value) <= _ITEMS else [*items, "..."]
    return value


def _cut(text: str) -> str:
    return text if len(text) <= _TEXT_CHARS else f"{text[:_TEXT_CHARS]}..."


def _encoded(value: Any) -> msgspec.Raw:
    return msgspec.Raw(msgspec.json.encode(value))
