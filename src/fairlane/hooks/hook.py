"""A webhook of a spec, compiled: who may send it, what its message is, and what tells a redelivery."""

from __future__ import annotations

import hashlib
import re
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from fairlane.errors import ExpressionFailed, InvalidRequest
from fairlane.hooks import forms
from fairlane.hooks.rate import Rate, Refusals
from fairlane.hooks.schemes import PRESETS, Scheme, scheme_of
from fairlane.hooks.secrets import keys_of
from fairlane.hooks.signatures import Refusal, verify
from fairlane.model.limits import MESSAGE_BYTES_MAX
from fairlane.model.message import check_depth, check_json
from fairlane.spec import ir
from fairlane.spec.compiled_queue import Command
from fairlane.spec.expression.evaluate import compile_expression, compile_mapping
from fairlane.spec.types import compile_input_validator

Secrets = Callable[[Sequence[str]], Sequence[str]]
"""What the environment variables of these names hold; InvalidRequest if one is not set."""
_KEY = re.compile(r"[\x20-\x7e]{1,128}")
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(dict[str, Any]).decode


def no_secrets(names: Sequence[str]) -> Sequence[str]:
    """For a broker that was given none."""
    if names:
        raise InvalidRequest(f"this broker was not told where the secret {names[0]} is")
    return ()


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


class Hook:
    """The spec must have passed `check`. InvalidRequest, which never shows one, if a secret is missing or too short."""

    def __init__(self, app: ir.Spec, name: str, secrets: Secrets) -> None:
        self.name = name
        self.spec = spec = app.webhooks[name]
        self.rate = Rate(spec.max_per_second) if spec.max_per_second else None
        self.refusals = Refusals()
        self._scheme = scheme_of(spec.verify) if spec.verify else None
        self._keys = _keys(name, self._scheme, spec.verify, secrets)
        self._key = _key_of(spec, self._scheme)
        self._headers = [(header.lower().encode("ascii"), header) for header in spec.headers]
        self._mapped = compile_mapping(spec.command) if spec.command else None
        command = app.commands.get(spec.command.command) if spec.command else None
        self._validate_input = compile_input_validator(command.input) if command and command.input else None

    def refusal(self, received: Received) -> Refusal | None:
        """Why the signature is not good; None if it is, or if none is asked for."""
        if self._scheme is None:
            return None
        return verify(self._scheme, self._keys, received.headers, received.body, now=received.at / 1e6)

    def challenge(self, received: Received) -> str | None:
        """What Slack wants to hear again before it sends anything to a URL."""
        if self._scheme is not PRESETS["slack"] or b"url_verification" not in received.body:
            return None
        try:
            asked = _decode_challenge(received.body)
        except (msgspec.DecodeError, UnicodeDecodeError):
            return None
        return asked.challenge if asked.type == "url_verification" else None

    def message(self, received: Received) -> bytes:
        """What goes into the queue, with the body as it was received, or with what a form stands for. InvalidRequest if
        the body is neither."""
        payload = received.body
        if forms.kind_of(received.headers) == forms.CONTENT_TYPE:
            payload = forms.json_of(payload)
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
            _moment(received.at),
        )
        if len(message) > MESSAGE_BYTES_MAX:
            raise InvalidRequest(f"the body makes a message of more than {MESSAGE_BYTES_MAX} bytes")
        check_depth(message)
        return message

    def is_meant(self, message: bytes) -> bool:
        """Whether the body is of the type that this webhook is for."""
        if self.spec.on_type is None:
            return True
        payload = _decode(message)["payload"]
        return isinstance(payload, dict) and payload.get("type") == self.spec.on_type

    def key(self, received: Received, message: bytes) -> str:
        """What a redelivery has too. InvalidRequest if it is not there, or is no key."""
        return self._key(received, message)

    def transaction_id(self, key: str) -> str:
        """The key among those of everything that fills the same queue."""
        return f"{self.name}:{key}"

    def command(self, message: bytes) -> Command:
        """What runs at once; ExpressionFailed or PayloadInvalid if a message cannot become it."""
        assert self.spec.command is not None
        assert self._mapped is not None
        built = self._mapped(_decode(message))
        if self._validate_input is not None:
            self._validate_input(built)
        return Command(self.spec.command.command, built)


def check_command_secret(name: str, command: ir.CommandSpec, secrets: Secrets) -> None:
    """InvalidRequest if the calls of a command could not be signed."""
    if command.secret_env is None:
        return
    try:
        keys_of(PRESETS["standard_webhooks"], secrets((command.secret_env,)))
    except InvalidRequest as error:
        raise InvalidRequest(f"command {name!r:.80}: {error}") from None


def _keys(name: str, scheme: Scheme | None, verify: ir.Verify | None, secrets: Secrets) -> tuple[bytes, ...]:
    if scheme is None or verify is None:
        return ()
    try:
        return keys_of(scheme, secrets(verify.secret_env))
    except InvalidRequest as error:
        raise InvalidRequest(f"webhook {name!r:.80}: {error}") from None


def _key_of(spec: ir.WebhookSpec, scheme: Scheme | None) -> Callable[[Received, bytes], str]:
    match spec.idempotency:
        case ir.HeaderKey(header=header):
            return _header_key(header.lower().encode("ascii"), header)
        case ir.ExpressionKey(expression=text):
            return _expression_key(text)
        case ir.BodyKey():
            return _body_key
    if scheme is not None and scheme.id_header is not None:
        return _header_key(scheme.id_header, scheme.id_header.decode())
    # Other senders do not sign their delivery ids: who recorded a request could send it again under any.
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
            raise ExpressionFailed(f"the key `{text}` is no string or whole number")
        return _checked(str(found), f"the key `{text}`")

    return key


def _body_key(received: Received, message: bytes) -> str:
    return hashlib.sha256(received.body).hexdigest()


def _checked(key: str, what: str) -> str:
    """The key, or its hash if it is too long to be one."""
    if not key:
        raise InvalidRequest(f"{what} is empty")
    return key if _KEY.fullmatch(key) else hashlib.sha256(key.encode(errors="surrogatepass")).hexdigest()


def _text(value: bytes) -> str:
    return value.decode("utf-8", "replace")


_second: tuple[int, str] = (0, "1970-01-01T00:00:00")


def _moment(at: int) -> bytes:
    global _second  # neighbours share theirs
    seconds, micros = divmod(at, 1_000_000)
    if seconds != _second[0]:
        _second = (seconds, time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds)))
    return f"{_second[1]}.{micros:06d}Z".encode()
