"""Signature schemes of webhook senders: headers, signed bytes, encoding and keys.

Each sender is one value, without logic of its own.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence
from typing import Literal

import msgspec

from fairlane.errors import InvalidRequest
from fairlane.spec.ir import Verify

SECRET_BYTES_MIN = 24  # shorter secrets can be guessed from a recorded signature
SECRETS_MAX = 2  # the current secret, and the previous one during a rotation
_WHSEC = "whsec_"


class Scheme(msgspec.Struct, frozen=True, kw_only=True):
    """A signature scheme.

    The signed bytes are `signed_prefix`, then the id and the timestamp if the scheme has such headers, then the body,
    with `joint` between them.
    """

    signature_header: bytes
    separator: bytes = b""
    """Separator of several signatures in the header, or empty if there is only one."""
    marker: bytes = b""
    """Prefix of a signature. Header entries with another prefix are ignored."""
    algorithm: Literal["sha256", "sha512"] = "sha256"
    encoding: Literal["hex", "base64"] = "hex"
    signed_prefix: bytes = b""
    joint: bytes = b""
    id_header: bytes | None = None
    timestamp_header: bytes | None = None
    timestamp_marker: bytes | None = None
    """Prefix of the timestamp in the signature header, or None if the timestamp has its own header."""
    key: Literal["text", "whsec"] = "text"
    """Encoding of the secret. With `whsec`, the part after `whsec_` is base64."""
    delivery_id_header: bytes | None = None
    """Header with the id that all redeliveries share, or None if the sender sends no id."""

    @property
    def has_timestamp(self) -> bool:
        return self.timestamp_header is not None or self.timestamp_marker is not None


PRESETS: dict[str, Scheme] = {
    "github": Scheme(
        signature_header=b"x-hub-signature-256", marker=b"sha256=", delivery_id_header=b"x-github-delivery"
    ),
    "stripe": Scheme(
        signature_header=b"stripe-signature", separator=b",", marker=b"v1=", timestamp_marker=b"t=", joint=b"."
    ),
    "slack": Scheme(
        signature_header=b"x-slack-signature",
        marker=b"v0=",
        timestamp_header=b"x-slack-request-timestamp",
        signed_prefix=b"v0:",
        joint=b":",
    ),
    "pagerduty": Scheme(
        signature_header=b"x-pagerduty-signature",
        separator=b",",
        marker=b"v1=",
        delivery_id_header=b"x-webhook-id",
    ),
    "shopify": Scheme(
        signature_header=b"x-shopify-hmac-sha256", encoding="base64", delivery_id_header=b"x-shopify-webhook-id"
    ),
    "standard_webhooks": Scheme(
        signature_header=b"webhook-signature",
        separator=b" ",
        marker=b"v1,",
        encoding="base64",
        joint=b".",
        id_header=b"webhook-id",
        timestamp_header=b"webhook-timestamp",
        key="whsec",
        delivery_id_header=b"webhook-id",
    ),
}


def scheme_of(verify: Verify) -> Scheme:
    """Return the scheme that a spec names: a preset, or an HMAC of the body in a custom header."""
    if verify.scheme != "hmac":
        return PRESETS[verify.scheme]
    try:
        header, marker = (verify.header or "").lower().encode("ascii"), verify.prefix.encode("ascii")
    except UnicodeEncodeError:
        raise InvalidRequest("the header and the prefix of a signature are ASCII") from None
    return Scheme(signature_header=header, marker=marker, algorithm=verify.algorithm, encoding=verify.encoding)


def keys_of(scheme: Scheme, secrets: Sequence[str]) -> tuple[bytes, ...]:
    """Return the keys of one or two secrets. A missing secret never allows unsigned requests.

    Raises InvalidRequest for a missing or short secret. The error never contains the secret.
    """
    if not 1 <= len(secrets) <= SECRETS_MAX:
        raise InvalidRequest(f"a webhook has one secret, or {SECRETS_MAX} while one is replaced, not {len(secrets)}")
    try:
        keys = tuple(_of_base64(secret) if scheme.key == "whsec" else secret.encode() for secret in secrets)
    except (binascii.Error, ValueError):
        raise InvalidRequest(f"the secret of this webhook is base64, with `{_WHSEC}` before it") from None
    if min(map(len, keys)) < SECRET_BYTES_MIN:
        raise InvalidRequest(f"the secret of a webhook is too short: it needs {SECRET_BYTES_MIN} bytes or more")
    return keys


def _of_base64(secret: str) -> bytes:
    """Decode a base64 secret, with or without its prefix and padding."""
    text = secret.removeprefix(_WHSEC)
    return base64.b64decode(text + "=" * (-len(text) % 4), validate=True)
