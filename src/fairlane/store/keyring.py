"""The keyring: the keys that the operator holds. They never seal a message: they wrap the data keys that do."""

from __future__ import annotations

import base64
import binascii
import hashlib
import os
import re
from collections.abc import Sequence
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from fairlane.errors import InvalidRequest, SealError

KEY_BYTES: Final = 32
NONCE_BYTES: Final = 12
_SEPARATORS = re.compile(r"[\s,]+")


class Cipher:
    """AES-256-GCM under one key. Sealed bytes are nonce, ciphertext and tag; the nonce is fresh for each."""

    def __init__(self, key: bytes) -> None:
        self._aead = AESGCM(key)

    def seal(self, data: bytes, context: bytes) -> bytes:
        nonce = os.urandom(NONCE_BYTES)
        return nonce + self._aead.encrypt(nonce, data, context)

    def open(self, sealed: bytes, context: bytes) -> bytes:
        """SealError unless these bytes were sealed by this key in this context."""
        try:
            return self._aead.decrypt(sealed[:NONCE_BYTES], sealed[NONCE_BYTES:], context)
        except (InvalidTag, ValueError):
            raise SealError("sealed bytes were changed or moved, or another key sealed them") from None


class Keyring:
    """Operator's keys, by the digest of each. The first one wraps; all of them unwrap, so that one can be followed by
    another without a pause: add the new key behind the old one at every broker, then put it first, then drop the old
    one."""

    def __init__(self, keys: Sequence[bytes]) -> None:
        for key in keys:
            if len(key) != KEY_BYTES or len(set(key)) < 8:
                raise InvalidRequest(f"an encryption key is {KEY_BYTES} random bytes; this one is not")
        if not keys:
            raise InvalidRequest("a keyring needs a key")
        self._ciphers = {_name(key): Cipher(key) for key in keys}
        self.active = _name(keys[0])
        self._local = Cipher(hashlib.sha256(b"fairlane local" + keys[0]).digest())
        self._locals = [Cipher(hashlib.sha256(b"fairlane local" + key).digest()) for key in keys]

    @classmethod
    def parse(cls, text: str) -> Keyring:
        """Keys as 64 hex digits or in base64, with blanks or commas between them."""
        return cls([_key(word) for word in _SEPARATORS.split(text) if word])

    def wrap(self, key: bytes, context: bytes) -> bytes:
        return self._ciphers[self.active].seal(key, context)

    def unwrap(self, kek: str, wrapped: bytes, context: bytes) -> bytes:
        cipher = self._ciphers.get(kek)
        if cipher is None:
            raise SealError(f"this broker lacks the encryption key {kek}, which wraps the key of these messages")
        return cipher.open(wrapped, context)

    def seal_locally(self, data: bytes, purpose: bytes) -> bytes:
        """Seal what is not in the store, such as a journal; needs no data key, and so no store."""
        return self._local.seal(data, purpose)

    def open_locally(self, sealed: bytes, purpose: bytes) -> bytes:
        for cipher in self._locals[:-1]:
            try:
                return cipher.open(sealed, purpose)
            except SealError:
                continue  # an earlier key sealed it
        return self._locals[-1].open(sealed, purpose)


def _name(key: bytes) -> str:
    return hashlib.sha256(b"fairlane key" + key).hexdigest()[:16]


def _key(word: str) -> bytes:
    try:
        if len(word) == 2 * KEY_BYTES:
            return bytes.fromhex(word)
        return base64.b64decode(word, validate=True)
    except (ValueError, binascii.Error):
        raise InvalidRequest("an encryption key is written as 64 hex digits, or 32 bytes in base64") from None
