"""A compiled webhook of a spec: its signature check, its message, and the key of redeliveries."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple
from urllib.parse import parse_qsl

import msgspec

from fairlane.errors import ExpressionFailed, InvalidRequest
from fairlane.model.limits import MESSAGE_BYTES_MAX
from fairlane.model.message import check_json
from fairlane.model.moment import timestamp
from fairlane.model.nesting import check_depth
from fairlane.runtime.rate import RateLimit
from fairlane.spec import ir
from fairlane.spec.compiled_queue import MappedCommand, compile_command
from fairlane.spec.expression.evaluate import compile_expression
from fairlane.webhooks.cloudevents import event_of, key_of
from fairlane.webhooks.schemes import PRESETS, Scheme, keys_of, scheme_of
from fairlane.webhooks.signatures import Refusal, sign, verify

FORM = b"application/x-www-form-urlencoded"
"""Content type of Slack's slash commands and buttons, and of GitHub if configured so."""
FORM_FIELDS_MAX = 1000
REFUSED_MAX = 50
"""Wrong signatures per second from one address, above which the answer is 429."""
_ADDRESSES_MAX = 10_000
Secrets = Callable[[Sequence[str]], Sequence[str]]
"""Function that returns the values of environment variables. Raises InvalidRequest if one is not set."""
_KEY = re.compile(r"[\x20-\x7e]{1,128}")
_encode = msgspec.json.Encoder().encode
_decode_object = msgspec.json.Decoder(dict[str, Any]).decode


class _Challenge(msgspec.Struct):
    type: str
    challenge: str


_decode_challenge = msgspec.json.Decoder(_Challenge).decode


class Received(NamedTuple):
    """One request to a webhook. Headers are by lower-case name; `at` is in microseconds since 1970."""

    headers: Mapping[bytes, bytes]
    body: bytes
    source_ip: str
    at: int


class Refusals:
    """Wrong signatures in the current second, by source address."""

    def __init__(self) -> None:
        self._second = 0
        self._counts: dict[str, int] = {}

    def add(self, address: str, now: float) -> None:
        self._start_second(now)
        if len(self._counts) < _ADDRESSES_MAX or address in self._counts:
            self._counts[address] = self._counts.get(address, 0) + 1

    def too_many(self, address: str, now: float) -> bool:
        self._start_second(now)
        return self._counts.get(address, 0) > REFUSED_MAX

    def _start_second(self, now: float) -> None:
        if int(now) != self._second:
            self._second = int(now)
            self._counts.clear()


class Webhook:
    """A compiled webhook. The spec must have passed `check`.

    Raises InvalidRequest, which never contains a secret, if a secret is missing or too short.
    """

    def __init__(self, app: ir.Spec, name: str, secrets: Secrets) -> None:
        self.name = name
        self.spec = spec = app.webhooks[name]
        self.rate = RateLimit(spec.max_per_second) if spec.max_per_second else None
        self.refusals = Refusals()
        self.replays = spec.verify is not None and spec.redelivery == "replay"
        """True if a redelivery replays a dead letter. Unsigned webhooks never do, because anybody can send one."""
        self._scheme: Scheme | None = None
        self._keys: tuple[bytes, ...] = ()
        if spec.verify is not None:
            self._scheme = scheme_of(spec.verify)
            self._keys = _keys(f"webhook {name!r:.80}", self._scheme, spec.verify.secret_env, secrets)
        self.is_event = spec.format == "cloudevents"
        self.key = _key_of(spec, self._scheme)
        """Function that returns the deduplication key of a message. Raises InvalidRequest if the message has no key."""
        self._headers = [(header.lower().encode("ascii"), header) for header in spec.headers]
        self._command = compile_command(app, spec.command) if spec.command else None
        self.evaluates = self._command is not None or isinstance(spec.idempotency, ir.ExpressionKey)
        """True if the webhook has its own expressions."""

    def refusal(self, received: Received) -> Refusal | None:
        """Return the reason why the signature is invalid. None if it is valid or the webhook needs no signature."""
        if self._scheme is None:
            return None
        return verify(self._scheme, self._keys, received.headers, received.body, now=received.at / 1e6)

    def signed(self, body: bytes, delivery_id: str, now: float) -> dict[bytes, bytes]:
        """Return the headers with which the sender signs a body. Empty if the webhook needs no signature."""
        if self._scheme is None:
            return {}
        return sign(self._scheme, self._keys[0], body, delivery_id=delivery_id, now=now)

    def challenge(self, received: Received) -> str | None:
        """Return the challenge that Slack sends to verify a URL, which must be echoed. None for any other request."""
        if self._scheme is not PRESETS["slack"] or b"url_verification" not in received.body:
            return None
        try:
            asked = _decode_challenge(received.body)
        except (msgspec.DecodeError, UnicodeDecodeError):
            return None
        return asked.challenge if asked.type == "url_verification" else None

    def message(self, received: Received) -> bytes:
        """Return the message to push. It holds the body as received, or the CloudEvent or form decoded from it.

        Raises InvalidRequest if the body does not match its format.
        """
        payload, kind = received.body, content_type(received.headers)
        if self.is_event:
            payload = event_of(received.headers, kind, payload, bytes_max=self.spec.max_body_bytes)
        elif kind == FORM:
            payload = _json_of(payload)
        else:
            check_json("the body", payload, bytes_max=self.spec.max_body_bytes)
        headers = b"{}"
        if self._headers:
            found = [(header, received.headers.get(name)) for name, header in self._headers]
            headers = _encode({header: _text(value) for header, value in found if value is not None})
        message = b'{"payload":%b,"headers":%b,"source_ip":%b,"received_at":"%b"}' % (
            payload,
            headers,
            _encode(received.source_ip),
            timestamp(received.at).encode(),
        )
        if len(message) > MESSAGE_BYTES_MAX:
            raise InvalidRequest(f"the body makes a message of more than {MESSAGE_BYTES_MAX} bytes")
        check_depth(message)
        return message

    def accepts_type(self, message: bytes) -> bool:
        """Return True if the body has the type that this webhook accepts."""
        if self.spec.on_type is None:
            return True
        payload = _decode(message)["payload"]
        return isinstance(payload, dict) and payload.get("type") == self.spec.on_type

    def transaction_id(self, key: str) -> str:
        """Return the transactionId of a key. It is unique among all producers of the queue."""
        return f"{self.name}:{key}"

    def command(self, message: bytes) -> MappedCommand:
        """Return the command to run at once. Raises ExpressionFailed or PayloadInvalid if the message does not fit."""
        assert self._command is not None
        return self._command(_decode(message))


