"""Signature checks of webhooks, over the exact bytes that were received.

The check runs before the body is decoded. It compares every key with every signature, without stopping at the first
match, and each comparison takes constant time.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Literal

from fairlane.webhooks.schemes import Scheme

SIGNATURES_MAX = 10  # more than the secrets that a sender uses at once
HEADER_BYTES_MAX = 4096
TOLERANCE_SECONDS = 300  # largest difference to the sender's clock, in both directions
_DIGEST_BYTES = {"sha256": 32, "sha512": 64}
_TIMESTAMP = re.compile(rb"[0-9]{1,11}")

Refusal = Literal["missing", "malformed", "stale", "mismatch"]
"""Reason of a refusal, for counters only: the sender does not learn it."""


def verify(
    scheme: Scheme, keys: Sequence[bytes], headers: Mapping[bytes, bytes], body: bytes, *, now: float
) -> Refusal | None:
    """Return the reason why a signature is invalid, or None if it is valid.

    Headers have lower-case names; `now` is in seconds since 1970.
    """
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
    """Return the headers that a sender of this scheme would add."""
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
    """Return the entries of the signature header.

    Returns None if the header is too long, or if it looks like two headers joined.
    """
    if len(header) > HEADER_BYTES_MAX:
        return None
    if not scheme.separator:
        return [header]
    parts = header.split(scheme.separator, SIGNATURES_MAX + 2)
    if len(parts) > SIGNATURES_MAX + 1 or any(part != part.strip() for part in parts):
        return None
    return parts


def _timestamp(scheme: Scheme, headers: Mapping[bytes, bytes], parts: list[bytes]) -> bytes | None:
    """Return the timestamp as text, because the text is what was signed."""
    if scheme.timestamp_header:
        return headers.get(scheme.timestamp_header)
    marker = scheme.timestamp_marker
    if marker is None:
        return None
    found = [part.removeprefix(marker) for part in parts if part.startswith(marker)]
    return found[0] if len(found) == 1 else None


def _is_id(signed_id: bytes | None) -> bool:
    """Return True for a valid id. A dot would make the signed bytes ambiguous."""
    return signed_id is not None and 0 < len(signed_id) <= 255 and b"." not in signed_id


def _signatures(scheme: Scheme, parts: list[bytes]) -> list[bytes]:
    """Return the decoded signatures of the scheme. Empty if one of them is malformed."""
    size = _DIGEST_BYTES[scheme.algorithm]
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
    # `hmac.digest` releases the GIL on each call, which is expensive in a busy broker.
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
