"""Signature checks of webhooks, by the bytes that were received and nothing else.

It runs before anything of the body is decoded. Every key is compared with every signature, without stopping at the
first that is right, and a comparison takes the same time wherever two signatures differ.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Literal

from fairlane.hooks.schemes import Scheme

SIGNATURES_MAX = 10  # more than a sender ever has secrets at once
HEADER_BYTES_MAX = 4096
TOLERANCE_SECONDS = 300  # how far a sender's clock may be from ours, either way
_DIGEST_BYTES = {"sha256": 32, "sha512": 64}
_TIMESTAMP = re.compile(rb"[0-9]{1,11}")

Refusal = Literal["missing", "malformed", "stale", "mismatch"]
"""For counters only: a sender who is refused is told nothing."""


def verify(
    scheme: Scheme, keys: Sequence[bytes], headers: Mapping[bytes, bytes], body: bytes, *, now: float
) -> Refusal | None:
    """None if the signature is good. `headers` by lower-case name; `now` in seconds since 1970."""
    header = headers.get(scheme.signature_header)
    if header is None:
        return "missing"
    parts = _parts(scheme, header)
    if parts is None:
        return "malformed"
    has_timestamp = scheme.has_timestamp
    timestamp = _timestamp(scheme, headers, parts) if has_timestamp else None
    if timestamp is not None and not _TIMESTAMP.fullmatch(timestamp):
        return "malformed"
    offered = _signatures(scheme, parts)
    signed_id = headers.get(scheme.id_header) if scheme.id_header else None
    if not offered or (has_timestamp and timestamp is None) or (scheme.id_header and not _is_id(signed_id)):
        return "malformed"
    if not _matches(scheme, keys, offered, _signed(scheme, signed_id, timestamp, body)):
        return "mismatch"
    if timestamp is not None and abs(now - int(timestamp)) > TOLERANCE_SECONDS:
        return "stale"
    return None


def sign(scheme: Scheme, key: bytes, body: bytes, *, delivery_id: str, now: float) -> dict[bytes, bytes]:
    """The headers that a sender of this scheme would add."""
    timestamp = str(int(now)).encode() if scheme.has_timestamp else None
    signed_id = delivery_id.encode() if scheme.id_header else None
    digest = _digest(scheme, key, _signed(scheme, signed_id, timestamp, body))
    text = base64.b64encode(digest) if scheme.encoding == "base64" else digest.hex().encode()
    signature = scheme.marker + text
    headers: dict[bytes, bytes] = {}
    if scheme.delivery_id_header:
        headers[scheme.delivery_id_header] = delivery_id.encode()
    if scheme.timestamp_header and timestamp:
        headers[scheme.timestamp_header] = timestamp
    if scheme.timestamp_marker and timestamp:
        signature = scheme.timestamp_marker + timestamp + scheme.separator + signature
    headers[scheme.signature_header] = signature
    return headers


def _parts(scheme: Scheme, header: bytes) -> list[bytes] | None:
    """What the signature header lists, or None if no sender would send that: too much, or two headers joined."""
    if len(header) > HEADER_BYTES_MAX:
        return None
    if not scheme.separator:
        return [header]
    parts = header.split(scheme.separator, SIGNATURES_MAX + 2)
    if len(parts) > SIGNATURES_MAX + 1 or any(part != part.strip() for part in parts):
        return None
    return parts


def _timestamp(scheme: Scheme, headers: Mapping[bytes, bytes], parts: list[bytes]) -> bytes | None:
    """The text of the timestamp: it is signed as it was sent, not as a number."""
    if scheme.timestamp_header:
        return headers.get(scheme.timestamp_header)
    marker = scheme.timestamp_marker
    if marker is None:
        return None
    found = [part.removeprefix(marker) for part in parts if part.startswith(marker)]
    return found[0] if len(found) == 1 else None


def _is_id(signed_id: bytes | None) -> bool:
    """A dot in an id would let what is signed be read in two ways."""
    return signed_id is not None and 0 < len(signed_id) <= 255 and b"." not in signed_id


def _signatures(scheme: Scheme, parts: list[bytes]) -> list[bytes]:
    """The decoded signatures of the scheme's kind, or none at all if one of them is no signature."""
    size = _DIGEST_BYTES[scheme.algorithm]
    if len(parts) == 1:  # as nearly always
        only = _decoded(scheme, parts[0][len(scheme.marker) :]) if parts[0].startswith(scheme.marker) else None
        return [only] if only is not None and len(only) == size else []
    marked = [part.removeprefix(scheme.marker) for part in parts if part.startswith(scheme.marker)]
    if len(marked) > SIGNATURES_MAX:
        return []
    decoded = [_decoded(scheme, text) for text in marked]
    good = [signature for signature in decoded if signature is not None and len(signature) == size]
    return good if len(good) == len(marked) else []


def _decoded(scheme: Scheme, text: bytes) -> bytes | None:
    try:
        if scheme.encoding == "base64":
            return base64.b64decode(text, validate=True)
        return binascii.unhexlify(text)
    except (binascii.Error, ValueError):
        return None


def _signed(scheme: Scheme, signed_id: bytes | None, timestamp: bytes | None, body: bytes) -> bytes:
    if signed_id is None and timestamp is None and not scheme.signed_prefix:
        return body
    parts = [part for part in (signed_id, timestamp) if part is not None]
    return scheme.signed_prefix + scheme.joint.join([*parts, body])


def _digest(scheme: Scheme, key: bytes, signed: bytes) -> bytes:
    # Not `hmac.digest`: it lets other threads go first each time, which a broker at work pays for dearly.
    made = _begun(key, scheme.algorithm).copy()
    made.update(signed)
    return made.digest()


@lru_cache(maxsize=1024)
def _begun(key: bytes, algorithm: str) -> hmac.HMAC:
    return hmac.new(key, digestmod=algorithm)


def _matches(scheme: Scheme, keys: Sequence[bytes], offered: list[bytes], signed: bytes) -> bool:
    good = False
    for key in keys:
        expected = _digest(scheme, key, signed)
        for signature in offered:
            good |= hmac.compare_digest(expected, signature)
    return good
