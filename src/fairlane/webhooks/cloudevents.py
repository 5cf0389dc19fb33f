"""CloudEvents 1.0 over HTTP: an event in binary or structured mode becomes one JSON object."""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote_to_bytes

import msgspec

from fairlane.errors import InvalidRequest
from fairlane.model.message import check_json

STRUCTURED = b"application/cloudevents+json"
_FAMILY = b"application/cloudevents"
"""Prefix of the content types of structured mode and of batches, in any format."""
_PREFIX = b"ce-"
_NAME = re.compile(r"[a-z0-9]{1,100}")
_REQUIRED = ("specversion", "id", "source", "type")
_RESERVED = ("data", "data_base64", "datacontenttype")
_TEXT = re.compile(rb"text/.*|application/xml|.*\+xml")
_JSON = re.compile(rb"(application|text)/json|.*\+json")
_encode = msgspec.json.Encoder().encode
_decode_members = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_decode_text = msgspec.json.Decoder(str).decode


def is_event(content_type: bytes) -> bool:
    """Return True if requests of this content type can carry one event.

    Structured mode needs JSON. Binary mode allows any type outside the CloudEvents family.
    """
    return content_type == STRUCTURED or not content_type.startswith(_FAMILY)


def event_of(headers: Mapping[bytes, bytes], content_type: bytes, body: bytes, *, bytes_max: int) -> bytes:
    """Return an event as the JSON of structured mode. Raises InvalidRequest if the request is not a CloudEvent.

    Data that is not JSON is a text if its content type is one, and `data_base64` otherwise.
    """
    if content_type == STRUCTURED:
        check_json("the event", body, bytes_max=bytes_max)
        try:
            members = _decode_members(body)
        except msgspec.ValidationError:
            raise InvalidRequest("a CloudEvent is a JSON object") from None
        _check({name: _decode_text(value) for name, value in members.items() if bytes(value).startswith(b'"')})
        return body
    event: dict[str, Any] = {
        name: _attribute(name, value)
        for header, value in headers.items()
        if (name := header.removeprefix(_PREFIX).decode("latin-1")) and header.startswith(_PREFIX)
    }
    _check(event)
    if content_type:
        event["datacontenttype"] = headers[b"content-type"].decode("latin-1")
    if not body:
        return _encode(event)
    if not content_type or _JSON.fullmatch(content_type):
        check_json("the data of the event", body, bytes_max=bytes_max)
        event["data"] = msgspec.Raw(body)
    elif _TEXT.fullmatch(content_type):
        event["data"] = _decoded("the data of the event", body)
    else:
        event["data_base64"] = base64.b64encode(body).decode()
    return _encode(event)


class _Event(msgspec.Struct):
    source: str
    id: str


class _EventMessage(msgspec.Struct):
    payload: _Event


_decode_message = msgspec.json.Decoder(_EventMessage).decode


def key_of(message: bytes) -> str:
    """Return a key that the event of a message shares with its redeliveries and with no other event."""
    event = _decode_message(message).payload
    return f"{event.source} {event.id}"


def _attribute(name: str, value: bytes) -> str:
    if not _NAME.fullmatch(name) or name in _RESERVED:
        raise InvalidRequest(f"the header ce-{name[:100]} is not an attribute of a CloudEvent")
    return _decoded(f"the header ce-{name}", unquote_to_bytes(value))


def _decoded(what: str, value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise InvalidRequest(f"{what} is not valid UTF-8") from None


def _check(event: Mapping[str, Any]) -> None:
    for name in _REQUIRED:
        if not isinstance(event.get(name), str) or not event[name]:
            raise InvalidRequest(f"a CloudEvent needs `{name}`: in the event, or in the header ce-{name}")
    if event["specversion"] != "1.0":
        raise InvalidRequest(f"`specversion` of the CloudEvent must be 1.0, not {event['specversion']!r:.20}")
