"""Names: any text of 1 to 255 characters that every store and every JSON reader can hold."""

from __future__ import annotations

import re

from fairlane.errors import InvalidRequest
from fairlane.model.limits import NAME_CHARS_MAX

DEFAULT_PARTITION = "Default"
DEFAULT_TENANT = "default"
DEFAULT_SERVER = "http://127.0.0.1:6632"
QUEUE_MODE = "__QUEUE_MODE__"
"""The implicit group of a pop that names none."""
COMMANDS = "__COMMANDS__"
"""The group for which the messages of a queue become commands, whoever carries them out."""


def is_plain(name: object) -> bool:
    """Whether `name` is of the kind that nearly all names are, and needs no closer look."""
    return type(name) is str and 0 < len(name) <= NAME_CHARS_MAX and name.isascii() and "\0" not in name


def are_plain(names: list[str]) -> bool:
    """Whether all of these are: one look at all of them joined is cheaper than many."""
    joined = "".join(names)
    return joined.isascii() and "\0" not in joined and all(names) and max(map(len, names), default=0) <= NAME_CHARS_MAX


is_its_own_json = re.compile(r"[ !#-\[\]-~]*").fullmatch
"""Whether a text stands between the quotes of JSON as it is: printable ASCII without quotes and backslashes."""
known_names: dict[str, None] = {}
"""Names that were found plain: a program uses the same ones again and again."""


def is_known(name: str) -> bool:
    """Whether this very name was found plain before: a program uses the same names again and again."""
    if name in known_names:
        return True
    if is_plain(name):
        if len(known_names) > 100_000:
            known_names.clear()
        known_names[name] = None
        return True
    return False


def check_name(what: str, name: object, *, chars_max: int = NAME_CHARS_MAX) -> str:
    """`name`, or InvalidRequest with a sentence that says what is wrong with it."""
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


def name_or_none(what: str, name: str | None) -> str | None:
    return None if name is None else check_name(what, name)


def check_flag(what: str, value: object) -> None:
    if not isinstance(value, bool):
        raise InvalidRequest(f"{what} must be true or false, not {type(value).__name__}")


def storable(text: str, *, chars_max: int) -> str:
    """`text` made one that every store can hold: cut, and with a mark for what cannot be kept."""
    return text[:chars_max].replace("\0", "\ufffd").encode(errors="replace").decode()


def check_count(what: str, value: object, *, least: int, most: int) -> int:
    """`value` as a whole number within bounds, or InvalidRequest."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidRequest(f"{what} must be a whole number, not {type(value).__name__}")
    if not least <= value <= most:
        raise InvalidRequest(f"{what} is {value}; it must be between {least} and {most}")
    return value
