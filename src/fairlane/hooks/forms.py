"""Forms as webhooks: slash commands and buttons of Slack, GitHub if it is told so."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import parse_qsl

import msgspec

from fairlane.errors import InvalidRequest
from fairlane.model.message import check_json

CONTENT_TYPE = b"application/x-www-form-urlencoded"
FIELDS_MAX = 1000
_encode = msgspec.json.Encoder().encode


def kind_of(headers: Mapping[bytes, bytes]) -> bytes:
    """The content type, without what stands behind it."""
    return headers.get(b"content-type", b"").partition(b";")[0].strip().lower()


def json_of(form: bytes) -> bytes:
    """The payload that a form stands for: what is in its field `payload` if that is JSON, or else its fields as
    strings, as a list of them where one comes several times. InvalidRequest if it is no form."""
    try:
        text = form.decode("ascii")
        pairs = parse_qsl(text, True, True, errors="strict", max_num_fields=FIELDS_MAX)
    except ValueError:
        pairs = []
    if not pairs:
        raise InvalidRequest("the body is no form of names and values in UTF-8, as its content-type says")
    fields: dict[str, list[str]] = {}
    for name, value in pairs:
        fields.setdefault(name, []).append(value)
    plain = {name: found[0] if len(found) == 1 else found for name, found in fields.items()}
    return _own_payload(fields) or _encode(plain)


def _own_payload(fields: Mapping[str, list[str]]) -> bytes | None:
    [text, *others] = fields.get("payload", [""])
    if others or text[:1] not in ("{", "["):
        return None
    payload = text.encode()
    try:
        check_json("the payload of the form", payload, bytes_max=len(payload))
    except InvalidRequest:
        return None
    return payload
