"""Tokens signed by hand: valid ones of an identity provider, and forged ones."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import time
from functools import cache
from typing import Any

import jwt
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

SECRET = "0123456789abcdef0123456789abcdef-a secret of tests"


@cache
def private(kind: str) -> Any:
    match kind:
        case "RS256":
            return rsa.generate_private_key(public_exponent=65537, key_size=2048)
        case "short":
            return rsa.generate_private_key(public_exponent=65537, key_size=1024)
        case "ES256":
            return ec.generate_private_key(ec.SECP256R1())
        case "P-384":
            return ec.generate_private_key(ec.SECP384R1())
    return ed25519.Ed25519PrivateKey.generate()


def public_pem(kind: str) -> str:
    form = serialization.PublicFormat.SubjectPublicKeyInfo
    return str(private(kind).public_key().public_bytes(serialization.Encoding.PEM, form), "ascii")


def private_pem(kind: str) -> str:
    form = serialization.PrivateFormat.PKCS8
    key = private(kind)
    return str(key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption()), "ascii")


def jwk(kind: str, **more: Any) -> dict[str, Any]:
    kinds = {"RS256": "RS256", "short": "RS256", "ES256": "ES256", "P-384": "ES384"}
    algorithm = jwt.get_algorithm_by_name(kinds.get(kind, "EdDSA"))
    return dict(algorithm.to_jwk(private(kind).public_key(), as_dict=True)) | more


def claims(**more: Any) -> dict[str, Any]:
    """Return the claims of a valid token. A claim that is None is left out."""
    now = int(time.time())
    found = {"sub": "alice", "role": "read-write", "iat": now, "exp": now + 3600} | more
    return {name: value for name, value in found.items() if value is not None}


def token(algorithm: str = "HS256", *, header: dict[str, Any] | None = None, **more: Any) -> bytes:
    key = SECRET if algorithm == "HS256" else private(algorithm)
    return jwt.encode(claims(**more), key, algorithm, header).encode()


def encoded(data: bytes) -> bytes:
    return base64.urlsafe_b64encode(data).rstrip(b"=")


def by_hand(header: bytes | dict[str, Any], payload: bytes | dict[str, Any], secret: bytes = SECRET.encode()) -> bytes:
    """Sign any header and payload with HMAC."""
    parts = [part if isinstance(part, bytes) else json.dumps(part).encode() for part in (header, payload)]
    signed = b".".join(map(encoded, parts))
    return signed + b"." + encoded(hmac.new(secret, signed, hashlib.sha256).digest())
