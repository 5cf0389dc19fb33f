"""Names: any text of 1 to 255 characters that every store and every JSON parser can hold."""

from __future__ import annotations

import re

from fairlane.errors import InvalidRequest
from fairlane.model.limits import NAME_CHARS_MAX

DEFAULT_PARTITION = "Default"
DEFAULT_TENANT = "default"
DEFAULT_SERVER = "http://127.0.0.1:6632"
QUEUE_MODE = "__QUEUE_MODE__"
"""Group of pops without a group."""
STREAM_GROUPS = "streams."
"""Prefix of the groups of streams.

A stream leaves messages that it will not handle yet to the end of the lease, so an expired lease is not a failure.
"""
COMMANDS = "__COMMANDS__"
"""Group that turns the messages of a queue into commands, in the broker or in workers."""


def is_plain(name: object) -> bool:
    """Return True if `name` is common enough to need no further check."""
    return type(name) is str and 0 < len(name) <= NAME_CHARS_MAX and name.isascii() and "\0" not in name


def are_plain(names: list[str]) -> bool:
    """Return True if all names are plain. Checks them joined, which is cheaper than one by one."""
    joined = "".join(names)
    return joined.isascii() and "\0" not in joined and all(names) and max(map(len, names), default=0) <= NAME_CHARS_MAX


is_its_own_json = re.compile(r"[ !#-\[\]-~]*").fullmatch
"""Function that returns a match if a text needs no escaping in JSON: printable ASCII without quotes and backslashes."""
known_names: dict[str, None] = {}
"""Names that were found plain before, because programs use the same names again and again."""


def is_known(name: str) -> bool:
    """Return True if this name was found plain before."""
    if name in known_names:
        return True
    if is_plain(name):
        if len(known_names) > 100_000:
            known_names.clear()
        known_names[name] = None
        return True
    return False


def check_name(what: str, name: object, *, chars_max: int = NAME_CHARS_MAX) -> str:
    """Return `name`. Raises InvalidRequest if it is not a valid name."""
    if not isinstance(name, str):
        raise InvalidRequest(f"{what} must be a string, not {type(name).__name__}")
    if not name:
        raise InvalidRequest(f"{what} must not be empty")
    if len(name) > chars_max:
        raise InvalidRequest(f"{what} has {len(name)} characters; at most {chars_max} are allowed")
    if "\0" in name:
        raise InvalidRequest(f"{what} must not contain a NUL character")
    if not name.isascii():
        try:
            name.encode()
        except UnicodeEncodeError:
            raise InvalidRequest(f"{what} contains a lone surrogate, which is not valid text") from None
    return name


def name_or_none(what: str, name: str | None, *, chars_max: int = NAME_CHARS_MAX) -> str | None:
    return None if name is None else check_name(what, name, chars_max=chars_max)


def check_flag(what: str, value: object) -> None:
    if not isinstance(value, bool):
        raise InvalidRequest(f"{what} must be true or false, not {type(value).__name__}")


def storable(text: str, *, chars_max: int) -> str:
    """Return `text` in a form that every store can hold: cut to size, with unsupported characters replaced."""
    return text[:chars_max].replace("\0", "\ufffd").encode(errors="replace").decode()


def storable_end(text: str, *, bytes_max: int) -> str:
    """Return the end of `text` in a form that every store can hold."""
    replaced = text[-bytes_max:].replace("\0", "\ufffd").encode(errors="replace")
    return replaced[-bytes_max:].decode(errors="ignore")


def check_count(what: str, value: object, *, least: int, most: int) -> int:
    """Return `value`. Raises InvalidRequest unless it is a whole number within bounds."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidRequest(f"{what} must be a whole number, not {type(value).__name__}")
    if not least <= value <= most:
        raise InvalidRequest(f"{what} is {value}; it must be between {least} and {most}")
    return value


def count_or_none(what: str, value: int | None, *, least: int, most: int) -> int | None:
    return None if value is None else check_count(what, value, least=least, most=most)