def check_command_secret(name: str, command: ir.CommandSpec, secrets: Secrets) -> None:
    """Raise InvalidRequest if the calls of a command could not be signed."""
    if command.secret_env is not None:
        _keys(f"command {name!r:.80}", PRESETS["standard_webhooks"], (command.secret_env,), secrets)


def _keys(what: str, scheme: Scheme, names: Sequence[str], secrets: Secrets) -> tuple[bytes, ...]:
    try:
        return keys_of(scheme, secrets(names))
    except InvalidRequest as error:
        raise InvalidRequest(f"{what}: {error}") from None


def _key_of(spec: ir.WebhookSpec, scheme: Scheme | None) -> Callable[[Received, bytes], str]:
    match spec.idempotency:
        case ir.HeaderKey(header=header):
            return _header_key(header.lower().encode("ascii"), header)
        case ir.ExpressionKey(expression=text):
            return _expression_key(text)
        case ir.BodyKey():
            return _body_key
    if spec.format == "cloudevents":
        return lambda received, message: _checked(key_of(message), "the id of the event")
    if scheme is not None and scheme.id_header is not None:
        return _header_key(scheme.id_header, scheme.id_header.decode())
    # Other senders do not sign their delivery ids, so an attacker could replay a recorded request under any id.
    return _body_key


def _header_key(name: bytes, shown: str) -> Callable[[Received, bytes], str]:
    def key(received: Received, message: bytes) -> str:
        given = received.headers.get(name)
        if not given:
            raise InvalidRequest(f"the header {shown}, which tells a redelivery, is missing")
        return _checked(_text(given), f"the header {shown}")

    return key


def _expression_key(text: str) -> Callable[[Received, bytes], str]:
    evaluate = compile_expression(text)

    def key(received: Received, message: bytes) -> str:
        found = evaluate(_decode(message))
        if type(found) is not str and type(found) is not int:
            raise ExpressionFailed(f"the key `{text}` is not a string or a whole number")
        return _checked(str(found), f"the key `{text}`")

    return key


def _body_key(received: Received, message: bytes) -> str:
    return hashlib.sha256(received.body).hexdigest()


def _checked(key: str, what: str) -> str:
    """Return the key, or its hash if the key is too long."""
    if not key:
        raise InvalidRequest(f"{what} is empty")
    return key if _KEY.fullmatch(key) else hashlib.sha256(key.encode(errors="surrogatepass")).hexdigest()


def content_type(headers: Mapping[bytes, bytes]) -> bytes:
    """Return the content type without its parameters."""
    return headers.get(b"content-type", b"").partition(b";")[0].strip().lower()


def _json_of(form: bytes) -> bytes:
    """Return the payload of a form.

    It is the field `payload` if that is JSON, and otherwise an object of all fields, with lists for repeated ones.
    Raises InvalidRequest if the body is not a form.
    """
    try:
        text = form.decode("ascii")
        pairs = parse_qsl(text, True, True, errors="strict", max_num_fields=FORM_FIELDS_MAX)
    except ValueError:
        pairs = []
    if not pairs:
        raise InvalidRequest(
            "the body is not a form of names and values in UTF-8, although its content-type says so; "
            "JSON needs `content-type: application/json`"
        )
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


def _decode(message: bytes) -> dict[str, Any]:
    """Decode a message. Raises InvalidRequest if it has a number that is out of range."""
    try:
        return _decode_object(message)
    except msgspec.DecodeError as error:
        raise InvalidRequest(f"the body cannot be read: {error}") from None


def _text(value: bytes) -> str:
    return value.decode("utf-8", "replace")
