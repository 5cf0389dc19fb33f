"""Secrets of webhooks, as the bytes that a signature is made with."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence

from fairlane.errors import InvalidRequest
from fairlane.hooks.schemes import Scheme

SECRET_BYTES_MIN = 24  # shorter ones can be guessed from a recorded signature
SECRETS_MAX = 2  # the one that is used and the one that is going
_WHSEC = "whsec_"


def keys_of(scheme: Scheme, secrets: Sequence[str]) -> tuple[bytes, ...]:
    """The keys of one or two secrets; InvalidRequest, which never shows one, if there is none or one is too short.

    There is no unsigned way in when a secret is missing.
    """
    if not 1 <= len(secrets) <= SECRETS_MAX:
        raise InvalidRequest(f"a webhook has one secret, or {SECRETS_MAX} while one is replaced, not {len(secrets)}")
    return tuple(_key(scheme, secret) for secret in secrets)


def _key(scheme: Scheme, secret: str) -> bytes:
    key = _decoded(secret) if scheme.key == "whsec" else secret.encode()
    if len(key) < SECRET_BYTES_MIN:
        raise InvalidRequest(f"the secret of a webhook is too short: it needs {SECRET_BYTES_MIN} bytes or more")
    return key


def _decoded(secret: str) -> bytes:
    try:
        return base64.b64decode(secret.removeprefix(_WHSEC), validate=True)
    except (binascii.Error, ValueError):
        raise InvalidRequest(f"the secret of this webhook is base64, with `{_WHSEC}` before it") from None
