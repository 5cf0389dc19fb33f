"""Unknown names in a request: refused, with the one that was probably meant, instead of ignored.

What published clients of other versions send and this broker has no use for is listed here, and is passed over.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from functools import cache
from typing import Any, Final

import msgspec
from msgspec import inspect

from fairlane.errors import InvalidRequest
from fairlane.spec.text.source import suggestion

FOREIGN_PARAMETERS: Final = frozenset({"namespace", "task", "frames"})
"""Of any route: their builders add the first two to every pop, `frames` asks for an encoding."""
_MEANT: Final = {
    "data": "payload",
    "body": "payload",
    "message": "payload",
    "group": "consumerGroup",
    "consumer": "consumerGroup",
    "delay": "delayMs",
    "lease": "leaseId",
    "leaseTime": "leaseSeconds",
    "id": "transactionId",
}
"""What people write for a name that is not like it."""
_UNKNOWN: Final = re.compile(r"Object contains unknown field `(.*?)`(?: - at `\$(.*)`)?", re.DOTALL)
_STEP: Final = re.compile(r"\.([A-Za-z_]+)|\[[0-9.]+\]")


def hint(name: str, known: Collection[str]) -> str:
    """What to say of a name that is not known."""
    meant = _MEANT.get(name) or _MEANT.get(_plain(name))
    if meant in known:
        return f"did you mean `{meant}`?"
    same = [one for one in known if _plain(one) == _plain(name)]
    return f"did you mean `{same[0]}`?" if same else suggestion(name, known)


def _plain(name: str) -> str:
    """A name however it is written: leaseTime, lease_time, lease-time."""
    return name.replace("_", "").replace("-", "").lower()


def check_parameters(given: dict[str, str], known: Collection[str]) -> None:
    """InvalidRequest for a query parameter that a route does not take."""
    for name in given:
        if name not in known and name not in FOREIGN_PARAMETERS:
            raise InvalidRequest(
                f"there is no query parameter {name!r:.80} here; {hint(name, known) or 'it takes none'}"
            )


def explained(error: msgspec.ValidationError, type: Any) -> str:
    """What was wrong with a body, with a hint where a field is not known."""
    found = _UNKNOWN.fullmatch(str(error))
    if found is None:
        return str(error)
    name, path = found[1], found[2] or ""
    where = f" of {path.removeprefix('.')}" if path else ""
    return f"there is no field {name!r:.80}{where}; {hint(name, _fields(_type_of(type), path))}"


_type_of = cache(inspect.type_info)


def _fields(kind: inspect.Type, path: str) -> list[str]:
    for step in _STEP.finditer(path):
        kind = _inside(kind, step[1])
    kind = _struct(kind)
    return [field.encode_name for field in kind.fields] if isinstance(kind, inspect.StructType) else []


def _inside(kind: inspect.Type, field: str | None) -> inspect.Type:
    kind = _struct(kind)
    if isinstance(kind, inspect.StructType) and field is not None:
        return next((one.type for one in kind.fields if one.encode_name == field), inspect.AnyType())
    if isinstance(kind, inspect.ListType) and field is None:
        return kind.item_type
    return inspect.AnyType()


def _struct(kind: inspect.Type) -> inspect.Type:
    """What a value is besides null."""
    if isinstance(kind, inspect.UnionType):
        return next((one for one in kind.types if not isinstance(one, inspect.NoneType)), kind)
    return kind
